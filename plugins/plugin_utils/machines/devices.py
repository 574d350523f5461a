# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices that a plan may use, in llama.cpp's order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.machines.backends import prefix, variable
from ansible_collections.relay.pool.plugins.plugin_utils.machines.members import Refusal, refusal
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib


@dataclass(frozen=True)
class Device:
    """Memory that may hold layers. capacity is what is free plus what the pool's own units hold now.

    bandwidth: bytes per second of its memory, None if it is unknown. overridden: the user states what is free.
    shared: a GPU whose memory is the machine's RAM, so that what llama.cpp keeps in RAM is taken from it too.
    visible_devices: the value of the back end's variable under which llama.cpp knows the GPU by this name.
    rtt_seconds, speed_mbps: the link from the machine that would serve; None if it was not measured.
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
    total_bytes: int | None = None
    visible_devices: str | None = None
    rtt_seconds: float | None = None
    speed_mbps: int | None = None

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

    @property
    def identity(self) -> str:
        """By what a GPU is known again; its number may change, its uuid does not."""
        return self.uuid or self.name

    @property
    def seen(self) -> tuple[str, str | None]:
        """Equal for GPUs that one process can use together."""
        return prefix(self.name), self.visible_devices

    @property
    def environment(self) -> dict[str, str]:
        """What must be set for a process so that the GPU has this name in it."""
        name = variable(self.name)
        return {name: self.visible_devices} if name and self.visible_devices else {}


@dataclass(frozen=True)
class Machine:
    """One member: its RAM (None when its size is unknown) and its usable GPUs; gpu_names lists every GPU there is."""

    host: str
    ram: Device | None
    gpus: tuple[Device, ...]
    gpu_names: tuple[str, ...]
    address: str | None
    threads: int | None

    @property
    def devices(self) -> tuple[Device, ...]:
        """Its RAM where the size is known, and its GPUs."""
        return (*((self.ram,) if self.ram else ()), *self.gpus)

    def device(self, name: str) -> Device | None:
        """The one of that name."""
        return next((device for device in self.devices if device.name == name), None)

    def holders(self, allow_cpu: bool) -> tuple[Device, ...]:
        """The devices that may hold layers: the GPUs, else the CPU where that is allowed."""
        if self.gpus:
            return self.gpus
        return (self.ram,) if allow_cpu and self.ram else ()

    @cached_property
    def gpu_bytes(self) -> int:
        """What all GPUs offer together."""
        return sum(gpu.usable_bytes for gpu in self.gpus)

    def usable_bytes(self, allow_cpu: bool) -> int:
        """What the devices that may hold layers offer together."""
        return self.gpu_bytes if self.gpus else sum(device.usable_bytes for device in self.holders(allow_cpu))


def rpc_devices(workers: Sequence[Machine], allow_cpu: bool) -> list[Device]:
    """The workers' devices that have room, in the order of the inventory."""
    return [device for worker in workers for device in worker.holders(allow_cpu) if device.usable_bytes]


def without_gpu(machine: Machine) -> Refusal:
    """The entry of a machine whose CPU would be all that it has."""
    return refusal(
        machine.host, None, "no_gpu", f"{machine.host} has no usable GPU: set relay_allow_cpu to use its CPU"
    )


def rpc_refusals(workers: Sequence[Machine], allow_cpu: bool) -> list[Refusal]:
    """Why rpc_devices() has nothing of some machines and devices."""
    refused: list[Refusal] = []
    for worker in workers:
        holders = worker.holders(allow_cpu)
        if not holders:
            refused.append(without_gpu(worker))
        refused += [
            refusal(
                device.host,
                device.name,
                "no_room",
                f"{device.label} has {mib(device.capacity_bytes)}, all of it within the reserve of "
                f"{mib(device.reserve_bytes)}: lower relay_reserve_bytes or free memory",
            )
            for device in holders
            if not device.usable_bytes
        ]
    return refused
