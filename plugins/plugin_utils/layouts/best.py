# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layout of a pool without a draft: a replica wherever the model fits one machine, else the fastest split."""

from __future__ import annotations

from functools import cache
from typing import Callable

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.arrangement import Arrangement
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.replica import best_replica, replica_exists, replica_on
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.sharded import best_sharded, sharded_exists
from ansible_collections.relay.pool.plugins.plugin_utils.machines.pool import Pool


def pool_replica(
    arrangement: Arrangement, pool: Pool, allow_cpu: bool, best_split: Callable[[], Layout | None]
) -> Layout | None:
    """The whole model on the host, else on the best of the workers; on a CPU only where GPUs do not do it better.

    None also where a token takes less time on the GPUs of several machines than on the CPU of one.

    :param best_split: what best_sharded() finds, asked for only then.
    """
    host, workers = pool.host, pool.workers
    layout = replica_on(arrangement, host, False)
    if layout is None and allow_cpu and not host.gpus:
        layout = best_replica(arrangement, workers, False) or replica_on(arrangement, host, True)
    layout = layout or best_replica(arrangement, workers, allow_cpu)
    if layout and layout.on_cpu and any(member.gpus for member in pool.machines()):
        split = best_split()
        if split and split.key[0] < layout.key[0]:
            return None
    return layout


def best_layout(arrangement: Arrangement, pool: Pool, allow_cpu: bool) -> Layout | None:
    """The layout, or None where there is none."""

    @cache
    def split() -> Layout | None:
        return best_sharded(arrangement, pool, allow_cpu)

    return pool_replica(arrangement, pool, allow_cpu, split) or split()


def layout_exists(arrangement: Arrangement, pool: Pool, allow_cpu: bool) -> bool:
    """Whether best_layout() finds any; much quicker."""
    return replica_exists(arrangement, pool.machines(), allow_cpu) or sharded_exists(arrangement, pool, allow_cpu)
