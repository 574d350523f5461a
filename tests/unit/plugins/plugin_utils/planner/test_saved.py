# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A saved plan is applied to the letter, or refused with everything that differs."""

from __future__ import annotations

import copy
import dataclasses
import json
import re

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.planner.saved import MOST_SHOWN, read_plan, saved_plan

from tests.builds import MAY, TODAY, facts_of

MIB = 1024 * 1024


@pytest.fixture
def pool(ask, world):
    """A request of a sharded plan with a draft, and its plan as its file has it."""
    draft = world.gguf("/models/draft.gguf", n_layer=4, layer_mib=20, embd_mib=10, output_mib=10)
    request = ask([1500], [1300], draft=draft, draft_path="/models/draft.gguf")
    return request, json.loads(json.dumps(make_plan(request)))


def refusal(request, plan, nodes=None, **changes):
    """The phrases of the refusal."""
    with pytest.raises(PoolError) as caught:
        saved_plan(dataclasses.replace(request, nodes=nodes or request.nodes, previous=plan, **changes))
    before, _pool, rest = str(caught.value).partition("the pool any more: ")
    assert before == "the saved plan does not match "
    phrases, _colon, way_out = rest.rpartition(": ")
    assert way_out == "run plan.yml again, or leave relay_plan_file out"
    return phrases.split("; ")


def edited(request, host, edit):
    """The nodes, one of them edited."""
    nodes = copy.deepcopy(request.nodes)
    edit(nodes[host])
    return nodes


def test_the_same_pool_runs_the_saved_plan_to_the_letter(pool):
    request, plan = pool
    assert {**saved_plan(dataclasses.replace(request, previous=plan)), "kept": False} == plan


def test_a_plan_that_the_planner_would_not_make_now_is_applied_as_it_is(ask):
    request = ask([1500], [1300], [1300])
    plan = json.loads(json.dumps(make_plan(request)))
    # More room would move layers, or even need one machine less.
    more = ask([9000], [1300], [1300])
    assert make_plan(more)["kind"] == "replica"
    assert saved_plan(dataclasses.replace(more, previous=plan))["stages"] == plan["stages"]


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"ctx_size": 2048}, "relay_ctx_size was 4096 and is 2048"),
        ({"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, "relay_kv_cache_type was f16 and is q8_0"),
        ({"server_port": 80}, "relay_host_port was 8384 and is 80"),
        ({"server_host": "0.0.0.0"}, "relay_host_address was 127.0.0.1 and is 0.0.0.0"),
        ({"extra_args": ("--no-mmap",)}, "relay_extra_args was empty and is --no-mmap"),
        ({"threads": 4}, "relay_threads was unset and is 4"),
        ({"allow_cpu": True}, "relay_allow_cpu was false and is true"),
        ({"api_key_file": "/etc/relay-pool/api-key"}, "relay_api_key was unset and is /etc/relay-pool/api-key"),
        ({"batch_size": 1024}, "batch_size was 2048 and is 1024"),
        ({"alias": "x" * 500}, f"relay_alias was target and is {'x' * 117}..."),
    ],
)
def test_a_variable_that_differs_is_named_with_both_values(pool, changes, phrase):
    assert refusal(*pool, **changes) == [phrase]


def test_another_model_file(pool, world):
    request, plan = pool
    (phrase,) = refusal(request, plan, model=world.gguf(layer_mib=99))
    assert re.fullmatch(
        r"the model file is another one \(it had 1 110 MiB, digest \w{16}, and has 1 100 MiB, digest \w{16}\)", phrase
    )
    phrases = refusal(request, plan, model=world.gguf("/models/other.gguf"))
    assert "relay_model was /models/target.gguf and is /models/other.gguf" in phrases


def test_another_draft(pool, world):
    request, plan = pool
    assert refusal(request, plan, draft=None) == ["there is no draft model /models/draft.gguf"]
    (phrase,) = refusal(request, plan, draft=world.gguf("/models/draft.gguf", n_layer=3, layer_mib=20))
    assert phrase.startswith("the draft file is another one")
    assert refusal(request, plan, draft=None, draft_path="/n.gguf") == [
        "relay_draft_model was /models/draft.gguf and is /n.gguf"
    ]
    comparison = {"compatible": False, "reason": "token", "first_difference": "token 7 differs"}
    assert refusal(request, plan, comparison=comparison) == ["draft.reason was enabled and is tokenizer_mismatch"]


def test_machines_that_come_and_go(ask, world):
    request = ask([1500], [1300], [1300])
    plan = json.loads(json.dumps(make_plan(request)))
    less = {name: node for name, node in request.nodes.items() if name != "c"}
    assert refusal(request, plan, less, workers=("b",)) == ["c is gone from the pool"]
    more = {**request.nodes, "d": world.node(9, [1300])}
    assert refusal(request, plan, more, workers=("b", "c", "d")) == ["d is new in the pool"]
    assert refusal(request, plan, workers=("c", "b")) == ["the workers were b, c and are c, b"]
    assert refusal(request, plan, host="b", workers=("a", "c")) == ["the host was a and is b"]


def test_gpus_that_come_go_and_change_their_names(pool):
    request, plan = pool

    def other(node):
        node["gpus"][0]["uuid"] = "GPU-new"

    phrases = refusal(request, plan, edited(request, "b", other))
    assert phrases == ["b CUDA0 (GPU-2-0) is gone", "b has a new GPU CUDA0 (GPU-new)"]

    def renamed(node):
        node["gpus"][0]["device"] = "CUDA1"

    assert refusal(request, plan, edited(request, "b", renamed)) == ["GPU-2-0 of b was CUDA0 and is CUDA1"]

    def added(node):
        node["gpus"].append({**node["gpus"][0], "index": 1, "device": "CUDA1", "uuid": None})

    assert refusal(request, plan, edited(request, "b", added)) == ["b has a new GPU CUDA1"]


def test_facts_of_a_machine_that_differ(pool):
    request, plan = pool

    def moved(node):
        node["address"] = "10.9.9.9"
        node["cpu"]["physical_cores"] = 8
        node["gpus"][0]["bandwidth_bytes_per_second"] = 936 * 10**9

    # Once per machine, not once per device of it.
    assert refusal(request, plan, edited(request, "b", moved)) == [
        "the address of b was 10.0.0.2 and is 10.9.9.9",
        "the number of physical cores of b was 4 and is 8",
        "the bandwidth of b CUDA0 was unknown and is 936 GB/s",
    ]

    def stated(node):
        node["overrides"] = ["memory.available_bytes"]

    assert refusal(request, plan, edited(request, "a", stated)) == [
        "the memory of a CPU in relay_overrides was not stated and is 4 096 MiB"
    ]

    def forgotten(node):
        node["memory"]["available_bytes"] = None

    assert refusal(request, plan, edited(request, "a", forgotten)) == ["the free RAM of a is unknown"]


def test_another_build_where_it_matters(pool):
    from ansible_collections.relay.pool.plugins.plugin_utils.server import dialect

    request, plan = pool
    known = [*dialect.REQUIRED, *dialect.REQUIRED_SHARDED, *dialect.OPTIONAL, *dialect.DRAFT_FLAGS, "--spec-type"]
    llama = {"flags": known, "spec_types": ["draft-simple"], "backends": ["RPC", "CUDA"], "version": "2", "build": 2}
    applied = saved_plan(dataclasses.replace(request, llama=llama, previous=plan))
    assert (applied["llama"]["build"], applied["server_args"]) == (2, plan["server_args"])
    old = {**llama, "flags": [flag for flag in known if flag not in ("--fit", "--cache-ram")]}
    assert refusal(request, plan, llama=old) == ["llama.cpp is another build, which differs in --cache-ram, --fit"]


def test_a_device_with_too_little_memory_is_named_with_both_numbers(pool):
    request, plan = pool
    stage = next(stage for stage in plan["stages"] if stage["host"] == "b")
    need = stage["memory"]["total_bytes"] - stage["memory"]["reserve_bytes"]

    def free(size):
        def edit(node):
            node["gpus"][0]["memory_free_bytes"] = size

        return edited(request, "b", edit)

    assert saved_plan(dataclasses.replace(request, previous=plan, nodes=free(need)))["stages"] == plan["stages"]
    (phrase,) = refusal(request, plan, free(need - 1))
    shown = f"{-(-need // MIB):,} MiB".replace(",", " ")
    assert phrase == f"b CUDA0 has {shown} free, the plan needs {shown}"
    (phrase,) = refusal(request, plan, free(100 * MIB))
    assert phrase == f"b CUDA0 has 100 MiB free, the plan needs {shown}"


def test_everything_that_differs_is_said_at_once(pool):
    request, plan = pool
    nodes = edited(request, "b", lambda node: node["gpus"][0].update(memory_free_bytes=100 * MIB))
    assert len(refusal(request, plan, nodes, ctx_size=2048, threads=2)) == 3


def test_a_long_list_is_cut(ask):
    request = ask([1500], *([[1300]] * 30))
    plan = json.loads(json.dumps(make_plan(request)))
    phrases = refusal(request, plan, workers=("b",))
    assert len(phrases) == MOST_SHOWN + 1
    assert phrases[-1] == f"and {29 - MOST_SHOWN} more"


def places(value, path=()):
    """Every place in the data, the deepest last."""
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def test_an_edited_plan_is_refused_and_never_a_traceback(pool):
    request, plan = pool
    count = 0
    for path in places(plan):
        # What the planner said on that day is not applied, and inputs that differ are named as differences.
        if path[0] in ("warnings", "advice", "kept", "llama", "schema", "predicted") or "link" in path:
            continue
        if path[-2:] == ("draft", "message"):
            continue
        for junk in (None, -1, [{}]):
            changed = copy.deepcopy(plan)
            at = changed
            for key in path[:-1]:
                at = at[key]
            if at[path[-1]] == junk:
                continue
            at[path[-1]] = junk
            count += 1
            with pytest.raises(PoolError, match="leave relay_plan_file out"):
                saved_plan(dataclasses.replace(request, previous=changed))
    assert count > 400


# -- the file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "x is no JSON (line 1: Expecting value): do y"),
        ('{"schema": 1,\n"stages": [}', "x is no JSON (line 2: Expecting value): do y"),
        ("\ufffd\ufffd", "x is no JSON (line 1: Expecting value): do y"),
        ("[" * 100_000, "x is no plan: do y"),
        ("[1]", "x is JSON, but no plan: do y"),
        ("{}", "x is JSON, but no plan: do y"),
        ('{"stages": []}', "x is JSON, but no plan: do y"),
        ('{"schema": 7, "stages": []}', "x has schema 7, and this version of relay.pool reads schema 2: do y"),
        ('{"schema": "1", "stages": []}', "x has schema '1', and this version of relay.pool reads schema 2: do y"),
        ('{"schema": true, "stages": []}', "x has schema True, and this version of relay.pool reads schema 2: do y"),
        ("1" * 5000, "x is no JSON (Exceeds the limit"),
    ],
)
def test_what_is_no_plan_is_said_in_one_sentence(text, problem):
    with pytest.raises(PoolError) as caught:
        read_plan(text, "x", "do y")
    assert str(caught.value).startswith(problem)
    assert "\n" not in str(caught.value)


def test_a_plan_is_read(pool):
    _request, plan = pool
    assert read_plan(json.dumps(plan), "x", "do y") == plan


@pytest.mark.parametrize("part", ["host", "stages", "workers", "server_args", "inputs", "draft", "rpc_backends"])
@pytest.mark.parametrize("junk", [None, 1, "deleted", [1]])
def test_a_plan_that_lacks_a_part_is_said_to(pool, part, junk):
    _request, plan = pool
    changed = {**plan, part: junk}
    if junk == "deleted":
        del changed[part]
    with pytest.raises(PoolError, match=r"x (was edited or cut short|is JSON, but no plan)"):
        read_plan(json.dumps(changed), "x", "do y")


def test_the_speculation_of_another_build_is_named_and_another_speculation_is_no_other_build(ask, world):
    draft = world.gguf("/models/draft.gguf", n_layer=2, layer_mib=20)
    llama = facts_of(TODAY, backends=["CPU", "CUDA", "RPC"])
    options = {"draft": draft, "draft_path": "/models/draft.gguf", "llama": llama}
    request = ask([1500], [1300], **options)
    plan = json.loads(json.dumps(make_plan(request)))
    assert plan["speculation"] == "draft-simple"
    older = facts_of(MAY, backends=["CPU", "CUDA", "RPC"])
    assert any("is another build, which differs in" in phrase for phrase in refusal(request, plan, llama=older))
    types = {**llama, "spec_types": ["none", "draft"]}
    assert refusal(request, plan, llama=types) == ["llama.cpp is another build, which differs in --spec-type"]
    for changes in ({"draft_fallback": "ngram-mod"}, {"speculation_type": "ngram-mod"}, {"draft_max": 0}):
        assert not any("another build" in phrase for phrase in refusal(request, plan, **changes))
