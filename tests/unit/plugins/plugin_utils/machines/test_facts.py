# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts from a cache, an older version or somebody's hands."""

from __future__ import annotations

import json
import math

import pytest
from ansible_collections.relay.pool.plugins.module_utils import node
from ansible_collections.relay.pool.plugins.module_utils.gpu import record
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.machines.facts import NODE, check_facts
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.views.table import plan_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gpus": "none"}, "gpus is 'none', not a list"),
        ({"gpus": [None]}, "gpus.0 is None, not a dictionary"),
        ({"gpus": [{}, 5]}, "gpus.1 is 5, not a dictionary"),
        ({"gpus": [{"index": "0"}]}, "gpus.0.index is '0', not a whole number, 0 or more"),
        ({"gpus": [{"memory_free_bytes": -1}]}, "gpus.0.memory_free_bytes is -1, not a whole number, 0 or more"),
        ({"gpus": [{"memory_total_bytes": 2.0**34}]}, "gpus.0.memory_total_bytes is 17179869184.0, not a whole number"),
        ({"gpus": [{"memory_own_bytes": True}]}, "gpus.0.memory_own_bytes is True"),
        ({"gpus": [{"memory_free_bytes": 2**70}]}, "gpus.0.memory_free_bytes is"),
        ({"gpus": [{"placeable": "no"}]}, "gpus.0.placeable is 'no', not true or false"),
        ({"gpus": [{"device": 0}]}, "gpus.0.device is 0, not llama.cpp's name of one GPU"),
        ({"gpus": [{"device": "CPU"}]}, "gpus.0.device is 'CPU', not llama.cpp's name of one GPU"),
        ({"gpus": [{"device": "CUDA0,CUDA1"}]}, "gpus.0.device is 'CUDA0,CUDA1'"),
        ({"gpus": [{"visible_devices": [0]}]}, r"gpus.0.visible_devices is \[0\], not a text"),
        ({"gpus": [{"overridden": "all"}]}, "gpus.0.overridden is 'all', not a list"),
        ({"memory": 5}, "memory is 5, not a dictionary"),
        ({"memory": {"available_bytes": "4 GiB"}}, "memory.available_bytes is '4 GiB'"),
        ({"cpu": {"physical_cores": 0}}, "cpu.physical_cores is 0, not a whole number, 1 or more"),
        ({"links": [{"rtt_seconds": math.nan}]}, "links.0.rtt_seconds is nan, not a number of seconds"),
        (
            {"links": [{"rtt_seconds": 1e300}]},
            r"links.0.rtt_seconds is 1e\+300, not a number of seconds, less than a day",
        ),
        ({"backends": ["CUDA", None]}, "backends.1 is None, not a text"),
        ({"machine_id": "\ud800"}, "machine_id is .*, not a text"),
        ({"listeners": ["22"]}, "listeners.0 is '22', not a dictionary"),
        ({"overrides": {"memory.available_bytes": 1}}, "overrides is {.*, not a list"),
        ({"address": 5}, "address is 5, not a text"),
    ],
)
def test_facts_that_are_none(ask, world, changed, said):
    with pytest.raises(PoolError, match=f"^the facts of b cannot be used: {said}.*; gather them with relay.pool.node"):
        make_plan(ask([2000], {**world.node(2, [500]), **changed}))


@pytest.mark.parametrize("facts", [[1], "x", 5, True])
def test_facts_that_are_no_dictionary(facts):
    with pytest.raises(PoolError, match=r"the facts of b cannot be used: they are .*, not a dictionary"):
        check_facts("b", facts)


def test_null_is_unknown_and_what_is_missing_too(ask, world):
    nothing = dict.fromkeys(NODE)
    gpu = dict.fromkeys(NODE["gpus"][0])
    for odd in ({"x": 1}, nothing, {**nothing, "gpus": [{}, gpu]}, {**world.node(2), "address": "10.0.0.2"}):
        plan = make_plan(ask([2000], odd, allow_partial=True))
        assert plan["kind"] == "replica"
        assert plan["refused"]


def test_what_node_facts_returns_is_accepted():
    facts = node.gather(node.Options(units=[], links=[{"name": "b", "address": "127.0.0.1", "port": 9}]))
    facts["gpus"] = [record.new("nvidia", 0, device="CUDA0", memory_free_bytes=5)]
    check_facts("a", json.loads(json.dumps(facts)))
    assert set(NODE) - {"backends", "llama"} <= set(facts)
    for name in ("gpus", "links", "addresses"):
        assert set(NODE[name][0]) <= set(facts[name][0])
    assert set(NODE["memory"]) == set(facts["memory"])


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "5", "CPU", "CUDA0", [], {}, [1]])


def places(value, path=()):
    """The path of every value inside."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*path, key)
        yield from places(entry, (*path, key))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_plan_or_a_sentence_whatever_the_facts(ask, world, data):
    link = {"name": "b", "rtt_seconds": 0.1, "wireless": True, "interface": "wlan0", "speed_mbps": 5, "reason": None}
    own = {"interface": "wlan0", "address": "10.0.0.2", "prefix": 24, "speed_mbps": 1, "wireless": True}
    machines = [world.node(1, [500, 800], links=[link]), world.node(2, [900], addresses=[own])]
    for _time in range(data.draw(st.integers(1, 3))):
        facts = data.draw(st.sampled_from(machines))
        *parents, key = data.draw(st.sampled_from(list(places(facts))))
        for parent in parents:
            facts = facts[parent]
        facts[key] = data.draw(ODD)
    try:
        plan = make_plan(ask(*machines, allow_cpu=data.draw(st.booleans()), allow_partial=data.draw(st.booleans())))
    except PoolError:
        return
    json.dumps(plan, allow_nan=False)
    plan_table(plan)
