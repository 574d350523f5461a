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

from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Charge, Ledger


@dataclass(frozen=True)
class DraftCharge:
    """The draft's memory: on a GPU of the server, and in its RAM; device is "none" when it runs on the CPU."""

    device: str
    gpu: Charge
    ram: Charge

    @property
    def total(self) -> int:
        """Sum in bytes."""
        return self.gpu.total + self.ram.total


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
    def devices(self) -> tuple[Device, ...]:
        """Those with layers or the output, but for the server's CPU."""
        return tuple(device for device, _first, _end in self.segments)

    @property
    def rpc_devices(self) -> tuple[Device, ...]:
        """Of these, those that are reached over RPC."""
        return tuple(device for device in self.devices if device.host != self.server.host)

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
    host: str, device: str, layers: tuple[int, int], has_output: bool, memory: dict[str, Any], n_rpc: int | None = None
) -> dict[str, Any]:
    """A stage of the plan; layers: first and the one after the last. n_rpc: its number among the RPC devices."""
    return {
        "host": host,
        "device": device,
        "transport": "local" if n_rpc is None else "rpc",
        "endpoint": None,
        "rpc_device": None if n_rpc is None else f"RPC{n_rpc}",
        "first_layer": layers[0],
        "n_layers": layers[1] - layers[0],
        "has_output": has_output,
        "memory": memory,
    }


def stages(layout: Layout, rpc_port: int = 50052) -> list[dict[str, Any]]:
    """The plan's stages in llama.cpp's order; the server's CPU always comes first, it holds the token embedding."""
    cpu = _cpu_stage(layout)
    in_ram = cpu["memory"]["total_bytes"] - cpu["memory"]["reserve_bytes"]
    found, n_rpc = [cpu], 0
    for device, first, end in layout.segments:
        remote = device.host != layout.server.host
        if device.shared and not remote:
            device = replace(device, capacity_bytes=max(device.capacity_bytes - in_ram, 0))
        stage = _device_stage(layout, device, first, end, n_rpc if remote else None)
        if remote:
            stage["endpoint"] = f"{device.address}:{rpc_port}"
            n_rpc += 1
        found.append(stage)
    return found + _draft_stage(layout)


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
        layout.draft.ram.total if layout.draft else 0,
    )
    return _stage(layout.server.host, "CPU", (0, n_cpu), output, memory)


def _device_stage(layout: Layout, device: Device, first: int, end: int, n_rpc: int | None) -> dict[str, Any]:
    ledger, draft = layout.ledger, layout.draft
    last, output, padded = min(end, ledger.n_layer), end > ledger.n_layer, not device.is_cpu
    weights = ledger.layer_weights(first, last, padded) + ledger.per_device
    memory = _memory(
        device,
        weights + (ledger.output_weights(padded) if output else 0),
        sum(ledger.kv[first:last]),
        sum(ledger.recurrent[first:last]),
        ledger.device_bytes(first == 0, layout.pipelined, output, (first, last), padded),
        draft.gpu.total if draft and n_rpc is None and draft.device == device.name else 0,
    )
    return _stage(device.host, device.name, (first, last), output, memory, n_rpc)


def _draft_stage(layout: Layout) -> list[dict[str, Any]]:
    """A stage without layers when the draft has a GPU of the server for itself."""
    draft, n_layer = layout.draft, layout.ledger.n_layer
    if not draft or not draft.gpu.total:
        return []
    holders = {device.name for device in layout.devices if device.host == layout.server.host}
    return [
        _stage(device.host, device.name, (n_layer, n_layer), False, _memory(device, draft=draft.gpu.total))
        for device in layout.server.gpus
        if device.name == draft.device and device.name not in holders
    ]
