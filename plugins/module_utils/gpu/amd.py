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
    amd_apu,
    amd_card,
    amd_join,
    amd_kfd,
    amd_processes,
    amd_sysfs,
    amd_tools,
    pci,
    record,
    tool_values,
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
    "state placeable: true and device for it in relay_overrides to use it all the same"
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


def _refusal(chip: amd_join.Chip, kfd_there: bool) -> str | None:
    """Why no process can use the GPU, or None."""
    if chip.driver in amd_join.PASSED_ON:
        return TO_VIRTUAL_MACHINES.format(driver=chip.driver)
    if chip.driver not in (None, DRIVER):
        return OTHER_DRIVER.format(driver=chip.driver)
    if not chip.known:
        return NO_DRIVER if chip.driver is None else SILENT
    if kfd_there and not chip.parts:
        return NO_NODE
    return None


def _name(card: amd_card.Card) -> str:
    known = [part for part in (card.gfx, f"PCI device {card.device}" if card.device else None) if part]
    return card.name or "AMD GPU" + (f" ({', '.join(known)})" if known else "")


def _whole(
    chip: amd_join.Chip, node: amd_kfd.Node | None, family: amd_apu.Family, meminfo: Mapping[str, int]
) -> amd_apu.Pool:
    """The memory of a GPU that is not split."""
    offered = node.memory_total if node else None
    if family.integrated:
        return amd_apu.pool(chip.card, offered, meminfo)
    if chip.card.vram_total is None and offered:
        return amd_apu.Pool(offered, None, False)
    return amd_apu.vram_pool(chip.card)


def _part(chip: amd_join.Chip, node: amd_kfd.Node, own: int | None, held: amd_processes.Held) -> amd_apu.Pool:
    """The memory of one part of a GPU. What others use of the whole GPU is charged to every part, to be safe."""
    if node.memory_total is None:
        return amd_apu.Pool(None, None, False, SPLIT_WITHOUT_SIZES)
    if chip.card.vram_used is None:
        return amd_apu.Pool(node.memory_total, None, False)
    others = chip.card.vram_used - sum(held.by_gpu_id.get(part.gpu_id, 0) for part in chip.parts)
    return amd_apu.Pool(node.memory_total, max(0, node.memory_total - (own or 0) - max(0, others)), False)


def _fact(
    chip: amd_join.Chip, node: amd_kfd.Node | None, index: int | None, machine: record.Machine, held: amd_processes.Held
) -> tuple[dict[str, Any], amd_apu.Pool]:
    """The fact as far as it does not depend on other GPUs, and the memory it was made of."""
    family = amd_apu.family(chip.card, machine.meminfo.get("MemTotal"))
    if node is not None and chip.split:
        own = amd_processes.of(chip, node, False, held)
        pool = _part(chip, node, own, held)
    else:
        pool = _whole(chip, node, family, machine.meminfo)
        own = amd_processes.of(chip, node, pool.shared, held)
    of_kfd = chip.split or (chip.card.vram_total is None and pool.total is not None and not pool.shared)
    gpu = record.new(
        "amd",
        index,
        name=_name(chip.card),
        uuid=node.uuid if node else chip.card.uuid,
        bus_id=node.address if node else chip.card.address,
        driver=chip.driver,
        memory_total_bytes=pool.total,
        memory_free_bytes=pool.free,
        memory_own_bytes=own if own is None or pool.total is None else min(own, pool.total),
        unified_memory=pool.shared and pool.total is not None,
        integrated=family.integrated,
        source=amd_join.KFD_FOLDER if of_kfd else chip.card.source,
    )
    if family.integrated and not family.worthwhile:
        record.refuse(gpu, SMALL)
    return gpu, pool


def _explain(gpu: dict[str, Any], pool: amd_apu.Pool, refusal: str | None, way: str) -> list[str]:
    """Give the GPU the reason why it cannot be used, or why a number is unknown; what the user can do better."""
    if refusal:
        gpu.update(placeable=False, reason=refusal)
    elif gpu["placeable"] and pool.free is None:
        gpu["reason"] = pool.reason or (NO_MEMORY if pool.total is None else NO_USE).format(way=way)
    return [f"{gpu['name']} at {gpu['bus_id']}: {pool.note}"] if pool.note and gpu["placeable"] else []


def _version(sys_root: str) -> str | None:
    """Version of a driver that came with ROCm; the one of the kernel has none and is called by its name."""
    folder = os.path.join(sys_root, "module", DRIVER)
    version = tool_values.text(small_files.read_text(folder, "version"))
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
    devices = [device for device in pci.display_devices(pci.AMD, root) if not device.virtual]
    cards = amd_sysfs.read_cards(root)
    version = _version(root)
    if not devices and not cards and version is None and not os.path.isdir(os.path.join(root, "class", "kfd")):
        return [], []
    nodes = amd_kfd.read_nodes(root)
    answers, messages = _ask(machine, devices, cards)
    chips, loose = amd_join.from_sys(devices, cards, nodes or [])
    for answer in answers:
        messages += amd_join.add_answer(chips, loose, answer, nodes or [])

    held = amd_processes.read(machine)
    way = LOOK if answers else INSTALL
    gpus = []
    number = 0
    for chip in [*(chips[address] for address in sorted(chips)), *loose]:
        refusal = _refusal(chip, nodes is not None)
        if chip.known and chip.driver in (None, DRIVER):
            chip.driver = version
        places: list[tuple[amd_kfd.Node | None, int | None]] = [(node, node.index) for node in chip.parts]
        if not places:
            places = [(None, None if refusal or nodes is not None else number)]
            number += refusal is None
        for node, index in places:
            gpu, pool = _fact(chip, node, index, machine, held)
            messages += _explain(gpu, pool, refusal, way)
            gpus.append(gpu)
    if nodes is None and number > 1:
        messages.append(BY_ADDRESS)
    if held.unknown and gpus:
        messages.append(OWN_UNKNOWN)
    return sorted(gpus, key=lambda gpu: (gpu["index"] is None, gpu["index"] or 0, gpu["bus_id"] or "")), messages
