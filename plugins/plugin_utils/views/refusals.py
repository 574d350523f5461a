# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan does not use, in few lines however large the pool is."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

# So many entries of one kind have a line each, more are folded into one; and so many machines are named there.
FEW = 3
MACHINES = 6
_NUMBERS = re.compile(r"[0-9]+(?:[ .][0-9]+)*")


def refused_lines(refused: Sequence[Mapping[str, Any]]) -> list[str]:
    """The messages of ``plan.refused``; of many that differ in device and numbers only, the first and a count."""
    kinds: dict[tuple[Any, str], list[Mapping[str, Any]]] = {}
    for entry in refused:
        kinds.setdefault((entry["reason"], _pattern(entry)), []).append(entry)
    lines = []
    for alike in kinds.values():
        if len(alike) <= FEW:
            lines += [entry["message"] for entry in alike]
        else:
            lines.append(f"{alike[0]['message']} (and likewise {len(alike) - 1} more: {_names(alike[1:])})")
    return lines


def _pattern(entry: Mapping[str, Any]) -> str:
    """The message without what it says of this device alone."""
    label = " ".join(filter(None, (entry["host"], entry["device"])))
    message = entry["message"]
    return _NUMBERS.sub("N", message[len(label) :] if message.startswith(label) else message)


def _names(entries: Sequence[Mapping[str, Any]]) -> str:
    """``gpu2 CUDA1, CUDA2; gpu3 CUDA0`` and how many machines are not named."""
    machines: dict[str, list[str]] = {}
    for entry in entries:
        machines.setdefault(entry["host"], []).extend([entry["device"]] if entry["device"] else [])
    shown = [" ".join((host, _run(devices))).strip() for host, devices in list(machines.items())[:MACHINES]]
    rest = len(machines) - len(shown)
    return "; ".join(shown) + (f"; {rest} more machine{'' if rest == 1 else 's'}" if rest else "")


def _run(devices: Sequence[str]) -> str:
    """``CUDA0-CUDA7`` of devices that follow each other, else every name."""
    numbered = [re.fullmatch(r"(.*?)([0-9]+)", device) for device in devices]
    if len(devices) > 2 and all(numbered):
        prefix, first = numbered[0].group(1), int(numbered[0].group(2))
        if list(devices) == [f"{prefix}{first + step}" for step in range(len(devices))]:
            return f"{devices[0]}-{devices[-1]}"
    return ", ".join(devices)
