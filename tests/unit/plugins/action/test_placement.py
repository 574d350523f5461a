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


def test_the_build_of_each_machine_goes_into_the_plan():
    llama = {"version": "0.6.0", "build": 11434, "commit": "8363ca84", "flags": []}
    task = MagicMock(args={"model": GGUF, "host": "a", "workers": ["b"], "llama": llama}, async_val=0)
    hostvars = {name: {"ansible_facts": {"relay_node": node(i)}} for i, name in enumerate(("a", "b"), 1)}
    hostvars["b"]["relay_llama_info"] = {"llama": {**llama, "build": 11000}}
    action = ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    with pytest.raises(AnsibleActionFail, match=r"^b has llama.cpp 0.6.0 \(build 11000, .*a has 0.6.0 \(build 11434"):
        action.run(task_vars={"hostvars": hostvars})
    hostvars["b"]["relay_llama_info"] = {"llama": None}
    assert action.run(task_vars={"hostvars": hostvars})["plan"]["kind"] == "replica"


def test_a_diff_only_when_the_plan_differs():
    args = {"model": GGUF, "host": "a", "nodes": {"a": node(1)}}
    first = run(args)["plan"]
    kept = run({**args, "previous": first})
    assert kept["plan"]["kept"]
    assert "diff" not in kept
    changed = run({**args, "previous": first, "ctx_size": 4096})
    assert "context 16384" in changed["diff"]["before"]
    assert "context 4096" in changed["diff"]["after"]


@pytest.mark.parametrize("previous", [{"stages": "x"}, {"stages": [{}]}, {"schema": 2, "stages": [1], "host": None}])
def test_a_previous_plan_that_cannot_be_read_is_replaced(previous):
    result = run({"model": GGUF, "host": "a", "nodes": {"a": node(1)}, "previous": previous})
    assert not result["plan"]["kept"]
    assert result["diff"]["before"] == "a plan that cannot be read\n"


@pytest.mark.parametrize("previous", ["", "{cut short", "[1]", [1], 7])
def test_a_file_that_is_no_plan_counts_as_none(previous):
    result = run({"model": GGUF, "host": "a", "nodes": {"a": node(1)}, "previous": previous})
    assert not result["plan"]["kept"]
    assert "diff" not in result
    assert result["changes"] == (["a plan that cannot be read -> replica on a"] if previous else [])


def test_what_changes_is_said_in_words():
    args = {"model": GGUF, "host": "a", "nodes": {"a": node(1)}}
    first = run(args)
    assert (first["changes"], first["difference"]) == ([], [])
    again = run({**args, "previous": first["plan"], "ctx_size": 4096})
    assert again["changes"] == ["context 16384 -> 4096"]
    assert [line for line in again["difference"] if line.startswith("-m ")]
    assert again["changed"] is False


def test_a_saved_plan_is_applied_and_compared_with_the_one_that_runs():
    args = {"model": GGUF, "host": "a", "nodes": {"a": node(1)}}
    saved, running = run(args)["plan"], run({**args, "ctx_size": 4096})["plan"]
    for form in (saved, json.dumps(saved)):
        result = run({**args, "saved": form, "previous": running})
        assert result["plan"] == saved
        assert (result["changes"], result["changed"]) == (["context 4096 -> 16384"], False)
    second = run({**args, "saved": saved, "previous": json.dumps(saved)})
    assert second["plan"] == {**saved, "kept": True}
    assert (second["changes"], "diff" in second) == ([], False)


def test_a_saved_plan_of_another_pool_is_refused():
    args = {"model": GGUF, "host": "a", "nodes": {"a": node(1)}}
    saved = run(args)["plan"]
    with pytest.raises(AnsibleActionFail, match=r"relay_ctx_size was 16384 and is 4096: run plan.yml .* out\.$"):
        run({**args, "saved": saved, "ctx_size": 4096})
    with pytest.raises(AnsibleActionFail, match=r"^the saved plan is no JSON .* leave relay_plan_file out\.$"):
        run({**args, "saved": "{"})
    with pytest.raises(AnsibleActionFail, match="saved and what_if exclude each other"):
        run({**args, "saved": saved, "what_if": {"b": {"gpus": [{"memory_total_bytes": 1}]}}})


def test_what_another_machine_would_bring():
    tight = {"a": {**node(1), "gpus": []}}
    card = {"b": {"gpus": [{"name": "NVIDIA GeForce RTX 3090", "memory_total_bytes": 24 * 1024 * MIB}],
                  "memory": {"total_bytes": 4096 * MIB}}}  # fmt: skip
    result = run({"model": GGUF, "host": "a", "nodes": tight, "what_if": card})
    assert (result["plan"], result["changed"]) == (None, False)
    assert result["message"].startswith("no usable GPU on a")
    assert (result["what_if"]["plan"]["host"], result["what_if"]["message"]) == ("b", None)
    assert result["what_if"]["difference"][0] == "would fit, which it does not now: replica on b"
    assert any("198.18.0.1 stands for it" in line for line in result["what_if"]["plan"]["advice"])
    with pytest.raises(AnsibleActionFail, match=r"^relay_what_if.b.gpus is 3, not a list of GPUs: .*\.$"):
        run({"model": GGUF, "host": "a", "nodes": tight, "what_if": {"b": {"gpus": 3}}})


def test_what_would_be_is_planned_anew_and_what_is_stays():
    args = {"model": GGUF, "host": "a", "nodes": {"a": node(1)}}
    first = run(args)["plan"]
    result = run({**args, "previous": first, "what_if": {"a": {"memory": {"total_bytes": 9000 * MIB}}}})
    assert (result["plan"], result["what_if"]["plan"]["kept"]) == ({**first, "kept": True}, False)
    assert result["what_if"]["difference"][0] == "the placement would stay the same"


def test_machines_that_are_written_down_need_no_address():
    plan = run({"model": GGUF, "host": "a", "nodes": {"a": {"gpus": [{"memory_total_bytes": 4096 * MIB}]}}})["plan"]
    assert plan["kind"] == "replica"
    assert plan["advice"][-1] == "a has no address yet: 198.18.0.1 stands for it"


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
    proven = run({**args, "previous": plan, "draft_dropped": "not live", "draft_dropped_reason": "unsupported_build"})
    assert (proven["plan"]["draft"]["reason"], proven["plan"]["draft"]["message"]) == ("unsupported_build", "not live")
    assert run({**args, "previous": proven["plan"]})["plan"]["kept"]
    with pytest.raises(AnsibleError, match="draft_dropped_reason"):
        run({**args, "previous": plan, "draft_dropped": "not live", "draft_dropped_reason": "replica"})
    with pytest.raises(AnsibleActionFail, match=r"applied cannot be read without it: run deploy\.yml again\.$"):
        run({**args, "draft_dropped": "a CUDA0 has 1 MiB"})
