# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan that was written to a file: reading it again, and applying exactly that one or nothing."""

from __future__ import annotations

import json
from typing import Any, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE, PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Machine
from ansible_collections.relay.pool.plugins.plugin_utils.planner.differences import differences
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import Planner, make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.planner.sticky import SCHEMA, deciding_inputs
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib
from ansible_collections.relay.pool.plugins.plugin_utils.views.table import plan_table

WAY_OUT = "run plan.yml again, or leave relay_plan_file out"
# Longer lists are not read.
MOST_SHOWN = 20

# What playbooks and filters read of a plan: a list with a type is a list of those.
_PARTS: dict[str, Any] = {
    "kind": str,
    "host": str,
    "model": dict,
    "stages": [dict],
    "rpc_backends": [str],
    "draft": dict,
    "server_args": [str],
    "server_environment": dict,
    "workers": [dict],
    "inputs": dict,
}


def read_plan(text: str, name: str, way_out: str) -> dict[str, Any]:
    """The plan in the text of a plan.json.

    :param name: what the text is, for messages.
    :param way_out: what to do when it is no plan.
    :raises PoolError: for what is no JSON, no plan, of another schema, or lacks a part.
    """
    try:
        plan = json.loads(text)
    except RecursionError:
        raise PoolError(f"{name} is no plan: {way_out}") from None
    except ValueError as exc:
        where = f"line {exc.lineno}: {exc.msg}" if isinstance(exc, json.JSONDecodeError) else str(exc)
        raise PoolError(f"{name} is no JSON ({where}): {way_out}") from None
    if not isinstance(plan, dict) or "schema" not in plan or "stages" not in plan:
        raise PoolError(f"{name} is JSON, but no plan: {way_out}")
    if plan["schema"] != SCHEMA or isinstance(plan["schema"], bool):
        raise PoolError(
            f"{name} has schema {plan['schema']!r:.40}, and this version of relay.pool reads schema {SCHEMA}: {way_out}"
        )
    broken = [part for part, kind in _PARTS.items() if not _is(plan.get(part), kind)]
    if broken:
        raise PoolError(f"{name} was edited or cut short, it has no usable {', '.join(broken)}: {way_out}")
    try:
        plan_table(plan)
    except UNREADABLE:
        raise PoolError(f"{name} was edited or cut short, and cannot be read: {way_out}") from None
    return plan


def _is(value: Any, kind: Any) -> bool:
    if isinstance(kind, list):
        return isinstance(value, list) and all(isinstance(entry, kind[0]) for entry in value)
    return isinstance(value, kind)


def saved_plan(request: Request) -> dict[str, Any]:
    """``request.previous`` as the plan to apply, to the letter.

    :raises PoolError: when the pool no longer matches it, with all that differs, or when it was edited by hand.
    """
    previous: Mapping[str, Any] = request.previous or {}
    planner = Planner(request, keep=True)
    inputs = deciding_inputs(request, planner.pool.machines(), planner.dialect, planner.verdict.reason)
    try:
        found = differences(previous["inputs"], json.loads(json.dumps(inputs)))
        found += _too_small(previous, planner.pool.machines())
    except UNREADABLE:
        raise _edited() from None
    if found:
        more = f"; and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
        raise PoolError(
            f"the saved plan does not match the pool any more: {'; '.join(found[:MOST_SHOWN])}{more}: {WAY_OUT}"
        )
    plan = make_plan(request)
    if not plan["kept"]:
        raise _edited()
    return plan


def _edited() -> PoolError:
    return PoolError(f"the saved plan was edited, or another version of relay.pool wrote it: {WAY_OUT}")


def _too_small(plan: Mapping[str, Any], machines: Sequence[Machine]) -> list[str]:
    """A phrase for every device that has less than its stage of the plan needs, the reserve not counted.

    One that is not there is among the differences.
    """
    devices = {(device.host, device.name): device for member in machines for device in member.devices}
    # A GPU with the machine's RAM has what the server's CPU leaves of it.
    in_ram = _need(plan["stages"][0])
    found = []
    for stage in plan["stages"]:
        device = devices.get((stage["host"], stage["device"]))
        if device is None:
            continue
        have = device.capacity_bytes
        if device.shared and stage["transport"] == "local":
            have = max(have - in_ram, 0)
        if _need(stage) > have:
            found.append(f"{device.label} has {mib(have)} free, the plan needs {mib(_need(stage))}")
    return found


def _need(stage: Mapping[str, Any]) -> int:
    return stage["memory"]["total_bytes"] - stage["memory"]["reserve_bytes"]
