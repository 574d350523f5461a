# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA GPUs that the PCI bus shows and ``nvidia-smi`` does not report: each with the reason and the way out."""

from __future__ import annotations

import os
import re
from typing import Any, Sequence

from ansible_collections.relay.pool.plugins.module_utils.gpu import pci, record
from ansible_collections.relay.pool.plugins.module_utils.gpu.nvidia_csv import Card
from ansible_collections.relay.pool.plugins.module_utils.gpu.nvidia_list import Lost

DRIVER = "nvidia"
NO_TOOL = "nvidia-smi is not found: install the driver"
UNLISTED = "nvidia-smi does not list it: look for NVRM in the kernel log, then reset the GPU or reboot"
NO_DRIVER = "no driver is bound to it: load the nvidia kernel module, or look in the kernel log why it failed"
OTHER_DRIVERS = {
    "vfio-pci": "vfio-pci holds it for a virtual machine: bind it to the nvidia driver to use it here",
    "nouveau": "the nouveau driver holds it, with which CUDA does not work: install NVIDIA's driver and reboot",
}
# What to do about what the tool says, where its words do not tell.
WAYS_OUT = (
    (re.compile("version mismatch", re.IGNORECASE), "reboot, or reload the nvidia kernel module"),
    (re.compile("insufficient permissions", re.IGNORECASE), "run the probe as root"),
    (re.compile("reboot|make sure", re.IGNORECASE), ""),
    (re.compile("no answer", re.IGNORECASE), "look for Xid in the kernel log and reboot"),
    (re.compile("device handle", re.IGNORECASE), "reset the GPU or reboot"),
)
LOOK = "see on the machine why nvidia-smi fails"


def with_way_out(said: str) -> str:
    """What the tool said, and what to do about it."""
    way_out = next((words for pattern, words in WAYS_OUT if pattern.search(said)), LOOK)
    return f"{said} ({way_out})" if way_out else said


def positions(on_bus: Sequence[pci.PciDevice], cards: Sequence[Card]) -> dict[str, int]:
    """Index by PCI address. nvidia-smi counts in PCI order; empty unless that holds for every GPU that it reported."""
    counted = [device for device in on_bus if device.driver == DRIVER]
    counted = counted or [device for device in on_bus if device.driver is None]
    found = {device.address: position for position, device in enumerate(counted)}
    if cards and all(card.gpu["index"] == found.get(card.gpu["bus_id"], -1) for card in cards):
        return found
    return {}


def _reason(device: pci.PciDevice, lost: Lost | None, said: str, missing: bool) -> str:
    if lost:
        return with_way_out(lost.sentence)
    if device.driver not in (None, DRIVER):
        return OTHER_DRIVERS.get(device.driver, f"the driver {device.driver} holds it: bind it to the nvidia driver")
    if missing:
        return NO_TOOL
    if said:
        return with_way_out(said)
    return NO_DRIVER if device.driver is None else UNLISTED


def unreported(
    on_bus: Sequence[pci.PciDevice],
    sys_root: str,
    cards: Sequence[Card] = (),
    lost: Sequence[Lost] = (),
    said: str = "",
    missing: bool = False,
) -> list[dict[str, Any]]:
    """The GPUs ``on_bus`` that are not among the ``cards``.

    ``said`` is what the tool said when it failed; ``missing``: there is no tool. An index is given where it is certain.
    """
    reported = {card.gpu["bus_id"] for card in cards}
    taken = {card.gpu["index"] for card in cards}
    place = positions(on_bus, cards)
    found = []
    for device in on_bus:
        if device.address in reported:
            continue
        index = place.get(device.address)
        sentence = next((entry for entry in lost if entry.bus_id == device.address), None)
        if sentence is None and index is not None:
            sentence = next((entry for entry in lost if entry.bus_id is None and entry.index == index), None)
        if sentence is not None and sentence.index is not None:
            index = sentence.index
        if index in taken:
            index = None
        taken.add(index)
        found.append(
            record.new(
                "nvidia",
                index,
                name="NVIDIA GPU",
                bus_id=device.address,
                placeable=False,
                reason=_reason(device, sentence, said, missing),
                source=os.path.join(sys_root, "bus", "pci", "devices"),
            )
        )
    return found
