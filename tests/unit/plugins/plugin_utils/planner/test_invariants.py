# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is true of every plan, over ten thousand random pools; RELAY_POOLS is another number of them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import CPU, MAX_DEVICES, assign
from ansible_collections.relay.pool.plugins.plugin_utils.planner import placement
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

from tests.scale.pools import random_request

POOLS, PARTS = int(os.environ.get("RELAY_POOLS", "10000")), 50
ROOT = Path(__file__).resolve().parents[5]


def drawn(seed):
    """Mostly small pools, some of up to 20 machines with 8 GPUs each."""
    rng = Random(f"pool {seed}")
    shape = (20, 8, (8, 64)) if seed % 20 == 0 else (8, 3, (2, 40)) if seed % 4 == 0 else (5, 2, (1, 24))
    return random_request(rng, *shape)


def value(plan, flag, default=None):
    arguments = plan["server_args"]
    return arguments[arguments.index(flag) + 1] if flag in arguments else default


def check(options, plan):
    """Everything that must hold whatever the pool."""
    model, nodes = options["model"], options["nodes"]
    n_layer = model["metadata"][model["architecture"] + ".block_count"]
    cpu, *stages = plan["stages"]
    at = 0
    for stage in plan["stages"]:
        memory = stage["memory"]
        if memory["free_bytes"] is not None:
            assert memory["total_bytes"] <= memory["free_bytes"]
            assert memory["left_bytes"] == memory["free_bytes"] - memory["total_bytes"] >= 0
            node = nodes[stage["host"]]
            free = {gpu["device"]: gpu["memory_free_bytes"] for gpu in node["gpus"]}
            free["CPU"] = node["memory"]["available_bytes"]
            assert memory["free_bytes"] <= free[stage["device"]]
        if stage["n_layers"] or stage["has_output"]:
            assert stage["first_layer"] == at
            at += stage["n_layers"]
    assert at == n_layer
    holders = [stage for stage in plan["stages"] if stage["n_layers"] or stage["has_output"]]
    # A CPU that holds layers may keep the output.
    with_output = [stage for stage in holders if stage["has_output"]]
    assert len(with_output) == 1
    assert with_output[0] in (holders[-1], cpu)
    assert ("--override-tensor" in plan["server_args"]) == (with_output[0] is cpu and len(holders) > 1)
    check_split(plan, n_layer, cpu, [stage for stage in holders if stage is not cpu])
    check_names(plan, stages, [stage for stage in holders if stage is not cpu])
    check_speculation(options, plan)
    # Whoever has a GPU and room for the output keeps it; without a GPU it is away.
    assert json.loads(json.dumps(plan)) == plan


def check_speculation(options, plan):
    """A draft is where it is charged and where llama-server is told to put it, and nowhere without being asked for."""
    draft, kind = plan["draft"], plan["speculation"]
    flags = [argument for argument in plan["server_args"] if argument.startswith("--spec-")]
    if plan["kind"] == "replica" and options.get("draft_scope", "sharded") == "sharded":
        assert (flags, kind, draft["enabled"]) == ([], None, False)
    charged = {
        (stage["host"], stage["rpc_device"] or stage["device"]): stage["memory"]["draft_bytes"]
        for stage in plan["stages"]
        if stage["memory"]["draft_bytes"]
    }
    assert sum(charged.values()) == (draft["memory"] or {"total_bytes": 0})["total_bytes"]
    assert draft["enabled"] == bool(charged)
    if not draft["enabled"]:
        assert (draft["host"], draft["device"], value(plan, "--spec-draft-model")) == (None, None, None)
        assert kind is None or kind.startswith("ngram-")
        return
    assert value(plan, "--spec-type") == kind
    assert value(plan, "--spec-draft-device") == draft["device"]
    on_device = {(draft["host"], "CPU" if draft["device"] == "none" else draft["device"]), (plan["host"], "CPU")}
    assert set(charged) <= on_device
    wanted = options["draft_device"]
    if wanted == "auto" and plan["kind"] == "sharded":
        assert any(stage["host"] == plan["host"] and stage["n_layers"] for stage in plan["stages"])
    assert draft["host"] == (wanted if wanted in options["workers"] else plan["host"])
    if draft["device"] == "none":
        assert wanted in ("auto", "none", plan["host"])


def check_split(plan, n_layer, cpu, holders):
    """llama.cpp makes of the plan's own flags the plan's layers."""
    offload = value(plan, "--n-gpu-layers")
    if not holders:
        assert value(plan, "--device", "none") == "none"
        return
    split = [float(share) for share in (value(plan, "--tensor-split") or "1").split(",")]
    devices = assign(n_layer, -1 if offload == "all" else int(offload), split, len(holders))
    assert [devices[:-1].count(index) for index in range(len(holders))] == [stage["n_layers"] for stage in holders]
    assert devices[:-1].count(CPU) == cpu["n_layers"]
    assert devices[-1] == len(holders) - 1
    assert devices == sorted(devices)


def check_names(plan, stages, holders):
    """RPC0 and so on are numbered over the workers in the order of --rpc, and over the devices of each."""
    names = [(worker["endpoint"], device) for worker in plan["workers"] for device in worker["devices"]]
    remote = [stage for stage in stages if stage["transport"] == "rpc"]
    if plan["draft"]["enabled"]:
        # One for the draft alone is the last stage, whatever its number is.
        remote.sort(key=lambda stage: int(stage["rpc_device"][3:]))
    assert [(stage["endpoint"], stage["device"]) for stage in remote] == names
    assert [stage["rpc_device"] for stage in remote] == [f"RPC{number}" for number in range(len(names))]
    assert plan["rpc_backends"] == [worker["endpoint"] for worker in plan["workers"]]
    assert len(set(plan["rpc_backends"])) == len(plan["rpc_backends"])
    if plan["kind"] == "sharded":
        assert plan["devices"] == [stage["rpc_device"] or stage["device"] for stage in holders]
        assert len(plan["devices"]) == len(plan["tensor_split"]) <= MAX_DEVICES
    elif plan["workers"]:
        # All other devices of a build would take layers, those of the draft's worker first.
        assert plan["devices"] == ([stage["device"] for stage in holders] or ["none"])
    for worker in plan["workers"]:
        assert worker["args"][worker["args"].index("--device") + 1] == ",".join(worker["devices"])


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_true_of_every_plan(part, monkeypatch):
    # The ways out of pools that are too small have tests of their own; there is a plan or there is none.
    monkeypatch.setattr(placement, "explain", lambda *_facts: "needs more than the pool has")
    planned = 0
    for seed in range(part * POOLS // PARTS, (part + 1) * POOLS // PARTS):
        try:
            plan = placement.make_plan(Request(**drawn(seed)))
        except PoolError as exc:
            if not any(words in str(exc) for words in ("needs more", "no usable GPU", "no device can hold")):
                raise
            continue
        try:
            check(drawn(seed), plan)
        except AssertionError as exc:
            raise AssertionError(f"pool {seed}") from exc
        planned += 1
        if seed % 5 == 0:
            again = placement.make_plan(Request(**drawn(seed)))
            assert json.dumps(again) == json.dumps(plan), seed
    assert planned > POOLS // PARTS // 10 or POOLS < 1000


def digest():
    """Of some plans, a large pool among them."""
    text = []
    for seed in (0, *range(2, 202, 6)):
        try:
            text.append(json.dumps(placement.make_plan(Request(**drawn(seed)))))
        except PoolError as exc:
            text.append(str(exc))
    return hashlib.sha256("\n".join(text).encode()).hexdigest()


def test_a_plan_is_the_same_in_every_process():
    """Python orders sets of texts anew in every process."""
    code = f"import sys; sys.path[:0] = {[str(ROOT / '.collections'), str(ROOT)]!r}\n"
    code += "import runpy; print(runpy.run_path(sys.argv[1])['digest']())"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code, __file__],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert seen == {digest() + "\n"}
