# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures what docs/speed.md says, after ``make demo``, as root, on an otherwise idle machine: ten minutes in all."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / ".collections"))

from tests.speed import embedded, loopback

LOOPBACK = {"hops": loopback.hops, "output": loopback.output, "pipeline": loopback.pipeline}


def main() -> int:
    """The exit status is 1 when another split is faster than the chosen one."""
    parser = argparse.ArgumentParser(prog="python -m tests.speed", description=__doc__)
    parser.add_argument("what", nargs="*", help=f"splits, {', '.join(LOOPBACK)}; all of them if none is named")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the last comparison of splits")
    options = parser.parse_args()
    asked = options.what or ["splits", *LOOPBACK]
    unknown = set(asked) - {"splits", *LOOPBACK}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))} cannot be measured")
    # What was slowed down or started is put right at an end from outside, too.
    signal.signal(signal.SIGTERM, lambda *_args: sys.exit(143))
    for name in asked:
        if name in LOOPBACK:
            LOOPBACK[name]()
    return 0 if "splits" not in asked or embedded.measured_splits(options.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
