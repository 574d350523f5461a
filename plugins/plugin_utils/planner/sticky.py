# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A running pool keeps its plan: the same inputs give the previous placement while it still fits."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import asked_for
from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Machine
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import Dialect
from ansible_collections.relay.pool.plugins.plugin_utils.views.table import plan_table

SCHEMA = 2
# What tells builds of llama.cpp apart, in a plan and among the facts.
BUILD = ("version", "build", "commit")


def _file(gguf: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What identifies a model file for the planner; the digest covers every size and dimension it reads."""
    if not gguf:
        return None
    known = {key: gguf.get(key) for key in ("architecture", "metadata", "tensors", "size_bytes")}
    known["tokenizer"] = (gguf.get("tokenizer") or {}).get("digest")
    # Keys of several kinds have no order before they are texts.
    text = json.dumps(json.loads(json.dumps(known, default=str)), sort_keys=True)
    return {
        "path": gguf.get("path"),
        "size_bytes": gguf.get("size_bytes"),
        "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def deciding_inputs(
    request: Request, machines: Sequence[Machine], dialect: Dialect, draft_reason: str
) -> dict[str, Any]:
    """Everything that decides, as plain JSON. Free memory is not among it: it changes while the pool runs.

    An overridden capacity is an intention of the user and does count.
    """
    options = {
        name: getattr(request, name)
        for name in (
            "ctx_size", "parallel", "cache_type_k", "cache_type_v", "ubatch_size", "batch_size", "server_host",
            "server_port", "rpc_port", "rpc_cache", "draft_path", "draft_max", "draft_min", "draft_gpu_layers",
            "draft_p_min", "draft_scope", "draft_reserve", "draft_device", "speculation_type", "draft_fallback",
            "reserve_bytes", "allow_cpu", "threads", "api_key_file", "metrics", "log_verbosity",
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
        for device in member.devices
    ]
    return {
        "host": request.host,
        "workers": [member.host for member in machines if member.host != request.host],
        "model": _file(request.model),
        "draft": _file(request.draft),
        "draft_reason": draft_reason,
        "options": options,
        "devices": devices,
        "dialect": dialect.decisions(*asked_for(request)),
    }


# Notes of the day on which the plan was made.
NOTES = ("warnings", "advice")
# These change while the pool runs.
MOVING = ("free_bytes", "left_bytes")
# These move with every measurement of the links, which must not move a running pool.
FIGURES = ("tokens_per_second", "network_seconds", "with_draft_tokens_per_second", "break_even_acceptance")


def same_inputs(previous: Any, inputs: Mapping[str, Any]) -> bool:
    """True when the previous plan was made from the same inputs by the same kind of planner."""
    if not isinstance(previous, Mapping) or previous.get("schema") != SCHEMA:
        return False
    return _canonical(previous.get("inputs")) == _canonical(inputs)


def other_build(previous: Mapping[str, Any], llama: Mapping[str, Any] | None) -> bool:
    """True when the previous plan is known to be of another build of llama.cpp than the installed one."""
    before, now = ({key: (each or {}).get(key) for key in BUILD} for each in (previous.get("llama"), llama))
    return any(before.values()) and any(now.values()) and before != now


def deciding_gpus(previous: Any) -> dict[str, set[str]]:
    """By machine, the identities of the devices with which the previous plan was made; empty if it cannot be read."""
    found: dict[str, set[str]] = {}
    try:
        for entry in previous["inputs"]["devices"]:
            found.setdefault(entry["host"], set()).add(entry["uuid"] or entry["device"])
    except UNREADABLE:
        return {}
    return found


def kept_plan(previous: Mapping[str, Any], remade: Mapping[str, Any]) -> dict[str, Any] | None:
    """The previous plan with ``kept`` set, or None when it is not what its own layout gives or does not fit any more.

    remade is the plan rendered anew from the layout of the previous one. May raise one of UNREADABLE.
    """
    for stage in remade["stages"]:
        memory = stage["memory"]
        # The reserve is a wish, not an allocation: it alone does not move a running pool.
        if memory["left_bytes"] is not None and memory["left_bytes"] + memory["reserve_bytes"] < 0:
            return None
    fixed = set(remade) - {"llama", "predicted"}
    if _canonical(_fixed(previous, fixed)) != _canonical(_fixed(remade, fixed)):
        return None
    if _canonical(_kind(previous["predicted"])) != _canonical(_kind(remade["predicted"])):
        return None
    for stage, anew in zip(previous["stages"], remade["stages"]):
        row = stage["memory"]
        if anew["memory"]["free_bytes"] is None:
            if row["free_bytes"] is not None or row["left_bytes"] is not None:
                return None
        elif row["free_bytes"] - row["total_bytes"] != row["left_bytes"]:
            return None
    if not all(_is_link(worker["link"]) for worker in previous["workers"]):
        return None
    if not all(isinstance(previous[name], list) for name in (*NOTES, "refused")):
        return None
    if not all(isinstance(note, str) for name in NOTES for note in previous[name]):
        return None
    kept = {**{name: previous[name] for name in (*fixed, "predicted", *NOTES, "refused", "inputs")}, "kept": True}
    kept["llama"] = remade["llama"]
    plan_table(kept)
    # What cannot be written again is no plan, either: halves of characters, and numbers that JSON does not have.
    json.dumps(kept, ensure_ascii=False, allow_nan=False).encode("utf-8")
    return kept


def _fixed(plan: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """What must be equal in both: everything that is rendered but the memory and the links of the day."""
    stages = [
        {**stage, "memory": {key: value for key, value in stage["memory"].items() if key not in MOVING}}
        for stage in plan["stages"]
    ]
    workers = [{key: value for key, value in worker.items() if key != "link"} for worker in plan["workers"]]
    return {**{name: plan[name] for name in names}, "stages": stages, "workers": workers}


def _is_link(value: Any) -> bool:
    """Whether this is a worker's link as a plan has it."""
    return (
        isinstance(value, Mapping)
        and set(value) == {"rtt_seconds", "speed_mbps"}
        and all(
            figure is None or (type(figure) in (int, float) and 0 <= figure < math.inf) for figure in value.values()
        )
    )


def _kind(predicted: Mapping[str, Any]) -> dict[str, Any]:
    """Predictions without the values of their figures; what is wrong with one stays visible."""
    kind = {**predicted, **{name: "a figure" for name in FIGURES if _is_figure(predicted[name])}}
    if predicted["with_draft_tokens_per_second"] is not None:
        # Whether the draft can win at all may change from one measurement of the links to the next.
        even, why = predicted["break_even_acceptance"], predicted["draft_reason"]
        sound = isinstance(why, str) if even is None else why is None and _is_figure(even)
        kind.update(break_even_acceptance=sound, draft_reason=sound)
    return kind


def _is_figure(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
