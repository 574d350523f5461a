# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the grid and prints prediction beside truth; the exit status is 1 when the check does not pass."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / ".collections"))

from tests.memory import check, document, grid, report
from tests.memory.shapes import SHAPES

SHOWN = 60


def options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.memory", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="shapes whose name or architecture holds this")
    parser.add_argument("--runs", default="", help="only runs whose label holds this, for example '4k x1 f16 2 server'")
    parser.add_argument("--quick", action="store_true", help=f"{len(grid.QUICK)} runs per shape, not {len(grid.FULL)}")
    parser.add_argument("--rows", action="store_true", help="print every device of every run")
    parser.add_argument("--caches", action="store_true", help="print llama.cpp's caches of every run beside the sums")
    parser.add_argument("--places", action="store_true", help="sum up by arrangement and place as well")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--keep", type=Path, help="write the headers into this folder and leave them there")
    parser.add_argument("--write", action="store_true", help="write docs/memory.md")
    parser.add_argument("--list", action="store_true", help="print the shapes")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    given = options(argv)
    words = [word.lower() for word in given.only]
    shapes = [
        shape
        for shape in SHAPES
        if not words or any(word in f"{shape.name} {shape.architecture}".lower() for word in words)
    ]
    if given.list:
        print("\n".join(f"{shape.name} ({shape.architecture}, {shape.n_layer} layers)" for shape in shapes))
        return 0
    if given.write and (words or given.runs or given.quick):
        print("--write wants every shape and every run: leave out --only, --runs and --quick", file=sys.stderr)
        return 2
    runs = [run for run in (grid.QUICK if given.quick else grid.FULL) if given.runs in run.label]
    if not shapes or not runs:
        print(f"no shape is named {', '.join(given.only)}, or no run {given.runs}: see --list", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        outcomes = check.check(shapes, runs, Path(temporary), given.keep, given.jobs, progress)
    if given.rows:
        print("\n".join(row.text() for row in report.all_rows(outcomes)))
    if given.caches:
        print("\n".join(line for outcome in outcomes for line in report.detail(outcome)))
    found = report.failures(outcomes)
    shown = found if given.rows else found[:SHOWN]
    hidden = [f"... and {len(found) - len(shown)} more: --rows"] if len(found) > len(shown) else []
    for line in (*shown, *hidden, *report.aborts(outcomes)):
        print(line)
    if given.places:
        print(report.aligned([list(report.WHERE), *report.places(outcomes)]))
    print(report.aligned([list(report.HEAD), *report.table(outcomes)]))
    print("weights, context: the largest difference in MiB (devices that are off by more than 1);")
    print("below: devices with less compute than llama.cpp takes; least, mean, most: excess of compute")
    print(f"{len(found)} faults" if found else "the ledger agrees with llama.cpp")
    if given.write:
        document.write(ROOT / "docs" / "memory.md", outcomes, runs)
    return 1 if found else 0


def progress(name: str, done: int, total: int) -> None:
    print(f"[{done}/{total}] {name}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
