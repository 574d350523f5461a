# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs as ``rocm-smi`` reports them: ROCm 4.3 to 7.x, as JSON, as CSV or as text.

The names of the values changed over the years, all values are texts, and beside the cards there is a ``system``.
"""

from __future__ import annotations

import csv
import re
from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_card, pci, record, tool_json, tool_values

ARGUMENTS = ("--showproductname", "--showmeminfo", "vram", "gtt", "--showbus", "--showuniqueid", "--json")
# Under which names a value was printed, in lower case; the first that says something counts.
NAMES = ("card series", "device name", "card model")
DEVICES = ("device id", "gpu id", "card model")
MEMORY = tuple(f"{pool} total {word} (b)" for pool in ("vram", "gtt") for word in ("memory", "used memory"))
_CARD = re.compile(r"(?:card|gpu\[)([0-9]{1,6})\]?\Z", re.IGNORECASE)
_LINE = re.compile(r"\s*(GPU\[[0-9]{1,6}\])")
_NUMBER = re.compile(r"0x[0-9a-f]*\Z", re.IGNORECASE)
MAX_ROWS = 4096


def _json_rows(text: str) -> dict[str, dict[str, Any]]:
    root = tool_json.find_json(text)
    return {name: row for name, row in root.items() if isinstance(row, dict)} if isinstance(root, dict) else {}


def _csv_rows(text: str, messages: list[str]) -> dict[str, dict[str, Any]]:
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("device,")), None)
    rows: dict[str, dict[str, Any]] = {}
    if start is None:
        return rows
    header: list[str] = []
    try:
        for cells in csv.reader(lines[start : start + MAX_ROWS], skipinitialspace=True):
            if not cells:
                continue
            if not header:
                header = cells
            elif len(cells) != len(header):
                messages.append(f"rocm-smi: a row of {len(cells)} values under {len(header)} names: {cells[0][:40]}")
            else:
                rows[cells[0].strip()] = dict(zip(header, cells))
    except csv.Error as exc:
        messages.append(f"rocm-smi: its table cannot be read: {exc}")
    return rows


def _text_rows(text: str) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            # With or without a colon behind the GPU.
            key, colon, value = line[match.end() :].strip().lstrip(":").partition(":")
            if colon:
                rows.setdefault(match.group(1), {})[key.strip()] = value.strip()
    return rows


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        value = tool_values.text(row.get(name))
        if value and not _NUMBER.match(value):
            return value
    return None


def parse(text: str) -> tuple[list[amd_card.Card], list[str]]:
    """The cards in the order of their numbers, and what could not be read."""
    messages: list[str] = []
    rows = _json_rows(text) or _csv_rows(text, messages) or _text_rows(text)
    entries, surplus = record.few(list(rows.items()), "rocm-smi")
    messages += surplus
    cards = []
    for card_name, said in entries:
        match = _CARD.match(card_name.strip())
        if not match:
            continue
        row = {" ".join(key.lower().split()): value for key, value in said.items() if isinstance(key, str)}
        cards.append(
            amd_card.Card(
                source="rocm-smi",
                number=int(match.group(1)),
                address=pci.normal_address(row.get("pci bus")),
                gpu_id=tool_values.count(row.get("guid")) or None,
                device=next((i for i in (tool_values.pci_device(row.get(name)) for name in DEVICES) if i), None),
                name=_first(row, NAMES),
                uuid=amd_card.unique_id(row.get("unique id")),
                gfx=amd_card.gfx(row.get("gfx version")),
                **amd_card.memory(*(tool_values.count(row.get(key)) for key in MEMORY)),
            )
        )
    if not cards and not messages:
        messages.append("rocm-smi printed nothing about a card")
    return sorted(cards, key=lambda card: card.number or 0), messages


def read(machine: record.Machine, tool: str) -> tuple[list[amd_card.Card], list[str]]:
    """Ask for all that is used here, in one call."""
    result = machine.tool(tool, *ARGUMENTS)
    cards, messages = parse(result.stdout)
    return cards, messages if result.ok else [result.error or ""]
