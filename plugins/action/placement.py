# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the ``placement`` module: options and facts in, one plan out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE, PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory.kv import CACHE_TYPES
from ansible_collections.relay.pool.plugins.plugin_utils.planner.guard import without_draft
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.planner.saved import WAY_OUT, read_plan, saved_plan
from ansible_collections.relay.pool.plugins.plugin_utils.planner.what_if import filled_up, what_if
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.views.changes import (
    changes,
    difference,
    unknown_before,
    what_if_lines,
)
from ansible_collections.relay.pool.plugins.plugin_utils.views.table import plan_table

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "model": {"type": "dict", "required": True},
    "draft": {"type": "dict"},
    "draft_path": {"type": "str"},
    "draft_error": {"type": "str", "default": ""},
    "comparison": {"type": "dict"},
    "llama": {"type": "dict"},
    "host": {"type": "str", "required": True},
    "workers": {"type": "list", "elements": "str", "default": []},
    "nodes": {"type": "dict"},
    "ctx_size": {"type": "int", "default": 16384},
    "parallel": {"type": "int", "default": 2},
    "cache_type_k": {"type": "str", "default": "f16", "choices": list(CACHE_TYPES)},
    "cache_type_v": {"type": "str", "default": "f16", "choices": list(CACHE_TYPES)},
    "ubatch_size": {"type": "int", "default": 512},
    "batch_size": {"type": "int", "default": 2048},
    "alias": {"type": "str"},
    "server_host": {"type": "str", "default": "127.0.0.1"},
    "server_port": {"type": "int", "default": 8384},
    "rpc_port": {"type": "int", "default": 50052},
    "rpc_cache": {"type": "bool", "default": True},
    "draft_max": {"type": "int", "default": 16},
    "draft_min": {"type": "int", "default": 0},
    "draft_gpu_layers": {"type": "int", "default": 99},
    "draft_p_min": {"type": "float", "default": 0.0},
    "draft_scope": {"type": "str", "default": "sharded", "choices": ["sharded", "any"]},
    "draft_reserve": {"type": "bool", "default": True},
    "draft_device": {"type": "str", "default": "auto"},
    "speculation_type": {"type": "str", "default": "auto"},
    "draft_fallback": {"type": "str", "default": "none", "choices": ["none", "ngram-mod"]},
    "draft_dropped": {"type": "str", "default": ""},
    "draft_dropped_reason": {"type": "str", "default": "no_room", "choices": ["no_room", "unsupported_build"]},
    "reserve_bytes": {"type": "int"},
    "allow_cpu": {"type": "bool", "default": False},
    "allow_partial": {"type": "bool", "default": False},
    "threads": {"type": "int"},
    "extra_args": {"type": "list", "elements": "str", "default": []},
    "api_key_file": {"type": "str", "no_log": False},
    "metrics": {"type": "bool", "default": True},
    "log_verbosity": {"type": "int", "default": 4},
    "measured": {"type": "dict"},
    "saved": {"type": "raw"},
    "what_if": {"type": "dict"},
    "previous": {"type": "raw"},
}


class ActionModule(ActionBase):
    """Runs on the controller only, needs no connection and changes nothing."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        """Return the plan, or fail with one sentence."""
        result = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        nodes, dropped = options.pop("nodes"), options.pop("draft_dropped")
        dropped_reason = options.pop("draft_dropped_reason")
        if nodes is None:
            nodes, notes = _facts(task_vars or {}, [options["host"], *options["workers"]]), []
        else:
            nodes, notes = filled_up(nodes)
        given = options.get("previous")
        previous = options["previous"] = _read_plan(given)
        saved, supposed = options.pop("saved"), options.pop("what_if")
        for name in ("workers", "extra_args"):
            options[name] = tuple(options[name])
        try:
            request = Request(nodes=nodes, **options)
            if supposed:
                if saved:
                    raise PoolError("saved and what_if exclude each other: leave one of them out")
                return {**result, "changed": False, **_supposed(request, supposed, notes)}
            if dropped:
                plan = without_draft(request, dropped, dropped_reason)
            else:
                plan = make_plan(request) if saved in (None, "") else _saved(request, saved)
        except PoolError as exc:
            # A cause would be added to the message a second time.
            raise AnsibleActionFail(f"{exc}.") from None
        plan["advice"] = [*plan["advice"], *(note for note in notes if note not in plan["advice"])]
        result.update(changed=False, plan=plan, warnings=list(plan["warnings"]), changes=[], difference=[])
        if previous and previous.get("stages"):
            before, after = _table(previous), _table(plan)
            if before != after:
                result["diff"] = {
                    "before_header": "previous plan",
                    "before": before,
                    "after_header": "plan",
                    "after": after,
                }
                result["difference"] = difference(before, after)
            result["changes"] = _changes(previous, plan)
        elif given:
            result["changes"] = [unknown_before(plan)]
        return result


def _saved(request, saved):
    """The saved plan, a dictionary or the text of its file, if it still is what this pool would run."""
    text = saved if isinstance(saved, str) else json.dumps(saved)
    applied = request.previous
    plan = saved_plan(replace(request, previous=read_plan(text, "the saved plan", WAY_OUT)))
    return {**plan, "kept": bool(applied) and not _changes(applied, plan)}


def _supposed(request, changed, notes):
    """The plan as it is and as it would be; of each, why there is none if there is none."""
    there = what_if(request.nodes, request.host, request.workers, changed)
    plan, message = _attempt(request)
    # Not the plan that runs, which would be kept where only more memory is there.
    then, no_message = _attempt(replace(request, nodes=there.nodes, workers=there.workers, previous=None))
    if then:
        then["advice"] = [*then["advice"], *notes, *(note for note in there.notes if note not in notes)]
    lines = what_if_lines(plan, then, message, no_message)
    return {"plan": plan, "message": message, "what_if": {"plan": then, "message": no_message, "difference": lines}}


def _attempt(request):
    """(plan, None), or (None, why there is none)."""
    try:
        return make_plan(request), None
    except PoolError as exc:
        return None, str(exc)


def _changes(previous, plan):
    try:
        return changes(previous, plan)
    except UNREADABLE:
        return [unknown_before(plan)]


def _read_plan(previous):
    """A plan that is given as the text of its file. What is no plan counts as none: the next one replaces it."""
    if isinstance(previous, str):
        try:
            previous = json.loads(previous)
        except ValueError:
            return None
    return previous if isinstance(previous, dict) else None


def _table(plan):
    """The table of a plan; of a file that was edited by hand or cut short there may be none."""
    try:
        return plan_table({**plan, "kept": False})
    except UNREADABLE:
        return "a plan that cannot be read\n"


def _facts(task_vars, names):
    """relay_node of each machine that has one, with what its llama.cpp is; the planner names those without."""
    hostvars = task_vars.get("hostvars") or {}
    nodes = {}
    for name in names:
        facts = hostvars[name].get("ansible_facts") if name in hostvars else None
        if facts and facts.get("relay_node"):
            info = (hostvars[name].get("relay_llama_info") or {}).get("llama") or {}
            build = {key: info.get(key) for key in ("version", "build", "commit", "rpc_protocol")}
            nodes[name] = {**facts["relay_node"], "backends": info.get("backends"), "llama": build}
    return nodes
