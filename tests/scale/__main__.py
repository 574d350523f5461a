# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the plans of large pools; the exit status is 1 when one takes too long or too much."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / ".collections"))

from tests.scale import document
from tests.scale.measure import CASES, FLEETS, MACHINES, Cost, measure_apart

MOST_SECONDS, MOST_MIB = 2.0, 300.0


def options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.scale", description=__doc__)
    parser.add_argument("--most", type=int, default=MACHINES[-1], help="machines at most")
    parser.add_argument("--write", action="store_true", help="write docs/scale.md")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    given = options(argv)
    if given.write and given.most < MACHINES[-1]:
        print("--write wants every size: leave out --most", file=sys.stderr)
        return 2
    costs: dict[tuple[int, str, str], Cost] = {}
    wrong = []
    for machines in (machines for machines in MACHINES if machines <= given.most):
        for fleet in FLEETS:
            for case in CASES:
                cost = costs[machines, fleet, case.name] = measure_apart(machines, fleet, case)
                line = (
                    f"{machines:5} machines, {fleet:6} {case.name:26} {cost.answer:8} {cost.seconds:6.2f} s, "
                    f"again {cost.again_seconds:5.2f} s, {cost.peak_mib:5.0f} MiB"
                )
                print(line, flush=True)
                if max(cost.seconds, cost.again_seconds) > MOST_SECONDS or cost.peak_mib > MOST_MIB:
                    wrong.append(line)
                elif cost.answer != case.answer:
                    wrong.append(f"{line}: not {case.answer}")
    print("\n".join(["over the bounds:", *wrong]) if wrong else "all within the bounds")
    if given.write:
        document.write(ROOT / "docs" / "scale.md", costs)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
