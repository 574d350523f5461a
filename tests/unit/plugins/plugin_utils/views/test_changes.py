# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is different in another plan, in a few words."""

from __future__ import annotations

import copy
import dataclasses
import re

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.views.changes import (
    MOST_CHANGES,
    MOST_REFUSED,
    changes,
    difference,
    unknown_before,
    what_if_lines,
)

GB = 10**9


@pytest.fixture
def small(world):
    """A draft of about 150 MiB and its path."""
    return {
        "draft": world.gguf("/models/draft.gguf", n_layer=4, layer_mib=20, embd_mib=10, output_mib=10),
        "draft_path": "/models/draft.gguf",
    }


def counts(plan):
    return {f"{s['host']} {s['device']}": s["n_layers"] for s in plan["stages"] if s["n_layers"]}


def test_the_same_placement_is_no_change(ask):
    plan = make_plan(ask([1500], [1300]))
    other = copy.deepcopy(plan)
    other.update(warnings=["a note"], advice=["another"], kept=True, inputs={}, llama={})
    other["stages"][1]["memory"]["free_bytes"] = 7
    assert changes(plan, other) == []


def test_layers_that_move_and_a_draft_that_goes(ask, small):
    before, after = make_plan(ask([1500], [1300], **small)), make_plan(ask([1500], [1300]))
    was, now = counts(before), counts(after)
    assert changes(before, after) == [
        *(f"{device} {was[device]} -> {now[device]} layers" for device in was if was[device] != now[device]),
        "draft on (CUDA0) -> off",
    ]
    assert was != now


def test_another_kind_of_plan(ask):
    before, after = make_plan(ask([1500], [1300])), make_plan(ask([900], [3000]))
    assert changes(before, after)[0] == "sharded, served by a -> replica on b"
    assert "output a CUDA0 -> b CUDA0" in changes(before, after)
    assert f"a CUDA0 {counts(before)['a CUDA0']} -> 0 layers" in changes(before, after)
    assert "b CUDA0 0 -> 10 layers" in changes(make_plan(ask([3000], [900])), after)


def test_what_is_served_otherwise(ask, world):
    request = ask([3000])
    plan = make_plan(request)
    for change, phrase in (
        ({"ctx_size": 2048}, "context 4096 -> 2048"),
        ({"parallel": 2}, "slots 1 -> 2"),
        ({"model": world.gguf("/models/n.gguf")}, "model /models/target.gguf -> /models/n.gguf"),
        ({"threads": 4}, "options of llama-server on a"),
    ):
        assert changes(plan, make_plan(dataclasses.replace(request, **change))) == [phrase]


def test_a_worker_with_other_options(ask):
    request = ask([1500], [1300])
    after = make_plan(dataclasses.replace(request, rpc_cache=False))
    assert changes(make_plan(request), after) == ["options of ggml-rpc-server on b"]


def test_a_long_list_is_cut(ask):
    plan = make_plan(ask([3000]))
    stage = plan["stages"][1]
    other = {**plan, "stages": [*plan["stages"], *({**stage, "host": f"m{n}"} for n in range(100))]}
    found = changes(plan, other)
    assert (len(found), found[-1]) == (MOST_CHANGES + 1, f"and {100 - MOST_CHANGES} more")


def test_a_plan_that_cannot_be_read(ask):
    assert unknown_before(make_plan(ask([3000]))) == "a plan that cannot be read -> replica on a"


def test_a_difference_of_tables():
    assert difference("a\nb\n", "a\nb\n") == []
    assert difference("a\nb\n", "a\nc\n") == ["--- previous plan", "+++ plan", "@@ -1,2 +1,2 @@", " a", "-b", "+c"]


# -- what if ---------------------------------------------------------------------------------------------------


def fast(node, *bandwidths):
    """The machine, its GPUs with so many GB/s."""
    for gpu, bandwidth in zip(node["gpus"], bandwidths, strict=True):
        gpu["bandwidth_bytes_per_second"] = bandwidth * GB
    return node


def test_another_machine(ask, world, small):
    request = ask(fast(world.node(1, [1500]), 300), fast(world.node(2, [1300]), 300), **small)
    before = make_plan(request)
    after = make_plan(ask(fast(world.node(1, [4000]), 900), fast(world.node(2, [1300]), 300), **small))
    lines = what_if_lines(before, after, None, None)
    assert lines[0] == "sharded, served by a -> replica on a"
    assert "machines: a, b -> a" in lines
    assert "devices: 2 -> 1" in lines
    assert any(re.fullmatch(r"layers: b CUDA0 \d -> 0, a CUDA0 \d -> 10", line) for line in lines)
    assert any(line.startswith("left free on the devices in use: ") for line in lines)
    rates = [plan["predicted"]["tokens_per_second"] for plan in (before, after)]
    assert f"speed without a draft, estimated: {rates[0]:g} tokens/s -> {rates[1]:g} tokens/s" in lines
    assert rates[1] > rates[0]
    assert any(line.startswith("draft: on (CUDA0) -> off (replica): the whole model fits a") for line in lines)


def test_a_rate_that_is_not_known_is_not_made_up(ask, world):
    known = fast(world.node(1, [3000]), 300)
    before, after = make_plan(ask(world.node(1, [3000]))), make_plan(ask(known))
    rate = after["predicted"]["tokens_per_second"]
    assert f"speed without a draft, estimated: unknown -> {rate:g} tokens/s" in what_if_lines(before, after, None, None)
    assert f"speed without a draft, estimated: stays at {rate:g} tokens/s" in what_if_lines(after, after, None, None)
    assert "speed: unknown, since the memory bandwidth of a device is" in what_if_lines(before, before, None, None)


def test_nothing_that_would_help(ask):
    plan = make_plan(ask([3000]))
    assert what_if_lines(plan, plan, None, None)[0] == "the placement would stay the same"


def test_pools_without_a_plan(ask, small):
    plan = make_plan(ask([1500], [1300], **small))
    assert what_if_lines(None, None, "x needs 9", "x needs 7") == ["would still not fit: x needs 7"]
    assert what_if_lines(plan, None, None, "x needs 7") == ["would not fit any more: x needs 7"]
    lines = what_if_lines(None, plan, "x needs 9", None)
    assert lines[0] == "would fit, which it does not now: sharded, served by a"
    assert lines[1].startswith("layers: b CUDA0 ")
    assert lines[-1].startswith("draft: on: /models/draft.gguf runs on a CUDA0")


def test_what_would_not_be_used_is_said_with_the_reason(ask, world):
    before = make_plan(ask([3000]))
    busy = world.node(1, [3000, 100])
    after = make_plan(ask(busy, world.node(2, [], ram=None)))
    lines = what_if_lines(before, after, None, None)
    assert "not used: b has no usable GPU: set relay_allow_cpu to use its CPU" in lines
    # Nothing of its RAM, which nobody stated.
    assert not any("could not be read" in line for line in lines)
    many = {**after, "refused": [{**after["refused"][-1], "message": f"{n}"} for n in range(100)]}
    assert what_if_lines(before, many, None, None)[-1] == f"not used: {100 - MOST_REFUSED} more"
