# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the compute buffers that llama-fit-params measures a server does not have."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import model_ledger, whole_model
from ansible_collections.relay.pool.plugins.plugin_utils.planner.output_rows import output_rows
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.server.fit import exceeded
from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB

from tests.builds import MAY, facts_of


def test_the_rows_that_only_llama_fit_params_reserves(ask, world):
    draft = world.gguf("/models/draft.gguf", n_layer=2, layer_mib=20, embd_mib=10, output_mib=10)
    request = ask([1200], [1000], [1000], draft=draft, draft_path="/models/draft.gguf")
    plan = make_plan(request)
    rows = output_rows(plan, request.model, request.draft)
    assert set(rows["target"]) == {"Host", "RPC0", "RPC1", "CUDA0"}
    vocab = model_ledger(request.model, request.target_spec(request.draft_max)).shape.n_vocab
    # a row per token that the draft may propose, and one per slot
    served = 1 * (1 + request.draft_max)
    assert rows["target"]["Host"] == -served * vocab * 4
    assert (rows["target"]["RPC0"], rows["target"]["RPC1"]) == (0, 0)
    assert 0 < rows["target"]["CUDA0"] <= (512 - served) * vocab * 4
    assert rows["draft"]["Host"] == -vocab * 4
    assert 0 < rows["draft"]["CUDA0"] <= 511 * vocab * 4


def test_the_rows_of_a_draft_on_a_worker(ask, world):
    """By the name that llama.cpp has for the device, and on a worker's CPU without what a GPU adds."""
    draft = world.gguf("/models/draft.gguf", n_layer=2, layer_mib=20, embd_mib=10, output_mib=10)
    request = ask([1250], [1200], [], draft=draft, draft_path="/models/draft.gguf", draft_device="c")
    plan = make_plan(request)
    assert (plan["draft"]["host"], plan["draft"]["device"]) == ("c", "RPC1")
    rows = output_rows(plan, request.model, request.draft)
    assert set(rows["draft"]) == {"Host", "RPC1"}
    ledger = model_ledger(draft, request.draft_spec())
    asked = model_ledger(draft, dataclasses.replace(request.draft_spec(), n_outputs=512))
    (device, _ram), (device_asked, _ram_asked) = (whole_model(each, True, 99, False) for each in (ledger, asked))
    assert rows["draft"]["RPC1"] == device_asked.compute - device.compute


def test_the_rows_of_a_small_micro_batch_and_without_a_draft(ask):
    request = ask([1200], [1100], parallel=4, ubatch_size=4, batch_size=4)
    plan = make_plan(request)
    rows = output_rows(plan, request.model, None)
    assert set(rows) == {"target"}
    # four slots reserve as many rows as four tokens
    assert all(rows["target"][name] == 0 for name in rows["target"] if name != "Host")


@pytest.mark.parametrize("slots", [1, 2])
def test_a_server_that_bounds_no_rows_has_those_that_are_measured(ask, world, slots):
    """On the devices of the target there is nothing to take off, and each slot has a context of the draft."""
    draft = world.gguf("/models/draft.gguf", n_layer=2, layer_mib=20, embd_mib=10, output_mib=10)
    llama = facts_of(MAY, backends=["CPU", "CUDA", "RPC"])
    options = {"draft": draft, "draft_path": "/models/draft.gguf", "parallel": slots, "ubatch_size": 256}
    request = ask([1200], [1000], [1000], llama=llama, **options)
    plan = make_plan(request)
    assert plan["draft"]["device"] == "CUDA0"
    rows = output_rows(plan, request.model, draft)
    vocab = model_ledger(request.model, request.target_spec()).shape.n_vocab
    assert rows["target"] == {"Host": -256 * vocab * 4, "RPC0": 0, "RPC1": 0, "CUDA0": 0}
    asked = model_ledger(draft, dataclasses.replace(request.draft_spec(), n_outputs=256))
    (served, _ram), (measured, _in_ram) = (
        whole_model(each, True, 99) for each in (model_ledger(draft, request.draft_spec()), asked)
    )
    assert rows["draft"] == {"Host": -slots * 256 * vocab * 4, "CUDA0": measured.compute - served.compute}
    assert (rows["draft"]["CUDA0"] < 0) == (slots > 1)
    # The guard takes as much for the buffers as the plan does.
    stage = next(stage for stage in plan["stages"] if stage["transport"] == "rpc")
    name = stage["rpc_device"]
    assert rows["target"][name] == 0
    parts = {part: stage["memory"][f"{part}_bytes"] for part in ("weights", "compute")}
    parts["context"] = stage["memory"]["kv_bytes"]
    fits = {name: {f"{part}_bytes": size for part, size in parts.items()}}
    assert exceeded(plan, {"target": fits}, rows) == []
    fits[name]["compute_bytes"] += 4 * MIB
    (sentence,) = exceeded(plan, {"target": fits}, rows)
    assert sentence.startswith(f"{stage['host']} CUDA0 would need ")


def test_a_plan_of_before_this_was_decided_is_one_of_today(ask):
    request = ask([1200], [1100])
    plan = make_plan(request)
    assert output_rows({**plan, "inputs": None}, request.model, None) == output_rows(plan, request.model, None)
