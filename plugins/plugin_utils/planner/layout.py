# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the layers lie on given devices, and the ledger of every stage.

Order is llama.cpp's: the host's CPU can hold only the first layers, then come the RPC devices, then the host's own
GPUs. A host with a GPU keeps the output there, so that its logits do not cross the network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Charge, Ledger
from ansible_collections.relay.pool.plugins.plugin_utils.planner.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.planner.search import Found, Slot, search
from ansible_collections.relay.pool.plugins.plugin_utils.planner.speed import hop_seconds

# Only proportions matter while no bandwidth is known; this is an ordinary desktop's RAM.
NOMINAL_BANDWIDTH = 50_000_000_000
# Times are integers of this many per second, so that equal plans compare as equal.
TICKS_PER_SECOND = 10**15


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
    """A feasible arrangement: items first..end-1 per device, the item after the last layer being the output."""

    server: Machine
    ledger: Ledger
    cpu_layers: int
    segments: tuple[tuple[Device, int, int], ...]
    pipelined: bool
    draft: DraftCharge | None
    key: tuple[int, int, int]

    @property
    def on_cpu(self) -> bool:
        """The whole model, output included, is in the server's RAM."""
        return not self.segments

    @property
    def server_layers(self) -> int:
        """Repeating layers on the machine that runs llama-server."""
        n_layer = self.ledger.n_layer
        local = (min(end, n_layer) - first for device, first, end in self.segments if device.host == self.server.host)
        return self.cpu_layers + sum(local)

    @property
    def sharded(self) -> bool:
        """At least one device is reached over RPC."""
        return any(device.host != self.server.host for device, _first, _end in self.segments)


@dataclass(frozen=True)
class Arrangement:
    """What stays the same while arrangements are compared."""

    ledger: Ledger
    bandwidth: int

    @classmethod
    def over(cls, ledger: Ledger, devices: Sequence[Device]) -> Arrangement:
        """A device of unknown bandwidth counts as the mean of the known ones."""
        known = [device.bandwidth for device in devices if device.bandwidth]
        return cls(ledger, sum(known) // len(known) if known else NOMINAL_BANDWIDTH)

    def _slot(
        self,
        device: Device,
        remote: bool,
        pipelined: bool,
        draft: DraftCharge | None,
        may_hold_output: bool,
        output_alone: bool,
    ) -> Slot:
        ledger, padded = self.ledger, not device.is_cpu
        layers = range(ledger.n_layer)
        weights = [ledger.layer_weights(i, i + 1, padded) for i in layers] + [ledger.output_weights(padded)]
        reads = [*ledger.reads, ledger.output_weights(False)]
        state = [ledger.kv[i] + ledger.recurrent[i] for i in layers] + [0]
        fixed = ledger.per_device
        if draft and not remote and draft.device == device.name:
            fixed += draft.gpu.total
        if device.shared and not remote:
            fixed += ledger.input + ledger.host_bytes(layers=False, pipelined=pipelined)
            fixed += draft.ram.total if draft else 0
        return Slot(
            memory=tuple(weight + extra for weight, extra in zip(weights, state)),
            room={
                (first, output): device.usable_bytes - fixed - ledger.device_bytes(first, pipelined, output, gpu=padded)
                for first in (False, True)
                for output in (False, True)
            },
            capacity=max(device.capacity_bytes, 1),
            time=self._time(device, reads),
            hop=round(hop_seconds(device, ledger.shape.n_embd) * TICKS_PER_SECOND) if remote else 0,
            may_hold_output=may_hold_output,
            output_alone=output_alone,
        )

    def _time(self, device: Device, reads: Sequence[int]) -> tuple[int, ...]:
        ticks = TICKS_PER_SECOND // (device.bandwidth or self.bandwidth)
        return tuple(size * ticks for size in reads)

    def _cpu_slot(self, ram: Device, draft: DraftCharge | None) -> Slot:
        ledger = self.ledger
        layers = range(ledger.n_layer)
        weights = [ledger.weights[i] for i in layers] + [0]
        fixed = ledger.input + ledger.per_device + ledger.host_bytes(layers=True, pipelined=False)
        room = ram.usable_bytes - fixed - (draft.ram.total if draft else 0)
        return Slot(
            memory=tuple([weights[i] + ledger.kv[i] + ledger.recurrent[i] for i in layers] + [0]),
            room={(first, output): room for first in (False, True) for output in (False, True)},
            capacity=max(ram.capacity_bytes, 1),
            time=self._time(ram, [*ledger.reads, 0]),
            hop=0,
            first_only=True,
            may_hold_output=False,
        )

    def best(
        self,
        server: Machine,
        remote: Sequence[Device],
        draft: DraftCharge | None = None,
        allow_cpu: bool = False,
        few_devices: bool = False,
        host_layers: bool = False,
        output_anywhere: bool = False,
    ) -> Layout | None:
        """The best arrangement over the server's own devices and the remote ones, or None.

        host_layers: the server must hold at least one repeating layer.
        output_anywhere: the output may leave a server that has a GPU.
        """
        local = server.gpus
        devices = [(device, True) for device in remote] + [(device, False) for device in local]
        candidates: list[Layout] = []

        def slots(chosen: Sequence[tuple[Device, bool]], pipelined: bool) -> list[Slot]:
            return [
                self._slot(
                    device,
                    is_remote,
                    pipelined,
                    draft,
                    may_hold_output=not is_remote or not local or output_anywhere,
                    output_alone=is_remote or not host_layers,
                )
                for device, is_remote in chosen
            ]

        def keep(found: Found | None, chosen: Sequence[tuple[Device, bool]], cpu: bool, pipelined: bool) -> None:
            if found is None:
                return
            offset = 1 if cpu else 0
            cpu_layers = found.segments[0].end if cpu else 0
            segments = tuple(
                (chosen[segment.slot - offset][0], segment.first, segment.end) for segment in found.segments[offset:]
            )
            candidates.append(Layout(server, self.ledger, cpu_layers, segments, pipelined, draft, found.key))

        n_items = self.ledger.n_layer + 1
        if local or not host_layers:
            for one in devices:
                if self._server_ram_fits(server, False, draft):
                    keep(search(slots([one], False), n_items, few_devices=few_devices), [one], False, False)
            if len(devices) > 1 and self._server_ram_fits(server, True, draft):
                found = search(slots(devices, True), n_items, few_devices=few_devices)
                if found and len(found.segments) > 1:
                    keep(found, devices, False, True)
        if allow_cpu and not local and server.ram and devices:
            chosen = [self._cpu_slot(server.ram, draft), *slots(devices, False)]
            keep(search(chosen, n_items, first_required=True, few_devices=few_devices), devices, True, False)
        return min(candidates, key=lambda layout: layout.key) if candidates else None

    def _server_ram_fits(self, server: Machine, pipelined: bool, draft: DraftCharge | None) -> bool:
        """The token embedding and the host's buffers always live in the server's RAM; unknown RAM is trusted."""
        if server.ram is None:
            return True
        need = self.ledger.input + self.ledger.host_bytes(layers=False, pipelined=pipelined)
        return need + (draft.ram.total if draft else 0) <= server.ram.usable_bytes

    def on_cpu(self, server: Machine, draft: DraftCharge | None = None) -> Layout | None:
        """The whole model in the server's RAM, or None."""
        if server.ram is None:
            return None
        layout = Layout(server, self.ledger, self.ledger.n_layer, (), False, draft, (0, 1, 0))
        memory = stages(layout)[0]["memory"]
        return layout if memory["left_bytes"] >= 0 else None


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
    if layout.on_cpu:
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
            "has_output": layout.on_cpu,
            "memory": _memory(
                server.ram,
                weights,
                sum(ledger.kv[:n_cpu]),
                sum(ledger.recurrent[:n_cpu]),
                ledger.host_bytes(layers=n_cpu > 0, pipelined=layout.pipelined, output=layout.on_cpu),
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
    holders = {device.name for device, _first, _end in layout.segments if device.host == layout.server.host}
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
