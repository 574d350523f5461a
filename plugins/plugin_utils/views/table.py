# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan as a text table of about 100 columns, for the terminal and for diffs."""

from __future__ import annotations

import shlex
import textwrap
from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB, to_mib
from ansible_collections.relay.pool.plugins.plugin_utils.views import predicted
from ansible_collections.relay.pool.plugins.plugin_utils.views.refusals import refused_lines

WIDTH = 100
COLUMNS = ("weights", "KV", "compute", "draft", "reserve", "free", "left")


def _number(size_bytes: int | None) -> str:
    """MiB rounded up for needs; what is left is rounded down, so that nothing looks roomier than it is."""
    return "?" if size_bytes is None else str(to_mib(size_bytes))


def _floor(size_bytes: int | None) -> str:
    return "?" if size_bytes is None else str(size_bytes // MIB)


def _layers(stage: Mapping[str, Any]) -> str:
    text = "-"
    if stage["n_layers"]:
        text = "{}-{}".format(stage["first_layer"], stage["first_layer"] + stage["n_layers"] - 1)
    if stage["has_output"]:
        text = "output" if text == "-" else text + "+out"
    return text


def _row(stage: Mapping[str, Any]) -> list[str]:
    memory: dict[str, Any] = stage["memory"]
    device = stage["device"]
    if stage.get("rpc_device"):
        device = "{} {}".format(device, stage["rpc_device"])
    return [
        str(stage["host"]),
        device,
        _layers(stage),
        str(stage["n_layers"]),
        _number(memory["weights_bytes"]),
        _number(memory["kv_bytes"] + memory["recurrent_bytes"]),
        _number(memory["compute_bytes"]),
        _number(memory["draft_bytes"]),
        _number(memory["reserve_bytes"]),
        _floor(memory["free_bytes"]),
        _floor(memory["left_bytes"]),
    ]


def _grid(rows: list[list[str]], left: int) -> list[str]:
    """Columns as wide as their widest cell; the first `left` columns are texts, the others numbers."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        f"{label}{text}", WIDTH, subsequent_indent=" " * len(label), break_long_words=False, break_on_hyphens=False
    )


def _command(label: str, host: str, program: str, argv: list[str], environment: Mapping[str, str]) -> list[str]:
    """As a shell takes it. One option with its value per unit, so that no line breaks between them."""
    units: list[str] = []
    for argument in argv:
        word = shlex.quote(str(argument))
        if units and not str(argument).startswith("--"):
            units[-1] += " " + word
        else:
            units.append(word)
    start, *rest = [*(f"{name}={shlex.quote(str(value))}" for name, value in sorted(environment.items())), program]
    lines, line = [], f"{label}{host}: {start}"
    for unit in rest + units:
        if len(line) + 1 + len(unit) > WIDTH - 2:
            lines.append(line + " \\")
            line = " " * len(label) + "  " + unit
        else:
            line += " " + unit
    return [*lines, line]


def plan_table(plan: Mapping[str, Any]) -> str:
    """The whole plan as text."""
    model = plan["model"]
    kind = (
        "replica on {}".format(plan["host"])
        if plan["kind"] == "replica"
        else "sharded, served by {}".format(plan["host"])
    )
    head = "{} ({}, {} MiB): {}; context {} in {} slot{}{}".format(
        model["alias"],
        model["architecture"],
        _number(model["size_bytes"]),
        kind,
        plan["ctx_size"],
        plan["parallel"],
        "" if plan["parallel"] == 1 else "s",
        "; placement kept" if plan.get("kept") else "",
    )
    header = ["machine", "device", "layers", "n", *COLUMNS]
    grid = _grid([header, *(_row(stage) for stage in plan["stages"])], left=3)
    lines = [*_wrapped("", head), "", grid[0] + "   (MiB)", *grid[1:], ""]
    draft = plan["draft"]
    if draft["enabled"]:
        state = "on, {} MiB on {} {}: {}".format(
            _number(draft["memory"]["total_bytes"]),
            plan["host"],
            "CPU" if draft["device"] == "none" else draft["device"],
            draft["path"],
        )
    else:
        state = "off ({}): {}".format(draft["reason"], draft["message"])
    lines += _wrapped("draft    ", state)
    for sentence in predicted.lines(plan):
        lines += _wrapped("speed    ", sentence)
    for worker in plan["workers"]:
        environment = worker.get("environment") or {}
        lines += _command("worker   ", worker["host"], "ggml-rpc-server", worker["args"], environment)
    environment = plan.get("server_environment") or {}
    lines += _command("server   ", plan["host"], "llama-server", plan["server_args"], environment)
    for line in refused_lines(plan.get("refused") or []):
        lines += _wrapped("refused  ", line)
    for warning in plan.get("warnings") or []:
        lines += _wrapped("warning  ", warning)
    for hint in plan.get("advice") or []:
        lines += _wrapped("advice   ", hint)
    return "\n".join(lines) + "\n"
