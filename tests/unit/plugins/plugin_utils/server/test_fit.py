# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan beside what llama-fit-params says: what it is asked with, and what is too much."""

from __future__ import annotations

import copy

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.filter.plan_fit import plan_fit
from ansible_collections.relay.pool.plugins.filter.plan_fit_args import plan_fit_args
from ansible_collections.relay.pool.plugins.filter.plan_shortfalls import plan_shortfalls
from ansible_collections.relay.pool.plugins.plugin_utils.planner.output_rows import output_rows
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.server.fit import draft_args, exceeded, judge, target_args

MIB = 1024 * 1024
NAMES = ["RPC0", "RPC1", "CUDA0", "Host"]


@pytest.fixture
def request_(ask, world):
    draft = world.gguf(path="/d.gguf", n_layer=2, layer_mib=20, embd_mib=10, output_mib=10)
    return ask(
        [1200], [1000], [1000], draft=draft, draft_path="/d.gguf", cache_type_k="q8_0", cache_type_v="q4_0",
        ubatch_size=256, extra_args=("--no-repack", "--override-kv", "a=int:1", "--timeout", "30"),
    )  # fmt: skip


@pytest.fixture
def plan(request_):
    made = make_plan(request_)
    assert [stage["rpc_device"] or stage["device"] for stage in made["stages"]] == ["CPU", *NAMES[:3]]
    return made


@pytest.fixture
def fits(plan, request_):
    """(fit of the target, fit of the draft) as llama-fit-params would measure a plan that is right, and the rows."""
    rows = output_rows(plan, request_.model, request_.draft)

    def floor(size):
        return max(size, 0) // MIB * MIB

    target, draft = {}, {}
    for name, stage in zip(NAMES, [*plan["stages"][1:], plan["stages"][0]]):
        memory = stage["memory"]
        target[name] = {
            "weights_bytes": floor(memory["weights_bytes"]),
            "context_bytes": floor(memory["kv_bytes"]),
            "compute_bytes": floor(memory["compute_bytes"] + rows["target"][name]),
        }
        if name in ("CUDA0", "Host"):
            draft[name] = {
                "weights_bytes": floor(memory["draft_bytes"]),
                "context_bytes": 0,
                "compute_bytes": floor(rows["draft"][name]),
            }
    return {"devices": target, "error": None}, {"devices": draft, "error": None}, rows


def test_what_the_target_is_measured_with(plan):
    assert target_args(plan) == [
        "--model", "/models/target.gguf", "--rpc", "10.0.0.2:50052,10.0.0.3:50052", "--device", "RPC0,RPC1,CUDA0",
        "--tensor-split", plan["server_args"][plan["server_args"].index("--tensor-split") + 1], "--parallel", "1",
        "--n-gpu-layers", "all", "--ctx-size", "4096", "--cache-type-k", "q8_0", "--cache-type-v", "q4_0",
        "--flash-attn", "on", "--ubatch-size", "256", "--no-repack", "--override-kv", "a=int:1",
    ]  # fmt: skip


def test_what_a_draft_on_a_worker_is_measured_with(ask, world):
    """Its device has its name only after --rpc."""
    draft = world.gguf(path="/d.gguf", n_layer=2, layer_mib=20, embd_mib=10, output_mib=10)
    plan = make_plan(ask([1250], [1200], [700], draft=draft, draft_path="/d.gguf", draft_device="c"))
    backends = "10.0.0.2:50052,10.0.0.3:50052"
    assert plan["rpc_backends"] == backends.split(",")
    assert draft_args(plan)[:8] == [
        "--model", "/d.gguf", "--rpc", backends, "--device", "RPC1", "--n-gpu-layers", "99",
    ]  # fmt: skip
    named = dict.fromkeys(("RPC1", "Host"), dict.fromkeys(("weights_bytes", "context_bytes", "compute_bytes"), 0))
    assert judge(plan, {"devices": {}, "error": "no"}, {"devices": named, "error": None}, {}).unchecked == [
        "The bytes of /models/target.gguf were not compared with those that the installed llama.cpp measures: no."
    ]


@pytest.mark.parametrize(
    ("kind", "path", "what"),
    [("draft-mtp", None, "layers of the target"), ("draft-eagle3", "/d.gguf", "/d.gguf")],
)
def test_what_the_program_cannot_load_is_not_compared(plan, fits, kind, path, what):
    target, draft, rows = fits
    other = {**plan, "speculation": kind, "draft": {**plan["draft"], "path": path}}
    assert draft_args(other) == []
    assert judge(other, target, draft, rows).unchecked == [
        f"The bytes of {kind} ({what}) were not compared: llama-fit-params loads whole models only."
    ]


def test_what_the_draft_is_measured_with(plan):
    # its cache is not that of the target, and it has neither workers nor what overrides the target's header
    assert draft_args(plan) == [
        "--model", "/d.gguf", "--device", "CUDA0", "--n-gpu-layers", "99", "--parallel", "1", "--ctx-size", "4096",
        "--flash-attn", "on", "--ubatch-size", "256",
    ]  # fmt: skip
    assert draft_args({**plan, "draft": {**plan["draft"], "enabled": False}}) == []


def test_the_spelling_of_an_old_build(plan):
    plan["server_args"] = [
        {"--spec-draft-ngl": "-ngld", "--n-gpu-layers": "-ngl"}.get(w, w) for w in plan["server_args"]
    ]
    assert draft_args(plan)[4:6] == ["--n-gpu-layers", "99"]
    assert "-ngl" in target_args(plan)


def test_a_plan_that_is_right(plan, fits):
    assert judge(plan, *fits) == (
        [],
        ["The installed llama.cpp measures no more than planned for the model and its draft: RPC0, RPC1, CUDA0, Host."],
        [],
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", ["weights_bytes", "context_bytes", "compute_bytes"])
def test_more_than_rounding_on_one_device(plan, fits, name, part):
    target, draft, rows = fits
    figures = 6 if name in draft["devices"] else 3
    # each of the figures may hide almost a MiB, and these hide less: two more are forgiven in any case
    target["devices"][name][part] += 2 * MIB
    assert judge(plan, target, draft, rows).exceeded == []
    target["devices"][name][part] += figures * MIB + 200 * MIB * (name == "Host")
    (sentence,) = judge(plan, target, draft, rows).exceeded
    stage = plan["stages"][(NAMES.index(name) + 1) % 4]
    assert sentence.startswith(f"{stage['host']} {stage['device']} would need ")
    assert (
        f"and the plan has {-(-(stage['memory']['total_bytes'] - stage['memory']['reserve_bytes']) // MIB)} MiB"
        in sentence
    )
    assert sentence.count("(weights ") == 2


def test_both_numbers_and_every_part():
    stage = {
        "host": "gpu1", "device": "CUDA0", "rpc_device": "RPC0",
        "memory": {"weights_bytes": 2000 * MIB, "kv_bytes": 200 * MIB, "recurrent_bytes": 100 * MIB,
                   "compute_bytes": 50 * MIB, "draft_bytes": 0},
    }  # fmt: skip
    measured = {"weights_bytes": 2100 * MIB, "context_bytes": 300 * MIB, "compute_bytes": 90 * MIB}
    plan = {"stages": [stage]}
    assert exceeded(plan, {"target": {"RPC0": measured}}) == [
        "gpu1 CUDA0 would need 2 490 MiB with the installed llama.cpp (weights 2 100 MiB, context 300 MiB, "
        "compute 90 MiB), and the plan has 2 350 MiB (weights 2 000 MiB, context 300 MiB, compute 50 MiB)."
    ]
    # three figures, each rounded down
    assert exceeded(plan, {"target": {"RPC0": {**measured, "weights_bytes": (2350 + 3 - 390) * MIB}}}) == []
    assert exceeded(plan, {"target": {"RPC0": {**measured, "weights_bytes": (2350 + 4 - 390) * MIB}}})
    # what only the program reserves is none of a server's
    assert exceeded(plan, {"target": {"RPC0": measured}}, {"target": {"RPC0": 40 * MIB}})
    assert (
        exceeded(plan, {"target": {"RPC0": {**measured, "weights_bytes": 2000 * MIB}}}, {"target": {"RPC0": 37 * MIB}})
        == []
    )
    assert exceeded(plan, {"target": {}}) == []


def test_a_mib_is_forgiven_for_each_figure_of_both_models():
    memory = dict.fromkeys(("weights_bytes", "kv_bytes", "recurrent_bytes", "compute_bytes", "draft_bytes"), 10 * MIB)
    plan = {"stages": [{"host": "a", "device": "CPU", "rpc_device": None, "memory": memory}]}
    full = dict.fromkeys(("weights_bytes", "context_bytes", "compute_bytes"), 0)

    def found(size, rows=0):
        measured = {"target": {"Host": full}, "draft": {"Host": {**full, "context_bytes": size * MIB}}}
        return exceeded(plan, measured, {"target": {}, "draft": {"Host": -rows * MIB}})

    # ten each of weights, cache, state, compute and draft
    assert (found(56), len(found(57)), found(50, 6), len(found(50, 7))) == ([], 1, [], 1)


def test_the_last_of_two_values_counts(plan):
    plan["server_args"] += ["--spec-draft-ngl", "3"]
    assert draft_args(plan)[4:6] == ["--n-gpu-layers", "3"]


def test_a_draft_that_needs_more_on_the_device_of_both(plan, fits):
    target, draft, rows = fits
    draft["devices"]["CUDA0"]["context_bytes"] += 50 * MIB
    (sentence,) = judge(plan, target, draft, rows).exceeded
    assert sentence.startswith("a CUDA0 would need ")
    assert ", draft " in sentence


@pytest.mark.parametrize("broken", ["target", "draft"])
def test_what_could_not_be_measured_is_said(plan, fits, broken):
    fit = {"target": fits[0], "draft": fits[1]}
    fit[broken] = {"devices": None, "error": "llama-fit-params gave no answer within 120 s and was killed"}
    found = judge(plan, fit["target"], fit["draft"], fits[2])
    path = {"target": "/models/target.gguf", "draft": "/d.gguf"}[broken]
    assert found.exceeded == []
    assert found.unchecked == [
        f"The bytes of {path} were not compared with those that the installed llama.cpp measures: "
        "llama-fit-params gave no answer within 120 s and was killed."
    ]
    assert bool(found.agreed) == (broken == "draft")


def test_other_devices_than_the_plans_are_no_measurement(plan, fits):
    target, draft, rows = fits
    doubled = {name: {part: 2 * size for part, size in parts.items()} for name, parts in target["devices"].items()}
    assert len(judge(plan, {"devices": doubled, "error": None}, draft, rows).exceeded) == 4
    del doubled["RPC1"]
    found = judge(plan, {"devices": doubled, "error": None}, draft, rows)
    assert (found.exceeded, found.agreed) == ([], [])
    assert "it names the devices RPC0, CUDA0, Host, and the plan has RPC0, RPC1, CUDA0, Host" in found.unchecked[0]


@pytest.mark.parametrize(
    ("machines", "options", "names"),
    [
        (([3000],), {}, ["CUDA0", "Host"]),
        (([900, 900],), {"reserve_bytes": 0}, ["CUDA0", "CUDA1", "Host"]),
        (([],), {"allow_cpu": True}, ["Host"]),
    ],
)
def test_the_devices_of_a_replica(ask, machines, options, names):
    request = ask(*machines, **options)
    made = make_plan(request)
    assert made["kind"] == "replica"
    rows = output_rows(made, request.model, None)
    fit = {
        "devices": {n: dict.fromkeys(("weights_bytes", "context_bytes", "compute_bytes"), 0) for n in names},
        "error": None,
    }
    assert judge(made, fit, None, rows).agreed
    assert judge(made, {"devices": {"CUDA7": {}, **fit["devices"]}, "error": None}, None, rows).unchecked


def test_the_filters(plan, fits, request_):
    assert plan_fit_args(plan) == {"target": target_args(plan), "draft": draft_args(plan)}
    found = plan_fit(plan, fits[0], fits[1], request_.model, request_.draft)
    assert (found["exceeded"], len(found["agreed"]), found["unchecked"]) == ([], 1, [])
    assert plan_shortfalls(plan, dict(request_.nodes)) == {"target": [], "draft": []}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda plan, model: plan_fit({}, {}, None, model, None), "the input must be a plan"),
        (lambda plan, model: plan_fit(plan, {}, None, model, None), "is no result of relay.pool.llama_fit"),
        (lambda plan, model: plan_fit(plan, "x", None, model, None), "is no result of relay.pool.llama_fit"),
        (lambda plan, model: plan_fit({"stages": []}, {"error": "x"}, None, model, None), "edited by hand"),
        (lambda plan, model: plan_fit(plan, {"devices": {"Host": {}}}, None, model, None), "edited by hand"),
        (lambda plan, model: plan_fit_args([]), "the input must be a plan"),
        (lambda plan, model: plan_fit_args({"server_args": []}), "edited by hand"),
        (lambda plan, model: plan_shortfalls(None, {}), "the input must be a plan"),
        (lambda plan, model: plan_shortfalls(plan, []), "must be facts by the name of the machine"),
        (lambda plan, model: plan_shortfalls({"stages": [{}]}, {}), "edited by hand"),
        (lambda plan, model: plan_shortfalls(plan, {"a": {"gpus": 5}}), "edited by hand"),
    ],
)
def test_what_the_filters_cannot_read_is_one_sentence(plan, request_, call, words):
    with pytest.raises(AnsibleFilterError, match=words):
        call(copy.deepcopy(plan), request_.model)
