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


def test_gpus_before_a_cpu_however_few_devices_it_is(ask, world):
    cpu, gpus = world.node(2, ram=4000), speeds(world.node(3, [1500, 1500]), FAST, FAST)
    assert chosen(make_plan(ask(world.node(1, ram=500), gpus, cpu, allow_cpu=True))) == ("b", ["CUDA0", "CUDA1"])
    assert chosen(make_plan(ask(world.node(1, ram=500), cpu, gpus, allow_cpu=True))) == ("c", ["CUDA0", "CUDA1"])
    host = world.node(1, ram=4000)
    assert chosen(make_plan(ask(host, gpus, allow_cpu=True))) == ("b", ["CUDA0", "CUDA1"])
    assert chosen(make_plan(ask(host, world.node(3, [600]), allow_cpu=True)))[0] == "a"


@pytest.mark.parametrize(("bandwidth", "kind"), [(FAST, "sharded"), (SLOW // 200, "replica")])
def test_the_cpu_of_a_machine_gives_way_to_gpus_of_several_where_these_are_faster(ask, world, bandwidth, kind):
    """A model on the one machine with much RAM, beside GPUs that hold it together."""
    gpus = [speeds(world.node(number, [1250]), bandwidth) for number in (1, 2)]
    big = world.node(3, ram=64000)
    big["memory"]["bandwidth_bytes_per_second"] = SLOW // 4
    plan = make_plan(ask(*gpus, big, allow_cpu=True))
    assert plan["kind"] == kind
    assert ("c" in {stage["host"] for stage in plan["stages"]}) == (kind == "replica")


def test_ram_of_unknown_speed_is_no_gpu(ask, world):
    """Nobody states the bandwidth of RAM, and one that counts as that of the GPUs attracts layers by its size."""
    gpus = [speeds(world.node(number, [1250]), FAST) for number in (1, 2)]
    plan = make_plan(ask(*gpus, world.node(3, ram=1300), allow_cpu=True))
    assert {stage["host"] for stage in plan["stages"]} == {"a", "b"}
    unknown = [world.node(number, [1250]) for number in (1, 2)]
    plan = make_plan(ask(*unknown, world.node(3, ram=1300), allow_cpu=True))
    assert {stage["host"] for stage in plan["stages"]} == {"a", "b"}
