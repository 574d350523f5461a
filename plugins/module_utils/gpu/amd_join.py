# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What several sources say of AMD GPUs, put together GPU by GPU."""

from __future__ import annotations

import dataclasses
from typing import Iterable

from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_card, amd_kfd, pci
from ansible_collections.relay.pool.plugins.module_utils.sizes import MIB

# A driver that only holds a GPU for virtual machines.
PASSED_ON = ("vfio-pci", "pci-stub")
KFD_FOLDER = "/sys/class/kfd"
NOT_JOINED = "{source} does not say at which PCI addresses its GPUs are: what it says is not used"


@dataclasses.dataclass
class Chip:
    """A GPU on its way to be a fact. ``parts`` are the nodes that KFD makes of it."""

    card: amd_card.Card
    driver: str | None = None
    # Whether anything but the PCI bus says something of it.
    known: bool = False
    parts: list[amd_kfd.Node] = dataclasses.field(default_factory=list)

    @property
    def split(self) -> bool:
        """Whether a node is only a part of it, also where the others are not shown to this container."""
        sizes = [node.memory_total for node in self.parts if node.memory_total]
        return len(self.parts) > 1 or any(size < (self.card.vram_total or 0) * 3 // 4 for size in sizes)

    def add(self, card: amd_card.Card) -> None:
        """What another source says of it, where the sources before said nothing."""
        self.card = amd_card.merge(self.card, card)
        self.known = True


def _contradict(first: amd_card.Card, second: amd_card.Card) -> bool:
    """Whether two sources cannot mean the same GPU. A tool's memory may be rounded to MiB."""
    if first.device and second.device and first.device != second.device:
        return True
    if first.gfx and second.gfx and first.gfx != second.gfx:
        return True
    sizes = first.vram_total, second.vram_total
    return None not in sizes and abs((sizes[0] or 0) - (sizes[1] or 0)) > MIB


def from_sys(
    devices: Iterable[pci.PciDevice], cards: Iterable[amd_card.Card], nodes: Iterable[amd_kfd.Node]
) -> tuple[dict[str, Chip], list[Chip]]:
    """What /sys shows: a chip per PCI address, and GPUs whose address it does not show."""
    chips: dict[str, Chip] = {}
    loose: list[Chip] = []
    for device in devices:
        card = amd_card.Card(f"/sys/bus/pci/devices/{device.address}", address=device.address, device=device.device)
        chips[device.address] = Chip(card, device.driver)
    for card in cards:
        if not (card.vram_total or card.gtt_total):
            # The GPU is gone, or its driver is stuck.
            continue
        if card.address:
            chips.setdefault(card.address, Chip(card)).add(card)
        else:
            loose.append(Chip(card, known=True))
    if len(loose) == 1 and len(chips) == 1 and not any(chip.known for chip in chips.values()):
        # A /sys of which only a part is shown: one GPU is one GPU.
        next(iter(chips.values())).add(loose.pop().card)
    for node in nodes:
        chip = chips.get(node.address) or chips.get(pci.slot(node.address) + ".0")
        if chip is None:
            chip = chips[node.address] = Chip(amd_card.Card(KFD_FOLDER, address=node.address))
        chip.known = True
        chip.parts.append(node)
        known = chip.card
        chip.card = dataclasses.replace(known, gfx=node.gfx or known.gfx, device=known.device or node.device)
    return chips, loose


def add_answer(
    chips: dict[str, Chip], loose: list[Chip], answer: list[amd_card.Card], nodes: Iterable[amd_kfd.Node]
) -> list[str]:
    """Put what a tool says to the GPUs it says it of; returns what could not be put anywhere.

    A tool that shows no addresses numbers its GPUs in their order.
    """
    places = {node.gpu_id: node.address for node in nodes}
    unplaced = []
    for card in answer:
        address = card.address or places.get(card.gpu_id or 0)
        if address is None:
            unplaced.append(card)
        elif address in chips or not any(pci.slot(address) == pci.slot(known) for known in chips):
            chips.setdefault(address, Chip(dataclasses.replace(card, address=address))).add(card)
    if not unplaced:
        return []
    if not chips and not loose:
        loose += [Chip(card, known=True) for card in unplaced]
        return []
    usable = [chips[address] for address in sorted(chips) if chips[address].driver not in PASSED_ON] + loose
    if not len(usable) == len(unplaced) == len(answer) or any(
        _contradict(chip.card, card) for chip, card in zip(usable, unplaced)
    ):
        return [NOT_JOINED.format(source=unplaced[0].source)]
    for chip, card in zip(usable, unplaced):
        chip.add(card)
    return []
