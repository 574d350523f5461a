# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the table and the picture say of a plan in the same words."""

from __future__ import annotations

import shlex
from typing import Any, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB, to_mib


def need(size_bytes: int | None) -> str:
    """MiB rounded up, "?" if unknown."""
    return "?" if size_bytes is None else str(to_mib(size_bytes))


def room(size_bytes: int | None) -> str:
    """MiB rounded down, so that nothing looks roomier than it is; "?" if unknown."""
    return "?" if size_bytes is None else str(size_bytes // MIB)


def size(plan: Mapping[str, Any]) -> str:
    """Of the model: its architecture and how large its files are."""
    return "{}, {} MiB".format(plan["model"]["architecture"], need(plan["model"]["size_bytes"]))


def kind(plan: Mapping[str, Any]) -> str:
    """How the model is served and with which context."""
    return "{} {}; context {} in {} slot{}{}".format(
        "replica on" if plan["kind"] == "replica" else "sharded, served by",
        plan["host"],
        plan["ctx_size"],
        plan["parallel"],
        "" if plan["parallel"] == 1 else "s",
        "; placement kept" if plan.get("kept") else "",
    )


def draft_state(plan: Mapping[str, Any]) -> str:
    """What proposes tokens and where, or why nothing does."""
    draft, kind_of = plan["draft"], plan.get("speculation")
    if not draft["enabled"]:
        instead = f", {kind_of} instead" if kind_of else ""
        if kind_of and draft["reason"] == "not_configured":
            return f"no draft model, {kind_of}: {draft['message']}"
        return "off ({}){}: {}".format(draft["reason"], instead, draft["message"])
    total = draft["memory"]["total_bytes"]
    if draft["path"] is None:
        return f"on ({kind_of}), {need(total)} MiB beside the model: {draft['message']}"
    # The embedding of the tokens and some buffers are in RAM wherever the layers are.
    in_ram = plan["stages"][0]["memory"]["draft_bytes"]
    aside = draft["device"] != "none" and 0 < in_ram < total
    sizes = f"{need(total - in_ram if aside else total)} MiB on {draft_place(plan)}"
    sizes += f" and {need(in_ram)} MiB in the RAM of {plan['host']}" if aside else ""
    return f"on ({kind_of}), {sizes}: {draft['path']}"


def draft_place(plan: Mapping[str, Any]) -> str:
    """Machine and device of a draft that has a file of its own: ``gpu2 CUDA0, RPC1 of gpu0``."""
    draft = plan["draft"]
    if draft["device"] == "none":
        return f"{draft['host']} CPU"
    for stage in plan["stages"]:
        if stage["host"] == draft["host"] and stage["rpc_device"] == draft["device"]:
            return f"{stage['host']} {stage['device']} over RPC ({draft['device']})"
    return f"{draft['host']} {draft['device']}"


def link(entry: Mapping[str, Any]) -> str:
    """Round trip and speed of the way to a worker; what is not known is said."""
    rtt, speed = entry["rtt_seconds"], entry["speed_mbps"]
    known = "round trip unknown" if rtt is None else f"round trip {rtt * 1000:.2f} ms"
    if speed is None:
        return f"{known}, speed unknown"
    return f"{known}, {speed / 1000:g} Gbit/s" if speed >= 1000 else f"{known}, {speed:g} Mbit/s"


def command(program: str, argv: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """A command line as a shell takes it, in pieces between which a line may break: an option stays with its value."""
    pieces = [*(f"{name}={shlex.quote(str(value))}" for name, value in sorted(environment.items())), program]
    fixed = len(pieces)
    for argument in argv:
        word = shlex.quote(str(argument))
        if len(pieces) > fixed and not str(argument).startswith("--"):
            pieces[-1] += " " + word
        else:
            pieces.append(word)
    return pieces
