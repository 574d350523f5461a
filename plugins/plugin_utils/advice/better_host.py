# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether another member would be the better host, found by making the plan with it."""

from __future__ import annotations

import dataclasses

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.arrangement import Arrangement
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.best import best_layout
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine, rpc_devices
from ansible_collections.relay.pool.plugins.plugin_utils.machines.pool import Pool
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib

# The other machine must have so many tenths of the host's memory, and a token must take so many percent less.
MEMORY_TENTHS = 15
PERCENT = 10
# Where there are more machines, a second plan takes longer than what it may say is worth.
MACHINES = 64


def better_host(arrangement: Arrangement, pool: Pool, layout: Layout, allow_cpu: bool) -> list[str]:
    """One line where a plan with the member that has most memory as host is faster, or needs fewer machines.

    arrangement: that of the target without a draft.
    """
    if not layout.sharded or len(pool.machines()) > MACHINES:
        return []
    host, other = pool.host, max(pool.workers, key=lambda member: member.gpu_bytes)
    if not other.gpus or other.gpu_bytes * 10 < host.gpu_bytes * MEMORY_TENTHS:
        return []
    # Without a draft, which would go where the host is and change both.
    plain = layout.draft is None and layout.ledger is arrangement.ledger
    before = layout if plain else best_layout(arrangement, pool, allow_cpu)
    after = best_layout(arrangement, _swapped(pool, other, allow_cpu), allow_cpu)
    if before is None or after is None:
        return []
    gains = [gain for gain in (_faster(before, after), _fewer(before, after)) if gain]
    if not gains:
        return []
    return [
        f"{other.host} has {mib(other.gpu_bytes)} of GPU memory for layers and {host.host} has "
        f"{mib(host.gpu_bytes)}: with {other.host} in the group relay_host {' and '.join(gains)}"
    ]


def _swapped(pool: Pool, other: Machine, allow_cpu: bool) -> Pool:
    """The pool with the other machine as host.

    The way between the two is known. Between the other machine and a third one it counts as it was measured from the
    host: most pools are on one switch.
    """
    old = _with_way(pool.host, other.gpus[0])
    workers = (old, *(member for member in pool.workers if member.host != other.host))
    return Pool(other, workers, tuple(rpc_devices(workers, allow_cpu)))


def _with_way(member: Machine, way: Device) -> Machine:
    def moved(device: Device) -> Device:
        return dataclasses.replace(device, rtt_seconds=way.rtt_seconds, speed_mbps=way.speed_mbps)

    return dataclasses.replace(
        member, ram=moved(member.ram) if member.ram else None, gpus=tuple(map(moved, member.gpus))
    )


def _faster(before: Layout, after: Layout) -> str | None:
    """Only where every bandwidth and every way is known, so that the percentage is more than a guess."""
    for layout in (before, after):
        if layout.cpu_layers and not (layout.server.ram and layout.server.ram.bandwidth):
            return None
        for device in layout.devices:
            if not device.bandwidth or (device.host != layout.server.host and device.rtt_seconds is None):
                return None
    percent = (before.key[0] - after.key[0]) * 100 // max(before.key[0], 1)
    return f"a token would take about {percent} percent less time" if percent >= PERCENT else None


def _fewer(before: Layout, after: Layout) -> str | None:
    numbers = [len({layout.server.host, *(device.host for device in layout.devices)}) for layout in (before, after)]
    return f"the plan would need {numbers[1]} machines and not {numbers[0]}" if numbers[1] < numbers[0] else None
