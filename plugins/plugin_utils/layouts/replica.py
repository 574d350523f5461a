# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole model on one machine: on GPUs, else on a CPU; on the fewest devices, and of equally few on the fastest."""

from __future__ import annotations

from typing import Iterable, Sequence, Tuple

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.arrangement import Arrangement, Problem
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.costs import TICKS_PER_SECOND
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import DraftCharge, Layout
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine

# Whether it is a CPU, devices, and ticks of a token.
Worth = Tuple[bool, int, int]


def replica_on(
    arrangement: Arrangement, member: Machine, allow_cpu: bool, draft: DraftCharge | None = None
) -> Layout | None:
    """The model on the GPUs of the machine, else, where it has none, on its CPU if that is allowed."""
    if member.gpus:
        return arrangement.best(Problem(member, (), draft=draft, few_devices=True))
    return arrangement.on_cpu(member, draft) if allow_cpu else None


def best_replica(arrangement: Arrangement, members: Iterable[Machine], allow_cpu: bool) -> Layout | None:
    """The best one on any of the machines; of equal ones the first.

    Machines are looked at in the order of a bound on what they can do, until no other one can do better: exact.
    """
    bounds = []
    for index, member in enumerate(members):
        bound = _bound(arrangement, member, allow_cpu)
        if bound:
            bounds.append((bound, index, member))
    bounds.sort(key=lambda entry: entry[:2])
    best: Layout | None = None
    reached: tuple[Worth, int] | None = None
    seen: set[tuple[object, ...]] = set()
    for bound, index, member in bounds:
        if reached and reached <= (bound, index):
            break
        # Of machines with the same devices the first is as good as all others.
        kind = _kind(member)
        if kind in seen:
            continue
        seen.add(kind)
        layout = replica_on(arrangement, member, allow_cpu)
        if layout:
            worth = ((layout.on_cpu, max(len(layout.segments), 1), layout.key[0]), index)
            if reached is None or worth < reached:
                best, reached = layout, worth
    return best


def replica_exists(arrangement: Arrangement, members: Iterable[Machine], allow_cpu: bool) -> bool:
    """Whether there is any."""
    for member in members:
        if _bound(arrangement, member, allow_cpu) is None:
            continue
        if member.gpus:
            if arrangement.feasible(Problem(member, ())):
                return True
        elif replica_on(arrangement, member, allow_cpu):
            return True
    return False


def _kind(member: Machine) -> tuple[object, ...]:
    devices = (*member.gpus, member.ram)
    return tuple(
        (device.name, device.capacity_bytes, device.reserve_bytes, device.bandwidth, device.shared) if device else None
        for device in devices
    )


def _bound(arrangement: Arrangement, member: Machine, allow_cpu: bool) -> Worth | None:
    """No replica on the machine is better than this; None if there is certainly none."""
    devices: Sequence[Device] = member.holders(allow_cpu)
    costs = arrangement.costs
    padded = bool(member.gpus)
    need = costs.needs(padded, False).held()
    if member.usable_bytes(allow_cpu) < need:
        return None
    # Every part of the model is read once on one of the devices; rounding each part down takes a tick at most.
    spare = costs.n_items * len(devices)
    reads = sum(costs.reads)
    on_cpu = not member.gpus
    alone = [device for device in devices if device.usable_bytes >= need]
    if alone:
        fastest = max(costs.bandwidth(device) for device in alone)
        return on_cpu, 1, reads * TICKS_PER_SECOND // fastest - spare
    need += 2 * costs.needs(padded, True).least if padded else 0
    count = size = 0
    for device in sorted(devices, key=lambda device: -device.usable_bytes):
        if size >= need or count >= arrangement.limit:
            break
        count, size = count + 1, size + device.usable_bytes
    if size < need:
        return None
    if not costs.read_once:
        return on_cpu, count, reads * TICKS_PER_SECOND // max(map(costs.bandwidth, devices)) - spare
    time = 0
    for device in sorted(devices, key=costs.bandwidth, reverse=True):
        part = min(reads, device.usable_bytes)
        reads -= part
        time += part * TICKS_PER_SECOND // costs.bandwidth(device)
    return on_cpu, count, time - spare
