# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection says of one run, through the same functions as a plan: ledger, layout, stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout, stages
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import invert
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.memory.kv import context, is_quantised
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import ContextSpec, model_ledger
from ansible_collections.relay.pool.plugins.plugin_utils.planner.render import KEEPS_OUTPUT
from ansible_collections.relay.pool.plugins.plugin_utils.server.command_line import llama_server_args

from tests.memory.grid import BATCH, UBATCH, Run, layers_of

ROOM = 2**50


@dataclass(frozen=True)
class Bytes:
    """One device; kv and recurrent together are llama.cpp's "context"."""

    weights: int
    kv: int
    recurrent: int
    compute: int


def _machine(name: str) -> Machine:
    # The RAM of a machine without a GPU: that is what the workers of the check really offer.
    return Machine(name, Device(name, "CPU", ROOM, 0), (), (), "127.0.0.1", 1)


Prediction = dict[str, Bytes]


def is_planned(gguf: Mapping[str, Any], run: Run) -> bool:
    """Whether a plan may look so: some models' output cannot be kept apart from the last layers."""
    try:
        ledger = model_ledger(gguf, ContextSpec(ctx_size=run.ctx_size, parallel=run.slots))
    except PoolError:
        return True
    return ledger.output_apart or not run.devices.keeps_output


def predict(gguf: Mapping[str, Any], run: Run) -> Prediction:
    """Bytes per device, "Host" first, then RPC0 and so on; raises PoolError as a plan does."""
    spec = ContextSpec(
        ctx_size=run.ctx_size,
        parallel=run.slots,
        cache_type_k=run.cache,
        cache_type_v=run.cache,
        ubatch_size=min(run.ubatch, BATCH),
        n_outputs=run.n_outputs,
    )
    ledger = model_ledger(gguf, spec)
    on_host, shares = layers_of(ledger.n_layer, run.devices)
    segments = []
    at = on_host
    for number, share in enumerate(shares):
        end = at + share + (number == len(shares) - 1 and not run.devices.keeps_output)
        segments.append((_machine(f"worker{number}").ram, at, end))
        at = end
    pipelined = len(segments) > 1 and not on_host
    kept = run.devices.keeps_output
    layout = Layout(_machine("host"), ledger, on_host, tuple(segments), pipelined, None, (0, 0, 0), kept)
    result: Prediction = {}
    for stage in stages(layout):
        memory = stage["memory"]
        compute = memory["compute_bytes"]
        if stage["rpc_device"] is None:
            # The plan counts the buffer of logits with the host's compute buffer; llama.cpp reports it nowhere.
            compute -= run.n_outputs * ledger.shape.n_vocab * 4
        result[stage["rpc_device"] or "Host"] = Bytes(
            memory["weights_bytes"], memory["kv_bytes"], memory["recurrent_bytes"], compute
        )
    return result


def arguments(path: str, n_layer: int, run: Run, endpoints: list[str]) -> list[str]:
    """The command line of a plan for this run, without what only concerns a running server."""
    _on_host, shares = layers_of(n_layer, run.devices)
    n_gpu_layers, split = invert(shares, n_layer, output_device=len(shares) - 1) if shares else (n_layer + 1, [])
    total, _per_slot = context(run.ctx_size, run.slots)
    return llama_server_args(
        {
            "model": path,
            "rpc_backends": endpoints,
            "devices": [f"RPC{number}" for number in range(len(shares))],
            "tensor_split": split,
            "parallel": run.slots,
            "n_gpu_layers": "all" if n_gpu_layers > n_layer else n_gpu_layers,
            "ctx_size": total,
            "cache_type_k": run.cache,
            "cache_type_v": run.cache,
            "flash_attn": is_quantised(run.cache),
            "extra": [
                *(["--override-tensor", KEEPS_OUTPUT] if run.devices.keeps_output else []),
                *([] if run.ubatch == UBATCH else ["--ubatch-size", str(run.ubatch)]),
            ],
        }
    )
