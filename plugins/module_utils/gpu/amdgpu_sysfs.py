# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel's driver amdgpu says of its GPUs in /sys: memory in exact bytes, without a tool."""

from __future__ import annotations

import os
import re

from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_card, pci

_CARD = re.compile(r"card([0-9]{1,6})\Z")


def _read(folder: str, name: str) -> str | None:
    # A GPU in a reset, or one that is gone, answers some of these with an error.
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as handle:
            return handle.read(256).strip()
    except OSError:
        return None


def slot_name(uevent: str) -> str | None:
    """The PCI address in a device's uevent, or None."""
    for line in uevent.splitlines():
        key, _equals, value = line.partition("=")
        if key == "PCI_SLOT_NAME":
            return pci.normal_address(value)
    return None


def read_device(folder: str, source: str, number: int | None = None, address: str | None = None) -> amd_card.Card:
    """The folder of one PCI device, whatever of it can be read."""

    def size(name: str) -> int | None:
        return amd_card.count(_read(folder, "mem_info_" + name))

    vram_total, vram_used = amd_card.sizes(size("vram_total"), size("vram_used"))
    gtt_total, gtt_used = amd_card.sizes(size("gtt_total"), size("gtt_used"))
    return amd_card.Card(
        source=source,
        number=number,
        address=address,
        device=amd_card.device_id(_read(folder, "device")),
        name=amd_card.text(_read(folder, "product_name")),
        uuid=amd_card.unique_id(_read(folder, "unique_id")),
        vram_total=vram_total,
        vram_used=vram_used,
        gtt_total=gtt_total,
        gtt_used=gtt_used,
    )


def read_cards(sys_root: str = "/sys") -> list[amd_card.Card]:
    """The GPUs of amdgpu in the order of their PCI addresses; one whose address is not shown comes last."""
    folder = os.path.join(sys_root, "class", "drm")
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    cards = []
    for name in names:
        match = _CARD.match(name)
        device = os.path.join(folder, name, "device")
        # No other driver has this file, and a card that is only a part of a GPU (a platform device) has it neither.
        if not match or not os.path.exists(os.path.join(device, "mem_info_vram_total")):
            continue
        if (_read(device, "vendor") or "0x" + pci.AMD) != "0x" + pci.AMD:
            continue
        address = pci.normal_address(os.path.basename(os.path.realpath(device)))
        cards.append(
            read_device(
                device,
                f"/sys/class/drm/{name}/device",
                int(match.group(1)),
                address or slot_name(_read(device, "uevent") or ""),
            )
        )
    return sorted(cards, key=lambda card: (card.address is None, card.address or "", card.number or 0))
