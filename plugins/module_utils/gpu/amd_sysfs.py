# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel's driver amdgpu says of its GPUs in /sys: memory in exact bytes, without a tool."""

from __future__ import annotations

import os
import re

from ansible_collections.relay.pool.plugins.module_utils import small_files
from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_card, pci, tool_values

MEMORY = ("mem_info_vram_total", "mem_info_vram_used", "mem_info_gtt_total", "mem_info_gtt_used")
_CARD = re.compile(r"card([0-9]{1,6})\Z")


def _read_card(folder: str, source: str, number: int) -> amd_card.Card:
    """The folder of one PCI device, whatever of it can be read: a GPU in a reset answers some with an error."""

    def read(name: str) -> str:
        return small_files.read_text(folder, name)

    return amd_card.Card(
        source=source,
        number=number,
        address=pci.device_address(folder),
        device=tool_values.pci_device(read("device")),
        name=tool_values.text(read("product_name")),
        uuid=amd_card.unique_id(read("unique_id")),
        **amd_card.memory(*(tool_values.count(read(name)) for name in MEMORY)),
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
        if not match or not os.path.exists(os.path.join(device, MEMORY[0])):
            continue
        if small_files.read_text(device, "vendor").strip() not in ("", "0x" + pci.AMD):
            continue
        cards.append(_read_card(device, f"/sys/class/drm/{name}/device", int(match.group(1))))
    return sorted(cards, key=lambda card: (card.address is None, card.address or "", card.number or 0))
