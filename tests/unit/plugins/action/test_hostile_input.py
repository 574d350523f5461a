# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever stands where: a plan that can be written and is kept, or one sentence. RELAY_MANGLED: how many are tried."""

from __future__ import annotations

import json
import os
from random import Random

import pytest
from ansible.errors import AnsibleError
from ansible_collections.relay.pool.plugins.plugin_utils.planner import placement
from ansible_collections.relay.pool.plugins.plugin_utils.views.html import plan_html
from ansible_collections.relay.pool.plugins.plugin_utils.views.table import plan_table

from tests.scale.pools import random_request
from tests.unit.plugins.action.test_placement import run

MANGLED, PARTS = int(os.environ.get("RELAY_MANGLED", "2400")), 6
INFINITE = (float("nan"), float("inf"))
VALUES = (
    None, True, 0, -1, 1, 511, 2**31, 2**32 - 1, 10**18, 2**63, 10**30, -0.0, 0.5, 1e-320, 1e300, *INFINITE, "", "x",
    "<script>", "a\nb", "a'\"b", "\u202e", "\ud800", "\x00\x1b[31m", "100%", "{{ 1 }}", "-1", "12", "CPU", "RPC0", [],
    [None], [0], [[]], ["a"], {}, {"a": 1}, {1: 2, "a": 3}, [{}],
)  # fmt: skip


def places(value, way=()):
    """The way to every entry."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*way, key)
        yield from places(entry, (*way, key))


def mangled(rng):
    """Options with something else in one or two places, or with something missing."""
    options = random_request(rng, 3, 2, (1, 12))
    options["workers"] = list(options["workers"])
    for _change in range(rng.choice([1, 1, 2])):
        *way, last = rng.choice(list(places(options)))
        parent = options
        for key in way:
            parent = parent[key]
        if rng.random() < 0.1:
            del parent[last]
        else:
            # What Ansible itself makes of an infinite number of slots is not for the planner.
            values = [value for value in VALUES if way or value not in INFINITE]
            value = rng.choice(values)
            parent[last] = list(value) if isinstance(value, list) else value
    return options


@pytest.mark.parametrize("part", range(PARTS))
def test_a_plan_or_a_sentence(part, monkeypatch):
    monkeypatch.setattr(placement, "explain", lambda *_asked: "needs more than the pool has")
    planned = 0
    for seed in range(part * MANGLED // PARTS, (part + 1) * MANGLED // PARTS):
        options = mangled(Random(f"mangled {seed}"))
        try:
            result = run(options)
        except AnsibleError:
            continue
        except Exception as exc:
            raise AssertionError(f"mangled {seed}") from exc
        plan = result["plan"]
        text = json.dumps(plan, allow_nan=False)
        for view in (text, plan_table(plan), plan_html(plan)):
            view.encode()
        assert run({**options, "previous": text})["plan"] == {**plan, "kept": True}, seed
        planned += 1
    assert planned
