# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every arrangement of a model takes at least, so that a plan that cannot be is not looked for."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger
from ansible_collections.relay.pool.plugins.plugin_utils.planner.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.planner.split import MAX_DEVICES

if TYPE_CHECKING:
    from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import Pool


def may_fit(ledger: Ledger, pool: Pool, allow_cpu: bool) -> bool:
    """False only where no arrangement fits; True says nothing."""
    demand = _Demand.of(ledger)
    if demand.ram_may_do(pool.host) and demand.devices_may_do(pool.holders(allow_cpu)):
        return True
    # A replica elsewhere needs neither the host's RAM nor the devices of others.
    return any(
        member.usable_bytes(allow_cpu) >= demand.whole
        and demand.ram_may_do(member)
        and demand.devices_may_do(member.holders(allow_cpu))
        for member in pool.workers
    )


def least_demand(ledger: Ledger) -> int:
    """Bytes of all layers with their states, and of the output."""
    return sum(_layers(ledger)) + _output(ledger)


def _layers(ledger: Ledger) -> list[int]:
    return [sum(parts) for parts in zip(ledger.weights, ledger.kv, ledger.recurrent)]


def _output(ledger: Ledger) -> int:
    return min(ledger.output_weights(False), ledger.output_weights(False, on_cpu=True))


@dataclass(frozen=True)
class _Demand:
    """Bytes that are needed at least: in the RAM of whichever machine serves; of all layers and the output; of a
    device's compute buffer and copies; of the smallest layer. layers: how many there are."""

    ram: int
    whole: int
    buffers: int
    smallest: int
    layers: int

    @classmethod
    def of(cls, ledger: Ledger) -> _Demand:
        """The demand of a model."""
        layers = _layers(ledger)
        return cls(
            # The token embedding and some buffers.
            ram=ledger.input + min(ledger.host_bytes(False, pipelined) for pipelined in (False, True)),
            whole=sum(layers) + _output(ledger),
            buffers=ledger.per_device + _least_buffer(ledger),
            smallest=min(layers),
            layers=len(layers),
        )

    def ram_may_do(self, server: Machine) -> bool:
        """Unknown RAM is trusted."""
        return server.ram is None or self.ram <= server.ram.usable_bytes

    def devices_may_do(self, devices: Sequence[Device]) -> bool:
        """As if layers could lie anywhere, on the largest devices, as many as llama.cpp takes, and a host's CPU."""
        usable = heapq.nlargest(MAX_DEVICES + 1, (device.usable_bytes for device in devices))
        # On a CPU the buffers are those of the host, of which a part is not counted here.
        spare = 0 if any(device.is_cpu for device in devices) else self.buffers
        rooms = [max(size - spare, 0) for size in usable]
        if self.whole > sum(rooms):
            return False
        return not self.smallest or sum(room // self.smallest for room in rooms) >= self.layers


def _least_buffer(ledger: Ledger) -> int:
    """No device has a smaller compute buffer, whatever layers it holds."""
    if any(ledger.shape.recurrent):
        # What crosses between two stages depends on both ends of a stage.
        return 0
    return min(
        ledger.device_bytes(layer == 0, pipelined, False, (layer, layer + 1))
        for layer in range(ledger.n_layer)
        for pipelined in (False, True)
    )
