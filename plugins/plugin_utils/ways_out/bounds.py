# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every arrangement of a model takes at least, so that a plan that cannot be is not looked for."""

from __future__ import annotations

import heapq

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import MAX_DEVICES
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.machines.pool import Pool
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger


def may_fit(ledger: Ledger, pool: Pool, allow_cpu: bool) -> bool:
    """False only where no arrangement fits; True says nothing."""
    if not _devices_may_do(ledger, pool.holders(allow_cpu)):
        return False
    # A replica elsewhere does not need the host's RAM.
    return _ram_may_do(ledger, pool.host) or any(
        _ram_may_do(ledger, member) and _devices_may_do(ledger, member.holders(allow_cpu)) for member in pool.workers
    )


def _layers(ledger: Ledger) -> list[int]:
    return [sum(parts) for parts in zip(ledger.weights, ledger.kv, ledger.recurrent)]


def _output(ledger: Ledger) -> int:
    return min(ledger.output_weights(False), ledger.output_weights(False, on_cpu=True))


def _ram_may_do(ledger: Ledger, server: Machine) -> bool:
    """The token embedding and some buffers are in the RAM of whichever machine serves; unknown RAM is trusted."""
    return server.ram is None or ledger.input + _host_buffers(ledger) <= server.ram.usable_bytes


def _host_buffers(ledger: Ledger) -> int:
    return min(ledger.host_bytes(False, pipelined) for pipelined in (False, True))


def _device_buffers(ledger: Ledger) -> int:
    """Of a device that holds one layer, the kind with the smallest buffers."""
    shape = ledger.shape
    kinds = zip(shape.windowed, shape.recurrent, shape.attention, ledger.kv)
    layers = {kind: layer for layer, kind in enumerate(kinds)}.values()
    return min(
        ledger.device_bytes(False, pipelined, False, (layer, layer + 1))
        for layer in layers
        for pipelined in (False, True)
    )


def _devices_may_do(ledger: Ledger, devices: list[Device] | tuple[Device, ...]) -> bool:
    """As if layers could lie anywhere, on the largest devices, as many as llama.cpp takes, and a host's CPU besides."""
    usable = heapq.nlargest(MAX_DEVICES + 1, (device.usable_bytes for device in devices))
    buffers = ledger.per_device + _device_buffers(ledger)
    # On a CPU the buffers are those of the host, of which a part is not counted here.
    spare = 0 if any(device.is_cpu for device in devices) else buffers
    rooms = [max(size - spare, 0) for size in usable]
    layers = _layers(ledger)
    if sum(layers) + _output(ledger) > sum(rooms):
        return False
    least = min(layers)
    return not least or sum(room // least for room in rooms) >= len(layers)
