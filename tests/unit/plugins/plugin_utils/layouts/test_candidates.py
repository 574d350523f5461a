# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""More devices than llama.cpp takes: the best choice of a few, with smaller limits so that all can be tried."""

from __future__ import annotations

from random import Random

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.arrangement import Arrangement
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.candidates import FEW, candidates
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.costs import TICKS_PER_SECOND, nominal_bandwidth
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.sharded import best_sharded, sharded_exists
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import Planner, make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

from tests.scale.brute import Brute
from tests.scale.pools import random_request

EVERY = 10**9


def asked(seed, limits, *shape):
    """(planner, arrangement with a small limit), or None where no machine has a device."""
    rng = Random(seed)
    try:
        planner = Planner(Request(**random_request(rng, *shape)))
    except PoolError:
        return None
    nominal = nominal_bandwidth(planner.pool.holders(planner.request.allow_cpu))
    return planner, Arrangement(planner.ledger, nominal, rng.choice(limits))


@pytest.mark.parametrize("part", range(5))
def test_the_best_of_all_choices(part):
    compared = optimal = 0
    for seed in range(part * 100, part * 100 + 100):
        found = asked(seed, [2, 3, 4], 6, 2, (4, 6))
        if found is None:
            continue
        planner, arrangement = found
        allow_cpu = planner.request.allow_cpu
        expected = Brute(planner.request, arrangement.limit).sharded(planner.ledger, None, False)
        assert sharded_exists(arrangement, planner.pool, allow_cpu) == (expected is not None), seed
        best = best_sharded(arrangement, planner.pool, allow_cpu)
        fewest = best_sharded(arrangement, planner.pool, allow_cpu, few=arrangement.limit)
        assert (best is None) == (fewest is None) == (expected is None), seed
        if expected and best and fewest:
            assert len(best.segments) + bool(best.cpu_layers) == expected[1], seed
            assert best.key[0] / TICKS_PER_SECOND == pytest.approx(expected[0], rel=1e-9), seed
            compared, optimal = compared + 1, optimal + (fewest.key[0] == best.key[0])
            assert fewest.key[0] < 1.2 * best.key[0], seed
    # Where not everything is compared the best is found all the same, nearly always.
    assert optimal >= 0.95 * compared > 10


def test_a_choice_of_many_is_as_good_as_all():
    compared = optimal = 0
    for seed in range(150):
        found = asked(seed, [3, 4, 8, 15], 40, Random(seed).choice([1, 2, 4]), (8, 30))
        if found is None:
            continue
        planner, arrangement = found
        every, some = (
            best_sharded(arrangement, planner.pool, planner.request.allow_cpu, few=few)
            for few in (EVERY, arrangement.limit)
        )
        assert (every is None) == (some is None), seed
        if every and some:
            compared, optimal = compared + 1, optimal + (every.key[0] == some.key[0])
            assert some.key[0] <= 1.05 * every.key[0], seed
    assert optimal >= 0.95 * compared > 20


def test_few_are_all_compared_and_many_keep_their_order(ask, world):
    request = ask([700], *([400 + 10 * number] for number in range(200)))
    planner = Planner(request)
    arrangement = Arrangement(planner.ledger, nominal_bandwidth(planner.pool.holders(False)))
    assert candidates(arrangement, planner.pool.rpc[:FEW]) == list(planner.pool.rpc[:FEW])
    some = candidates(arrangement, planner.pool.rpc)
    assert some == [device for device in planner.pool.rpc if device in some]
    assert len(some) < len(planner.pool.rpc)
    # Those with most memory are among them whatever else.
    assert set(planner.pool.rpc[-15:]) <= set(some)


def test_a_fast_device_is_not_left_out_for_its_size(ask, world):
    """Two large and slow ones would hold the model, two small and fast ones hold it faster."""
    slow = [world.node(number, [1500]) for number in range(2, 22)]
    fast = [world.node(number, [1300]) for number in range(30, 32)]
    for node in (*slow, *fast):
        node["gpus"][0]["bandwidth_bytes_per_second"] = 10**12 if node in fast else 10**10
    plan = make_plan(ask([], *slow, *fast, reserve_bytes=100 << 20, model=world.gguf(n_layer=16)))
    assert [worker["address"] for worker in plan["workers"]] == ["10.0.0.30", "10.0.0.31"]


def test_a_small_device_in_the_right_place_is_found_where_larger_ones_do_not_do(ask, world):
    """Only the third machine holds the first layer, and only the slow and small fourth one is after it."""
    model = world.gguf(n_layer=3)
    model["tensors"]["blocks"] = [900 << 20, 650 << 20, 50 << 20]
    nodes = [world.node(number, [size]) for number, size in enumerate((300, 750, 750, 1000, 740, 100), 1)]
    nodes[-2]["gpus"][0]["bandwidth_bytes_per_second"] = 10**9
    nodes[1]["gpus"][0]["bandwidth_bytes_per_second"] = 10**12
    planner = Planner(ask(*nodes, model=model, ctx_size=512, reserve_bytes=0))
    arrangement = Arrangement(planner.ledger, nominal_bandwidth(planner.pool.holders(False)), limit=3)
    assert [device.host for device in candidates(arrangement, planner.pool.rpc, few=3)] == ["b", "c", "d"]
    layout = best_sharded(arrangement, planner.pool, False, few=3)
    assert layout
    assert [(device.host, first, end) for device, first, end in layout.segments] == [
        ("d", 0, 1),
        ("e", 1, 2),
        ("a", 2, 4),
    ]
