# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes docs/scale.md."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.candidates import FEW

from tests.scale.measure import CASES, GPUS, LAYERS, MACHINES, Cost

HEAD = f"""# How the planner scales

How long a plan takes and how much memory, by the number of machines with {GPUS} GPUs each. `make scale-check` measures
again and writes this page.

The model has the shape of a dense one with 70 billion parameters ({LAYERS} layers). The facts are made up; everything
after that is what the placement action does: the facts are checked, every machine is compared with every other one,
the layers are placed, and where they do not fit the smallest ways out are looked for, each of them tried by planning
with it. Seconds are those of one core, the peak is that of the whole process with Python, the facts and the plan.

llama.cpp takes 15 devices. Up to {FEW} devices of workers are all compared, which is exact; of more than that those are
compared that could be in the best plan at one price of memory or another (`layouts/candidates.py`), and where these
cannot hold the model and others can, those as well.

"""
FLEETS = {
    "usual": "Usual cards: 8, 12, 16 and 24 GB, in half of the machines all alike, twelve different bandwidths",
    "random": "All different: no two GPUs have the same memory or bandwidth",
}


def _table(costs: Mapping[tuple[int, str, str], Cost], fleet: str) -> list[str]:
    names = [case.name for case in CASES]
    lines = [
        "| machines | " + " | ".join(names) + " | while it runs | peak (MiB) |",
        "|---:|" + "---:|" * (len(names) + 2),
    ]
    for machines in MACHINES:
        row = [costs[machines, fleet, name] for name in names]
        seconds = [f"{cost.seconds:.2f}" for cost in row]
        again, peak = max(cost.again_seconds for cost in row), max(cost.peak_mib for cost in row)
        lines.append(f"| {machines} | {' | '.join(seconds)} | {again:.2f} | {peak:.0f} |")
    return lines


def _ratios(costs: Mapping[tuple[int, str, str], Cost]) -> list[str]:
    lines = ["| from | to | machines | seconds | peak |", "|---:|---:|---:|---:|---:|"]
    for before, after in zip(MACHINES, MACHINES[1:]):
        was, now = ([cost for key, cost in costs.items() if key[0] == machines] for machines in (before, after))
        seconds = sum(cost.seconds for cost in now) / sum(cost.seconds for cost in was)
        peak = max(cost.peak_mib for cost in now) / max(cost.peak_mib for cost in was)
        lines.append(f"| {before} | {after} | {after / before:.1f} | {seconds:.2f} | {peak:.2f} |")
    return lines


def text(costs: Mapping[tuple[int, str, str], Cost]) -> str:
    """The page; costs are by machines, fleet and case."""
    parts = [HEAD, f"Measured with Python {platform.python_version()} on a machine with {os.cpu_count()} cores.\n"]
    for fleet, words in FLEETS.items():
        parts.append(f"\n## {words.split(':', maxsplit=1)[0]}\n\n{words}. Seconds:\n\n")
        parts.append("\n".join(_table(costs, fleet)) + "\n")
    parts.append(
        "\n*while it runs*: the same question once more with the plan that was made, which is kept; the slowest.\n"
        "\n## Growth\n\nHow many times as much as in the row before, over all of the above together.\n\n"
    )
    parts.append("\n".join(_ratios(costs)) + "\n")
    return "".join(parts)


def write(path: Path, costs: Mapping[tuple[int, str, str], Cost]) -> None:
    """Replace the page."""
    path.write_text(text(costs), encoding="utf-8")
