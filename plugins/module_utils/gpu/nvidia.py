# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA GPUs as ``nvidia-smi`` and the PCI bus show them.

The CSV of ``nvidia-smi`` says which GPUs there are. Its XML adds what the CSV does not know; without it the CSV
stands. What neither reports is taken from the PCI bus, and is not placeable.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.relay.pool.plugins.module_utils.gpu import (
    nvidia_csv,
    nvidia_list,
    nvidia_mig,
    nvidia_pci,
    nvidia_processes,
    nvidia_smi,
    nvidia_tegra,
    nvidia_xml,
    pci,
    record,
    tools,
)
from ansible_collections.relay.pool.plugins.module_utils.gpu.nvidia_csv import Card, Process
from ansible_collections.relay.pool.plugins.module_utils.gpu.nvidia_xml import Details

WAYS_OUT = {
    "reset": "run nvidia-smi --gpu-reset {option} when nothing uses the GPU, or reboot",
    "reboot": "reboot the machine",
    "drain p2p": "end the processes that use it together with other GPUs",
    nvidia_xml.DRAIN_AND_RESET.lower(): "end the processes on it, then run nvidia-smi --gpu-reset {option}",
}
HOST_OF_VIRTUAL = (
    "it is shared out to virtual machines (virtualization mode {mode}) by a driver that has no CUDA: install NVIDIA's "
    "data centre driver to use it on this machine, or state placeable: true and device for it in relay_overrides"
)
# What to do about a number that is unknown for a reason in nvidia-smi's words.
STATE_IT = "look for NVRM in the kernel log, or state {names} in relay_overrides"


def _find_details(smi: nvidia_smi.Smi, cards: list[Card]) -> tuple[list[Details | None], list[str]]:
    """What the XML says about each card, found by address or uuid: its order and number are not the CSV's."""
    result = smi.ask("-q", "-x")
    known, error = nvidia_xml.parse_xml(result.stdout)
    if error:
        error = result.error or error
        return [None] * len(cards), [f"nvidia-smi -q -x: {error}. MIG devices and needed resets are not known"]
    by_bus = {entry.bus_id: entry for entry in reversed(known) if entry.bus_id}
    by_uuid = {entry.uuid: entry for entry in reversed(known) if entry.uuid}
    found = [by_bus.get(card.gpu["bus_id"]) or by_uuid.get(card.gpu["uuid"]) for card in cards]
    return found, [
        f"nvidia-smi -q -x says nothing about {card.gpu['name']} (GPU {card.gpu['index']})"
        for card, entry in zip(cards, found)
        if entry is None
    ]


def _apply_details(card: Card, details: Details) -> list[str]:
    """Refuse what the XML says is unfit; a hint where the memory may not be what it seems."""
    gpu = card.gpu
    action = details.action or ("Reset" if details.reset else None)
    if action:
        way_out = WAYS_OUT.get(action.lower(), "do so before it is used").format(option=card.option)
        card.refuse(f"nvidia-smi asks for the recovery action {action}: {way_out}")
    if (details.mig or details.mig_devices) and not card.mig:
        card.mig = True
        record.refuse(gpu, nvidia_csv.MIG_ENABLED)
    if gpu["reason"] == nvidia_csv.MIG_ENABLED and not details.mig_devices:
        gpu["reason"] = nvidia_mig.NO_DEVICE
    if details.shared_out:
        card.refuse(HOST_OF_VIRTUAL.format(mode=details.shared_out))
    unsure = details.addressing == "ATS" and not gpu["unified_memory"]
    if unsure and not nvidia_csv.OWN_MEMORY_NAMES.search(gpu["name"]):
        return [
            f"{gpu['name']} (GPU {gpu['index']}) uses the page tables of the CPU (ATS): "
            "if it has no memory of its own, set unified_memory and its memory in overrides"
        ]
    return []


def _read_processes(
    smi: nvidia_smi.Smi, cards: list[Card], details: list[Details | None], pids: tuple[int, ...]
) -> tuple[list[list[Process] | None], list[str]]:
    """The processes on each card, from the XML, else the compute processes of the CSV; None where neither says."""
    found: list[list[Process] | None] = [
        None if entry is None or entry.processes is None else list(entry.processes) for entry in details
    ]
    # They are needed only for what the pool holds itself, and for a GPU that has one process at most.
    if not any(each is None and (pids or card.exclusive) for card, each in zip(cards, found)):
        return found, []
    result = smi.ask("--query-compute-apps=" + ",".join(nvidia_csv.APP_FIELDS), nvidia_smi.FORMAT)
    if not result.ok:
        error = result.error or ""
        return found, [f"the processes on the GPUs are not known: {error}"]
    apps, messages = nvidia_csv.parse_apps(result.stdout)
    for position, card in enumerate(cards):
        if found[position] is None:
            found[position] = [process for uuid, process in apps if uuid == card.gpu["uuid"]]
    return found, messages


def _parts_of(card: Card, answer: nvidia_smi.Answer) -> dict[int, tuple[str, str | None]]:
    """The MIG devices of the card in the list."""
    gpu = card.gpu
    for entry in answer.listing or []:
        known = entry.uuid and gpu["uuid"]
        if entry.uuid == gpu["uuid"] if known else entry.index == gpu["index"]:
            return entry.mig
    return {}


def _list_mig(smi: nvidia_smi.Smi, answer: nvidia_smi.Answer, details: list[Details | None]) -> None:
    """Ask for the list where a MIG device's UUID is not known without it."""
    for card, entry in zip(answer.cards, details):
        if card.mig and answer.listing is None and (entry is None or any(not p.uuid for p in entry.mig_devices)):
            result = smi.ask("-L")
            answer.listing = nvidia_list.parse_list(result.stdout)
            if not result.ok:
                answer.messages.append(f"nvidia-smi -L: {result.error}")


def _finish(
    card: Card, entry: Details | None, processes: list[Process] | None, answer: nvidia_smi.Answer, pids: tuple[int, ...]
) -> list[dict[str, Any]]:
    """The card and its MIG devices with what the pool holds of each."""
    parts: list[tuple[dict[str, Any], nvidia_xml.MigDevice]] = []
    if card.mig:
        listed = _parts_of(card, answer)
        parts = nvidia_mig.entries(card, nvidia_mig.devices(entry.mig_devices if entry else (), listed), listed)
    gpus = [card.gpu, *(gpu for gpu, _part in parts)]
    if processes is None:
        for gpu in gpus:
            gpu["memory_own_bytes"] = None if pids else 0
        return gpus
    nvidia_processes.refuse_taken(card, processes, pids)
    instances = {part.instance for _gpu, part in parts} - {None}
    rest = [process for process in processes if process.instance not in instances]
    answer.messages += nvidia_processes.set_own(card.gpu, rest, pids)
    somewhere = any(process.pid in pids for process in rest)
    for gpu, part in parts:
        used = [process for process in processes if part.instance is not None and process.instance == part.instance]
        answer.messages += nvidia_processes.set_own(gpu, used, pids)
        if somewhere:
            # The pool has a process on the GPU, and on which of its MIG devices is not known.
            gpu["memory_own_bytes"] = None
    return gpus


def _name_way_out(gpu: dict[str, Any]) -> None:
    """What to do where the memory is not known. Of missing permissions for a whole GPU a message says it."""
    names = [name for name in ("memory_total_bytes", "memory_free_bytes") if gpu[name] is None]
    said = gpu["reason"] == nvidia_csv.PERMISSIONS and gpu["partition_of"] is None
    if names and gpu["placeable"] and gpu["reason"] and not said:
        gpu["reason"] += f": {STATE_IT.format(names=' and '.join(names))}"


def _sort_key(group: list[dict[str, Any]]) -> tuple[bool, int]:
    index = group[0]["index"]
    return (index is None, index or 0)


def _without_tool(machine: record.Machine, on_bus: list[pci.PciDevice]) -> tuple[list[dict[str, Any]], list[str]]:
    board = None if on_bus else nvidia_tegra.read_gpu(machine)
    if board:
        return [board], [f"the GPU of the {board['name']} is not used: {nvidia_tegra.NO_TOOL}"]
    gpus = nvidia_pci.unreported(on_bus, machine.sys_root, missing=True)
    return gpus, [
        f"an NVIDIA GPU is at {device.address}, but {nvidia_pci.NO_TOOL}"
        for device in on_bus
        # One that a virtual machine has needs no tool here.
        if device.driver != "vfio-pci"
    ]


def read_gpus(machine: record.Machine) -> tuple[list[dict[str, Any]], list[str]]:
    """GPUs of this machine in the order of their indexes, and what went wrong in finding them.

    MIG devices stand behind the GPU whose parts they are.
    """
    on_bus = [device for device in pci.display_devices(pci.NVIDIA, machine.sys_root) if not device.virtual]
    tool = tools.find("nvidia-smi")
    if tool is None:
        return _without_tool(machine, on_bus)
    smi = nvidia_smi.Smi(machine, tool)
    pids = tuple(machine.own_pids)
    answer = nvidia_smi.read_cards(smi, machine, on_bus)
    groups = [[gpu] for gpu in nvidia_pci.unreported(on_bus, machine.sys_root, answer.cards, answer.lost, answer.said)]
    if answer.cards:
        details, messages = _find_details(smi, answer.cards)
        answer.messages += messages
        for card, entry in zip(answer.cards, details):
            answer.messages += _apply_details(card, entry) if entry else []
        processes, messages = _read_processes(smi, answer.cards, details, pids)
        answer.messages += messages
        named = [each for each in processes if each is not None]
        hidden = bool(named) and nvidia_processes.are_hidden(named, pids, machine.proc_root)
        answer.messages += [nvidia_processes.HIDDEN] if hidden else []
        _list_mig(smi, answer, details)
        for card, entry, each in zip(answer.cards, details, processes):
            group = _finish(card, entry, each, answer, pids)
            groups.append(group)
            if hidden:
                for gpu in group:
                    gpu["memory_own_bytes"] = None
            # Those of its MIG devices that count may well be known.
            known = any(part["placeable"] and part["memory_free_bytes"] is not None for part in group[1:])
            if (card.gpu["reason"] or "").startswith(nvidia_csv.PERMISSIONS) and not known:
                answer.messages.append(
                    f"the memory of {card.gpu['name']} (GPU {card.gpu['index']}) cannot be read "
                    f"({nvidia_csv.PERMISSIONS}): run the probe on the host as root, or state the memory in overrides"
                )
    gpus = [gpu for group in sorted(groups, key=_sort_key) for gpu in group]
    for gpu in gpus:
        _name_way_out(gpu)
    return gpus, list(dict.fromkeys(message for message in answer.messages if message))
