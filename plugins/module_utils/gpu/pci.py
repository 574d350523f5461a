# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Display controllers on the PCI bus, from /sys: what is there whether or not a driver or a tool says so."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

NVIDIA, AMD, INTEL = "10de", "1002", "8086"
# VGA compatible, 3D and other display controllers, and the processing accelerators that AMD's Instinct calls itself.
DISPLAY_CLASSES = ("0300", "0302", "0380", "1200")
_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])\Z")


@dataclass(frozen=True)
class PciDevice:
    """``address`` such as 0000:01:00.0; ``vendor`` and ``device`` are four hex digits; ``driver`` is bound to it."""

    address: str
    vendor: str
    device: str
    driver: str | None = None


def normal_address(text: str | None) -> str | None:
    """00000000:0A:00.0, 0000:0a:00.0 and 0a:00.0 -> 0000:0a:00.0; None for what is no PCI address."""
    match = _ADDRESS.match((text or "").strip().lower())
    if not match:
        return None
    domain, bus, slot, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{slot}.{function}"


def _hex(path: str, name: str) -> str:
    try:
        with open(os.path.join(path, name), encoding="ascii", errors="replace") as handle:
            return handle.read(64).strip().lower().replace("0x", "", 1)
    except OSError:
        return ""


def display_devices(vendor: str, sys_root: str = "/sys") -> list[PciDevice]:
    """The vendor's display controllers by their addresses."""
    folder = os.path.join(sys_root, "bus", "pci", "devices")
    found = []
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    for name in names:
        path = os.path.join(folder, name)
        address = normal_address(name)
        if address is None or _hex(path, "vendor") != vendor or _hex(path, "class")[:4] not in DISPLAY_CLASSES:
            continue
        driver = os.path.join(path, "driver")
        found.append(
            PciDevice(
                address=address,
                vendor=vendor,
                device=_hex(path, "device"),
                driver=os.path.basename(os.path.realpath(driver)) if os.path.exists(driver) else None,
            )
        )
    return sorted(found, key=lambda device: device.address)
