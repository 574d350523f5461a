# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The look back before a launch: room on the machines, and the plan without its draft."""

from __future__ import annotations

import copy
import dataclasses
import json

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.planner.guard import shortfalls, without_draft
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan

MIB = 1024 * 1024
DRAFT = {"path": "/models/draft.gguf", "n_layer": 2, "layer_mib": 20, "embd_mib": 10, "output_mib": 10}


@pytest.fixture
def sharded(ask, world):
    """(request, plan) over a host and two workers with a GPU each, with a draft on the host's."""
    request = ask([1200], [1000], [1000], draft=world.gguf(**DRAFT), draft_path="/models/draft.gguf")
    plan = make_plan(request)
    assert (plan["kind"], plan["draft"]["device"]) == ("sharded", "CUDA0")
    assert [(stage["host"], stage["device"]) for stage in plan["stages"]] == [
        ("a", "CPU"), ("b", "CUDA0"), ("c", "CUDA0"), ("a", "CUDA0"),
    ]  # fmt: skip
    return request, plan


def stage_of(plan, host, device="CUDA0"):
    return next(stage for stage in plan["stages"] if (stage["host"], stage["device"]) == (host, device))


def allocated(stage):
    return stage["memory"]["total_bytes"] - stage["memory"]["reserve_bytes"]


def with_free(request, host, free, own=0, **fields):
    """The facts, with another amount of free bytes on the GPU of a machine."""
    nodes = copy.deepcopy(dict(request.nodes))
    nodes[host]["gpus"][0].update(memory_free_bytes=free, memory_own_bytes=own, **fields)
    return nodes


def test_nothing_is_missing_while_nothing_changed(sharded):
    request, plan = sharded
    assert shortfalls(plan, request.nodes) == ([], [])


@pytest.mark.parametrize("host", ["b", "c"])
def test_room_to_the_byte_and_the_reserve_is_no_allocation(sharded, host):
    request, plan = sharded
    need = allocated(stage_of(plan, host))
    assert shortfalls(plan, with_free(request, host, need)) == ([], [])
    found = shortfalls(plan, with_free(request, host, need - 1))
    shown = -(-need // MIB)
    assert found.draft == []
    assert found.target == [f"{host} CUDA0 needs {shown} MiB for the plan, and {(need - 1) // MIB} MiB are free now."]


@pytest.mark.parametrize(
    ("processes", "words"),
    [
        (None, ""),
        ([], ""),
        ([{"pid": 812, "name": "/usr/bin/python3", "memory_bytes": 2300 * MIB}], " (pid 812 python3 holds 2 300 MiB)"),
        ([{"pid": 812, "name": None, "memory_bytes": 1}, {"pid": 1, "name": "x", "memory_bytes": 1}],
         " (pid 812 holds 1 MiB)"),
        ([{"pid": 812, "name": "x", "memory_bytes": None}], ""),
    ],
)  # fmt: skip
def test_who_holds_the_memory(sharded, processes, words):
    request, plan = sharded
    (sentence,) = shortfalls(plan, with_free(request, "b", 9 * MIB, processes=processes)).target
    assert sentence.endswith(f" MiB for the plan, and 9 MiB are free now{words}.")


def test_what_the_pool_holds_itself_is_no_shortfall(sharded):
    request, plan = sharded
    need = allocated(stage_of(plan, "b"))
    assert shortfalls(plan, with_free(request, "b", 10 * MIB, need - 10 * MIB)) == ([], [])
    assert len(shortfalls(plan, with_free(request, "b", 10 * MIB, need - 11 * MIB)).target) == 1


def test_every_short_device_has_its_sentence(sharded):
    request, plan = sharded
    nodes = with_free(request, "b", 0)
    nodes["c"]["gpus"][0]["memory_free_bytes"] = 1
    nodes["a"]["memory"]["available_bytes"] = 5 * MIB
    found = shortfalls(plan, nodes)
    assert [sentence.split(" needs ")[0] for sentence in found.target] == ["a CPU", "b CUDA0", "c CUDA0"]


def test_the_draft_alone_has_no_room(sharded):
    request, plan = sharded
    stage = stage_of(plan, "a")
    target = allocated(stage) - stage["memory"]["draft_bytes"]
    assert stage["memory"]["draft_bytes"] > MIB
    found = shortfalls(plan, with_free(request, "a", target))
    assert found.target == []
    assert found.draft[0].startswith("a CUDA0 needs ")
    assert "for the plan with its draft, and " in found.draft[0]
    assert shortfalls(plan, with_free(request, "a", allocated(stage))) == ([], [])
    assert shortfalls(plan, with_free(request, "a", target - 1)).draft == []
    assert len(shortfalls(plan, with_free(request, "a", target - 1)).target) == 1


def test_the_draft_in_ram_alone_has_no_room(ask, world):
    request = ask(
        world.node(1, ram=1400),
        world.node(2, ram=1000),
        draft=world.gguf(**DRAFT),
        draft_path="/d.gguf",
        allow_cpu=True,
    )
    plan = make_plan(request)
    assert plan["draft"]["device"] == "none"
    nodes = copy.deepcopy(dict(request.nodes))
    cpu = stage_of(plan, "a", "CPU")
    nodes["a"]["memory"]["available_bytes"] = allocated(cpu) - 1
    found = shortfalls(plan, nodes)
    assert (found.target, len(found.draft)) == ([], 1)


def test_devices_that_are_gone_refused_or_others(sharded):
    request, plan = sharded
    nodes = copy.deepcopy(dict(request.nodes))
    nodes["b"]["gpus"] = []
    nodes["c"]["gpus"][0].update(placeable=False, reason="GPU is lost")
    nodes["a"]["gpus"][0]["uuid"] = "GPU-new"
    assert shortfalls(plan, nodes).target == [
        "b CUDA0 is not there any more.",
        "c CUDA0: GPU is lost.",
        "a CUDA0 was GPU-1-0 in the plan, and is GPU-new now.",
    ]


def test_free_memory_that_cannot_be_read_any_more(sharded):
    request, plan = sharded
    found = shortfalls(plan, with_free(request, "b", None, reason="[N/A]"))
    assert found.target == ["b CUDA0: the free memory could not be read: [N/A]."]
    nodes = copy.deepcopy(dict(request.nodes))
    nodes["a"]["memory"]["available_bytes"] = None
    # trusted, as when it was planned
    assert shortfalls(plan, nodes) == ([], [])


@pytest.mark.parametrize("facts", [None, {}])
def test_a_machine_without_facts(sharded, facts):
    request, plan = sharded
    nodes = {**request.nodes, "b": facts}
    assert shortfalls(plan, nodes).target == ["There are no facts of b, and the plan has layers there."]
    del nodes["b"]
    assert len(shortfalls(plan, nodes).target) == 1


def test_other_machines_and_devices_without_a_stage_do_not_matter(ask):
    request = ask([3000, 3000], [3000])
    plan = make_plan(request)
    assert (plan["kind"], len(plan["stages"])) == ("replica", 2)
    used = plan["stages"][1]["device"]
    nodes = copy.deepcopy(dict(request.nodes))
    for gpu in nodes["a"]["gpus"]:
        gpu["memory_free_bytes"] *= gpu["device"] == used
    nodes["b"]["gpus"] = []
    assert shortfalls(plan, nodes) == ([], [])


def unified(world, number, free):
    """A machine with one GPU whose memory is its RAM."""
    memory = {"available_bytes": free * MIB, "own_bytes": 0, "total_bytes": 8000 * MIB}
    gpu = {
        "index": 0, "device": "CUDA0", "uuid": f"GPU-{number}", "placeable": True, "memory_free_bytes": free * MIB,
        "memory_own_bytes": 0, "memory_total_bytes": 8000 * MIB, "unified_memory": True,
    }  # fmt: skip
    return {**world.node(number), "gpus": [gpu], "memory": memory}


def with_ram(request, host, free):
    nodes = copy.deepcopy(dict(request.nodes))
    nodes[host]["gpus"][0]["memory_free_bytes"] = nodes[host]["memory"]["available_bytes"] = free
    return nodes


def test_a_gpu_whose_memory_is_ram_has_what_llama_cpp_leaves_of_it(ask, world):
    draft = world.gguf(**DRAFT)
    request = ask(unified(world, 1, 3000), draft=draft, draft_path="/d.gguf", draft_scope="any")
    plan = make_plan(request)
    assert (plan["draft"]["device"], len(plan["stages"])) == ("CUDA0", 2)
    assert all(stage["memory"]["draft_bytes"] > MIB for stage in plan["stages"])
    both = sum(allocated(stage) for stage in plan["stages"])
    target = both - sum(stage["memory"]["draft_bytes"] for stage in plan["stages"])
    assert shortfalls(plan, with_ram(request, "a", both)) == ([], [])
    (sentence,) = shortfalls(plan, with_ram(request, "a", both - 1)).draft
    assert sentence.startswith(
        f"a CUDA0 needs {-(-both // MIB):,} MiB for the plan with its draft,".replace(",", " ", 1)
    )
    found = shortfalls(plan, with_ram(request, "a", target))
    assert (found.target, len(found.draft)) == ([], 1)
    (sentence,) = shortfalls(plan, with_ram(request, "a", target - 1)).target
    assert sentence.startswith("a CUDA0 needs ")


def test_a_worker_has_nothing_of_the_servers_ram(ask, world):
    request = ask([1200], unified(world, 2, 1300))
    plan = make_plan(request)
    need = allocated(stage_of(plan, "b"))
    assert shortfalls(plan, with_ram(request, "b", need)) == ([], [])
    assert len(shortfalls(plan, with_ram(request, "b", need - 1)).target) == 1


def test_the_gpus_of_the_plan_and_not_those_with_more_room_now(ask, world):
    node = world.node(1, [3000, 2000])
    for gpu, visible in zip(node["gpus"], ("GPU-1-0", "GPU-1-1")):
        gpu.update(device="CUDA0", visible_devices=visible)
    request = ask(node)
    plan = make_plan(request)
    assert plan["server_environment"] == {"CUDA_VISIBLE_DEVICES": "GPU-1-0"}
    nodes = copy.deepcopy(dict(request.nodes))
    nodes["a"]["gpus"][0]["memory_free_bytes"] = 1500 * MIB
    assert shortfalls(plan, nodes) == ([], [])


def test_the_plan_without_its_draft_keeps_every_layer(sharded):
    request, plan = sharded
    stage = stage_of(plan, "a")
    nodes = with_free(request, "a", allocated(stage) - MIB)
    why = "just before the launch, a CUDA0 was short"
    again = without_draft(dataclasses.replace(request, nodes=nodes, previous=plan), why)
    assert (again["draft"]["enabled"], again["draft"]["reason"], again["draft"]["message"]) == (False, "no_room", why)
    assert "--spec-draft-model" not in again["server_args"]
    for name in ("devices", "tensor_split", "n_gpu_layers", "rpc_backends", "workers"):
        assert again[name] == plan[name]
    layers = [[(s["host"], s["device"], s["first_layer"], s["n_layers"]) for s in p["stages"]] for p in (plan, again)]
    assert layers[0] == layers[1]
    assert all(stage["memory"]["draft_bytes"] == 0 for stage in again["stages"])
    assert f"no draft (no_room): {why}" in again["warnings"]
    assert shortfalls(again, nodes) == ([], [])
    json.dumps(again)
    # and the next run, which finds it applied, leaves it
    kept = make_plan(dataclasses.replace(request, nodes=nodes, previous=again))
    assert kept["kept"]
    assert kept["server_args"] == again["server_args"]


def test_a_draft_with_a_gpu_for_itself_goes_with_its_stage(ask, world):
    request = ask(
        [110, 900], [900], draft=world.gguf(**DRAFT), draft_path="/d.gguf", draft_device="CUDA0", reserve_bytes=0
    )
    plan = make_plan(request)
    assert plan["stages"][-1]["n_layers"] == 0
    assert plan["draft"]["enabled"]
    again = without_draft(dataclasses.replace(request, previous=plan), "no room")
    assert again["stages"][-1]["device"] == "CUDA1"
    assert sum(stage["memory"]["draft_bytes"] for stage in again["stages"]) == 0


@pytest.mark.parametrize("previous", [None, {}, {"draft": {}}, {"draft": None, "stages": []}])
def test_no_plan_to_take_the_draft_from(sharded, previous):
    request, _plan = sharded
    with pytest.raises(PoolError, match=r"the draft is to be dropped \(why\), .* run deploy\.yml again"):
        without_draft(dataclasses.replace(request, previous=previous), "why")
