# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machine holds the whole model: the host, else the worker with the fewest devices, else the fastest of these."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan

SLOW, FAST = 10**11, 10**12


def speeds(node, *bandwidths):
    for gpu, bandwidth in zip(node["gpus"], bandwidths):
        gpu["bandwidth_bytes_per_second"] = bandwidth
    return node


def chosen(plan):
    assert plan["kind"] == "replica"
    return plan["host"], [stage["device"] for stage in plan["stages"] if stage["n_layers"]]


def test_of_equally_few_devices_the_fastest(ask, world):
    slow, fast = speeds(world.node(2, [3000]), SLOW), speeds(world.node(3, [3000]), FAST)
    assert chosen(make_plan(ask([], slow, fast))) == ("c", ["CUDA0"])
    assert chosen(make_plan(ask([], fast, slow)))[0] == "b"
    medium = speeds(world.node(4, [3000]), 2 * SLOW)
    assert chosen(make_plan(ask([], medium, slow, fast)))[0] == "d"


def test_fewer_devices_are_better_than_faster_ones(ask, world):
    slow, pair = speeds(world.node(2, [3000]), SLOW), speeds(world.node(3, [1500, 1500]), FAST, FAST)
    assert chosen(make_plan(ask([], pair, slow)))[0] == "c"


def test_of_equal_ones_the_first(ask):
    assert chosen(make_plan(ask([], [3000], [3000])))[0] == "b"


@pytest.mark.parametrize("bandwidths", [(SLOW, FAST), (FAST, SLOW)])
def test_machines_of_the_same_memory_are_not_the_same(ask, world, bandwidths):
    """The same bytes on the same number of GPUs: in other pieces, or of another speed."""
    pieces = [speeds(world.node(2, [1200, 1800]), *bandwidths), speeds(world.node(3, [1500, 1500]), SLOW, SLOW)]
    assert chosen(make_plan(ask([], *reversed(pieces))))[0] == "c"
    assert chosen(make_plan(ask([], [1250, 1250], [2000, 500]))) == ("c", ["CUDA0"])


def test_a_machine_whose_ram_cannot_serve_says_nothing_of_others_like_it(ask, world):
    machines = [world.node(2, [3000], ram=10), world.node(3, [3000])]
    assert chosen(make_plan(ask([], *machines)))[0] == "c"


def test_the_host_before_a_faster_worker(ask, world):
    host, worker = speeds(world.node(1, [1500, 1500]), SLOW, SLOW), speeds(world.node(2, [3000]), FAST)
    assert chosen(make_plan(ask(host, worker))) == ("a", ["CUDA0", "CUDA1"])


def test_a_cpu_counts_as_one_device(ask, world):
    cpu, gpus = world.node(2, ram=4000), world.node(3, [1500, 1500])
    cpu["memory"]["bandwidth_bytes_per_second"] = SLOW // 2
    speeds(gpus, FAST, FAST)
    assert chosen(make_plan(ask(world.node(1, ram=500), gpus, cpu, allow_cpu=True))) == ("c", ["CPU"])
    one = speeds(world.node(3, [3000]), FAST)
    assert chosen(make_plan(ask(world.node(1, ram=500), cpu, one, allow_cpu=True))) == ("c", ["CUDA0"])
