# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard's own way to ask: the real llama-fit-params, with two real workers and a draft, beside the plan's bytes."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.relay.pool.plugins.module_utils import llama_fit, rpc
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import gguf_facts
from ansible_collections.relay.pool.plugins.plugin_utils.planner.output_rows import output_rows
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.server.fit import draft_args, judge, target_args

from tests.integration.test_memory import QUANTISED, WIDE, node

MIB = 1024 * 1024
# (name, shape of the target: None is the real model, MiB free on the host and the workers, options of the request)
CASES = (
    ("tied_output", None, (110, 70, 75), {"ctx_size": 2048, "parallel": 1}),
    ("slots", None, (115, 70, 80), {"ctx_size": 4096, "parallel": 2, "draft_max": 4, **QUANTISED}),
    ("untied_output", {**WIDE, "n_vocab": 49152}, (250, 150, 200), {"ctx_size": 1024, "parallel": 1}),
)
DRAFT = {"n_layers": 4, "n_embd": 64, "n_vocab": 49152}


@pytest.fixture
def asked(llama_bin, llama_env, workers, real_model, tiny_model):
    """Plans, and asks the real program about target and draft; (plan, fit of the target, fit of the draft, rows)."""

    def ask(shape, free_mib, options):
        path, draft_path = tiny_model(**shape) if shape else real_model, tiny_model(**DRAFT)
        model, draft = gguf_facts(str(path)), gguf_facts(str(draft_path))
        # only the sizes matter here
        draft["tokenizer"] = model["tokenizer"]
        names = ("host", "worker1", "worker2")
        nodes = {name: node(number, free) for number, (name, free) in enumerate(zip(names, free_mib))}
        plan = make_plan(
            Request(
                model=model, draft=draft, draft_path=str(draft_path), host="host", workers=names[1:], nodes=nodes,
                allow_cpu=True, reserve_bytes=0, **options,
            )
        )  # fmt: skip
        assert (plan["kind"], plan["draft"]["reason"], len(plan["rpc_backends"])) == ("sharded", "enabled", 2)
        args = target_args(plan)
        endpoints = [worker.endpoint for worker in workers(2)]
        assert all(rpc.ping(endpoint)["state"] == "idle" for endpoint in endpoints)
        args[args.index("--rpc") + 1] = ",".join(endpoints)
        program = str(llama_bin / "llama-fit-params")
        fits = [llama_fit.measure(program, words, 60, env=llama_env) for words in (args, draft_args(plan))]
        return plan, *fits, output_rows(plan, model, draft)

    return ask


@pytest.mark.parametrize(("shape", "free_mib", "options"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_a_plan_has_what_the_real_program_measures(asked, shape, free_mib, options):
    plan, target, draft, rows = asked(shape, free_mib, options)
    assert (target["error"], draft["error"]) == (None, None)
    assert (list(target["devices"]), list(draft["devices"])) == (["RPC0", "RPC1", "Host"], ["Host"])
    found = judge(plan, target, draft, rows)
    assert (found.exceeded, found.unchecked) == ([], [])
    assert found.agreed[0].endswith("and its draft: RPC0, RPC1, Host.")
    # Without the rows that only this program reserves, most of the output's buffer would look like too much.
    assert judge(plan, target, draft, {"target": {}, "draft": {}}).exceeded


@pytest.mark.parametrize("part", ["weights_bytes", "kv_bytes", "compute_bytes", "draft_bytes"])
def test_a_plan_that_is_a_little_short_is_found(asked, part):
    plan, target, draft, rows = asked(*CASES[0][1:])
    large = [number for number, stage in enumerate(plan["stages"]) if stage["memory"][part] > 14 * MIB]
    assert large
    for position in large:
        stage = plan["stages"][position]
        doctored = copy.deepcopy(plan)
        doctored["stages"][position]["memory"][part] -= 14 * MIB
        (sentence,) = judge(doctored, target, draft, rows).exceeded
        assert sentence.startswith(f"{stage['host']} CPU would need ")


def test_a_busy_worker_ends_in_a_sentence_and_the_worker_lives(
    asked, workers, server, real_model, llama_bin, llama_env
):
    endpoints = [worker.endpoint for worker in workers(1)]
    args = ["--model", str(real_model), "--rpc", endpoints[0], "--device", "RPC0", "--ctx-size", "512"]
    with server([*args, "--threads", 1]) as running:
        assert rpc.ping(endpoints[0])["state"] == "busy"
        fit = llama_fit.measure(str(llama_bin / "llama-fit-params"), args, 3, env=llama_env)
        assert fit["devices"] is None
        assert "gave no answer within 3 s" in fit["error"]
        assert running.complete("The sea is", 4)["content"]
    assert workers(1)[0].endpoint == endpoints[0]
