# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the layers lie on given devices, and the ledger of every stage.

Order is llama.cpp's: the host's CPU can hold only the first layers, then come the RPC devices, then the host's own
GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.needs import mtp_beside
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Charge, Ledger


@dataclass(frozen=True)
class DraftCharge:
    """What speculation takes beside the target: on a device, and in the RAM of the server.

    device: a GPU of the server or a device of a worker; None when nothing but the server's RAM is used.
    """

    device: Device | None
    gpu: Charge
    ram: Charge

    @property
    def total(self) -> int:
        """Sum in bytes."""
        return self.gpu.total + self.ram.total

    def on(self, device: Device) -> int:
        """Bytes on that device, which is none but the server's RAM."""
        own = self.device and (self.device.host, self.device.name) == (device.host, device.name)
        return self.gpu.total if own else 0


@dataclass(frozen=True)
class Layout:
    """A feasible arrangement: items first..end-1 per device, the item after the last layer being the output.

    key: time of a token in ticks, devices used, and the fullest of them in millionths; the least is the best.
    keeps_output: the output is on the server's CPU although the last layers are not.
    """

    server: Machine
    ledger: Ledger
    cpu_layers: int
    segments: tuple[tuple[Device, int, int], ...]
    pipelined: bool
    draft: DraftCharge | None
    key: tuple[int, int, int]
    keeps_output: bool = False

    @property
    def on_cpu(self) -> bool:
        """The whole model, output included, is in the server's RAM."""
        return not self.segments

    @property
    def output_on_cpu(self) -> bool:
        """The output is in the server's RAM."""
        return self.on_cpu or self.keeps_output

    @property
    def output(self) -> Device | None:
        """The device of the output; None for the CPU of the machine that serves."""
        return None if self.output_on_cpu else self.segments[-1][0]

    @property
    def last_layer(self) -> Device | None:
        """The device of the last layer; None for the CPU of the machine that serves."""
        return self.holder(self.ledger.n_layer - 1)

    def holder(self, layer: int) -> Device | None:
        """The device of a layer; None for the CPU of the machine that serves."""
        return next((device for device, first, end in self.segments if first <= layer < end), None)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Those with layers or the output, but for the server's CPU."""
        return tuple(device for device, _first, _end in self.segments)

    @property
    def rpc_devices(self) -> tuple[Device, ...]:
        """Of these, those that are reached over RPC."""
        return tuple(device for device in self.devices if device.host != self.server.host)

    @property
    def remote_draft(self) -> Device | None:
        """The device of a worker on which the draft runs."""
        device = self.draft.device if self.draft else None
        return device if device and device.host != self.server.host else None

    @property
    def shared_draft(self) -> bool:
        """That device holds a part of the target, too."""
        draft = self.remote_draft
        return bool(draft) and any(draft.label == device.label for device in self.devices)

    @property
    def exposed(self) -> tuple[Device, ...]:
        """What the workers expose, in the order in which llama.cpp numbers it: RPC0, RPC1 and so on.

        That order is by machine, so a device for the draft alone comes after the others of its machine.
        """
        found, draft = list(self.rpc_devices), self.remote_draft
        if draft and not self.shared_draft:
            beside = [place for place, device in enumerate(found) if device.host == draft.host]
            found.insert(beside[-1] + 1 if beside else len(found), draft)
        return tuple(found)

    def rpc_name(self, device: Device) -> str | None:
        """llama.cpp's name of a device that is reached over RPC; None of one of the server's own."""
        if device.host == self.server.host:
            return None
        return f"RPC{[other.label for other in self.exposed].index(device.label)}"

    @property
    def server_layers(self) -> int:
        """Repeating layers on the machine that runs llama-server."""
        n_layer = self.ledger.n_layer
        local = (min(end, n_layer) - first for device, first, end in self.segments if device.host == self.server.host)
        return self.cpu_layers + sum(local)

    @property
    def sharded(self) -> bool:
        """At least one device is reached over RPC."""
        return bool(self.rpc_devices)


def _memory(
    device: Device | None, weights: int = 0, kv: int = 0, recurrent: int = 0, compute: int = 0, draft: int = 0
) -> dict[str, Any]:
    reserve = device.reserve_bytes if device else 0
    total = weights + kv + recurrent + compute + draft + reserve
    return {
        "weights_bytes": weights,
        "kv_bytes": kv,
        "recurrent_bytes": recurrent,
        "compute_bytes": compute,
        "draft_bytes": draft,
        "reserve_bytes": reserve,
        "total_bytes": total,
        "free_bytes": device.capacity_bytes if device else None,
        "left_bytes": device.capacity_bytes - total if device else None,
    }


def _stage(
    host: str, device: str, layers: tuple[int, int], has_output: bool, memory: dict[str, Any], rpc: str | None = None
) -> dict[str, Any]:
    """A stage of the plan; layers: first and the one after the last. rpc: llama.cpp's name of it if it is remote."""
    return {
        "host": host,
        "device": device,
        "transport": "rpc" if rpc else "local",
        "endpoint": None,
        "rpc_device": rpc,
        "first_layer": layers[0],
        "n_layers": layers[1] - layers[0],
        "has_output": has_output,
        "memory": memory,
    }


def stages(layout: Layout, rpc_port: int = 50052) -> list[dict[str, Any]]:
    """The plan's stages in llama.cpp's order; the server's CPU always comes first, it holds the token embedding."""
    cpu = _cpu_stage(layout)
    in_ram = cpu["memory"]["total_bytes"] - cpu["memory"]["reserve_bytes"]
    n_layer = layout.ledger.n_layer
    segments = [*layout.segments, *((device, n_layer, n_layer) for device in _drafting_alone(layout))]
    found = [cpu]
    for device, first, end in segments:
        remote = device.host != layout.server.host
        if device.shared and not remote:
            device = replace(device, capacity_bytes=max(device.capacity_bytes - in_ram, 0))
        stage = _device_stage(layout, device, first, end)
        if remote:
            stage["endpoint"] = f"{device.address}:{rpc_port}"
        found.append(stage)
    return found


def _cpu_stage(layout: Layout) -> dict[str, Any]:
    ledger, n_cpu, output = layout.ledger, layout.cpu_layers, layout.output_on_cpu
    weights = ledger.input + ledger.layer_weights(0, n_cpu, False) + (ledger.per_device if n_cpu else 0)
    if output:
        weights += ledger.output_weights(False, on_cpu=True)
    memory = _memory(
        layout.server.ram,
        weights,
        sum(ledger.kv[:n_cpu]),
        sum(ledger.recurrent[:n_cpu]),
        ledger.host_bytes(layers=n_cpu > 0, pipelined=layout.pipelined, output=output),
        (layout.draft.ram.total if layout.draft else 0) + mtp_beside(ledger, 0, n_cpu),
    )
    return _stage(layout.server.host, "CPU", (0, n_cpu), output, memory)


def _device_stage(layout: Layout, device: Device, first: int, end: int) -> dict[str, Any]:
    ledger, draft, rpc = layout.ledger, layout.draft, layout.rpc_name(device)
    beside = draft.on(device) if draft else 0
    if first == end:
        return _stage(device.host, device.name, (first, end), False, _memory(device, draft=beside), rpc)
    last, output, padded = min(end, ledger.n_layer), end > ledger.n_layer, not device.is_cpu
    weights = ledger.layer_weights(first, last, padded) + ledger.per_device
    memory = _memory(
        device,
        weights + (ledger.output_weights(padded) if output else 0),
        sum(ledger.kv[first:last]),
        sum(ledger.recurrent[first:last]),
        ledger.device_bytes(first == 0, layout.pipelined, output, (first, last), padded),
        beside + mtp_beside(ledger, first, last),
    )
    return _stage(device.host, device.name, (first, last), output, memory, rpc)


def _drafting_alone(layout: Layout) -> list[Device]:
    """The device that the draft has for itself, which is a stage without layers."""
    device = layout.draft.device if layout.draft else None
    return [device] if device and all(device.label != other.label for other in layout.devices) else []
