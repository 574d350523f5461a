# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layers over several machines: the fastest layout of a pool, with the output on the host where it can be."""

from __future__ import annotations

from dataclasses import replace
from heapq import nlargest

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.arrangement import Arrangement, Problem
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.candidates import FEW, candidates
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import DraftCharge, Layout
from ansible_collections.relay.pool.plugins.plugin_utils.machines.pool import Pool


def best_sharded(
    arrangement: Arrangement,
    pool: Pool,
    allow_cpu: bool,
    draft: DraftCharge | None = None,
    host_layers: bool = False,
    few: int = FEW,
) -> Layout | None:
    """The best layout of the pool, or None. The output leaves a host that has a GPU only where there is no other.

    host_layers: the host must hold a layer, for a draft beside it. few: of so many devices of workers all are compared,
    which is exact; of more, those that candidates() names.
    """
    if _too_small(arrangement, pool, allow_cpu):
        return None
    for output_anywhere in (False, True) if pool.host.gpus else (False,):
        problem = Problem(
            pool.host,
            candidates(arrangement, pool.rpc, few, output_anywhere or not pool.host.gpus),
            draft=draft,
            allow_cpu=allow_cpu,
            host_layers=host_layers,
            output_anywhere=output_anywhere,
        )
        layout = arrangement.best(problem)
        if layout is None and len(problem.rpc) < len(pool.rpc):
            # Enough memory in all need not hold whole layers, and others then may.
            others = arrangement.filled(replace(problem, rpc=pool.rpc))
            wanted = {*problem.rpc, *others}
            rpc = [device for device in pool.rpc if device in wanted]
            layout = arrangement.best(replace(problem, rpc=rpc)) if others else None
        if layout:
            return layout
    return None


def sharded_exists(arrangement: Arrangement, pool: Pool, allow_cpu: bool) -> bool:
    """Whether best_sharded() finds any without a draft; quicker."""
    if _too_small(arrangement, pool, allow_cpu):
        return False
    # The largest mostly do, in whatever order.
    largest = set(nlargest(FEW, range(len(pool.rpc)), key=lambda index: pool.rpc[index].usable_bytes))
    some = [device for index, device in enumerate(pool.rpc) if index in largest]
    problem = Problem(pool.host, some, allow_cpu=allow_cpu, output_anywhere=True)
    if arrangement.feasible(problem):
        return True
    if len(some) == len(pool.rpc):
        return False
    if arrangement.filled(replace(problem, rpc=pool.rpc)):
        return True
    return not arrangement.costs.nested and best_sharded(arrangement, pool, allow_cpu) is not None


def _too_small(arrangement: Arrangement, pool: Pool, allow_cpu: bool) -> bool:
    """Whether the largest devices could not hold all items even if each could choose which."""
    costs = arrangement.costs
    devices = (*pool.rpc, *pool.host.gpus)
    kinds = [[device for device in devices if device.is_cpu is cpu] for cpu in (False, True)]
    largest = [
        device for kind in kinds for device in nlargest(arrangement.limit, kind, key=lambda device: device.usable_bytes)
    ]
    if any(costs.most_items(device, False) == costs.n_items for device in largest):
        return False
    ram = pool.host.ram if allow_cpu and not pool.host.gpus else None
    pipelined = ram is None
    counts = nlargest(arrangement.limit, (costs.most_items(device, pipelined) for device in largest))
    # The output may be on the host's CPU besides.
    return sum(counts) + (costs.most_host_layers(ram) + 1 if ram else 0) < costs.n_items
