# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a layout to the plan's plain data and command lines."""

from __future__ import annotations

from typing import Any

from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import Verdict
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import DraftCharge, Layout, stages
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import invert
from ansible_collections.relay.pool.plugins.plugin_utils.memory import kv
from ansible_collections.relay.pool.plugins.plugin_utils.planner.prediction import predicted
from ansible_collections.relay.pool.plugins.plugin_utils.planner.sticky import BUILD, SCHEMA
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


def rendered(
    request: Request, dialect: Dialect, layout: Layout, verdict: Verdict, speculation: Speculation | None
) -> dict[str, Any]:
    """The plan without refusals, warnings, advice and inputs."""
    rows = stages(layout, request.rpc_port)
    devices, tensor_split, n_gpu_layers = _split(layout)
    total, _per_slot = kv.context(request.ctx_size, request.parallel)
    workers = _workers(request, layout)
    draft = _draft(request, layout, verdict, speculation)
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
    if speculation:
        options["draft"] = {
            "model": draft["path"] if speculation.own_file else None,
            "n_max": speculation.n_max,
            "n_min": request.draft_min,
            "gpu_layers": request.draft_gpu_layers if speculation.own_file else None,
            "p_min": request.draft_p_min,
            "device": draft["device"],
            "type": dialect.type_name(speculation.type),
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
        "speculation": speculation.type if speculation else None,
        "draft": draft,
        "predicted": predicted(request, layout, verdict, speculation),
        "server_args": llama_server_args(dialect.worded(options, layout.ledger.n_layer)),
        "server_environment": _server_environment(layout),
        "workers": workers,
        "llama": {key: llama.get(key) for key in BUILD},
    }


def _split(layout: Layout) -> tuple[list[str], list[int], Any]:
    """(--device, --tensor-split, --n-gpu-layers)."""
    if layout.on_cpu:
        # a build with GPU support would take a GPU that the plan has refused, and any build the draft's worker
        return (["none"] if layout.server.gpu_names or layout.exposed else []), [], "all"
    n_layer = layout.ledger.n_layer
    names = [layout.rpc_name(device) or device.name for device in layout.devices]
    layers = [min(end, n_layer) - first for _device, first, end in layout.segments]
    n_gpu_layers, split = invert(layers, n_layer, output_device=len(layers) - 1)
    ngl: Any = "all" if n_gpu_layers > n_layer else n_gpu_layers
    if not layout.sharded and len(names) == 1:
        all_there_are = layout.server.gpu_names == tuple(names) and not layout.exposed
        return ([] if all_there_are else names), [], ngl
    return names, split, ngl


def _workers(request: Request, layout: Layout) -> list[dict[str, Any]]:
    """One entry per machine that serves over RPC, with the devices it exposes in the plan's order."""
    workers: dict[str, dict[str, Any]] = {}
    threads: dict[str, int | None] = {}
    for device in layout.exposed:
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
    draft = layout.draft.device if layout.draft else None
    used = [*layout.devices, *([draft] if draft else [])]
    local = (device.environment for device in used if device.host == layout.server.host)
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
    if layout.exposed and dialect.knows("--cache-ram"):
        # the prompt cache takes 8 GiB of host RAM by default and copies KV over the network, a remote draft's too
        extra += ["--cache-ram", "0"]
    if request.metrics and dialect.knows("--metrics"):
        extra.append("--metrics")
    if dialect.knows("--log-verbosity"):
        # buffer sizes, which prove the plan, are logged at 4
        extra += [dialect.spelling.get("--log-verbosity", "--log-verbosity"), str(request.log_verbosity)]
    if request.api_key_file:
        extra += ["--api-key-file", request.api_key_file]
    return extra + [str(argument) for argument in request.extra_args]


def _draft(request: Request, layout: Layout, verdict: Verdict, speculation: Speculation | None) -> dict[str, Any]:
    path = request.draft_path or (request.draft or {}).get("path")
    result: dict[str, Any] = {
        "enabled": verdict.enabled,
        "reason": verdict.reason,
        "message": verdict.message,
        "path": path or None,
        "host": None,
        "device": None,
        "memory": None,
    }
    if not (verdict.enabled and speculation and layout.draft):
        return result
    running = _own_layers(layout) if speculation.mtp_of_target else _own_file(layout, layout.draft, str(path))
    return {**result, **running}


def _own_file(layout: Layout, charge: DraftCharge, path: str) -> dict[str, Any]:
    """A draft with a file: where it runs and what it takes there, and in the RAM of the server."""
    device = charge.device
    host, name = (device.host, device.name) if device else (layout.server.host, "CPU")
    rpc = layout.rpc_name(device) if device else None
    memory = {
        "weights_bytes": charge.gpu.weights + charge.ram.weights,
        "kv_bytes": charge.gpu.kv + charge.ram.kv,
        "compute_bytes": charge.gpu.compute + charge.ram.compute,
        "total_bytes": charge.total,
    }
    message = f"{path} runs on {host} {name}" + (f", over RPC as {rpc}" if rpc else "")
    return {"message": message, "host": host, "device": rpc or (name if device else "none"), "memory": memory}


def _own_layers(layout: Layout) -> dict[str, Any]:
    """MTP layers of the target: their context is on the device of the last layer."""
    last = layout.last_layer
    host, name = (last.host, last.name) if last else (layout.server.host, "CPU")
    total = layout.ledger.mtp_device + layout.ledger.mtp_host
    memory = {"weights_bytes": 0, "kv_bytes": 0, "compute_bytes": total, "total_bytes": total}
    message = f"the target's own MTP layers propose tokens, with its last layers on {host} {name}"
    return {"message": message, "path": None, "host": host, "memory": memory}
