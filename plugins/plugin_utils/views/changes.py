# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is different in another plan, in a few words."""

from __future__ import annotations

import difflib
from typing import Any, Iterator, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.units import mib_free

Plan = Mapping[str, Any]

# Of what a plan would not use, as many as people read.
MOST_REFUSED = 8
MOST_CHANGES = 20


def changes(before: Plan, after: Plan) -> list[str]:
    """A phrase for everything in which the placement of ``after`` is another one; empty when it is the same.

    Of a long list the first ones, and how many more there are. Notes and the memory of the day do not count.
    May raise one of ``errors.UNREADABLE`` for a ``before`` that was edited by hand.
    """
    found = [
        *_moved("", _kind(before), _kind(after)),
        *_moved("model ", before["model"]["path"], after["model"]["path"]),
        *_moved("context ", before["ctx_size"], after["ctx_size"]),
        *_moved("slots ", before["parallel"], after["parallel"]),
        *(f"{phrase} layers" for phrase in _layers(before, after)),
        *_moved("output ", _output(before), _output(after)),
        *_moved("draft ", _draft(before), _draft(after)),
    ]
    found = found or list(_options(before, after))
    if len(found) > MOST_CHANGES:
        found[MOST_CHANGES:] = [f"and {len(found) - MOST_CHANGES} more"]
    return found


def unknown_before(after: Plan) -> str:
    """The phrase of ``changes`` for a plan that cannot be read."""
    return f"a plan that cannot be read -> {_kind(after)}"


def difference(before: str, after: str) -> list[str]:
    """The lines of a unified diff of two tables; empty when they are equal."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "previous plan", "plan", n=1, lineterm="")
    return list(lines)


def what_if_lines(
    before: Plan | None, after: Plan | None, why_not_before: str | None, why_not_after: str | None
) -> list[str]:
    """What another pool would bring: a line per thing that people ask about.

    :param before: the plan as it is, None where there is none for the reason ``why_not_before``.
    :param after: the plan as it would be, None where there would be none for the reason ``why_not_after``.
    """
    if after is None:
        still = "not fit any more" if before else "still not fit"
        return [f"would {still}: {why_not_after}"]
    if before is None:
        return [f"would fit, which it does not now: {_kind(after)}", *_state(after), *_refused((), after)]
    layers = list(_layers(before, after))
    return [
        *([] if changes(before, after) else ["the placement would stay the same"]),
        *_moved("", _kind(before), _kind(after)),
        *_moved("machines: ", _machines(before), _machines(after)),
        *_moved("devices: ", len(_held(before)), len(_held(after))),
        *([f"layers: {', '.join(layers)}"] if layers else []),
        *_moved("left free on the devices in use: ", _left(before), _left(after)),
        *_speed(before, after),
        *_draft_line(before, after),
        *_refused(before["refused"], after),
    ]


def _moved(name: str, before: Any, after: Any) -> Iterator[str]:
    if before != after:
        yield f"{name}{before} -> {after}"


def _kind(plan: Plan) -> str:
    return f"replica on {plan['host']}" if plan["kind"] == "replica" else f"sharded, served by {plan['host']}"


def _held(plan: Plan) -> dict[str, int]:
    """Layers by device, of those that hold any or the output."""
    return {
        f"{stage['host']} {stage['device']}": stage["n_layers"]
        for stage in plan["stages"]
        if stage["n_layers"] or stage["has_output"]
    }


def _layers(before: Plan, after: Plan) -> Iterator[str]:
    was, now = _held(before), _held(after)
    for device in dict.fromkeys((*was, *now)):
        if was.get(device, 0) != now.get(device, 0):
            yield f"{device} {was.get(device, 0)} -> {now.get(device, 0)}"


def _output(plan: Plan) -> str:
    return next((f"{stage['host']} {stage['device']}" for stage in plan["stages"] if stage["has_output"]), "nowhere")


def _draft(plan: Plan) -> str:
    # A plan of an older version names neither the type nor the machine, which was the one that serves.
    draft, kind = plan["draft"], plan.get("speculation") or "draft-simple"
    if not draft["enabled"]:
        return f"off, {kind} instead" if plan.get("speculation") else "off"
    if draft["path"] is None:
        return f"on ({kind})"
    host = draft.get("host") or plan["host"]
    place = "CPU" if draft["device"] == "none" else draft["device"]
    device = next((row["device"] for row in plan["stages"] if (row["host"], row["rpc_device"]) == (host, place)), place)
    where = device if host == plan["host"] else f"{host} {device}"
    return f"on ({where})" if kind == "draft-simple" else f"on ({kind}, {where})"


def _options(before: Plan, after: Plan) -> Iterator[str]:
    """Of the same placement: whose command line is another one."""
    if (before["server_args"], before["server_environment"]) != (after["server_args"], after["server_environment"]):
        yield f"options of llama-server on {after['host']}"
    was = {worker["host"]: worker for worker in before["workers"]}
    for worker in after["workers"]:
        old = was.get(worker["host"], {})
        if any(old.get(part) != worker[part] for part in ("args", "environment")):
            yield f"options of ggml-rpc-server on {worker['host']}"


def _machines(plan: Plan) -> str:
    holders = (stage["host"] for stage in plan["stages"] if stage["n_layers"] or stage["has_output"])
    return ", ".join(dict.fromkeys([plan["host"], *holders]))


def _left(plan: Plan) -> str:
    """What the devices that hold layers have left."""
    left = [stage["memory"]["left_bytes"] for stage in plan["stages"] if stage["n_layers"] or stage["has_output"]]
    return "unknown" if None in left else mib_free(sum(left))


def _rate(plan: Plan, name: str) -> str:
    rate = (plan.get("predicted") or {}).get(name)
    return "unknown" if rate is None else f"{rate:g} tokens/s"


def _speed(before: Plan, after: Plan) -> Iterator[str]:
    for name, how in (("tokens_per_second", "without a draft"), ("with_draft_tokens_per_second", "with the draft")):
        was, now = _rate(before, name), _rate(after, name)
        if was != now:
            yield f"speed {how}, estimated: {was} -> {now}"
        elif was != "unknown":
            yield f"speed {how}, estimated: stays at {was}"
        elif name == "tokens_per_second":
            yield "speed: unknown, since the memory bandwidth of a device is"


def _draft_line(before: Plan, after: Plan) -> Iterator[str]:
    def state(plan: Plan) -> str:
        if plan["draft"]["enabled"]:
            return _draft(plan)
        return f"{_draft(plan)} ({plan['draft']['reason']})"

    was, now = state(before), state(after)
    if was == now == "off (not_configured)":
        return
    yield f"draft: {f'stays {now}' if was == now else f'{was} -> {now}'}: {after['draft']['message']}"


def _state(plan: Plan) -> Iterator[str]:
    """Of a plan that has nothing to be compared with."""
    yield "layers: " + ", ".join(f"{device} {count}" for device, count in _held(plan).items())
    yield f"left free on the devices in use: {_left(plan)}"
    if _rate(plan, "tokens_per_second") != "unknown":
        yield f"speed without a draft, estimated: {_rate(plan, 'tokens_per_second')}"
    if plan["draft"]["reason"] != "not_configured":
        yield f"draft: {'on' if plan['draft']['enabled'] else 'off'}: {plan['draft']['message']}"


def _refused(known: Any, after: Plan) -> Iterator[str]:
    """What is refused and was not before. The RAM of a machine that would have GPUs need not be known."""
    messages = {entry["message"] for entry in known}
    entries = [entry for entry in after["refused"] if (entry["device"], entry["reason"]) != ("CPU", "unknown_memory")]
    new = [entry["message"] for entry in entries if entry["message"] not in messages]
    yield from (f"not used: {message}" for message in new[:MOST_REFUSED])
    if len(new) > MOST_REFUSED:
        yield f"not used: {len(new) - MOST_REFUSED} more"
