# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: replica, sharded, draft, refusals, stickiness."""

from __future__ import annotations

import dataclasses
import json

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import REASONS
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import CPU, assign
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.server import dialect
from ansible_collections.relay.pool.plugins.plugin_utils.views.table import WIDTH, plan_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MIB = 1024 * 1024
DRAFT = "/models/draft.gguf"
STATE = {"ssm__inner_size": 1024, "ssm__state_size": 16, "ssm__conv_kernel": 4}


@pytest.fixture
def small(world):
    """A draft of about 150 MiB and its path."""
    return {"draft": world.gguf(DRAFT, n_layer=4, layer_mib=20, embd_mib=10, output_mib=10), "draft_path": DRAFT}


def shares(plan):
    return [(s["host"], s["device"], s["n_layers"], s["has_output"]) for s in plan["stages"]]


def value(plan, flag):
    return plan["server_args"][plan["server_args"].index(flag) + 1]


def test_a_model_that_llama_cpp_does_not_load_gets_no_plan(ask, world):
    model = world.gguf()
    model["tokenizer"]["fault"] = "has a text that occurs twice among its tokens"
    with pytest.raises(
        PoolError, match=r"target\.gguf has a text that occurs twice .*: convert the model again, or use"
    ):
        make_plan(ask([3000], model=model))


# -- replica ---------------------------------------------------------------------------------------------------


def test_a_replica_on_the_host_comes_first(ask):
    plan = make_plan(ask([3000], [9000]))
    assert (plan["kind"], plan["host"]) == ("replica", "a")
    assert shares(plan) == [("a", "CPU", 0, False), ("a", "CUDA0", 10, True)]
    assert (plan["devices"], plan["tensor_split"], plan["n_gpu_layers"], plan["workers"]) == ([], [], "all", [])
    assert "--rpc" not in plan["server_args"]
    assert "--cache-ram" not in plan["server_args"]


@pytest.mark.parametrize(
    ("arch", "keys", "estimated"),
    [
        ("llama", {}, False),
        ("mamba2", STATE, False),
        ("qwen35", STATE, False),
        # known, but its recurrent layers are not measured
        ("kimi-k3", {"kda__head_dim": 128, "attention__head_count_kv": [0, 2] * 5}, True),
        ("newarch", STATE, True),
        ("newarch", {}, False),
    ],
)
def test_only_compute_buffers_that_nobody_measured_are_called_an_estimate(ask, world, arch, keys, estimated):
    advice = make_plan(ask([9000], model=world.gguf(arch=arch, **keys)))["advice"]
    sentence = (
        f"the compute buffers of architecture {arch}, which keeps a recurrent state, are an estimate: watch the first "
        "start"
    )
    assert (sentence in advice) is estimated
    assert any("estimate" in line for line in advice) is estimated


def test_then_on_a_worker_with_the_fewest_devices(ask):
    plan = make_plan(ask([1000], [1500, 1100], [900]))
    assert (plan["kind"], plan["host"]) == ("replica", "b")
    assert plan["devices"] == ["CUDA0", "CUDA1"]
    assert sum(plan["tensor_split"]) == 11
    assert "must be there" in plan["advice"][0]
    plan = make_plan(ask([1000], [1500, 1100], [900, 3000]))
    assert (plan["host"], plan["devices"], plan["tensor_split"]) == ("c", ["CUDA1"], [])


def test_a_replica_on_a_cpu_ignores_a_refused_gpu(ask, world):
    host = world.node(1, [4000], ram=4000)
    host["gpus"][0].update(placeable=False, reason="drives the display")
    plan = make_plan(ask(host, allow_cpu=True))
    assert shares(plan) == [("a", "CPU", 10, True)]
    assert value(plan, "--device") == "none"
    assert plan["refused"][0]["reason"] == "not_placeable"
    assert "drives the display" in plan["refused"][0]["message"]


def test_ram_that_cannot_hold_the_embedding_rules_a_replica_out(ask, world):
    with pytest.raises(PoolError):
        make_plan(ask(world.node(1, [3000], ram=300)))
    plan = make_plan(ask(world.node(1, [3000], ram=None)))
    assert plan["stages"][0]["memory"]["left_bytes"] is None
    assert any("the free RAM of a is unknown" in warning for warning in plan["warnings"])


# -- sharded ---------------------------------------------------------------------------------------------------


def test_the_host_keeps_the_output_and_comes_last(ask):
    plan = make_plan(ask([1300], [1300]))
    assert plan["kind"] == "sharded"
    assert [s["host"] for s in plan["stages"]] == ["a", "b", "a"]
    assert plan["devices"] == ["RPC0", "CUDA0"]
    assert plan["rpc_backends"] == ["10.0.0.2:50052"]
    assert plan["stages"][2]["has_output"]
    # the split that llama.cpp reads gives exactly the layers of the plan
    devices = assign(10, -1, plan["tensor_split"], 2)
    assert [devices[:-1].count(i) for i in (0, 1)] == [s["n_layers"] for s in plan["stages"][1:]]
    assert plan["workers"][0]["args"] == ["--host", "10.0.0.2", "--port", "50052", "--device", "CUDA0", "--cache"]


def test_equal_bandwidth_leaves_an_even_rest(ask):
    plan = make_plan(ask([1500], [1500]))
    left = [s["memory"]["left_bytes"] for s in plan["stages"][1:]]
    assert abs(left[0] - left[1]) <= 105 * MIB


def test_a_known_bandwidth_moves_layers_to_the_faster_device(ask, world):
    host, worker = world.node(1, [1500]), world.node(2, [1500])
    host["gpus"][0]["bandwidth_bytes_per_second"] = 900 * 10**9
    worker["gpus"][0]["bandwidth_bytes_per_second"] = 300 * 10**9
    fast_host = make_plan(ask(host, worker))
    host["gpus"][0]["bandwidth_bytes_per_second"] = 100 * 10**9
    slow_host = make_plan(ask(host, worker))
    assert fast_host["stages"][2]["n_layers"] > slow_host["stages"][2]["n_layers"]
    assert fast_host["predicted"]["tokens_per_second"] > slow_host["predicted"]["tokens_per_second"]


def test_the_output_stays_on_a_slow_host(ask, world):
    host, *workers = world.node(1, [900]), world.node(2, [1300]), world.node(3, [1300])
    host["gpus"][0]["bandwidth_bytes_per_second"] = 10**9
    for worker in workers:
        worker["gpus"][0]["bandwidth_bytes_per_second"] = 10**12
    last = make_plan(ask(host, *workers))["stages"][-1]
    assert (last["host"], last["has_output"]) == ("a", True)


def test_hops_keep_devices_few(ask):
    assert len(make_plan(ask([1300], [1300], [1300], [1300]))["rpc_backends"]) == 1


def test_a_cpu_host_holds_the_first_layers(ask, world):
    ask_again = ask(world.node(1, ram=900), world.node(2, ram=800), world.node(3, ram=800), allow_cpu=True)
    plan = make_plan(ask_again)
    first, *_rest = plan["stages"]
    assert (first["device"], first["first_layer"], first["n_layers"] > 0) == ("CPU", 0, True)
    assert plan["n_gpu_layers"] == sum(plan["tensor_split"]) == 11 - first["n_layers"]
    devices = assign(10, plan["n_gpu_layers"], plan["tensor_split"], 2)
    assert [devices[:-1].count(i) for i in (CPU, 0, 1)] == [s["n_layers"] for s in plan["stages"]]
    # read as quickly there, and no logits on the way
    assert [stage["has_output"] for stage in plan["stages"]] == [True, False, False]
    assert value(plan, "--override-tensor") == r"^(output|token_embd)\.=CPU"
    args = ["--host", "10.0.0.2", "--port", "50052", "--device", "CPU", "--threads", "4", "--cache"]
    assert plan["workers"][0]["args"] == args
    assert make_plan(dataclasses.replace(ask_again, previous=plan))["kept"]


@pytest.mark.parametrize(
    ("worker_gbs", "mbps", "flags", "other_mib", "kept"),
    [
        (50, 1000, None, 0, True),
        # quicker to read, but not quick enough to make up for the way of the logits
        (100, 100, None, 0, True),
        (900, 10_000, None, 0, False),
        # what belongs to the output but would stay on the worker
        (50, 1000, None, 90, False),
        (50, 1000, ("--override-tensor",), 0, False),
    ],
)
def test_a_cpu_host_keeps_the_output_where_that_is_quicker(ask, world, worker_gbs, mbps, flags, other_mib, kept):
    host, worker = world.node(1, ram=900), world.node(2, [1430])
    host["memory"]["bandwidth_bytes_per_second"] = 50 * 10**9
    host["links"] = [{"name": "b", "rtt_seconds": 0.0002, "speed_mbps": mbps}]
    worker["gpus"][0]["bandwidth_bytes_per_second"] = worker_gbs * 10**9
    model = world.gguf()
    model["tensors"]["other_bytes"] = other_mib * MIB
    known = {*dialect.REQUIRED, *dialect.REQUIRED_SHARDED, *dialect.OPTIONAL}
    llama = {"flags": sorted(known - set(flags)), "backends": ["CPU", "RPC", "CUDA"]} if flags else None
    plan = make_plan(ask(host, worker, model=model, allow_cpu=True, llama=llama))
    assert (plan["kind"], plan["stages"][0]["n_layers"] > 0) == ("sharded", True)
    assert [stage["has_output"] for stage in plan["stages"]] == [kept, not kept]
    assert ("--override-tensor" in plan["server_args"]) is kept


def test_a_worker_with_two_gpus_is_two_devices_of_one_endpoint(ask):
    plan = make_plan(ask([400], [400, 400], [400], reserve_bytes=0))
    assert plan["devices"] == ["RPC0", "RPC1", "RPC2", "CUDA0"]
    assert [s["endpoint"] for s in plan["stages"]][1:] == ["10.0.0.2:50052"] * 2 + ["10.0.0.3:50052", None]
    assert plan["rpc_backends"] == ["10.0.0.2:50052", "10.0.0.3:50052"]
    assert plan["workers"][0]["devices"] == ["CUDA0", "CUDA1"]


def test_without_room_for_the_output_it_leaves_the_host_with_a_warning(ask):
    plan = make_plan(ask([560], [1200], [1200]))
    assert [s["host"] for s in plan["stages"]][-1] != "a"
    assert any("logits cross the network" in warning for warning in plan["warnings"])


def test_at_most_fifteen_devices(ask):
    plan = make_plan(ask([700], *([[420]] * 19), model=None, reserve_bytes=0))
    assert len(plan["devices"]) <= 15
    assert len(plan["refused"]) == 20 - len(plan["devices"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_stage_over_its_memory_and_every_layer_once(data, world):
    machines = data.draw(st.integers(1, 5))
    cpu = data.draw(st.booleans())
    nodes = {}
    for index in range(machines):
        gpus = [] if cpu else data.draw(st.lists(st.integers(300, 2500), max_size=2))
        nodes[f"m{index}"] = world.node(index + 1, gpus, ram=data.draw(st.integers(400, 2500)))
    n_layer = data.draw(st.integers(1, 24))
    heads = data.draw(st.lists(st.sampled_from([0, 1, 2, 8]), min_size=n_layer, max_size=n_layer))
    model = world.gguf(n_layer=n_layer, attention__head_count_kv=heads, output_mib=data.draw(st.sampled_from([0, 60])))
    draft = world.gguf(DRAFT, n_layer=2, layer_mib=30) if data.draw(st.booleans()) else None
    request = Request(
        model=model,
        draft=draft,
        host="m0",
        workers=tuple(sorted(nodes))[1:],
        nodes=nodes,
        allow_cpu=cpu or data.draw(st.booleans()),
        ctx_size=data.draw(st.sampled_from([512, 8192])),
        draft_scope=data.draw(st.sampled_from(["sharded", "any"])),
        draft_reserve=data.draw(st.booleans()),
        reserve_bytes=100 * MIB,
    )
    try:
        plan = make_plan(request)
    except PoolError as exc:
        if not any(word in str(exc) for word in ("MiB", "no usable GPU", "no device")):
            raise
        return
    at = 0
    for stage in plan["stages"]:
        memory = stage["memory"]
        assert memory["left_bytes"] >= 0
        parts = ("weights_bytes", "kv_bytes", "recurrent_bytes", "compute_bytes", "draft_bytes", "reserve_bytes")
        assert memory["total_bytes"] == sum(memory[part] for part in parts)
        if stage["n_layers"]:
            assert stage["first_layer"] == at
            at += stage["n_layers"]
    assert at == n_layer
    assert sum(stage["has_output"] for stage in plan["stages"]) == 1
    weights = sum(stage["memory"]["weights_bytes"] for stage in plan["stages"])
    tensors = model["tensors"]
    copied = tensors["token_embd_bytes"] if tensors["tied"] and not plan["stages"][0]["has_output"] else 0
    sizes = sum(tensors["blocks"]) + tensors["input_bytes"] + tensors["output_bytes"] + tensors["output_norm_bytes"]
    assert weights == sizes + copied
    drafted = sum(stage["memory"]["draft_bytes"] for stage in plan["stages"])
    assert drafted == ((plan["draft"]["memory"] or {}).get("total_bytes") or 0)


def test_a_machine_with_more_gpus_offers_fifteen(ask, world):
    model = world.gguf(n_layer=40, layer_mib=90)
    for machines in (([400] * 20,), ([10], [400] * 20)):
        plan = make_plan(ask(*machines, model=model, reserve_bytes=0))
        assert len(plan["devices"]) <= 15
        assert len(plan["refused"]) >= 20 - len(plan["devices"])
    with pytest.raises(PoolError):
        make_plan(ask([250] * 20, model=model, reserve_bytes=0))


def unified(world, free, gpu_own=0, ram_own=0):
    node = world.node(1, [free], ram=free)
    node["gpus"][0].update(unified_memory=True, memory_own_bytes=gpu_own * MIB)
    node["memory"]["own_bytes"] = ram_own * MIB
    return node


@pytest.mark.parametrize("free", range(1200, 2400, 50))
def test_unified_memory_is_counted_once(ask, world, free):
    try:
        plan = make_plan(ask(unified(world, free)))
    except PoolError:
        assert free < 1900
        return
    ram, gpu = (stage["memory"] for stage in plan["stages"])
    used = [part["total_bytes"] - part["reserve_bytes"] for part in (ram, gpu)]
    assert sum(used) + gpu["reserve_bytes"] <= free * MIB
    assert gpu["left_bytes"] == gpu["free_bytes"] - gpu["total_bytes"] >= 0
    own = [size // MIB for size in used]
    running = unified(world, free - sum(own) - 2, gpu_own=own[1], ram_own=own[0])
    assert make_plan(ask(running, previous=plan))["kept"]


def test_a_second_gpu_in_the_same_memory_and_one_without_a_name_are_refused(ask, world):
    node = world.node(1, [3000, 3000, 3000])
    node["gpus"][0].update(unified_memory=True)
    node["gpus"][1].update(unified_memory=True)
    node["gpus"][2].update(device=None)
    plan = make_plan(ask(node))
    assert [entry["reason"] for entry in plan["refused"]] == ["shared_memory", "no_device"]
    assert plan["devices"] == ["CUDA0"]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("block_count", (-3, 0, float("inf"), {})),
        ("embedding_length", (-1, float("nan"), [[1]])),
        ("attention__head_count", (-8, ["a", 1], 2**32)),
        ("attention__head_count_kv", (-2, "x", [None] * 10, [1, "x"] * 5)),
        ("attention__key_length", ({}, -1)),
        ("nextn_predict_layers", (-1,)),
    ],
)
def test_a_damaged_model_is_one_sentence_and_a_damaged_draft_a_line(ask, world, key, values):
    for junk in values:
        with pytest.raises(PoolError, match=r"/models/(target|draft)\.gguf (has|lists)"):
            make_plan(ask([3000], model=world.gguf(**{key: junk})))
        draft = world.gguf(DRAFT, **{key: junk})
        assert make_plan(ask([1300], [1300], draft=draft, draft_path=DRAFT))["draft"]["reason"] == "unsized"


@pytest.mark.parametrize(("name", "junk"), [("blocks", [None] * 10), ("row_padding", {"512": [0]})])
def test_a_model_whose_blocks_have_no_size(ask, name, junk):
    model = ask([1]).model
    with pytest.raises(PoolError, match="read it again"):
        make_plan(ask([3000], model={**model, "tensors": {**model["tensors"], name: junk}}))


def test_fifteen_devices_and_128_layers_are_quick(ask):
    import time

    model = ask([700]).model
    wide = {**model, "metadata": {**model["metadata"], "llama.block_count": 128}}
    tensors = {**model["tensors"], "blocks": [8 * MIB] * 128, "row_padding": {"512": [0] * 128, "512_output": 0}}
    start = time.process_time()
    plan = make_plan(ask([400], *([[300]] * 14), model={**wide, "tensors": tensors}, reserve_bytes=0))
    assert plan["kind"] == "sharded"
    assert time.process_time() - start < 5


# -- the draft -------------------------------------------------------------------------------------------------


def test_sharded_with_a_draft_on_the_hosts_gpu(ask, small):
    plan = make_plan(ask([1500], [1500], **small))
    assert plan["draft"]["reason"] == "enabled"
    assert plan["draft"]["device"] == "CUDA0"
    assert plan["stages"][2]["memory"]["draft_bytes"] > 0
    assert plan["stages"][1]["memory"]["draft_bytes"] == 0
    tail = plan["server_args"][plan["server_args"].index("--spec-draft-model") :]
    assert tail == [
        "--spec-draft-model",
        DRAFT,
        "--spec-draft-n-max",
        "16",
        "--spec-draft-ngl",
        "99",
        "--spec-draft-device",
        "CUDA0",
        "--spec-type",
        "draft-simple",
    ]


def test_layers_make_room_for_the_draft(ask, small):
    without = make_plan(ask([1300], [1500]))
    with_draft = make_plan(ask([1300], [1500], **small))
    assert with_draft["draft"]["enabled"]
    assert with_draft["stages"][2]["n_layers"] < without["stages"][2]["n_layers"]


def test_a_draft_on_the_cpu_of_the_host(ask, world, small):
    nodes = [world.node(1, ram=1100), world.node(2, ram=800), world.node(3, ram=800)]
    plan = make_plan(ask(*nodes, allow_cpu=True, **small))
    assert plan["draft"]["device"] == "none"
    assert value(plan, "--spec-draft-device") == "none"
    assert plan["stages"][0]["memory"]["draft_bytes"] == plan["draft"]["memory"]["total_bytes"]


def test_a_second_gpu_of_the_host_may_hold_the_draft_alone(ask, small):
    plan = make_plan(ask([1300, 700], [1300], draft_device="CUDA1", **small))
    assert plan["draft"]["device"] == "CUDA1"
    assert sum(s["memory"]["draft_bytes"] for s in plan["stages"] if s["device"] == "CUDA1") > 0


def test_a_replica_drafts_when_the_scope_is_any(ask, small):
    plan = make_plan(ask([3000], draft_scope="any", **small))
    assert (plan["kind"], plan["draft"]["reason"]) == ("replica", "enabled")
    assert value(plan, "--spec-draft-device") == "CUDA0"


@pytest.mark.parametrize(
    ("reason", "machines", "options"),
    [
        ("not_configured", ([1300], [1300]), {"draft": None, "draft_path": ""}),
        ("not_found", ([1300], [1300]), {"draft": None}),
        ("replica", ([3000], [1300]), {}),
        ("no_host_stage", ([], [1300], [1300]), {}),
        ("unsized", ([1300], [1300]), {"draft": {"embedding_length": None}}),
        ("no_room", ([1300], [1300]), {"draft": {"layer_mib": 1100}}),
        ("no_room", ([1300], [1300]), {"draft": {"layer_mib": 140}, "draft_reserve": False, "draft_device": "CUDA0"}),
        ("tokenizer_mismatch", ([1300], [1300]), {"comparison": {"compatible": False, "reason": "token"}}),
        ("hybrid_target", ([1300], [1300]), {"model": {"arch": "qwen35"}}),
        ("unsupported_build", ([1300], [1300]), {"llama": ("--spec-draft-device",)}),
        (
            "measured_slower",
            ([1300], [1300]),
            {"measured": {"tokens_per_second": 8, "with_draft_tokens_per_second": 4}},
        ),
    ],
)
def test_a_dropped_draft_is_a_line_in_a_plan(ask, world, small, reason, machines, options):
    options = {**small, **options}
    if isinstance(options["draft"], dict) and "path" not in options["draft"]:
        options["draft"] = world.gguf(DRAFT, **{"n_layer": 4, "embd_mib": 10, "output_mib": 10, **options["draft"]})
    if "model" in options:
        options["model"] = world.gguf(**options["model"])
    if "llama" in options:
        known = {*dialect.REQUIRED, *dialect.REQUIRED_SHARDED, *dialect.OPTIONAL, *dialect.DRAFT_FLAGS}
        options["llama"] = {"flags": sorted(known - set(options["llama"])), "backends": ["CPU", "RPC", "CUDA"]}
    plan = make_plan(ask(*machines, **options))
    assert (plan["draft"]["reason"], plan["draft"]["enabled"]) == (reason, False)
    assert not any(argument.startswith("--spec") for argument in plan["server_args"])
    assert plan["draft"]["memory"] is None
    assert all(stage["memory"]["draft_bytes"] == 0 for stage in plan["stages"])
    warned = any(f"no draft ({reason})" in warning for warning in plan["warnings"])
    assert warned == (reason not in ("not_configured", "replica"))
    assert f"off ({reason})" in plan_table(plan)


def test_nothing_is_drafted_at_a_maximum_of_0(ask, small):
    plan = make_plan(ask([1500], [1500], draft_max=0, **small))
    assert (plan["draft"]["reason"], plan["draft"]["message"][:20]) == ("not_configured", "relay_draft_max is 0")


@pytest.mark.parametrize(
    ("option", "flag"), [({"draft_min": 2}, "--spec-draft-n-min"), ({"draft_p_min": 0.5}, "--spec-draft-p-min")]
)
def test_an_option_of_the_draft_that_the_build_lacks_is_not_written(ask, small, option, flag):

    known = [*dialect.REQUIRED, *dialect.REQUIRED_SHARDED, *dialect.OPTIONAL, *dialect.DRAFT_FLAGS]
    llama = {"flags": known, "backends": ["RPC", "CUDA"]}
    assert make_plan(ask([1500], [1500], llama=llama, **small))["draft"]["enabled"]
    plan = make_plan(ask([1500], [1500], llama=llama, **option, **small))
    assert plan["draft"]["reason"] == "unsupported_build"
    assert flag in plan["draft"]["message"]
    assert flag not in plan["server_args"]


def test_a_draft_that_is_no_smaller_is_warned_of(ask, world, small):
    warning = "only a much smaller model drafts faster"
    same = {"draft": world.gguf(), "draft_path": "/models/target.gguf", "draft_scope": "any"}
    assert any(warning in text for text in make_plan(ask([3500], **same))["warnings"])
    assert not any(warning in text for text in make_plan(ask([1500], [1500], **small))["warnings"])


def test_room_for_the_draft_but_not_for_checking_it(ask, world):
    draft = world.gguf(DRAFT, n_layer=2, layer_mib=10, embd_mib=10, output_mib=10)
    model = world.gguf(attention__head_count=8)
    model["tokenizer"]["n_tokens"] = draft["tokenizer"]["n_tokens"] = 250000
    options = {"draft": draft, "draft_path": DRAFT, "draft_scope": "any", "draft_device": "none", "model": model}
    need = make_plan(ask([9000], model=model))["stages"][1]["memory"]["total_bytes"] // MIB + 1
    plan = make_plan(ask([need], draft_max=1000, **options))
    assert plan["draft"]["reason"] == "no_room"
    assert plan["draft"]["message"].endswith("lower relay_draft_max")


def test_a_replica_elsewhere_needs_both_files(ask, small):
    plan = make_plan(ask([600], [9000], draft_scope="any", **small))
    assert plan["draft"]["enabled"]
    assert f"/models/target.gguf and {DRAFT} must be there" in plan["advice"][0]


def test_flags_that_could_not_be_read_are_said(ask):
    warnings = make_plan(ask([3000], llama={"build": 0, "flags": []}))["warnings"]
    assert any("could not be read" in warning for warning in warnings)


def test_every_reason_has_a_test():
    cases = next(m for m in test_a_dropped_draft_is_a_line_in_a_plan.pytestmark if m.name == "parametrize").args[1]
    assert {case[0] for case in cases} | {"enabled"} == set(REASONS)


def test_an_old_build_gets_its_own_spelling(ask, small):

    flags = [*dialect.REQUIRED, *dialect.REQUIRED_SHARDED, "-md", "--draft-max", "-ngld", "-devd"]
    plan = make_plan(ask([1300], [1500], llama={"flags": flags, "backends": ["RPC", "CUDA"]}, **small))
    assert plan["server_args"][-8:] == ["-md", DRAFT, "--draft-max", "16", "-ngld", "99", "-devd", "CUDA0"]
    assert "--fit" not in plan["server_args"]


# -- command line ----------------------------------------------------------------------------------------------


def test_order_and_contents_of_the_server_arguments(ask):
    plan = make_plan(
        ask(
            [1300],
            [1300],
            parallel=2,
            alias="m",
            cache_type_k="q8_0",
            cache_type_v="q8_0",
            ubatch_size=256,
            threads=3,
            api_key_file="/etc/relay-pool/keys",
            extra_args=("--seed", "1"),
        )
    )
    assert plan["server_args"] == [
        "--model",
        "/models/target.gguf",
        "--rpc",
        "10.0.0.2:50052",
        "--device",
        "RPC0,CUDA0",
        "--tensor-split",
        ",".join(map(str, plan["tensor_split"])),
        "--host",
        "127.0.0.1",
        "--port",
        "8384",
        "--cont-batching",
        "--parallel",
        "2",
        "--jinja",
        "--n-gpu-layers",
        "all",
        "--ctx-size",
        "4096",
        "--alias",
        "m",
        "--cache-type-k",
        "q8_0",
        "--cache-type-v",
        "q8_0",
        "--flash-attn",
        "on",
        "--fit",
        "off",
        "--ubatch-size",
        "256",
        "--threads",
        "3",
        "--cache-ram",
        "0",
        "--metrics",
        "--log-verbosity",
        "4",
        "--api-key-file",
        "/etc/relay-pool/keys",
        "--seed",
        "1",
    ]


def test_the_context_is_the_padded_one(ask):
    plan = make_plan(ask([3000], ctx_size=4096, parallel=3))
    assert (plan["ctx_size"], value(plan, "--ctx-size")) == (4608, "4608")
    assert any("becomes 4608" in warning for warning in plan["warnings"])


# -- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "text", "reason"),
    [
        ({"b": None}, "no facts of b:", "no_facts"),
        ({"b": {"machine_id": "id-1"}}, "a and b are one machine", "duplicate_machine"),
        ({"b": {"address": "10.0.0.1"}}, "one machine .address 10.0.0.1", "duplicate_machine"),
        (
            {"b": {"address": None, "address_reason": "only IPv6"}},
            "b has no IPv4 address for RPC .only IPv6",
            "no_address",
        ),
        ({"b": {"address": "worker.example"}}, "dotted IPv4", "no_address"),
        ({"b": {"address": "fd00::10"}}, "dotted IPv4", "no_address"),
        ({"b": {"address": "999.1.1.1"}}, "dotted IPv4", "no_address"),
        ({"b": {"address": "0.0.0.0"}}, "dotted IPv4", "no_address"),
        ({"b": {"address": "224.0.0.1"}}, "dotted IPv4", "no_address"),
        (
            {"b": {"listeners": [{"address": "0.0.0.0", "port": 50052, "pid": 7, "command": "nc", "unit": None}]}},
            r"port 50052 on b is taken by pid 7 \(nc\)",
            "port_taken",
        ),
    ],
)
def test_an_unusable_worker_stops_the_plan_unless_it_may_be_left_out(ask, change, text, reason):
    request = ask([1300], [1300], [1300])
    nodes = {
        name: None if name in change and change[name] is None else {**node, **change.get(name, {})}
        for name, node in request.nodes.items()
    }
    with pytest.raises(PoolError, match=text):
        make_plan(dataclasses.replace(request, nodes=nodes))
    plan = make_plan(dataclasses.replace(request, nodes=nodes, allow_partial=True))
    assert [entry["reason"] for entry in plan["refused"]] == [reason]
    assert [worker["host"] for worker in plan["workers"]] == ["c"]


def test_equal_gpu_uuids_are_one_machine(ask, world):
    twin = {**world.node(2, [1300]), "gpus": world.node(1, [1300])["gpus"]}
    with pytest.raises(PoolError, match="GPU GPU-1-0"):
        make_plan(ask([1300], twin))


@pytest.mark.parametrize("address", [None, "fd00::1", "0.0.0.0"])
def test_a_sharding_host_needs_an_address_its_workers_can_let_in(ask, world, address):
    with pytest.raises(PoolError, match=r"a has no IPv4 address .*relay_rpc_address"):
        make_plan(ask(world.node(1, [1300], address=address), [1300]))
    assert make_plan(ask(world.node(1, [3000], address=address), [1300]))["kind"] == "replica"


def test_every_machine_without_facts_is_named(ask):
    request = ask([1300], [1300], [1300])
    with pytest.raises(PoolError, match=r"no facts of a, c:.* another machine the host, .* cannot do without a"):
        make_plan(dataclasses.replace(request, nodes={"b": request.nodes["b"]}, allow_partial=True))


@pytest.mark.parametrize(
    ("listener", "taken"),
    [
        ({"address": "127.0.0.1", "port": 8384, "unit": "nginx.service"}, True),
        ({"address": "127.0.0.1", "port": 8384, "unit": "relay-llama.service"}, False),
        ({"address": "192.168.1.1", "port": 8384, "unit": None}, False),
        ({"address": "0.0.0.0", "port": 8385, "unit": None}, False),
    ],
)
def test_the_servers_port(ask, world, listener, taken):
    request = ask(world.node(1, [3000], listeners=[{"pid": None, "command": None, **listener}]))
    if taken:
        with pytest.raises(PoolError, match="port 8384 on a is taken by pid unknown"):
            make_plan(request)
    else:
        assert make_plan(request)["kind"] == "replica"


@pytest.mark.parametrize(
    ("machines", "options", "text"),
    [
        (([], []), {}, "no usable GPU on a, b: set relay_allow_cpu"),
        (([3000],), {"extra_args": ("--rpc", "x")}, "belongs to the plan"),
        (([3000],), {"parallel": 0}, "parallel is 0"),
        (([3000],), {"server_port": 70000}, "server_port is 70000"),
        (([3000],), {"draft_p_min": 1.5}, r"draft_p_min is 1\.5"),
        (([3000],), {"reserve_bytes": -1}, "reserve_bytes is -1"),
        (([3000],), {"parallel": 257}, "parallel is 257.* from 1 to 256"),
        (([3000],), {"ctx_size": 2**31}, "ctx_size is 2147483648"),
        (([3000],), {"threads": -3}, "threads is -3"),
        (([3000],), {"log_verbosity": -1}, "log_verbosity is -1"),
        (([3000],), {"draft_min": 17}, "draft_min is 17: it must lie between 0 and draft_max, 16"),
        (([3000],), {"model": {"architecture": "llama"}}, "the model has no path"),
        (([1300], [1300]), {"llama": {"flags": ["--model"], "backends": ["RPC", "CUDA"]}}, "does not know --host"),
    ],
)
def test_one_sentence_for_what_cannot_be(ask, machines, options, text):
    with pytest.raises(PoolError, match=text):
        make_plan(ask(*machines, **options))


def test_a_draft_device_that_is_not_there(ask, small):
    with pytest.raises(PoolError, match="draft_device is CUDA3, but a offers CUDA0"):
        make_plan(ask([1300], [1300], draft_device="CUDA3", **small))


def test_infeasible_names_both_numbers_and_the_ways_out(ask):
    with pytest.raises(PoolError) as caught:
        make_plan(ask([1200], [1000], ctx_size=131072))
    text = str(caught.value)
    assert text.startswith("target needs ")
    assert "the pool has 1 176 MiB beside its reserves (a CUDA0 688 MiB, b CUDA0 488 MiB)" in text
    assert "give a CUDA0 " in text
    with pytest.raises(
        PoolError, match=r"lower relay_ctx_size to \d+, or set relay_kv_cache_type to q8_0, or take a file"
    ) as caught:
        make_plan(ask([1300], [1300], ctx_size=40960, parallel=4))
    smaller = int(str(caught.value).split("relay_ctx_size to ")[1].split(",")[0])
    assert make_plan(ask([1300], [1300], ctx_size=smaller, parallel=4))["kind"] == "sharded"
    with pytest.raises(PoolError):
        make_plan(ask([1300], [1300], ctx_size=smaller + 1024, parallel=4))


def test_a_gpu_of_unknown_size_is_refused_not_counted_as_empty(ask):
    plan = make_plan(ask([None, 3000]))
    assert plan["refused"][0]["message"] == "a CUDA0: the free memory could not be read"
    assert plan["devices"] == ["CUDA1"]


def test_a_worker_without_a_gpu_is_only_used_when_its_cpu_may_be(ask):
    plan = make_plan(ask([1300], [], [1300]))
    assert [entry["reason"] for entry in plan["refused"]] == ["no_gpu"]


# -- stickiness ------------------------------------------------------------------------------------------------


def again(request, previous, free=None, own=0, **changes):
    """The same question while the pool runs: less is free, more is its own."""
    nodes = json.loads(json.dumps(request.nodes))
    for node in nodes.values():
        for gpu in node["gpus"]:
            gpu["memory_own_bytes"] = own * MIB
            gpu["memory_free_bytes"] = gpu["memory_free_bytes"] - own * MIB if free is None else free * MIB
    return make_plan(dataclasses.replace(request, nodes=nodes, previous=json.loads(json.dumps(previous)), **changes))


def test_a_running_pool_keeps_its_plan(ask, small):
    request = ask([1300], [1500], **small)
    first = make_plan(request)
    assert again(request, first, own=700) == {**first, "kept": True}
    # some memory is gone, but what runs still fits without its reserve
    assert again(request, first, free=300, own=850)["kept"]
    assert make_plan(dataclasses.replace(request, previous=first))["kept"]


def test_what_is_free_on_unused_devices_changes_nothing_of_a_kept_plan(ask):
    request = ask([], [3000, 2900])
    first = make_plan(request)
    assert {(entry["host"], entry["device"]) for entry in first["refused"]} == {("a", None), ("b", "CUDA1")}
    nodes = json.loads(json.dumps(request.nodes))
    nodes["b"]["gpus"][1]["memory_free_bytes"] = 0
    assert make_plan(dataclasses.replace(request, nodes=nodes, previous=first)) == {**first, "kept": True}


@pytest.mark.parametrize(
    "changes", [{"ctx_size": 2048}, {"alias": "other"}, {"extra_args": ("--seed", "1")}, {"draft": None}]
)
def test_changed_inputs_give_a_new_plan(ask, small, changes):
    request = ask([1300], [1500], **small)
    assert not again(request, make_plan(request), **changes)["kept"]


def test_a_changed_model_device_or_override_gives_a_new_plan(ask, world):
    request = ask([1300], [1500])
    first = make_plan(request)
    assert not again(request, first, model=world.gguf(layer_mib=90))["kept"]
    nodes = json.loads(json.dumps(request.nodes))
    nodes["b"]["gpus"][0]["uuid"] = "GPU-new"
    assert not make_plan(dataclasses.replace(request, nodes=nodes, previous=first))["kept"]
    nodes = json.loads(json.dumps(request.nodes))
    nodes["b"]["overrides"] = ["gpus.0.memory_free_bytes"]
    assert not make_plan(dataclasses.replace(request, nodes=nodes, previous=first))["kept"]


def test_a_plan_that_does_not_fit_any_more_is_made_anew(ask):
    request = ask([1300], [1500], [1300])
    first = make_plan(request)
    nodes = json.loads(json.dumps(request.nodes))
    used = first["workers"][0]["host"]
    nodes[used]["gpus"][0]["memory_free_bytes"] = 400 * MIB
    second = make_plan(dataclasses.replace(request, nodes=nodes, previous=first))
    assert not second["kept"]
    assert second["workers"] != first["workers"]


def test_installing_llama_cpp_does_not_move_anything(ask):

    request = ask([1300], [1300])
    flags = [*dialect.REQUIRED, *dialect.REQUIRED_SHARDED, *dialect.OPTIONAL, *dialect.DRAFT_FLAGS, "--spec-type"]
    flags += ["--spec-draft-n-min", "--spec-draft-p-min"]
    llama = {"flags": flags, "spec_types": ["draft-simple"], "backends": ["RPC", "CUDA"]}
    assert again(request, make_plan(request), llama=llama)["kept"]


JUNK = (None, -1, "x", [{}])


def places(value, path=()):
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def edited(plan, path, junk, delete=False):
    plan = json.loads(json.dumps(plan))
    at = plan
    for key in path[:-1]:
        at = at[key]
    if delete:
        del at[path[-1]]
    else:
        at[path[-1]] = junk
    return plan


@pytest.mark.parametrize("machines", [([1300], [1500]), ([3000],)])
def test_a_plan_edited_by_hand_is_neither_trusted_nor_fatal(ask, small, machines):
    request = ask(*machines, **small)
    first = json.loads(json.dumps(make_plan(request)))
    assert make_plan(dataclasses.replace(request, previous=first))["kept"]
    # what the planner said that day is kept as it is, if it is text
    notes = ("inputs", "warnings", "advice", "kept")
    paths = [path for path in places(first) if path and path[0] not in notes and path != ("draft", "message")]
    for path in paths:
        for junk in (*JUNK, "deleted"):
            previous = edited(first, path, junk, junk == "deleted")
            plan = make_plan(dataclasses.replace(request, previous=previous))
            assert {**plan, "kept": False} == first, (path, junk)
            assert path[0] == "llama" or not plan["kept"] or previous == first, (path, junk)


@pytest.mark.parametrize(
    ("path", "junk"),
    [
        (("warnings",), ["a note of that day, \ud800"]),
        (("draft", "message"), "\ud800"),
        (("refused", 0, "message"), "\ud800"),
        (("refused", 0, "memory"), float("nan")),
        (("refused", 0, "host"), []),
        (("refused", 0), "gpu"),
    ],
)
def test_what_could_not_be_written_again_is_not_kept(ask, small, path, junk):
    request = ask([1300], [1500], [], allow_partial=True, **small)
    first = make_plan(request)
    assert first["refused"][0]["device"] is None
    plan = make_plan(dataclasses.replace(request, previous=edited(first, path, junk)))
    assert plan == first


@pytest.mark.parametrize("previous", [{}, {"schema": 0}, {"schema": 2, "stages": 3}, {"kind": "replica"}, [1], "plan"])
def test_something_else_in_the_file_of_the_plan(ask, previous):
    assert not make_plan(dataclasses.replace(ask([1300], [1500]), previous=previous))["kept"]


def test_a_draft_written_into_the_plan_of_a_replica_is_not_kept(ask, small):
    request = ask([3000], **small)
    first = make_plan(request)
    draft = {**make_plan(dataclasses.replace(request, draft_scope="any"))["draft"]}
    plan = make_plan(dataclasses.replace(request, previous={**first, "draft": draft}))
    assert (plan["kept"], plan["draft"]["reason"]) == (False, "replica")


@pytest.mark.parametrize(
    ("flags", "backends", "text"),
    [("--rpc", ["CUDA", "RPC"], "does not know --rpc"), ("", ["CPU", "CUDA"], "without RPC")],
)
def test_a_kept_plan_is_one_the_build_can_run(ask, flags, backends, text):

    request = ask([1300], [1300])
    known = [*dialect.REQUIRED, *dialect.REQUIRED_SHARDED, *dialect.OPTIONAL, *dialect.DRAFT_FLAGS, "--spec-type"]
    llama = {"flags": [flag for flag in known if flag != flags], "spec_types": ["draft-simple"], "backends": backends}
    with pytest.raises(PoolError, match=text):
        again(request, make_plan(request), llama=llama)


def test_a_kept_plan_names_the_build_it_is_for(ask):

    request = ask([1300], [1300])
    known = [*dialect.REQUIRED, *dialect.REQUIRED_SHARDED, *dialect.OPTIONAL, *dialect.DRAFT_FLAGS, "--spec-type"]
    llama = {"flags": known, "spec_types": ["draft-simple"], "backends": ["RPC", "CUDA"], "version": "2", "build": 2}
    plan = again(request, make_plan(request), llama=llama)
    assert (plan["kept"], plan["llama"]["build"], plan["warnings"]) == (True, 2, [])


def test_a_gpu_that_appears_and_may_not_be_used_is_kept_away(ask, world):
    request = ask([3000])
    nodes = {"a": world.node(1, [3000, 3000])}
    nodes["a"]["gpus"][1].update(placeable=False, reason="MIG")
    plan = make_plan(dataclasses.replace(request, nodes=nodes, previous=make_plan(request)))
    assert (plan["kept"], plan["devices"]) == (False, ["CUDA0"])


def test_more_memory_does_not_move_a_running_pool_and_a_lost_worker_does(ask):
    request = ask([1300], [1500], [1300])
    first = make_plan(request)
    assert again(request, first, free=9000)["kept"]
    nodes = {name: node for name, node in request.nodes.items() if name != first["workers"][0]["host"]}
    plan = make_plan(dataclasses.replace(request, nodes=nodes, previous=first, allow_partial=True))
    assert (plan["kept"], plan["refused"][0]["reason"]) == (False, "no_facts")


# -- the table -------------------------------------------------------------------------------------------------


def test_the_table_shows_what_an_operator_asks_for(ask, small):
    plan = make_plan(ask([1500], [1500], [], **small))
    text = plan_table(plan)
    lines = text.splitlines()
    assert "sharded, served by a; context 4096 in 1 slot" in lines[0]
    assert lines[2].split() == [
        "machine",
        "device",
        "layers",
        "n",
        "weights",
        "KV",
        "compute",
        "draft",
        "reserve",
        "free",
        "left",
        "(MiB)",
    ]
    rows = [line.split() for line in lines[3:6]]
    assert [row[0] for row in rows] == ["a", "b", "a"]
    assert rows[1][1:3] == ["CUDA0", "RPC0"]
    assert rows[2][2].endswith("+out")
    assert int(rows[2][-1]) == plan["stages"][2]["memory"]["left_bytes"] // MIB
    for label in (
        "draft    on",
        "worker   b: ggml-rpc-server",
        "server   a: llama-server",
        "refused  c has no usable GPU",
        "warning",
    ):
        assert any(line.startswith(label) for line in lines), label
    assert max(map(len, lines)) <= WIDTH + 10
    joined = " ".join(line.strip().rstrip("\\").strip() for line in lines)
    assert " ".join(plan["server_args"]) in joined
