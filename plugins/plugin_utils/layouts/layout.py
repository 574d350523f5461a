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


def _memory(device: Device | None, weights: int, kv: int, recurrent: int, compute: int, draft: int) -> dict[str, Any]:
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


def stages(layout: Layout, rpc_port: int = 50052) -> list[dict[str, Any]]:
    """The plan's stages in llama.cpp's order; the server's CPU always comes first, it holds the token embedding."""
    ledger, server, draft = layout.ledger, layout.server, layout.draft
    n_cpu = layout.cpu_layers
    weights = ledger.input + ledger.layer_weights(0, n_cpu, False) + (ledger.per_device if n_cpu else 0)
    if layout.output_on_cpu:
        weights += ledger.output_weights(False, on_cpu=True)
    result = [
        {
            "host": server.host,
            "device": "CPU",
            "transport": "local",
            "endpoint": None,
            "rpc_device": None,
            "first_layer": 0,
            "n_layers": n_cpu,
            "has_output": layout.output_on_cpu,
            "memory": _memory(
                server.ram,
                weights,
                sum(ledger.kv[:n_cpu]),
                sum(ledger.recurrent[:n_cpu]),
                ledger.host_bytes(layers=n_cpu > 0, pipelined=layout.pipelined, output=layout.output_on_cpu),
                draft.ram.total if draft else 0,
            ),
        }
    ]
    in_ram = result[0]["memory"]["total_bytes"] - result[0]["memory"]["reserve_bytes"]
    n_rpc = 0
    for device, first, end in layout.segments:
        remote = device.host != server.host
        if device.shared and not remote:
            device = replace(device, capacity_bytes=max(device.capacity_bytes - in_ram, 0))
        last = min(end, ledger.n_layer)
        output = end > ledger.n_layer
        padded = not device.is_cpu
        charged = draft.gpu.total if draft and not remote and draft.device == device.name else 0
        result.append(
            {
                "host": device.host,
                "device": device.name,
                "transport": "rpc" if remote else "local",
                "endpoint": f"{device.address}:{rpc_port}" if remote else None,
                "rpc_device": f"RPC{n_rpc}" if remote else None,
                "first_layer": first,
                "n_layers": last - first,
                "has_output": output,
                "memory": _memory(
                    device,
                    ledger.layer_weights(first, last, padded)
                    + (ledger.output_weights(padded) if output else 0)
                    + ledger.per_device,
                    sum(ledger.kv[first:last]),
                    sum(ledger.recurrent[first:last]),
                    ledger.device_bytes(first == 0, layout.pipelined, output, (first, last), padded),
                    charged,
                ),
            }
        )
        n_rpc += remote
    return result + _draft_stage(layout)


def _draft_stage(layout: Layout) -> list[dict[str, Any]]:
    """A stage without layers when the draft has a GPU of the server for itself."""
    draft = layout.draft
    holders = {device.name for device in layout.devices if device.host == layout.server.host}
    return [
        {
            "host": device.host,
            "device": device.name,
            "transport": "local",
            "endpoint": None,
            "rpc_device": None,
            "first_layer": layout.ledger.n_layer,
            "n_layers": 0,
            "has_output": False,
            "memory": _memory(device, 0, 0, 0, 0, draft.gpu.total),
        }
        for device in layout.server.gpus
        if draft and draft.gpu.total and device.name == draft.device and device.name not in holders
    ]
