# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that do not exist."""

from __future__ import annotations

import contextlib
import copy
import json

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.machines.facts import check_facts
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.planner.what_if import filled_up, what_if
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from hypothesis import given
from hypothesis import strategies as st

MIB, GIB = 1024 * 1024, 1024**3
CARD = {"name": "NVIDIA GeForce RTX 3090", "memory_total_bytes": 24 * GIB}


@pytest.fixture
def pool(world):
    """Facts of a, the host, and b."""
    return {"a": world.node(1, [1300]), "b": world.node(2, [1300])}


def ask(pool, changes, workers=("b",)):
    """The pool as it would be; the facts that there are stay as they are."""
    before = copy.deepcopy(pool)
    there = what_if(pool, "a", workers, changes)
    assert pool == before
    for name, node in there.nodes.items():
        check_facts(name, node)
    return there


def test_another_card_in_a_machine(pool):
    there = ask(pool, {"b": {"gpus": [CARD]}})
    assert there.nodes["a"] == pool["a"]
    assert there.workers == ("b",)
    old, new = there.nodes["b"]["gpus"]
    assert old == pool["b"]["gpus"][0]
    assert (new["device"], new["index"], new["vendor"]) == ("CUDA1", 1, "nvidia")
    assert (new["memory_free_bytes"], new["bandwidth_bytes_per_second"]) == (24 * GIB, 936 * 10**9)


def test_a_machine_that_nobody_has(pool):
    there = ask(pool, {"c": {"gpus": [CARD, CARD], "memory": {"total_bytes": 64 * GIB}}})
    assert there.workers == ("b", "c")
    assert [gpu["device"] for gpu in there.nodes["c"]["gpus"]] == ["CUDA0", "CUDA1"]
    assert there.nodes["c"]["memory"] == {"total_bytes": 64 * GIB, "available_bytes": 64 * GIB}
    assert there.notes == ("c has no address yet: 198.18.0.1 stands for it",)


def test_stand_in_addresses_are_told_apart(pool):
    pool["b"]["address"] = "198.18.0.2"
    there = ask(pool, {name: {"gpus": [CARD]} for name in "cde"})
    assert [there.nodes[name]["address"] for name in "cde"] == ["198.18.0.1", "198.18.0.3", "198.18.0.4"]


@pytest.mark.parametrize(
    ("name", "size", "device", "bandwidth"),
    [
        ("AMD Radeon RX 7900 XTX", 24, "ROCm0", 960),
        ("AMD Instinct MI100", 32, "ROCm0", 1229),
        ("Intel(R) Arc(TM) B580 Graphics", 12, "SYCL0", 456),
        ("Arc Pro B60", 24, "SYCL0", 456),
        ("Apple M2 Ultra", 128, "MTL0", 800),
        ("NVIDIA GeForce RTX 4090", 24, "CUDA0", 1008),
        ("a card of next year", 48, "CUDA0", None),
    ],
)
def test_the_name_tells_the_vendor_and_the_bandwidth(pool, name, size, device, bandwidth):
    (gpu,) = ask(pool, {"c": {"gpus": [{"name": name, "memory_total_bytes": size * GIB}]}}).nodes["c"]["gpus"]
    assert gpu["device"] == device
    assert gpu["bandwidth_bytes_per_second"] == (bandwidth and bandwidth * 10**9)
    assert gpu.get("unified_memory", False) is name.startswith("Apple")


def test_what_is_stated_of_a_card_counts(pool):
    stated = {"vendor": "amd", "memory_free_bytes": 8 * GIB, "bandwidth_bytes_per_second": 7, "device": "Vulkan0"}
    (gpu,) = ask(pool, {"c": {"gpus": [{**CARD, **stated}]}}).nodes["c"]["gpus"]
    assert {key: gpu[key] for key in stated} == stated


def test_sizes_as_a_template_makes_them(pool):
    there = ask(pool, {"c": {"gpus": [{"memory_total_bytes": str(8 * GIB)}], "memory": {"total_bytes": "4096"}}})
    assert there.nodes["c"]["gpus"][0]["memory_free_bytes"] == 8 * GIB
    assert there.nodes["c"]["memory"]["available_bytes"] == 4096


def test_a_new_card_is_used_with_those_that_are_there(pool):
    pool["b"]["gpus"][0]["visible_devices"] = "GPU-2-0"
    assert ask(pool, {"b": {"gpus": [CARD]}}).nodes["b"]["gpus"][1]["visible_devices"] == "GPU-2-0"
    amd = {"name": "Radeon VII", "memory_total_bytes": 16 * GIB}
    assert not ask(pool, {"b": {"gpus": [amd]}}).nodes["b"]["gpus"][1].get("visible_devices")


def test_more_ram_leaves_used_what_is_used(pool):
    pool["b"]["memory"].update(total_bytes=8 * GIB, available_bytes=5 * GIB)
    memory = ask(pool, {"b": {"memory": {"total_bytes": 32 * GIB}}}).nodes["b"]["memory"]
    assert (memory["total_bytes"], memory["available_bytes"]) == (32 * GIB, 29 * GIB)
    assert memory["own_bytes"] == 0
    memory = ask(pool, {"b": {"memory": {"available_bytes": 16 * GIB}}}).nodes["b"]["memory"]
    assert (memory["total_bytes"], memory["available_bytes"]) == (16 * GIB, 16 * GIB)


def test_another_link(pool):
    pool["a"]["links"] = [{"name": "b", "rtt_seconds": 0.01, "speed_mbps": 100, "wireless": True}]
    there = ask(pool, {"b": {"link": {"speed_mbps": 10000}}, "c": {"gpus": [CARD], "link": {"rtt_seconds": 0.0001}}})
    assert there.nodes["a"]["links"] == [
        {"name": "b", "rtt_seconds": 0.01, "speed_mbps": 10000},
        {"name": "c", "rtt_seconds": 0.0001, "speed_mbps": None},
    ]


def test_machines_and_cards_that_are_taken_away(pool, world):
    pool["c"] = world.node(3, [1300, 900])
    there = ask(pool, {"b": {"state": "absent"}, "c": {"gpus": [{"state": "absent", "device": "CUDA0"}]}}, ("b", "c"))
    assert (there.workers, sorted(there.nodes)) == (("c",), ["a", "c"])
    assert [gpu["device"] for gpu in there.nodes["c"]["gpus"]] == ["CUDA1"]
    exchanged = [{"state": "absent", "uuid": "GPU-3-1"}, CARD]
    assert [gpu.get("uuid") for gpu in ask(pool, {"c": {"gpus": exchanged}}, ("b", "c")).nodes["c"]["gpus"]] == [
        "GPU-3-0",
        None,
    ]


def test_a_worker_without_facts_is_supposed_anew(pool):
    del pool["b"]
    there = ask(pool, {"b": {"gpus": [CARD]}})
    assert there.workers == ("b",)
    assert there.nodes["b"]["gpus"][0]["device"] == "CUDA0"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"b": None}, "relay_what_if.b is None, not a dictionary: give gpus, memory, link or state: absent"),
        ({"b": {}}, "relay_what_if.b is {}, not a dictionary"),
        ({"b": [CARD]}, "relay_what_if.b is [{'name'"),
        ({"b": {"ram": 1}}, "relay_what_if.b has ram, which is none of state, gpus, memory, link: correct it, or"),
        ({"b": {"state": "gone"}}, "relay_what_if.b.state is 'gone': it must be one of present, absent"),
        ({"c": {"state": "absent"}}, "relay_what_if.c.state is absent, but the pool is a, b: name one of these"),
        ({"a": {"state": "absent"}}, "relay_what_if.a.state is absent, but a runs llama-server"),
        ({"b": {"state": "absent", "gpus": [CARD]}}, "relay_what_if.b.state is absent, but it also has gpus"),
        ({"c": {"link": {"rtt_seconds": 1}}}, "relay_what_if.c is no machine of the pool and has neither gpus nor"),
        ({"b": {"gpus": CARD}}, "relay_what_if.b.gpus is {'name': "),
        ({"b": {"gpus": []}}, "relay_what_if.b.gpus is [], not a list of GPUs"),
        ({"b": {"gpus": ["3090"]}}, "relay_what_if.b.gpus.0 is '3090', not a dictionary: give name and memory_total"),
        ({"b": {"gpus": [{"name": "x"}]}}, "relay_what_if.b.gpus.0 has no memory_total_bytes: state it, as \"{{ '24"),
        ({"b": {"gpus": [{"memory_total_bytes": "24 GB"}]}}, "gpus.0.memory_total_bytes is '24 GB', not a number"),
        ({"b": {"gpus": [{"memory_total_bytes": 0}]}}, "relay_what_if.b.gpus.0.memory_total_bytes is 0, not a number"),
        ({"b": {"gpus": [{"memory_total_bytes": True}]}}, "memory_total_bytes is True, not a number of bytes"),
        ({"b": {"gpus": [{"memory_total_bytes": 2**60}]}}, "not a number of bytes"),
        ({"b": {"gpus": [{**CARD, "vendor": [None]}]}}, "relay_what_if.b.gpus.0.vendor is [None]: it must be one of"),
        ({"b": {"link": {"rtt_seconds": 86400}}}, "rtt_seconds is 86400, not a number of seconds, less than a day"),
        ({"b": {"gpus": [{**CARD, "memory_free_bytes": 25 * GIB}]}}, "more than memory_total_bytes, 25769803776"),
        ({"b": {"gpus": [{**CARD, "vendor": "matrox"}]}}, "vendor is 'matrox': it must be one of nvidia, amd"),
        ({"b": {"gpus": [{**CARD, "name": 3090}]}}, "relay_what_if.b.gpus.0.name is 3090, not a text"),
        ({"b": {"gpus": [{**CARD, "unified_memory": "yes"}]}}, "unified_memory is 'yes': it must be true or false"),
        ({"b": {"gpus": [{**CARD, "count": 2}]}}, "relay_what_if.b.gpus.0 has count, which is none of state, name"),
        ({"b": {"gpus": [{"state": "absent"}]}}, "gpus.0.state is absent with nothing else: name the GPU by device"),
        ({"b": {"gpus": [{"state": "absent", "device": "CUDA3"}]}}, "device is 'CUDA3', and there is CUDA0: name one"),
        ({"b": {"memory": {"total_bytes": "much"}}}, "relay_what_if.b.memory.total_bytes is 'much', not a number of"),
        ({"b": {"memory": {"total_bytes": 1, "available_bytes": 2}}}, "available_bytes is 2, more than total_bytes, 1"),
        ({"b": {"memory": {"size": 1}}}, "relay_what_if.b.memory has size, which is none of total_bytes"),
        ({"b": {"link": {"rtt_seconds": "soon"}}}, "relay_what_if.b.link.rtt_seconds is 'soon', not a number of"),
        ({"b": {"link": {"rtt_seconds": "nan"}}}, "relay_what_if.b.link.rtt_seconds is 'nan', not a number of seconds"),
        ({"b": {"link": {"speed_mbps": 0.5}}}, "relay_what_if.b.link.speed_mbps is 0.5, not a whole number of Mbit/s"),
        ({"a": {"link": {"speed_mbps": 1}}}, "relay_what_if.a.link is the way from a to itself"),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_meant_is_named(pool, changes, problem):
    with pytest.raises(PoolError) as caught:
        ask(pool, changes)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


JUNK = (None, True, -1, 0, 7, 1.5, float("nan"), 10**400, "", "x", "12", [], [1], {}, {"x": 1}, "absent")


def entries(**keys):
    """Dictionaries with some of these keys, or with junk in their place."""
    junk = st.sampled_from(JUNK)
    return st.fixed_dictionaries({}, optional={key: junk | value for key, value in keys.items()})


SIZES = {key: st.just(8 * GIB) for key in ("memory_total_bytes", "memory_free_bytes")}
GPUS = st.lists(entries(state=st.just("absent"), name=st.just("x"), device=st.just("CUDA0"), **SIZES), max_size=2)
RAM = entries(total_bytes=st.just(8 * GIB), available_bytes=st.just(4 * GIB))
LINK = entries(rtt_seconds=st.just(0.1), speed_mbps=st.just(100))


@given(st.dictionaries(st.sampled_from("abc"), entries(state=st.just("absent"), gpus=GPUS, memory=RAM, link=LINK)))
def test_anything_gives_facts_that_can_be_planned_with_or_one_sentence(changes):
    pool = {name: {"gpus": [], "address": f"10.0.0.{number}"} for number, name in enumerate("ab")}
    with contextlib.suppress(PoolError):
        ask(pool, changes)


# -- nodes that are written down -------------------------------------------------------------------------------


def test_names_and_cards_are_enough_for_a_plan(world):
    nodes, notes = filled_up({"a": {"gpus": [CARD]}, "b": {"gpus": [CARD]}})
    model = world.gguf(layer_mib=4000)
    plan = make_plan(Request(model=model, host="a", workers=("b",), nodes=nodes, ctx_size=4096, parallel=1))
    assert (plan["kind"], plan["rpc_backends"]) == ("sharded", ["198.18.0.2:50052"])
    assert plan["predicted"]["tokens_per_second"] > 10
    assert notes == [f"{name} has no address yet: 198.18.0.{n} stands for it" for n, name in ((1, "a"), (2, "b"))]


def test_what_was_gathered_stays_as_it_is(world):
    facts = world.node(1, [1000, None], ram=None, address=None, address_reason="IPv6 only")
    facts["gpus"][0].update(device=None, vendor="nvidia", index=None, memory_total_bytes=5)
    nodes = {"a": facts, "b": {}, "c": None, "d": 7, "e": {"gpus": 3, "address": "x"}}
    filled, notes = filled_up(json.loads(json.dumps(nodes)))
    assert (filled, notes) == (nodes, [])


def test_ram_that_is_written_down_is_free():
    (filled, _notes) = filled_up({"a": {"memory": {"total_bytes": 8 * MIB}, "address": "10.0.0.1"}})
    assert filled["a"]["memory"]["available_bytes"] == 8 * MIB


@pytest.mark.parametrize(("key", "junk"), [("memory", 5), ("gpus", [3]), ("address", [[]]), ("links", {})])
def test_facts_that_are_none_are_said_first(pool, key, junk):
    pool["b"][key] = junk
    with pytest.raises(PoolError, match=f"^the facts of b cannot be used: {key}"):
        what_if(pool, "a", ("b",), {"b": {"gpus": [CARD]}})
    assert filled_up(pool)[0]["b"] == pool["b"]
