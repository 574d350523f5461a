# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""By how much the compute buffers that llama-fit-params measures differ from those of the plan's server."""

from __future__ import annotations

from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.memory.activations import FLOAT
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import (
    ContextSpec,
    Ledger,
    model_ledger,
    whole_model,
)
from ansible_collections.relay.pool.plugins.plugin_utils.request import reserved_rows
from ansible_collections.relay.pool.plugins.plugin_utils.server.command_line import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_UBATCH_SIZE,
)
from ansible_collections.relay.pool.plugins.plugin_utils.server.fit import HOST, WHOLE_MODEL, device_name, value_of


def output_rows(
    plan: Mapping[str, Any], model: Mapping[str, Any], draft: Mapping[str, Any] | None
) -> dict[str, dict[str, int]]:
    """What llama-fit-params' compute buffers have and those of the plan's server have not, in bytes.

    By ``target`` and ``draft``, by device. The program reserves an output row for every token of a micro batch, a
    server for every slot, or for every token that a draft may propose. A server of a build that does not bound its rows
    has as many as the program, and those of the draft once per slot, see Request.draft_spec. The plan counts the buffer
    of a server's logits with the host's compute buffer, where the program counts none.

    :param model: the target as relay.pool.gguf_info returns it, draft: the draft.
    """
    batch = int(value_of(plan, "--batch-size", str(DEFAULT_BATCH_SIZE)))
    ubatch = min(int(value_of(plan, "--ubatch-size", str(DEFAULT_UBATCH_SIZE))), batch)
    slots = plan["parallel"]
    drafted = plan["predicted"]["draft_tokens"] or 0
    decided = (plan.get("inputs") or {}).get("dialect") or {}
    all_rows = decided.get("bounds_output_rows") is False

    def reserved(rows: int) -> int:
        return reserved_rows(rows, ubatch, batch, all_rows)

    def spec(n_outputs: int, own_cache: bool) -> ContextSpec:
        cache = ("f16", "f16") if own_cache else [value_of(plan, f"--cache-type-{kind}", "f16") for kind in "kv"]
        return ContextSpec(plan["ctx_size"], slots, cache[0], cache[1], ubatch, n_outputs)

    served, asked = (
        model_ledger(model, spec(n_outputs, False)) for n_outputs in (reserved(slots * (1 + drafted)), ubatch)
    )
    layers_on = [stage for stage in plan["stages"][1:] if stage["n_layers"] or stage["has_output"]]
    cpu = plan["stages"][0]
    pipelined = len(layers_on) > 1 and not cpu["n_layers"]

    def host(ledger: Ledger) -> int:
        return ledger.host_bytes(layers=cpu["n_layers"] > 0, pipelined=pipelined, output=cpu["has_output"])

    target = {HOST: host(asked) - host(served) - ubatch * asked.shape.n_vocab * FLOAT}
    for stage in layers_on:
        first = stage["first_layer"]
        last = first + stage["n_layers"]
        where = (first == 0, pipelined, stage["has_output"], (first, last), stage["device"] != "CPU")
        target[device_name(stage)] = asked.device_bytes(*where) - served.device_bytes(*where)
    rows = {"target": target}
    if plan["draft"]["enabled"] and draft and plan["speculation"] == WHOLE_MODEL:
        on_gpu = plan["draft"]["device"] != "none"
        # The CPU of a worker is a device, too.
        padded = (plan["draft"]["host"], plan["draft"]["device"]) not in (
            (stage["host"], stage["rpc_device"]) for stage in plan["stages"] if stage["device"] == "CPU"
        )
        n_layers = int(value_of(plan, "--spec-draft-ngl", "-1"))
        (gpu, ram), (gpu_asked, ram_asked) = (
            whole_model(model_ledger(draft, spec(n_outputs, True)), on_gpu, n_layers, padded)
            for n_outputs in (reserved(slots) * (slots if all_rows else 1), ubatch)
        )
        vocab = model_ledger(draft, spec(ubatch, True)).shape.n_vocab
        rows["draft"] = {
            HOST: ram_asked.compute - ram.compute - ubatch * vocab * FLOAT,
            plan["draft"]["device"]: gpu_asked.compute - gpu.compute,
        }
    return rows
