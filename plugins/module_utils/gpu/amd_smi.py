# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs as ``amd-smi`` reports them: ROCm 6.0 to 7.x, whose flags are the same and whose JSON is not.

The answer is a list of GPUs, or an object that holds it as ``gpu_data``. Sizes have a unit; "MB" there means MiB
(the tool divides bytes by 1024 * 1024), and so on for the others.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_card, pci, record, tool_json, tool_values
from ansible_collections.relay.pool.plugins.module_utils.sizes import ABSURD_BYTES

STATIC = ("static", "--asic", "--bus", "--vram", "--json")
METRIC = ("metric", "--mem-usage", "--json")
UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
# The unit of a number that comes without one.
BARE_UNIT = "MB"
_AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)\Z")


def amount(value: Any) -> int | None:
    """Bytes of {"value": 196288, "unit": "MB"}, "196288 MB" or 196288; None for N/A and what is no amount."""
    unit: Any = BARE_UNIT
    if isinstance(value, dict):
        unit, value = value.get("unit", BARE_UNIT), value.get("value")
    if isinstance(value, str):
        match = _AMOUNT.match(value.strip())
        if not match:
            return None
        unit = match.group(2) or unit
        value = float(match.group(1)) if "." in match.group(1) else int(match.group(1))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isinstance(unit, str):
        return None
    factor = UNITS.get(unit.strip().upper().replace("I", ""))
    if factor is None or not 0 <= value < ABSURD_BYTES:
        return None
    return int(value * factor)


def _entries(text: str) -> list[dict[str, Any]] | None:
    root = tool_json.find_json(text)
    if isinstance(root, dict):
        root = root.get("gpu_data", [root] if "gpu" in root else None)
    return None if not isinstance(root, list) else [entry for entry in root if isinstance(entry, dict)]


def _part(entry: dict[str, Any], name: str) -> dict[str, Any]:
    part = entry.get(name)
    return part if isinstance(part, dict) else {}


def parse(text: str) -> tuple[list[amd_card.Card], list[str]]:
    """GPUs of ``amd-smi static`` or ``amd-smi metric``, and why there are none."""
    entries = _entries(text)
    if entries is None:
        return [], ["amd-smi printed no JSON with GPUs in it"]
    entries, messages = record.few(entries, "amd-smi")
    cards = []
    seen: set[int] = set()
    for entry in entries:
        number = tool_values.count(entry.get("gpu"))
        if number is None or number in seen:
            messages.append(f"amd-smi reports a GPU {'without a number' if number is None else f'{number} twice'}")
            continue
        seen.add(number)
        asic, memory = _part(entry, "asic"), _part(entry, "mem_usage")
        size = amount(memory.get("total_vram"))
        if size is None:
            size = amount(_part(entry, "vram").get("size"))
        cards.append(
            amd_card.Card(
                source="amd-smi",
                number=number,
                address=pci.normal_address(_part(entry, "bus").get("bdf")),
                device=tool_values.pci_device(asic.get("device_id")),
                name=tool_values.text(asic.get("market_name")),
                gfx=amd_card.gfx(asic.get("target_graphics_version")),
                **amd_card.memory(size, *(amount(memory.get(key)) for key in ("used_vram", "total_gtt", "used_gtt"))),
            )
        )
    return cards, messages


def join(static: list[amd_card.Card], metric: list[amd_card.Card]) -> list[amd_card.Card]:
    """What both calls say of the same numbers; the memory of the metrics, which say what is in use."""
    by_number = {card.number: card for card in static}
    joined = []
    for number in sorted({card.number or 0 for card in [*static, *metric]}):
        known = by_number.get(number)
        used = next((card for card in metric if card.number == number), None)
        joined.append(amd_card.merge(used, known) if used and known else used or known)
    return [card for card in joined if card]


def read(machine: record.Machine, tool: str, memory: bool) -> tuple[list[amd_card.Card], list[str]]:
    """Ask for names and addresses, and for the memory too where that is wanted and the tool answered."""
    result = machine.tool(tool, *STATIC)
    cards, messages = parse(result.stdout)
    if not result.ok:
        messages = [result.error or ""]
    if not memory or result.rc is None or not (result.ok or cards):
        return cards, messages
    result = machine.tool(tool, *METRIC)
    metric, said = parse(result.stdout)
    return join(cards, metric), messages + (said if result.ok else [result.error or ""])
