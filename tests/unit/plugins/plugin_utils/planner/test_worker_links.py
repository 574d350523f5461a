# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan says of the way to its workers, which does not decide whether it is kept."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan


def pool(ask, world, **link):
    """A sharded request whose host measured this link to its only worker."""
    links = [{"name": "b", **link}] if link else []
    return ask(world.node(1, [1300], links=links), [1300])


def links(plan):
    return [worker["link"] for worker in plan["workers"]]


def test_a_worker_has_its_link(ask, world):
    assert links(make_plan(pool(ask, world, rtt_seconds=0.0004, speed_mbps=1000))) == [
        {"rtt_seconds": 0.0004, "speed_mbps": 1000}
    ]
    # 0 is what an interface says that has no speed
    assert links(make_plan(pool(ask, world, rtt_seconds=None, speed_mbps=0))) == [
        {"rtt_seconds": None, "speed_mbps": None}
    ]
    assert links(make_plan(pool(ask, world))) == [{"rtt_seconds": None, "speed_mbps": None}]


@pytest.mark.parametrize("today", [{"rtt_seconds": 0.0007, "speed_mbps": 1000}, {"rtt_seconds": None}, {}])
def test_a_link_that_was_measured_differently_changes_nothing(ask, world, today):
    first = make_plan(pool(ask, world, rtt_seconds=0.0004, speed_mbps=10000))
    again = pool(ask, world, **today)
    assert make_plan(dataclasses.replace(again, previous=json.loads(json.dumps(first)))) == {**first, "kept": True}


@pytest.mark.parametrize(
    "junk",
    [
        None, {}, "x", 3, {"rtt_seconds": 0.1}, {"rtt_seconds": -1, "speed_mbps": None},
        {"rtt_seconds": "x", "speed_mbps": None}, {"rtt_seconds": True, "speed_mbps": None},
        {"rtt_seconds": math.inf, "speed_mbps": None}, {"rtt_seconds": math.nan, "speed_mbps": None},
        {"rtt_seconds": None, "speed_mbps": None, "more": 1},
    ],
)  # fmt: skip
def test_a_link_that_no_plan_has_is_not_kept(ask, world, junk):
    request = pool(ask, world, rtt_seconds=0.0004, speed_mbps=10000)
    first = make_plan(request)
    previous = json.loads(json.dumps(first))
    previous["workers"][0]["link"] = junk
    assert make_plan(dataclasses.replace(request, previous=previous)) == first
