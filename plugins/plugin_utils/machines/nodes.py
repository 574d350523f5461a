# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the facts of a node to its devices: how much the pool may use there, and which GPUs one process can use."""

from __future__ import annotations

from typing import Any, Collection, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.machines.backends import lacking, prefix, variable
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.machines.members import Refusal, refusal
from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB

GPU_RESERVE_BYTES = 512 * MIB
RAM_RESERVE_BYTES = 256 * MIB


def machine(
    name: str,
    node: Mapping[str, Any],
    reserve_bytes: int | None,
    refused: list[Refusal],
    build: Sequence[str] = (),
    before: Collection[str] = (),
) -> Machine:
    """The devices of a node; what cannot be used is appended to refused with its reason.

    :param build: the back ends of the llama.cpp there; empty if unknown.
    :param before: uuids, or else names, of the GPUs with which the last plan was made.
    """
    gpus = sorted(node.get("gpus") or [], key=_place)
    ram = _ram(name, node, reserve_bytes)
    if ram is None:
        refused.append(refusal(name, "CPU", "unknown_memory", f"{name} CPU: the free memory could not be read"))
    found: list[Device] = []
    for gpu in gpus:
        problem = _problem(name, gpu, build)
        if problem is None:
            device = _gpu(name, node, gpu, reserve_bytes)
            problem = _collision(device, found)
            if problem is None:
                found.append(device)
        if problem:
            refused.append(refusal(name, gpu.get("device") or None, *problem))
    chosen = _one_process(found, before)
    refused += [
        refusal(name, device.name, "other_visible_devices", _left_out(device, chosen[0]))
        for device in found
        if device.seen != chosen[0].seen
    ]
    return Machine(
        host=name,
        ram=ram,
        gpus=tuple(chosen),
        gpu_names=tuple(_gpu_name(gpu) for gpu in gpus),
        address=node.get("address"),
        threads=(node.get("cpu") or {}).get("physical_cores"),
    )


def _place(gpu: Mapping[str, Any]) -> float:
    """By index; GPUs without one come last, as they are listed."""
    index = gpu.get("index")
    return index if isinstance(index, int) else float("inf")


def _own(node: Mapping[str, Any]) -> tuple[int, int]:
    """Bytes that the pool's units hold in the machine's RAM: as processes, and through GPUs whose memory it is.

    What such a GPU holds is missing in the RAM that is available, and belongs to its driver, not to a process.
    """
    gpus = sum(gpu.get("memory_own_bytes") or 0 for gpu in node.get("gpus") or [] if gpu.get("unified_memory"))
    return (node.get("memory") or {}).get("own_bytes") or 0, gpus


def _capacity(free: int, own: int, total: int | None) -> int:
    """What the pool may use in all: never more than there is, whatever was measured."""
    return min(free + own, total) if total else free + own


def _ram(name: str, node: Mapping[str, Any], reserve_bytes: int | None) -> Device | None:
    memory = node.get("memory") or {}
    if memory.get("available_bytes") is None:
        return None
    processes, gpus = _own(node)
    overridden = "memory.available_bytes" in (node.get("overrides") or ())
    return Device(
        host=name,
        name="CPU",
        capacity_bytes=_capacity(
            memory["available_bytes"], processes + (0 if overridden else gpus), memory.get("total_bytes")
        ),
        reserve_bytes=RAM_RESERVE_BYTES if reserve_bytes is None else reserve_bytes,
        bandwidth=memory.get("bandwidth_bytes_per_second"),
        overridden=overridden,
        address=node.get("address"),
    )


def _gpu(name: str, node: Mapping[str, Any], gpu: Mapping[str, Any], reserve_bytes: int | None) -> Device:
    device, total = str(gpu["device"]), gpu.get("memory_total_bytes")
    visible = gpu.get("visible_devices") if variable(device) else None
    shared, overridden = bool(gpu.get("unified_memory")), _free_is_stated(node, gpu)
    own = gpu.get("memory_own_bytes") or 0
    if shared and not overridden and _is_all_ram(gpu, node.get("memory") or {}):
        own = sum(_own(node))
    return Device(
        host=name,
        name=device,
        capacity_bytes=_capacity(gpu["memory_free_bytes"], own, total),
        reserve_bytes=GPU_RESERVE_BYTES if reserve_bytes is None else reserve_bytes,
        bandwidth=gpu.get("bandwidth_bytes_per_second"),
        uuid=gpu.get("uuid"),
        overridden=overridden,
        address=node.get("address"),
        shared=shared,
        total_bytes=total,
        visible_devices=None if visible in (None, "") else str(visible),
    )


def _is_all_ram(gpu: Mapping[str, Any], memory: Mapping[str, Any]) -> bool:
    """Whether the GPU may have whatever RAM is free, so that what is held in RAM is missing there too.

    Others have a part of the RAM as their limit, and then that is not counted unless RAM is the shorter of both.
    """
    known = (gpu.get("memory_total_bytes"), memory.get("total_bytes"), memory.get("available_bytes"))
    return None in known or known[0] >= known[1] or gpu["memory_free_bytes"] >= known[2]


def _free_is_stated(node: Mapping[str, Any], gpu: Mapping[str, Any]) -> bool:
    """Whether the free memory is what the user wants to be used, and no measurement."""
    if gpu.get("overridden") is not None:
        return "memory_free_bytes" in gpu["overridden"]
    return f"gpus.{gpu.get('index')}.memory_free_bytes" in (node.get("overrides") or ())


def _gpu_name(gpu: Mapping[str, Any]) -> str:
    """llama.cpp's name of the GPU, else what there is to find it by."""
    if gpu.get("device"):
        return str(gpu["device"])
    known = (str(gpu[key]) for key in ("index", "uuid", "bus_id", "name") if gpu.get(key) not in (None, ""))
    return f"GPU {next(known, 'of which nothing is known')}"


def _problem(name: str, gpu: Mapping[str, Any], build: Sequence[str]) -> tuple[str, str] | None:
    """(reason, sentence) why nothing may be placed on this GPU."""
    label = f"{name} {_gpu_name(gpu)}"
    if not gpu.get("placeable", True):
        return "not_placeable", f"{label}: {gpu.get('reason') or 'marked as not placeable'}"
    if gpu.get("memory_free_bytes") is None:
        why = f": {gpu['reason']}" if gpu.get("reason") else ""
        return "unknown_memory", f"{label}: the free memory could not be read{why}"
    if not gpu.get("device"):
        return "no_device", f"{label}: llama.cpp's name of it is unknown"
    backend = lacking(str(gpu["device"]), build)
    if backend:
        return "no_backend", (
            f"{label}: the llama.cpp on {name} has no {backend.name} back end, only {', '.join(build)}: build it with "
            f"-D{backend.option}=ON, or state the device of that build which this GPU is in relay_overrides"
        )
    return None


def _collision(device: Device, others: Sequence[Device]) -> tuple[str, str] | None:
    """(reason, sentence) when a process that uses the others cannot use this GPU too."""
    for other in others:
        if other.seen == device.seen and other.name == device.name:
            return "same_name", (
                f"{device.label}: another GPU has this name: correct device or visible_devices in relay_overrides"
            )
        if other.seen == device.seen and other.shared and device.shared:
            return "shared_memory", f"{device.label}: its memory is that of {other.name}, counted already"
    return None


def _one_process(found: Sequence[Device], before: Collection[str]) -> list[Device]:
    """The GPUs that one process can use together: those of the last plan, else those with most room.

    What is free changes a little while the pool runs, which alone must not move it to other GPUs.
    """
    together: dict[tuple[str, str | None], list[Device]] = {}
    for device in found:
        together.setdefault(device.seen, []).append(device)

    def preference(devices: Sequence[Device]) -> tuple[bool, int]:
        return any(d.identity in before for d in devices), sum(d.usable_bytes for d in devices)

    # Of equal ones the first, which has the smallest index.
    return max(together.values(), key=preference, default=[])


def _left_out(device: Device, chosen: Device) -> str:
    name = variable(device.name)
    way_out = "set placeable to false for those in relay_overrides"
    if prefix(device.name) != prefix(chosen.name):
        why = f"a process uses the GPUs of one back end, and the plan has those of {prefix(chosen.name)}"
    else:
        why = f"a process has one {name}, and the plan has {chosen.visible_devices or 'the GPUs that are seen without'}"
        if device.visible_devices:
            way_out = f"set {name} to {device.visible_devices} in relay_environment"
    which = f" ({device.visible_devices})" if device.visible_devices else ""
    return f"{device.label}{which} is left out: {why}: {way_out} to have this one instead"
