# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Display controllers on the PCI bus, from /sys: what is there whether or not a driver or a tool says so."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.relay.pool.plugins.module_utils import small_files

NVIDIA, AMD, INTEL = "10de", "1002", "8086"
# VGA compatible, 3D and other display controllers.
DISPLAY_CLASSES = ("0300", "0302", "0380")
# What AMD's Instinct calls itself. Intel's are NPUs and FPGAs, and no GPUs.
ACCELERATOR_CLASS = "1200"
_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])\Z")
_SLOT_NAME = re.compile(r"^PCI_SLOT_NAME=(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class PciDevice:
    """``address`` such as 0000:01:00.0; ``vendor`` and ``device`` are four hex digits; ``driver`` is bound to it.

    ``virtual``: a virtual function (SR-IOV), by which another controller in the list is shared with virtual machines.
    In such a machine it looks like any other.
    """

    address: str
    vendor: str
    device: str
    driver: str | None = None
    virtual: bool = False


def normal_address(value: Any) -> str | None:
    """00000000:0A:00.0, 0000:0a:00.0 and 0a:00.0 -> 0000:0a:00.0; None for what is no PCI address."""
    match = _ADDRESS.match(value.strip().lower()) if isinstance(value, str) else None
    if not match:
        return None
    domain, bus, slot, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{slot}.{function}"


def slot(address: str | None) -> str:
    """0000:03:00 of 0000:03:00.1: all functions of one device; "" of none."""
    return (address or "").rpartition(".")[0]


def device_address(folder: str) -> str | None:
    """The address of the device whose folder in /sys, or a link to it, this is."""
    address = normal_address(os.path.basename(os.path.realpath(folder)))
    if address:
        return address
    # In a container it may be a plain folder.
    match = _SLOT_NAME.search(small_files.read_text(folder, "uevent"))
    return normal_address(match.group(1)) if match else None


def _hex(folder: str, name: str) -> str:
    return small_files.read_text(folder, name).strip().lower().replace("0x", "", 1)


def display_devices(vendor: str, sys_root: str = "/sys") -> list[PciDevice]:
    """The vendor's display controllers by their addresses."""
    classes = DISPLAY_CLASSES if vendor == INTEL else (*DISPLAY_CLASSES, ACCELERATOR_CLASS)
    folder = os.path.join(sys_root, "bus", "pci", "devices")
    found = []
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    for name in names:
        path = os.path.join(folder, name)
        address = normal_address(name)
        if address is None or _hex(path, "vendor") != vendor or _hex(path, "class")[:4] not in classes:
            continue
        driver = os.path.join(path, "driver")
        found.append(
            PciDevice(
                address=address,
                vendor=vendor,
                device=_hex(path, "device"),
                driver=os.path.basename(os.path.realpath(driver)) if os.path.exists(driver) else None,
                virtual=os.path.lexists(os.path.join(path, "physfn")),
            )
        )
    return sorted(found, key=lambda device: device.address)
