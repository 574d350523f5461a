# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the facts of the nodes to the devices a plan may use, in llama.cpp's order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.members import Refusal, refusal
from ansible_collections.relay.pool.plugins.plugin_utils.split import MAX_DEVICES
from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB, mib

GPU_RESERVE_BYTES = 512 * MIB
RAM_RESERVE_BYTES = 256 * MIB


@dataclass(frozen=True)
class Device:
    """Memory that may hold layers. capacity is what is free plus what the pool's own units hold now.

    shared: a GPU whose memory is the machine's RAM, so that what llama.cpp keeps in RAM is taken from it too.
    """

    host: str
    name: str
    capacity_bytes: int
    reserve_bytes: int
    bandwidth: int | None = None
    uuid: str | None = None
    overridden: bool = False
    address: str | None = None
    shared: bool = False

    @property
    def is_cpu(self) -> bool:
        """RAM of the machine."""
        return self.name == "CPU"

    @property
    def usable_bytes(self) -> int:
        """What is left when the reserve is kept."""
        return max(self.capacity_bytes - self.reserve_bytes, 0)

    @property
    def label(self) -> str:
        """Machine and device for messages."""
        return f"{self.host} {self.name}"


@dataclass(frozen=True)
class Machine:
    """One member: its RAM (None when its size is unknown) and its usable GPUs; gpu_names lists every GPU there is."""

    host: str
    ram: Device | None
    gpus: tuple[Device, ...]
    gpu_names: tuple[str, ...]
    address: str | None
    threads: int | None

    def holders(self, allow_cpu: bool) -> tuple[Device, ...]:
        """The devices that may hold layers: the GPUs, else the CPU where that is allowed."""
        if self.gpus:
            return self.gpus
        return (self.ram,) if allow_cpu and self.ram else ()


def machine(name: str, node: Mapping[str, Any], reserve_bytes: int | None, refused: list[Refusal]) -> Machine:
    """The devices of a node; what cannot be used is appended to refused with its reason."""
    overrides = set(node.get("overrides") or [])
    memory = node.get("memory") or {}
    ram = None
    if memory.get("available_bytes") is None:
        refused.append(refusal(name, "CPU", "unknown_memory", f"{name} CPU: the free memory could not be read"))
    else:
        ram = Device(
            host=name,
            name="CPU",
            capacity_bytes=memory["available_bytes"] + (memory.get("own_bytes") or 0),
            reserve_bytes=RAM_RESERVE_BYTES if reserve_bytes is None else reserve_bytes,
            bandwidth=memory.get("bandwidth_bytes_per_second"),
            overridden="memory.available_bytes" in overrides,
            address=node.get("address"),
        )
    gpus = []
    for gpu in sorted(node.get("gpus") or [], key=lambda entry: entry.get("index") or 0):
        label = "{} {}".format(name, gpu.get("device"))
        twin = next((other.name for other in gpus if other.shared), None) if gpu.get("unified_memory") else None
        if not gpu.get("placeable", True):
            refused.append(
                refusal(
                    name,
                    gpu.get("device"),
                    "not_placeable",
                    f"{label}: {gpu.get('reason') or 'marked as not placeable'}",
                )
            )
        elif gpu.get("memory_free_bytes") is None:
            refused.append(
                refusal(name, gpu.get("device"), "unknown_memory", f"{label}: the free memory could not be read")
            )
        elif not gpu.get("device"):
            refused.append(
                refusal(name, None, "no_device", f"{name} GPU {gpu.get('index')}: llama.cpp's name of it is unknown")
            )
        elif twin:
            refused.append(
                refusal(name, gpu["device"], "shared_memory", f"{label}: its memory is that of {twin}, counted already")
            )
        else:
            shared = bool(gpu.get("unified_memory"))
            gpus.append(
                Device(
                    host=name,
                    name=gpu["device"],
                    capacity_bytes=gpu["memory_free_bytes"]
                    + (gpu.get("memory_own_bytes") or 0)
                    + ((memory.get("own_bytes") or 0) if shared else 0),
                    reserve_bytes=GPU_RESERVE_BYTES if reserve_bytes is None else reserve_bytes,
                    bandwidth=gpu.get("bandwidth_bytes_per_second"),
                    uuid=gpu.get("uuid"),
                    overridden=f"gpus.{gpu.get('index')}.memory_free_bytes" in overrides,
                    address=node.get("address"),
                    shared=shared,
                )
            )
    # By what does not change while the pool runs, so that the same ones are left out in every run.
    totals = {gpu.get("device"): gpu.get("memory_total_bytes") for gpu in node.get("gpus") or []}
    by_size = sorted(gpus, key=lambda entry: totals[entry.name] or entry.capacity_bytes)
    for device in by_size[: max(len(gpus) - MAX_DEVICES, 0)]:
        gpus.remove(device)
        refused.append(_too_many(device))
    return Machine(
        host=name,
        ram=ram,
        gpus=tuple(gpus),
        gpu_names=tuple(str(gpu.get("device")) for gpu in node.get("gpus") or []),
        address=node.get("address"),
        threads=(node.get("cpu") or {}).get("physical_cores"),
    )


def rpc_devices(workers: Sequence[Machine], allow_cpu: bool, local: int, refused: list[Refusal]) -> list[Device]:
    """The workers' devices in the order of the inventory, at most as many as llama.cpp takes beside the local ones."""
    devices: list[Device] = []
    for worker in workers:
        holders = worker.holders(allow_cpu)
        if not holders:
            refused.append(
                refusal(
                    worker.host, None, "no_gpu", f"{worker.host} has no usable GPU: set relay_allow_cpu to use its CPU"
                )
            )
        for device in holders:
            if device.usable_bytes:
                devices.append(device)
            else:
                refused.append(
                    refusal(
                        device.host,
                        device.name,
                        "no_room",
                        f"{device.label} has {mib(device.capacity_bytes)}, all of it within the reserve of "
                        f"{mib(device.reserve_bytes)}: lower relay_reserve_bytes or free memory",
                    )
                )
    surplus = len(devices) + local - MAX_DEVICES
    if surplus > 0:
        for device in sorted(devices, key=lambda entry: entry.usable_bytes)[:surplus]:
            devices.remove(device)
            refused.append(_too_many(device))
    return devices


def _too_many(device: Device) -> Refusal:
    return refusal(
        device.host,
        device.name,
        "too_many_devices",
        f"{device.label} is left out: llama.cpp takes {MAX_DEVICES} devices, this is one of the smallest",
    )


def require_devices(host: Machine, workers: Sequence[Machine], allow_cpu: bool) -> None:
    """Raise when nothing in the pool may hold layers."""
    if any(member.holders(allow_cpu) for member in (host, *workers)):
        return
    names = ", ".join(member.host for member in (host, *workers))
    if allow_cpu:
        raise PoolError(f"no device can hold layers: neither a usable GPU nor a known amount of free RAM on {names}")
    raise PoolError(f"no usable GPU on {names}: set relay_allow_cpu to true to run on their CPUs, or add a GPU machine")
