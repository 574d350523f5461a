# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking for another plan: few and only where the answer is not known without one."""

from __future__ import annotations

import dataclasses
import heapq
from bisect import bisect_left
from typing import Any, Callable, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.arrangement import Arrangement
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.best import layout_exists
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.costs import nominal_bandwidth
from ansible_collections.relay.pool.plugins.plugin_utils.machines.pool import Pool
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import ContextSpec, Ledger, model_ledger
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.ways_out.bounds import may_fit

MOST = 40
# Of a pool with more devices than this the largest are tried; a plan over these is one over all.
DEVICES = 64


class Exhausted(Exception):
    """As many plans were tried as may be."""


class Trials:
    """Layouts of changed requests over changed pools; a draft never is what they fail for.

    overrides: see Arrangement.
    """

    def __init__(self, request: Request, pool: Pool, overrides: bool) -> None:
        self.request: Request = dataclasses.replace(request, draft=None, draft_path=None, previous=None)
        self.pool: Pool = _largest(pool)
        self._overrides = overrides
        self._made = 0
        self._arrangements: dict[tuple[int, ContextSpec], tuple[Mapping[str, Any], Arrangement]] = {}

    def changed(self, **changes: Any) -> Request:
        """The request with other options."""
        return dataclasses.replace(self.request, **changes)

    def works(self, request: Request | None = None, pool: Pool | None = None) -> bool:
        """Whether there is a plan. Raises Exhausted."""
        request, pool = request or self.request, pool or self.pool
        ledger = self.ledger(request)
        if ledger is None or not may_fit(ledger, pool, request.allow_cpu):
            return False
        if self._made >= MOST:
            raise Exhausted
        self._made += 1
        # What the model takes on a device is the same whatever the pool, and whether there is a layout asks no time.
        key = (id(request.model), request.target_spec())
        if key not in self._arrangements:
            nominal = nominal_bandwidth(pool.holders(request.allow_cpu))
            # With the model, whose id would be given to another one otherwise.
            self._arrangements[key] = (request.model, Arrangement(ledger, nominal, overrides=self._overrides))
        return layout_exists(self._arrangements[key][1], pool, request.allow_cpu)

    def may_work(self, request: Request | None = None, pool: Pool | None = None) -> bool:
        """False where the sizes alone say that there is no plan."""
        request, pool = request or self.request, pool or self.pool
        ledger = self.ledger(request)
        return ledger is not None and may_fit(ledger, pool, request.allow_cpu)

    def ledger(self, request: Request) -> Ledger | None:
        """None where the model cannot be run like that."""
        try:
            return model_ledger(request.model, request.target_spec())
        except PoolError:
            return None

    def least(self, asked: Callable[[int], tuple[Request | None, Pool | None]], high: int) -> int | None:
        """The least step in 1..high that works, given that larger ones do; None if even the last does not.

        The step before it was tried and does not work, or cannot by the sizes alone.
        """
        if high < 1 or not self.works(*asked(high)):
            return None
        low = _first(lambda step: self.may_work(*asked(step)), 1, high)
        stride = 1
        step = low
        # The sizes alone mostly are close, so that the answer is looked for from there.
        while step < high and not self.works(*asked(step)):
            low, step, stride = step + 1, min(step + stride, high), stride * 4
        return _first(lambda middle: self.works(*asked(middle)), low, step)


def _largest(pool: Pool) -> Pool:
    """The host, the worker with most memory, and of the others the largest devices."""
    holders = [device for member in pool.workers for device in member.holders(True)]
    if len(holders) <= DEVICES:
        return pool
    kept = {(d.host, d.name) for d in heapq.nlargest(DEVICES, holders, key=lambda device: device.usable_bytes)}
    most = max(pool.workers, key=lambda member: sum(device.usable_bytes for device in member.holders(True)))
    workers = []
    for member in pool.workers:
        gpus = tuple(gpu for gpu in member.gpus if (gpu.host, gpu.name) in kept)
        if member == most or (not member.gpus and (member.host, "CPU") in kept):
            workers.append(member)
        elif gpus:
            workers.append(dataclasses.replace(member, gpus=gpus))
    remaining = {(device.host, device.name) for member in workers for device in member.holders(True)}
    rpc = tuple(device for device in pool.rpc if (device.host, device.name) in remaining)
    return dataclasses.replace(pool, workers=tuple(workers), rpc=rpc)


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The first value for which it holds; it is known to hold for high."""
    return low + bisect_left(range(low, high), True, key=holds)
