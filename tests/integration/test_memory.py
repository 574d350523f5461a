# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan's bytes per device against llama.cpp's own figures: weights and KV to the MiB, compute never below.

Weights and KV come from llama-fit-params. It reserves an output row for every token of a batch, a server one per slot,
so the compute buffers are those that a llama-server logs.
"""

from __future__ import annotations

import re
import subprocess

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import gguf_facts
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

MIB = 1024 * 1024
# What of llama-server's command line decides the memory; the workers' endpoints are those of this test.
DECIDING = (
    "--model", "--device", "--tensor-split", "--n-gpu-layers", "--ctx-size", "--parallel", "--cache-type-k",
    "--cache-type-v", "--flash-attn", "--ubatch-size", "--batch-size", "--override-tensor",
)  # fmt: skip
WIDE = {"n_layers": 24, "n_embd": 512, "n_ff": 1536, "n_vocab": 4000}
QUANTISED = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
# (name, model: None is the real one, MiB free on the host and on each worker, options of the request)
CASES = (
    ("two_workers", None, (75, 80, 90), {"ctx_size": 2048, "parallel": 1}),
    ("three_workers", None, (80, 90, 80, 110), {"ctx_size": 4096, "parallel": 1}),
    ("slots", None, (110, 130, 140), {"ctx_size": 5000, "parallel": 3}),
    ("quantised_cache", None, (75, 80, 90), {"ctx_size": 4096, "parallel": 2, **QUANTISED}),
    # all layers on the workers: llama.cpp then keeps four copies of some buffers
    ("no_layers_on_the_host", None, (60, 110, 110), {"ctx_size": 2048, "parallel": 1}),
    ("small_ubatch", None, (70, 70, 70), {"ctx_size": 2048, "parallel": 1, "ubatch_size": 64}),
    ("one_worker", WIDE, (160, 220), {"ctx_size": 1024, "parallel": 1}),
    ("untied_output", WIDE, (150, 170, 170), {"ctx_size": 2048, "parallel": 2}),
    ("tied_output", {**WIDE, "tied": True}, (150, 170, 170), {"ctx_size": 2048, "parallel": 1}),
)  # fmt: skip


def node(number: int, available_mib: int) -> dict:
    """Facts of a machine without a GPU; each has an address of its own in the loopback network."""
    return {
        "gpus": [],
        "memory": {"total_bytes": 8192 * MIB, "available_bytes": available_mib * MIB, "own_bytes": 0},
        "cpu": {"model": "test", "threads": 2, "physical_cores": 2},
        "address": f"127.0.0.{number + 1}",
        "machine_id": f"machine-{number}",
        "units": [],
        "listeners": [],
        "overrides": [],
        "errors": [],
    }


def plan_for(path, free_mib, options) -> dict:
    names = ["host", *(f"worker{number}" for number in range(1, len(free_mib)))]
    nodes = {name: node(number, free) for number, (name, free) in enumerate(zip(names, free_mib))}
    return make_plan(
        Request(
            model=gguf_facts(str(path)), host="host", workers=tuple(names[1:]), nodes=nodes, allow_cpu=True,
            reserve_bytes=0, **options,
        )
    )  # fmt: skip


def deciding_args(plan, endpoints) -> list[str]:
    """The part of the plan's command line that decides the memory, with the workers of this test."""
    given = plan["server_args"]
    pairs = [pair for pair in zip(given, given[1:]) if pair[0] in DECIDING]
    return ["--rpc", ",".join(endpoints), *(word for pair in pairs for word in pair)]


def fitted(llama_bin, llama_env, args) -> dict[str, tuple[int, int]]:
    """(model, context) in MiB, rounded down, per device and for the Host, as llama-fit-params has them."""
    result = subprocess.run(
        [str(llama_bin / "llama-fit-params"), *args, "--fit-print", "on"],
        env=llama_env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    lines = [line.split() for line in result.stdout.splitlines()]
    return {fields[0]: (int(fields[1]), int(fields[2])) for fields in lines if len(fields) == 4}


def logged_compute(log: str, endpoints) -> dict[str, float]:
    """Compute buffer in MiB per device and for the Host, from a server's log at -lv 4."""
    found: dict[str, float] = {}
    for name, size in re.findall(r"sched_reserve: +(\S+) compute buffer size = +([0-9.]+) MiB", log):
        # a remote buffer is named after the device inside its worker, so only the endpoint tells them apart
        remote = re.match(r"RPC\d+\[(.+)\]$", name)
        device = f"RPC{endpoints.index(remote.group(1))}" if remote else "Host"
        found[device] = max(found.get(device, 0.0), float(size))
    return found


@pytest.mark.parametrize(("model", "free_mib", "options"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_bytes_per_device(llama_bin, llama_env, workers, server, request, tiny_model, model, free_mib, options):
    path = tiny_model(**model) if model else request.getfixturevalue("real_model")
    plan = plan_for(path, free_mib, options)
    assert plan["kind"] == "sharded"
    planned = {stage["rpc_device"] or "Host": stage["memory"] for stage in plan["stages"]}
    endpoints = [worker.endpoint for worker in workers(len(plan["rpc_backends"]))]
    args = deciding_args(plan, endpoints)

    measured = fitted(llama_bin, llama_env, args)
    assert set(measured) == set(planned)
    for device, (weights, context) in measured.items():
        memory = planned[device]
        state = memory["kv_bytes"] + memory["recurrent_bytes"]
        assert (device, memory["weights_bytes"] // MIB, state // MIB) == (device, weights, context)

    with server([*args, "--threads", 1, "--fit", "off", "--no-warmup", "-lv", 4]) as running:
        compute = logged_compute(running.log, endpoints)
    assert set(compute) == set(planned)
    for device, size in compute.items():
        planned_mib = planned[device]["compute_bytes"] / MIB
        assert planned_mib >= size - 0.01, device
        # a bound that is far off would refuse what fits
        assert planned_mib <= 2 * size + 16, device
