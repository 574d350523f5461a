# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan says about links that were not measured, or that are wireless."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.advice.links import link_advice
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan


def link(name, **fields):
    known = {"address": "10.0.0.2", "rtt_seconds": 0.0002, "interface": "eth0", "speed_mbps": 1000, "wireless": False}
    return {"name": name, "reason": None, **known, **fields}


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, None),
        (
            {"wireless": True, "interface": "wlan0", "speed_mbps": None, "rtt_seconds": 0.00412},
            "b is reached over Wi-Fi (wlan0 of a, round trip 4.1 ms): every token crosses it, "
            "and a cable is faster and steadier",
        ),
        (
            {"wireless": True, "speed_mbps": 300, "rtt_seconds": None, "reason": "timed out"},
            "b is reached over Wi-Fi (eth0 of a at 300 Mbit/s, round trip unknown): every token crosses it, "
            "and a cable is faster and steadier",
        ),
        (
            {"rtt_seconds": None, "reason": "timed out after 1 s"},
            "the round trip from a to b could not be measured: timed out after 1 s",
        ),
        ({"rtt_seconds": None}, "the round trip from a to b could not be measured: no reason is known"),
    ],
)
def test_a_link_that_is_slow_or_unknown_is_a_line_of_advice(ask, world, fields, line):
    # the others are not in the plan: a worker without room, and one that does not exist
    links = [link("b", **fields), link("c", wireless=True), link("z", rtt_seconds=None)]
    plan = make_plan(ask(world.node(1, [1300], links=links), [1300], [500]))
    assert plan["advice"] == ([line] if line else [])
    # a replica talks to nobody
    assert make_plan(ask(world.node(1, [3000], links=links), [1300], [500]))["advice"] == []


def test_links_may_be_missing_or_sparse(ask, world):
    for links in (None, [], [{}], [{"name": "b", "rtt_seconds": 0.001}]):
        assert make_plan(ask(world.node(1, [1300], links=links), [1300]))["advice"] == []


WIFI = {"interface": "wlan0", "address": "10.0.0.2", "prefix": 24, "speed_mbps": None, "wireless": True}
CABLE = {**WIFI, "interface": "eno1", "speed_mbps": 2500, "wireless": False}
ELSEWHERE = {**WIFI, "interface": "wlan1", "address": "10.9.0.2"}


@pytest.mark.parametrize(
    ("fields", "addresses", "ends"),
    [
        ({}, [CABLE], None),
        ({}, [WIFI], "wlan0 of b, round trip 0.2 ms"),
        ({}, [ELSEWHERE, {**WIFI, "speed_mbps": 866}], "wlan0 of b at 866 Mbit/s, round trip 0.2 ms"),
        ({"wireless": True, "interface": "wlp3s0"}, [CABLE], "wlp3s0 of a at 1000 Mbit/s, round trip 0.2 ms"),
        (
            {"wireless": True, "interface": "wlp3s0", "speed_mbps": None},
            [WIFI],
            "wlp3s0 of a, wlan0 of b, round trip 0.2 ms",
        ),
        # Wi-Fi that this traffic does not take, and the same address on a cable
        ({}, [CABLE, ELSEWHERE], None),
        ({}, [WIFI, CABLE], None),
        # the time is unknown, or nothing was measured
        ({"rtt_seconds": None, "reason": "timed out"}, [WIFI], "wlan0 of b, round trip unknown"),
        (None, [WIFI], "wlan0 of b, round trip unknown"),
        (None, [CABLE], None),
        # given by hand
        ({}, [{"address": "10.0.0.2", "wireless": True}], "an interface of b, round trip 0.2 ms"),
        ({}, [{"address": "10.0.0.2"}, {}], None),
        ({}, [{"wireless": True}], None),
        ({}, [], None),
        ({}, None, None),
    ],
)
def test_either_end_may_be_wireless(ask, world, fields, addresses, ends):
    host = world.node(1, [1300], addresses=[{**WIFI, "address": "10.0.0.1"}])
    if fields is not None:
        host["links"] = [link("b", **fields)]
    advice = make_plan(ask(host, world.node(2, [1300], addresses=addresses)))["advice"]
    if ends is None:
        assert advice == []
    else:
        assert advice == [
            f"b is reached over Wi-Fi ({ends}): every token crosses it, and a cable is faster and steadier"
        ]


def test_advice_about_links_wants_no_facts_about_them():
    wireless = {"addresses": [WIFI]}
    assert link_advice("a", {"a": {}, "b": {}, "c": wireless, "d": {"address": None, **wireless}}, "abcd") == []


def test_advice_about_links_has_the_order_of_the_workers():
    nodes = {"a": {"links": [link("c", wireless=True), link("b", rtt_seconds=None)]}, "b": {}, "c": {}}
    assert [line[:5] for line in link_advice("a", nodes, ["a", "c", "b"])] == ["c is ", "the r"]
    assert [line[:5] for line in link_advice("a", nodes, ["b", "c"])] == ["the r", "c is "]
