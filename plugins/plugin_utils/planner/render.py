# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a layout to the plan's plain data and command lines."""

from __future__ import annotations

from typing import Any

from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import Verdict
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout, stages
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import invert
from ansible_collections.relay.pool.plugins.plugin_utils.memory import kv
from ansible_collections.relay.pool.plugins.plugin_utils.planner.prediction import predicted
from ansible_collections.relay.pool.plugins.plugin_utils.planner.sticky import SCHEMA
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.server.command_line import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_UBATCH_SIZE,
    llama_server_args,
    rpc_server_args,
)
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import Dialect

# A regular expression for the names of tensors, and the buffer type they go to.
KEEPS_OUTPUT = r"^(output|token_embd)\.=CPU"


def rendered(request: Request, dialect: Dialect, layout: Layout, verdict: Verdict) -> dict[str, Any]:
    """The plan without refusals, warnings, advice and inputs."""
    rows = stages(layout, request.rpc_port)
    devices, tensor_split, n_gpu_layers = _split(layout)
    total, _per_slot = kv.context(request.ctx_size, request.parallel)
    workers = _workers(request, layout)
    draft = _draft(request, layout, verdict)
    options: dict[str, Any] = {
        "model": request.model_path,
        "rpc_backends": [worker["endpoint"] for worker in workers],
        "devices": devices,
        "tensor_split": tensor_split,
        "host": request.server_host,
        "port": request.server_port,
        "parallel": request.parallel,
        "n_gpu_layers": n_gpu_layers,
        "ctx_size": total,
        "alias": request.served_alias,
        "cache_type_k": request.cache_type_k,
        "cache_type_v": request.cache_type_v,
        "flash_attn": kv.is_quantised(request.cache_type_k) or kv.is_quantised(request.cache_type_v),
        "extra": _extra(request, dialect, layout),
        "spelling": dialect.spelling,
    }
    if draft["enabled"]:
        options["draft"] = {
            "model": draft["path"],
            "n_max": request.draft_max,
            "n_min": request.draft_min,
            "gpu_layers": request.draft_gpu_layers,
            "p_min": request.draft_p_min,
            "device": draft["device"],
            "type": dialect.spec_type,
            "scope": request.draft_scope,
        }
    llama = request.llama or {}
    return {
        "schema": SCHEMA,
        "kind": "sharded" if layout.sharded else "replica",
        "host": layout.server.host,
        "model": {
            "path": request.model_path,
            "alias": request.served_alias,
            "architecture": request.model.get("architecture"),
            "size_bytes": request.model.get("size_bytes"),
        },
        "ctx_size": total,
        "parallel": request.parallel,
        "stages": rows,
        "rpc_backends": options["rpc_backends"],
        "devices": devices,
        "tensor_split": tensor_split,
        "n_gpu_layers": n_gpu_layers,
        "draft": draft,
        "predicted": predicted(request, layout, verdict),
        "server_args": llama_server_args(dialect.worded(options, layout.ledger.n_layer)),
        "server_environment": _server_environment(layout),
        "workers": workers,
        "llama": {key: llama.get(key) for key in ("version", "build", "commit")},
    }


def _split(layout: Layout) -> tuple[list[str], list[int], Any]:
    """(--device, --tensor-split, --n-gpu-layers)."""
    if layout.on_cpu:
        # a build with GPU support would take a GPU that the plan has refused
        return (["none"] if layout.server.gpu_names else []), [], "all"
    n_layer = layout.ledger.n_layer
    names, layers = [], []
    n_rpc = 0
    for device, first, end in layout.segments:
        if device.host == layout.server.host:
            names.append(device.name)
        else:
            names.append(f"RPC{n_rpc}")
            n_rpc += 1
        layers.append(min(end, n_layer) - first)
    n_gpu_layers, split = invert(layers, n_layer, output_device=len(layers) - 1)
    ngl: Any = "all" if n_gpu_layers > n_layer else n_gpu_layers
    if not layout.sharded and len(names) == 1:
        return ([] if layout.server.gpu_names == tuple(names) else names), [], ngl
    return names, split, ngl


def _workers(request: Request, layout: Layout) -> list[dict[str, Any]]:
    """One entry per machine that serves over RPC, with the devices it exposes in the plan's order."""
    workers: dict[str, dict[str, Any]] = {}
    threads: dict[str, int | None] = {}
    for device in layout.rpc_devices:
        entry = workers.setdefault(
            device.host,
            {
                "host": device.host,
                "endpoint": f"{device.address}:{request.rpc_port}",
                "address": device.address,
                "port": request.rpc_port,
                "link": {"rtt_seconds": device.rtt_seconds, "speed_mbps": device.speed_mbps},
                "devices": [],
                "environment": {},
            },
        )
        entry["devices"].append(device.name)
        entry["environment"].update(device.environment)
        threads[device.host] = (request.nodes[device.host].get("cpu") or {}).get("physical_cores")
    for name, entry in workers.items():
        entry["args"] = rpc_server_args(
            {
                "host": entry["address"],
                "port": entry["port"],
                "devices": entry["devices"],
                "threads": threads[name],
                "cache": request.rpc_cache,
            }
        )
    return list(workers.values())


def _server_environment(layout: Layout) -> dict[str, str]:
    """What gives the server's GPUs their names; {} when it uses none, or sees all that there are."""
    local = (device.environment for device in layout.devices if device.host == layout.server.host)
    return {name: value for variables in local for name, value in variables.items()}


def _extra(request: Request, dialect: Dialect, layout: Layout) -> list[str]:
    """What the dialect needs and what keeps llama-server to the plan, then the user's own arguments."""
    extra: list[str] = []
    if dialect.knows("--fit"):
        # on by default, it would change placement or context behind the plan's back
        extra += ["--fit", "off"]
    if layout.keeps_output:
        # Or it would be with the last layers. A tied output is the token embedding.
        extra += ["--override-tensor", KEEPS_OUTPUT]
    if request.batch_size != DEFAULT_BATCH_SIZE:
        extra += ["--batch-size", str(request.batch_size)]
    if request.ubatch_size != DEFAULT_UBATCH_SIZE:
        extra += ["--ubatch-size", str(request.ubatch_size)]
    if request.threads:
        extra += ["--threads", str(request.threads)]
    if layout.sharded and dialect.knows("--cache-ram"):
        # the prompt cache takes 8 GiB of host RAM by default and copies KV over the network
        extra += ["--cache-ram", "0"]
    if request.metrics and dialect.knows("--metrics"):
        extra.append("--metrics")
    if dialect.knows("--log-verbosity"):
        # buffer sizes, which prove the plan, are logged at 4
        extra += [dialect.spelling.get("--log-verbosity", "--log-verbosity"), str(request.log_verbosity)]
    if request.api_key_file:
        extra += ["--api-key-file", request.api_key_file]
    return extra + [str(argument) for argument in request.extra_args]


def _draft(request: Request, layout: Layout, verdict: Verdict) -> dict[str, Any]:
    charge = layout.draft
    path = request.draft_path or (request.draft or {}).get("path")
    result: dict[str, Any] = {
        "enabled": verdict.enabled,
        "reason": verdict.reason,
        "message": verdict.message,
        "path": path or None,
        "device": None,
        "memory": None,
    }
    if verdict.enabled and charge:
        result["device"] = charge.device
        result["memory"] = {
            "weights_bytes": charge.gpu.weights + charge.ram.weights,
            "kv_bytes": charge.gpu.kv + charge.ram.kv,
            "compute_bytes": charge.gpu.compute + charge.ram.compute,
            "total_bytes": charge.total,
        }
        where = "CPU" if charge.device == "none" else charge.device
        result["message"] = f"{path} runs on {layout.server.host} {where}"
    return result
