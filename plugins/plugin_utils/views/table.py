# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan as a text table of about 100 columns, for the terminal and for diffs."""

from __future__ import annotations

import textwrap
from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.views import predicted
from ansible_collections.relay.pool.plugins.plugin_utils.views.refusals import refused_lines
from ansible_collections.relay.pool.plugins.plugin_utils.views.words import (
    command,
    draft_state,
    kind,
    link,
    need,
    room,
    size,
)

WIDTH = 100
# What a machine says of itself must not steer the terminal of whoever reads it.
CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) != "\n"}
COLUMNS = ("weights", "KV", "compute", "draft", "reserve", "free", "left")


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
        need(memory["weights_bytes"]),
        need(memory["kv_bytes"] + memory["recurrent_bytes"]),
        need(memory["compute_bytes"]),
        need(memory["draft_bytes"]),
        need(memory["reserve_bytes"]),
        room(memory["free_bytes"]),
        room(memory["left_bytes"]),
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
    """One option with its value stays together, so that no line breaks between them."""
    start, *rest = command(program, argv, environment)
    lines, line = [], f"{label}{host}: {start}"
    for piece in rest:
        if len(line) + 1 + len(piece) > WIDTH - 2:
            lines.append(line + " \\")
            line = " " * len(label) + "  " + piece
        else:
            line += " " + piece
    return [*lines, line]


def plan_table(plan: Mapping[str, Any]) -> str:
    """The whole plan as text, in sections with an empty line between them."""
    head = "{} ({}): {}".format(plan["model"]["alias"], size(plan), kind(plan))
    header = ["machine", "device", "layers", "n", *COLUMNS]
    grid = _grid([header, *(_row(stage) for stage in plan["stages"])], left=3)
    stages = [grid[0] + "   (MiB)", *grid[1:]]
    state = []
    for worker in plan["workers"]:
        if worker.get("link"):
            state += _wrapped("link     ", "{}: {}".format(worker["host"], link(worker["link"])))
    state += _wrapped("draft    ", draft_state(plan))
    for sentence in predicted.lines(plan):
        state += _wrapped("speed    ", sentence)
    commands = []
    for worker in plan["workers"]:
        environment = worker.get("environment") or {}
        commands += _command("worker   ", worker["host"], "ggml-rpc-server", worker["args"], environment)
    environment = plan.get("server_environment") or {}
    commands += _command("server   ", plan["host"], "llama-server", plan["server_args"], environment)
    notes = []
    for line in refused_lines(plan.get("refused") or []):
        notes += _wrapped("refused  ", line)
    for warning in plan.get("warnings") or []:
        notes += _wrapped("warning  ", warning)
    for hint in plan.get("advice") or []:
        notes += _wrapped("advice   ", hint)
    sections = (_wrapped("", head), stages, state, commands, notes)
    return "\n\n".join("\n".join(lines) for lines in sections if lines).translate(CONTROLS) + "\n"
