# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A running pool keeps its plan: the same inputs give the previous placement while it still fits."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.devices import Machine
from ansible_collections.relay.pool.plugins.plugin_utils.dialect import Dialect
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

SCHEMA = 1


def _file(gguf: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What identifies a model file for the planner; the digest covers every size and dimension it reads."""
    if not gguf:
        return None
    known = {key: gguf.get(key) for key in ("architecture", "metadata", "tensors", "size_bytes")}
    known["tokenizer"] = (gguf.get("tokenizer") or {}).get("digest")
    text = json.dumps(known, sort_keys=True, default=str)
    return {
        "path": gguf.get("path"),
        "size_bytes": gguf.get("size_bytes"),
        "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def deciding_inputs(
    request: Request, machines: Sequence[Machine], speech: Dialect, draft_reason: str
) -> dict[str, Any]:
    """Everything that decides, as plain JSON. Free memory is not among it: it changes while the pool runs.

    An overridden capacity is an intention of the user and does count.
    """
    options = {
        name: getattr(request, name)
        for name in (
            "ctx_size", "parallel", "cache_type_k", "cache_type_v", "ubatch_size", "batch_size", "server_host",
            "server_port", "rpc_port", "rpc_cache", "draft_path", "draft_max", "draft_min", "draft_gpu_layers",
            "draft_p_min", "draft_scope", "draft_reserve", "draft_device", "reserve_bytes", "allow_cpu", "threads",
            "api_key_file", "metrics", "log_verbosity",
        )
    }  # fmt: skip
    options["alias"] = request.served_alias
    options["extra_args"] = [str(argument) for argument in request.extra_args]
    devices = [
        {
            "host": device.host,
            "device": device.name,
            "uuid": device.uuid,
            "address": device.address,
            "threads": member.threads,
            "bandwidth": device.bandwidth,
            "capacity_bytes": device.capacity_bytes if device.overridden else None,
        }
        for member in machines
        for device in (*((member.ram,) if member.ram else ()), *member.gpus)
    ]
    return {
        "host": request.host,
        "workers": [member.host for member in machines if member.host != request.host],
        "model": _file(request.model),
        "draft": _file(request.draft),
        "draft_reason": draft_reason,
        "options": options,
        "devices": devices,
        "dialect": speech.decisions(),
    }


def kept_plan(
    previous: Mapping[str, Any] | None, inputs: Mapping[str, Any], machines: Sequence[Machine]
) -> dict[str, Any] | None:
    """The previous plan with ``kept`` set, or None when it does not hold any more."""
    if not previous or previous.get("schema") != SCHEMA:
        return None
    if _canonical(previous.get("inputs")) != _canonical(inputs):
        return None
    capacity = {
        (device.host, device.name): device.capacity_bytes
        for member in machines
        for device in (*((member.ram,) if member.ram else ()), *member.gpus)
    }
    for stage in previous.get("stages") or []:
        memory = stage["memory"]
        key = (stage["host"], stage["device"])
        if memory.get("free_bytes") is None and key not in capacity:
            continue
        # The reserve is a wish, not an allocation: it alone does not move a running pool.
        if memory["total_bytes"] - memory["reserve_bytes"] > capacity.get(key, 0):
            return None
    return dict(previous, kept=True)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
