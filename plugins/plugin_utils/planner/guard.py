# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The look back just before a launch: between plan and launch there may be hours, and the machines go on living."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, NamedTuple

from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import Verdict
from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE, PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.machines.members import Refusal
from ansible_collections.relay.pool.plugins.plugin_utils.machines.nodes import machine
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import Planner, completed
from ansible_collections.relay.pool.plugins.plugin_utils.planner.sticky import deciding_gpus
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib, mib_free


class Shortfalls(NamedTuple):
    """A sentence per device: those on which the target has no room, and those on which only the draft has none."""

    target: list[str]
    draft: list[str]


@dataclass(frozen=True)
class _Member:
    """A machine of the plan as it is now, and what of it cannot be used."""

    machine: Machine
    refused: tuple[Refusal, ...]

    def device(self, name: str) -> Device | None:
        """The device of that name, if it may be used."""
        return self.machine.device(name)

    def gone(self, name: str) -> str:
        """Why there is no such device."""
        known = (entry["message"] for entry in self.refused if entry["device"] == name)
        return next(known, f"{self.machine.host} {name} is not there any more")


def shortfalls(plan: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]]) -> Shortfalls:
    """What is missing for the plan on the machines as they are now.

    :param nodes: facts of relay.pool.node_facts by machine, gathered now. What the pool's units hold counts as free.

    The reserve is a wish and no allocation: that it shrank is no reason to stop. Free RAM that cannot be read is
    trusted, as it is when a plan is made.
    """
    before = deciding_gpus(plan)
    found = Shortfalls([], [])
    members: dict[str, _Member] = {}
    for name in dict.fromkeys(stage["host"] for stage in plan["stages"]):
        if not nodes.get(name):
            alone = all(_is_draft_only(stage) for stage in plan["stages"] if stage["host"] == name)
            what = "its draft" if alone else "layers"
            (found.draft if alone else found.target).append(
                f"There are no facts of {name}, and the plan has {what} there."
            )
            continue
        refused: list[Refusal] = []
        members[name] = _Member(machine(name, nodes[name], 0, refused, (), before.get(name) or ()), tuple(refused))
    in_ram, draft_in_ram = _allocated(plan["stages"][0])
    for stage in plan["stages"]:
        member = members.get(stage["host"])
        need, draft = _allocated(stage)
        if member is None or not need + draft:
            continue
        device = member.device(stage["device"])
        lost = found.draft if _is_draft_only(stage) else found.target
        if device is None:
            if stage["device"] != "CPU":
                lost.append(f"{member.gone(stage['device'])}.")
            continue
        changed = _changed(plan, stage, device)
        if changed:
            lost.append(changed)
            continue
        if device.shared and stage["transport"] == "local":
            # A GPU whose memory is RAM has what llama.cpp leaves of it.
            need, draft = need + in_ram, draft + draft_in_ram
        if device.capacity_bytes < need:
            found.target.append(_short(device, need, "the plan", nodes[device.host]))
        elif device.capacity_bytes < need + draft:
            found.draft.append(_short(device, need + draft, "the plan with its draft", nodes[device.host]))
    return found


def _is_draft_only(stage: Mapping[str, Any]) -> bool:
    """Nothing of the target is on the device, so that the plan works without it."""
    in_ram = stage["device"] == "CPU" and stage["transport"] == "local"
    return not (in_ram or stage["n_layers"] or stage["has_output"])


def _allocated(stage: Mapping[str, Any]) -> tuple[int, int]:
    """(bytes of the target, bytes of the draft) that llama.cpp allocates on the device of a stage."""
    memory = stage["memory"]
    return memory["total_bytes"] - memory["reserve_bytes"] - memory["draft_bytes"], memory["draft_bytes"]


def _short(device: Device, need: int, whose: str, node: Mapping[str, Any]) -> str:
    free = mib_free(device.capacity_bytes)
    return f"{device.label} needs {mib(need)} for {whose}, and {free} are free now{_holder(device, node)}."


def _holder(device: Device, node: Mapping[str, Any]) -> str:
    """The largest process on the GPU that is not the pool's, where the facts know it."""
    gpus = (
        gpu for gpu in node.get("gpus") or [] if gpu.get("device") == device.name and gpu.get("uuid") == device.uuid
    )
    process = next(iter(next(gpus, {}).get("processes") or ()), None)
    if device.is_cpu or not process or not process.get("memory_bytes"):
        return ""
    name = (process.get("name") or "").rpartition("/")[2]
    return f" (pid {process['pid']}{' ' if name else ''}{name} holds {mib(process['memory_bytes'])})"


def _changed(plan: Mapping[str, Any], stage: Mapping[str, Any], device: Device) -> str | None:
    """A sentence when another GPU has the name now."""
    for entry in (plan.get("inputs") or {}).get("devices") or []:
        known = (entry["host"], entry["device"]) == (stage["host"], stage["device"]) and entry.get("uuid")
        if known and device.uuid and known != device.uuid:
            return f"{device.label} was {known} in the plan, and is {device.uuid} now."
    return None


def without_draft(request: Request, why: str, reason: str = "no_room") -> dict[str, Any]:
    """The previous plan of the request without its draft, every layer where it was.

    What the request names as a fallback takes the draft's place, unless that is what is dropped.

    :param why: in words, without a stop. reason: the plan's reason for it, no_room or unsupported_build.
    """
    planner, previous = Planner(request, keep=True), request.previous
    verdict = Verdict(reason, why)
    try:
        drafted = previous["draft"]["enabled"]
        dropped = {"enabled": False, "reason": reason, "message": why}
        chosen = planner.restored({**previous, "speculation": None, "draft": {**previous["draft"], **dropped}})
    except UNREADABLE:
        raise PoolError(
            f"the draft is to be dropped ({why}), and the plan that was applied cannot be read without it: "
            "run deploy.yml again"
        ) from None
    if drafted:
        chosen = planner.speculator.dropped(chosen.layout, verdict, move=False)
    return completed(request, planner, chosen)
