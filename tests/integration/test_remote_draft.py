# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A draft on a worker, with the command lines of real plans: it is live, where the plan has it, and changes no text."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils import llama_fit
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import gguf_facts
from ansible_collections.relay.pool.plugins.module_utils.llama_log import parse
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import MAX_DEVICES, invert
from ansible_collections.relay.pool.plugins.plugin_utils.planner.output_rows import output_rows
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.server.fit import draft_args, judge, target_args

from tests.integration.conftest import CACHE, missing
from tests.integration.test_memory import node

MIB = 1024 * 1024
PROMPTS = ("The capital of France is", "1, 2, 3, 4, 5,")
MAX_TOKENS = 12
# (name, MiB free on the host and the workers, the draft's worker, its name, the devices of the target)
CASES = (
    ("target_on_the_cpu_of_the_host", (2000, 300), "worker1", "RPC0", ["none"]),
    ("target_on_another_worker", (300, 300, 160), "worker2", "RPC1", ["RPC0"]),
    ("draft_before_the_target", (300, 160, 300), "worker1", "RPC1", ["RPC0"]),
    ("target_on_the_same_worker", (100, 310, 150), "worker1", "RPC0", ["RPC0", "RPC1"]),
)


@pytest.fixture(scope="module")
def long_target():
    """The small model with so many layers more that it does not fit where the small one does; it writes the same."""
    path = CACHE / "demo" / "models" / "smollm2-135m-120l.gguf"
    if not path.is_file():
        missing(f"no {path}: run `make demo` once")
    return path


@pytest.fixture
def planned(long_target, real_model, workers):
    """(plan, arguments of its server without the address, by machine the endpoint of a real worker)."""

    def make(free_mib, device):
        names = ["host", *(f"worker{number}" for number in range(1, len(free_mib)))]
        nodes = {name: node(number, free) for number, (name, free) in enumerate(zip(names, free_mib))}
        plan = make_plan(
            Request(
                model=gguf_facts(str(long_target)), draft=gguf_facts(str(real_model)), draft_path=str(real_model),
                host="host", workers=tuple(names[1:]), nodes=nodes, allow_cpu=True, reserve_bytes=0, ctx_size=512,
                parallel=1, threads=1, draft_max=4, draft_scope="any", draft_device=device, log_verbosity=5,
            )
        )  # fmt: skip
        real = {worker["host"]: running.endpoint for worker, running in zip(plan["workers"], workers(len(names) - 1))}
        args = list(plan["server_args"])
        args[args.index("--rpc") + 1] = ",".join(real[worker["host"]] for worker in plan["workers"])
        for flag in ("--host", "--port"):
            del args[args.index(flag) : args.index(flag) + 2]
        return plan, args, real

    return make


def completed(running):
    return [running.complete(prompt, MAX_TOKENS) for prompt in PROMPTS]


@pytest.mark.parametrize(("free_mib", "worker", "name", "devices"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_draft_on_a_worker(planned, server, free_mib, worker, name, devices):
    plan, args, real = planned(free_mib, worker)
    draft = plan["draft"]
    assert (draft["enabled"], draft["host"], draft["device"]) == (True, worker, name)
    assert (plan["devices"], plan["host"]) == (devices, "host")

    with server(args) as running:
        assert running.request("/slots")[0]["speculative"] is True
        drafted, log = completed(running), parse(running.log)
    assert all(answer["timings"]["draft_n"] > 0 for answer in drafted)
    assert log.spec_types == ["draft-simple"]

    seen = {}
    for buffer in log.buffers:
        where = seen.setdefault((buffer["model"], buffer["endpoint"]), {})
        where[buffer["kind"]] = where.get(buffer["kind"], 0) + buffer["bytes"]
    # The token embedding stays in the server's RAM, and all that computes is on the worker.
    there = seen.pop(("draft", real[worker]))
    assert {"weights", "kv", "compute"} <= set(there)
    assert set(seen.pop(("draft", None))) <= {"weights", "compute", "output"}
    charged = sum(row["memory"]["draft_bytes"] for row in plan["stages"] if row["host"] == worker)
    assert charged - MIB <= sum(there.values()) <= charged + MIB
    holders = {row["host"] for row in plan["stages"] if row["n_layers"] and row["host"] != "host"}
    assert set(seen) == {("target", None), *(("target", real[host]) for host in holders)}
    assert {layer["device"] for layer in log.layers if layer["model"] == "draft"} == {name}

    with server(args[: args.index("--spec-draft-model")]) as running:
        assert running.request("/slots")[0]["speculative"] is False
        plain = completed(running)
    assert [answer["content"] for answer in drafted] == [answer["content"] for answer in plain]


def test_the_guard_measures_a_draft_on_a_worker(planned, llama_bin, llama_env):
    plan, _args, real = planned(*CASES[1][1:3])
    endpoints = ",".join(real[worker["host"]] for worker in plan["workers"])
    fits = []
    for words in (target_args(plan), draft_args(plan)):
        words[words.index("--rpc") + 1] = endpoints
        fits.append(llama_fit.measure(str(llama_bin / "llama-fit-params"), words, 60, env=llama_env))
    assert [fit["error"] for fit in fits] == [None, None]
    assert [list(fit["devices"]) for fit in fits] == [["RPC0", "Host"], ["RPC1", "Host"]]
    model, draft = (gguf_facts(path) for path in (plan["model"]["path"], plan["draft"]["path"]))
    rows = output_rows(plan, model, draft)
    found = judge(plan, *fits, rows)
    assert (found.exceeded, found.unchecked) == ([], [])
    # A plan that has a little less for the draft is found.
    stage = next(row for row in plan["stages"] if row["rpc_device"] == "RPC1")
    stage["memory"]["draft_bytes"] -= 14 * MIB
    (sentence,) = judge(plan, *fits, rows).exceeded
    assert sentence.startswith("worker2 CPU would need ")


def test_the_drafts_device_is_none_of_those_that_the_target_may_have(tiny_model, workers, server):
    """The most devices of a target, and a draft on one more: each of the two contexts counts its own."""
    pool = workers(MAX_DEVICES + 1)
    target, draft = tiny_model(MAX_DEVICES), tiny_model(2)
    n_gpu_layers, split = invert([1] * MAX_DEVICES, MAX_DEVICES)
    args = [
        "--model", target, "--rpc", ",".join(worker.endpoint for worker in pool),
        "--device", ",".join(f"RPC{number}" for number in range(MAX_DEVICES)),
        "--tensor-split", ",".join(map(str, split)), "--n-gpu-layers", n_gpu_layers, "--ctx-size", 256,
        "--parallel", 1, "--threads", 1, "--fit", "off", "--cache-ram", 0, "-lv", 5, "--spec-draft-model", draft,
        "--spec-draft-n-max", 4, "--spec-draft-device", f"RPC{MAX_DEVICES}", "--spec-type", "draft-simple",
    ]  # fmt: skip
    with server(args) as running:
        answer, log = running.complete("a b c", MAX_TOKENS, ignore_eos=True), parse(running.log)
    assert answer["timings"]["draft_n"] > 0
    assert {layer["endpoint"] for layer in log.layers if layer["model"] == "draft"} == {pool[-1].endpoint}
    assert {layer["endpoint"] for layer in log.layers if layer["model"] == "target"} == {
        worker.endpoint for worker in pool[:-1]
    }
