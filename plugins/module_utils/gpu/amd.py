# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD GPUs, from all that says something of them, joined by their PCI addresses.

The memory is that of the kernel's own files where they show it, and a tool's otherwise; names come from the tools.
A GPU's index is the number that HIP gives it, which is its place in KFD's list. Without that list, which only a
machine without ROCm's kernel driver or a container lacks, GPUs count in the order of their PCI addresses.
"""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping, Sequence

from ansible_collections.relay.pool.plugins.module_utils import small_files
from ansible_collections.relay.pool.plugins.module_utils.gpu import (
    amd_card,
    amd_family,
    amd_join,
    amd_own,
    amd_tools,
    amdgpu_sysfs,
    kfd,
    pci,
    record,
    values,
)

DRIVER = "amdgpu"
TO_VIRTUAL_MACHINES = "it is held for virtual machines ({driver}): bind it to amdgpu to use it on this machine"
NO_DRIVER = "no driver is bound to it: load amdgpu (modprobe amdgpu), and see dmesg where it does not come up"
OTHER_DRIVER = "it is bound to the driver {driver}: ROCm needs amdgpu"
SILENT = "amdgpu is bound to it but shows no memory of it, and no tool reports it: see dmesg, then reboot"
NO_NODE = (
    "the kernel offers it to no ROCm program (KFD does not list it): ROCm does not support it, or this container "
    "was not given it (--device /dev/kfd --device /dev/dri)"
)
SMALL = (
    "an integrated GPU no faster than the processor beside it: "
    "set placeable to true for it in relay_overrides to use it all the same"
)
# What to do where no tool was there to be asked, and where one was and did not know.
INSTALL = "install amd-smi or rocm-smi"
LOOK = "no tool says it either, see dmesg"
NO_USE = "amdgpu does not show how much of its memory is in use: {way}"
NO_MEMORY = "amdgpu does not show its memory: {way}"
SPLIT_WITHOUT_SIZES = "the GPU is split into parts, and KFD does not say how large they are: set it to SPX mode"
BY_ADDRESS = (
    "the kernel shows no list of ROCm's GPUs (KFD): they are numbered in the order of their PCI addresses, or as the "
    "tool numbers them where it shows none, and ROCm may number them otherwise"
)
OWN_UNKNOWN = "what the pool's processes hold on AMD GPUs cannot be read: run as root, in the host's PID namespace"


def _refusal(unit: amd_join.Unit, kfd_there: bool) -> str | None:
    """Why no process can use the GPU, or None."""
    if unit.driver in amd_join.PASSED_ON:
        return TO_VIRTUAL_MACHINES.format(driver=unit.driver)
    if unit.driver not in (None, DRIVER):
        return OTHER_DRIVER.format(driver=unit.driver)
    if not unit.known:
        return NO_DRIVER if unit.driver is None else SILENT
    if kfd_there and not unit.parts:
        return NO_NODE
    return None


def _name(card: amd_card.Card) -> str:
    known = [part for part in (card.gfx, f"PCI device {card.device}" if card.device else None) if part]
    return card.name or "AMD GPU" + (f" ({', '.join(known)})" if known else "")


def _whole(
    unit: amd_join.Unit, node: kfd.Node | None, family: amd_family.Family, meminfo: Mapping[str, int]
) -> amd_family.Pool:
    """The memory of a GPU that is not split."""
    offered = node.memory_total if node else None
    if family.integrated:
        return amd_family.pool(unit.card, offered, meminfo)
    if unit.card.vram_total is None and offered:
        return amd_family.Pool(offered, None, False)
    return amd_family.vram_pool(unit.card)


def _part(unit: amd_join.Unit, node: kfd.Node, own: int | None, held: amd_own.Held) -> amd_family.Pool:
    """The memory of one part of a GPU. What others use of the whole GPU is charged to every part, to be safe."""
    if node.memory_total is None:
        return amd_family.Pool(None, None, False, SPLIT_WITHOUT_SIZES)
    if unit.card.vram_used is None:
        return amd_family.Pool(node.memory_total, None, False)
    others = unit.card.vram_used - sum(held.by_gpu_id.get(part.gpu_id, 0) for part in unit.parts)
    return amd_family.Pool(node.memory_total, max(0, node.memory_total - (own or 0) - max(0, others)), False)


def _fact(
    unit: amd_join.Unit, node: kfd.Node | None, index: int | None, machine: record.Machine, held: amd_own.Held
) -> tuple[dict[str, Any], amd_family.Pool]:
    """The fact as far as it does not depend on other GPUs, and the memory it was made of."""
    family = amd_family.family(unit.card, machine.meminfo.get("MemTotal"))
    if node is not None and unit.split:
        own = amd_own.of(unit, node, False, held)
        pool = _part(unit, node, own, held)
    else:
        pool = _whole(unit, node, family, machine.meminfo)
        own = amd_own.of(unit, node, pool.shared, held)
    of_kfd = unit.split or (unit.card.vram_total is None and pool.total is not None and not pool.shared)
    gpu = record.new(
        "amd",
        index,
        name=_name(unit.card),
        uuid=node.uuid if node else unit.card.uuid,
        bus_id=node.address if node else unit.card.address,
        driver=unit.driver,
        memory_total_bytes=pool.total,
        memory_free_bytes=pool.free,
        memory_own_bytes=own if own is None or pool.total is None else min(own, pool.total),
        unified_memory=pool.shared and pool.total is not None,
        integrated=family.integrated,
        source=amd_join.KFD_FOLDER if of_kfd else unit.card.source,
    )
    if family.integrated and not family.worthwhile:
        record.refuse(gpu, SMALL)
    return gpu, pool


def _version(sys_root: str) -> str | None:
    """Version of a driver that came with ROCm; the one of the kernel has none and is called by its name."""
    folder = os.path.join(sys_root, "module", DRIVER)
    version = values.text(small_files.read_text(folder, "version"))
    return version or (DRIVER if os.path.isdir(folder) else None)


def _complete(devices: Iterable[pci.PciDevice], cards: Iterable[amd_card.Card]) -> bool:
    """Whether the kernel's files say all of the memory of every GPU of its driver."""
    known = {card.address for card in cards if None not in (card.vram_used, card.gtt_used)}
    return bool(known) and known.issuperset(
        device.address for device in devices if device.driver not in amd_join.PASSED_ON
    )


def _ask(
    machine: record.Machine, devices: Sequence[pci.PciDevice], cards: Sequence[amd_card.Card]
) -> tuple[list[list[amd_card.Card]], list[str]]:
    """What the tools say, which take seconds and are asked only for what is lacking."""
    complete = _complete(devices, cards)
    if devices and all(device.driver in amd_join.PASSED_ON for device in devices):
        return [], []
    if complete and all(card.name for card in cards):
        return [], []
    return amd_tools.ask(machine, not complete)


def read_gpus(machine: record.Machine) -> tuple[list[dict[str, Any]], list[str]]:
    """The GPUs in the order of their indexes, those without one last, and what went wrong in finding them."""
    root = machine.sys_root
    devices = pci.display_devices(pci.AMD, root)
    cards = amdgpu_sysfs.read_cards(root)
    version = _version(root)
    if not devices and not cards and version is None and not os.path.isdir(os.path.join(root, "class", "kfd")):
        return [], []
    nodes = kfd.read_nodes(root)
    answers, messages = _ask(machine, devices, cards)
    units, loose = amd_join.from_sys(devices, cards, nodes or [])
    for answer in answers:
        messages += amd_join.add_answer(units, loose, answer, nodes or [])

    held = amd_own.read(machine)
    way = LOOK if answers else INSTALL
    gpus = []
    number = 0
    for unit in [*(units[address] for address in sorted(units)), *loose]:
        refusal = _refusal(unit, nodes is not None)
        if unit.known and unit.driver in (None, DRIVER):
            unit.driver = version
        places: list[tuple[kfd.Node | None, int | None]] = [(node, node.index) for node in unit.parts]
        if not places:
            places = [(None, None if refusal or nodes is not None else number)]
            number += refusal is None
        for node, index in places:
            gpu, pool = _fact(unit, node, index, machine, held)
            if refusal:
                gpu.update(placeable=False, reason=refusal)
            elif pool.note:
                messages.append(f"{gpu['name']} at {gpu['bus_id']}: {pool.note}")
            if gpu["placeable"] and pool.free is None:
                gpu["reason"] = pool.reason or (NO_MEMORY if pool.total is None else NO_USE).format(way=way)
            gpus.append(gpu)
    if nodes is None and number > 1:
        messages.append(BY_ADDRESS)
    if held.unknown and gpus:
        messages.append(OWN_UNKNOWN)
    return sorted(gpus, key=lambda gpu: (gpu["index"] is None, gpu["index"] or 0, gpu["bus_id"] or "")), messages
