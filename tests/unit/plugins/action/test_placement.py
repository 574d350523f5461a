# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action: where facts come from, what it returns, how it fails."""

from __future__ import annotations

import json
from unittest.mock import MagicMock

import pytest
import yaml
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible_collections.relay.pool.plugins.action.placement import ARGUMENT_SPEC, ActionModule
from ansible_collections.relay.pool.plugins.modules import placement as documentation

MIB = 1024 * 1024
GGUF = {
    "path": "/models/m.gguf",
    "size_bytes": 4 * MIB,
    "architecture": "llama",
    "role": "model",
    "metadata": {
        "llama.block_count": 2,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 2,
        "llama.feed_forward_length": 128,
    },
    "tensors": {"blocks": [MIB, MIB], "token_embd_bytes": MIB, "output_bytes": MIB, "input_bytes": MIB},
    "tokenizer": {"n_tokens": 100},
}


def node(number, free=4096):
    return {
        "gpus": [{"index": 0, "device": "CUDA0", "memory_free_bytes": free * MIB, "memory_own_bytes": 0}],
        "memory": {"available_bytes": 4096 * MIB, "own_bytes": 0},
        "address": f"10.0.0.{number}",
        "machine_id": str(number),
    }


def run(args, facts=()):
    task = MagicMock(args=args, async_val=0, check_mode=True, action="relay.pool.placement", diff=True)
    action = ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    hostvars = {name: {"ansible_facts": {"relay_node": value} if value else {}} for name, value in dict(facts).items()}
    return action.run(task_vars={"hostvars": hostvars})


def test_facts_of_the_named_machines_are_the_default():
    result = run({"model": GGUF, "host": "a", "workers": ["b"]}, {"a": node(1), "b": node(2), "other": node(3)})
    assert result["plan"]["host"] == "a"
    assert result["plan"]["inputs"]["workers"] == ["b"]
    assert (result["changed"], "diff" in result) == (False, False)


def test_nodes_may_be_given_outright():
    assert run({"model": GGUF, "host": "a", "nodes": {"a": node(1)}})["plan"]["kind"] == "replica"


def test_machines_without_facts_are_named_in_one_sentence():
    with pytest.raises(AnsibleActionFail, match=r"no facts of b, c:.*\.$") as caught:
        run({"model": GGUF, "host": "a", "workers": ["b", "c"]}, {"a": node(1), "b": None})
    assert "\n" not in str(caught.value)


def test_a_diff_only_when_the_plan_differs():
    args = {"model": GGUF, "host": "a", "nodes": {"a": node(1)}}
    first = run(args)["plan"]
    kept = run({**args, "previous": first})
    assert kept["plan"]["kept"]
    assert "diff" not in kept
    changed = run({**args, "previous": first, "ctx_size": 4096})
    assert "context 16384" in changed["diff"]["before"]
    assert "context 4096" in changed["diff"]["after"]


@pytest.mark.parametrize("previous", [{"stages": "x"}, {"stages": [{}]}, {"schema": 1, "stages": [1], "host": None}])
def test_a_previous_plan_that_cannot_be_read_is_replaced(previous):
    result = run({"model": GGUF, "host": "a", "nodes": {"a": node(1)}, "previous": previous})
    assert not result["plan"]["kept"]
    assert result["diff"]["before"] == "a plan that cannot be read\n"


@pytest.mark.parametrize("previous", ["", "{cut short", "[1]", [1], 7])
def test_a_file_that_is_no_plan_counts_as_none(previous):
    result = run({"model": GGUF, "host": "a", "nodes": {"a": node(1)}, "previous": previous})
    assert not result["plan"]["kept"]
    assert "diff" not in result


def test_a_previous_plan_may_be_the_text_of_its_file():
    args = {"model": GGUF, "host": "a", "nodes": {"a": node(1)}}
    assert run({**args, "previous": json.dumps(run(args)["plan"])})["plan"]["kept"]


def test_a_dropped_draft_is_warned_of_once():
    result = run({"model": GGUF, "host": "a", "nodes": {"a": node(1)}, "draft_path": "/models/none.gguf"})
    assert sum("no draft (not_found)" in warning for warning in result["warnings"]) == 1


@pytest.mark.parametrize("bad", [{"ctx_size": "many"}, {"draft_scope": "all"}, {"unknown": 1}, {"cache_type_k": "q9"}])
def test_options_are_checked(bad):
    with pytest.raises(AnsibleError, match=next(iter(bad))):
        run({"model": GGUF, "host": "a", "nodes": {"a": node(1)}, **bad})


def test_it_needs_no_connection():
    assert ActionModule._requires_connection is False
    assert ActionModule._supports_check_mode is True


def test_the_documentation_lists_exactly_the_options():
    options = yaml.safe_load(documentation.DOCUMENTATION)["options"]
    for name, entry in options.items():
        entry.pop("description")
        assert {key: value for key, value in ARGUMENT_SPEC[name].items() if key != "no_log"} == entry, name
    assert options.keys() == ARGUMENT_SPEC.keys()
    fields = set(yaml.safe_load(documentation.RETURN)["plan"]["contains"])
    assert fields == set(run({"model": GGUF, "host": "a", "nodes": {"a": node(1)}})["plan"])


def test_the_plan_without_a_draft_that_has_no_room_any_more():
    args = {
        "model": GGUF, "draft": {**GGUF, "path": "/models/d.gguf"}, "draft_path": "/models/d.gguf",
        "draft_scope": "any", "host": "a", "nodes": {"a": node(1)},
    }  # fmt: skip
    plan = run(args)["plan"]
    assert plan["draft"]["enabled"]
    result = run({**args, "previous": plan, "draft_dropped": "a CUDA0 has 1 MiB"})
    again = result["plan"]
    assert (again["draft"]["enabled"], again["draft"]["message"]) == (False, "a CUDA0 has 1 MiB")
    assert [stage["n_layers"] for stage in again["stages"]] == [stage["n_layers"] for stage in plan["stages"]]
    assert "no draft (no_room): a CUDA0 has 1 MiB" in result["warnings"]
    assert "draft" in result["diff"]["before"]
    with pytest.raises(AnsibleActionFail, match=r"there is no such plan without it: run deploy\.yml again\.$"):
        run({**args, "draft_dropped": "a CUDA0 has 1 MiB"})
