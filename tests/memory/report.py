# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The differences between prediction and truth, for a terminal and for docs/memory.md."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.memory.grid import Run
from tests.memory.parts import Shape
from tests.memory.prediction import Bytes
from tests.memory.truth import Measured, Truth

MIB = 1024 * 1024
# The bounds of the check: MiB of weights and of context, and the mean excess of compute.
EXACT = 1
EXCESS = 0.15
# llama.cpp logs hundredths of a MiB.
ROUNDING = 0.006


def _off(predicted: int, measured: int, parts: int) -> int:
    """Bytes less MiB; what was summed of several rounded figures may be a little more than their sum."""
    off = predicted // MIB - measured
    return 0 if 0 <= off < parts else off


@dataclass(frozen=True)
class Row:
    """One device of one run."""

    shape: Shape
    run: Run
    device: str
    predicted: Bytes
    measured: Measured

    @property
    def weights(self) -> int:
        """Predicted less true, in whole MiB."""
        return _off(self.predicted.weights, self.measured.weights, self.measured.parts)

    @property
    def context(self) -> int:
        """Predicted less true, in whole MiB."""
        return _off(self.predicted.kv + self.predicted.recurrent, self.measured.context, self.measured.parts)

    @property
    def compute(self) -> float:
        """Predicted less true, in MiB."""
        return self.predicted.compute / MIB - self.measured.compute

    @property
    def excess(self) -> float | None:
        """The part of the true compute buffer by which the prediction is above it."""
        return self.compute / self.measured.compute if self.measured.compute else None

    @property
    def role(self) -> str:
        """Where in the pipeline the device is; the output is on the last one."""
        if self.device == "Host":
            return "host"
        last = self.device == f"RPC{self.run.devices.count - 1}"
        if self.device == "RPC0":
            return "only" if last else "first"
        return "last" if last else "middle"

    @property
    def below(self) -> bool:
        """llama.cpp would take more than the plan keeps free for it."""
        return self.compute < -ROUNDING

    @property
    def wrong(self) -> bool:
        """Outside the bounds of the check."""
        return abs(self.weights) > EXACT or abs(self.context) > EXACT or self.below

    def text(self) -> str:
        """One line: each column as predicted / true (difference)."""
        state = (self.predicted.kv + self.predicted.recurrent) // MIB
        cells = (
            f"weights {self.predicted.weights // MIB} / {self.measured.weights} ({self.weights:+d})",
            f"context {state} / {self.measured.context} ({self.context:+d})",
            f"compute {self.predicted.compute / MIB:.2f} / {self.measured.compute:.2f} ({self.compute:+.2f})",
        )
        return f"{self.shape.name} {self.run.label} {self.device}: " + ", ".join(cells)


@dataclass
class Outcome:
    """All that came of one shape."""

    shape: Shape
    rows: list[Row] = field(default_factory=list)
    # what neither, or only one of the two, would run: (run, what the ledger said or "", what llama.cpp said or "")
    refusals: list[tuple[Run, str, str]] = field(default_factory=list)
    # what llama.cpp does not survive, so that nothing can be compared
    aborted: list[tuple[Run, str]] = field(default_factory=list)
    truths: list[tuple[Run, Truth]] = field(default_factory=list)

    @property
    def disagreements(self) -> list[tuple[Run, str, str]]:
        """Runs that only one of the two refuses."""
        return [refusal for refusal in self.refusals if not (refusal[1] and refusal[2])]


@dataclass(frozen=True)
class Summary:
    """Worst and mean over some rows."""

    rows: int
    weights: int
    context: int
    below: int
    lowest: float
    mean: float
    highest: float
    weights_off: int = 0
    context_off: int = 0

    @classmethod
    def of(cls, rows: list[Row]) -> Summary:
        """weights, context: the difference farthest from 0; lowest, mean, highest: of the excess of compute."""
        excess = [row.excess for row in rows if row.excess is not None] or [0.0]
        return cls(
            rows=len(rows),
            weights=max((row.weights for row in rows), key=abs, default=0),
            context=max((row.context for row in rows), key=abs, default=0),
            below=sum(row.below for row in rows),
            lowest=min(excess),
            mean=sum(excess) / len(excess),
            highest=max(excess),
            weights_off=sum(abs(row.weights) > EXACT for row in rows),
            context_off=sum(abs(row.context) > EXACT for row in rows),
        )

    def cells(self) -> list[str]:
        return [
            str(self.rows),
            f"{self.weights:+d}" + (f" ({self.weights_off})" if self.weights_off else ""),
            f"{self.context:+d}" + (f" ({self.context_off})" if self.context_off else ""),
            str(self.below),
            f"{self.lowest:+.1%}",
            f"{self.mean:+.1%}",
            f"{self.highest:+.1%}",
        ]


COLUMNS = ("devices", "weights", "context", "below", "least", "mean", "most")
HEAD = ("shape", "architecture", *COLUMNS)
WHERE = ("arrangement", "device", *COLUMNS)


def table(outcomes: list[Outcome]) -> list[list[str]]:
    """One line per shape, and the sum of all."""
    lines = [
        [outcome.shape.name, outcome.shape.architecture, *Summary.of(outcome.rows).cells()]
        for outcome in outcomes
        if outcome.rows
    ]
    return [*lines, ["all", "", *Summary.of(all_rows(outcomes)).cells()]]


def places(outcomes: list[Outcome]) -> list[list[str]]:
    """One line per arrangement and place in it: where the compute buffers are far off."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in all_rows(outcomes):
        rows = "a row per slot" if row.run.program == "server" else "a row per token"
        groups.setdefault((f"{row.run.devices.name}, {rows}", row.role), []).append(row)
    return [[*key, *Summary.of(groups[key]).cells()] for key in sorted(groups)]


def all_rows(outcomes: list[Outcome]) -> list[Row]:
    return [row for outcome in outcomes for row in outcome.rows]


def aligned(lines: list[list[str]]) -> str:
    """For a terminal."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]

    def cell(text: str, column: int) -> str:
        return text.ljust(widths[column]) if column < 2 else text.rjust(widths[column])

    return "\n".join("  ".join(cell(text, column) for column, text in enumerate(line)) for line in lines)


def failures(outcomes: list[Outcome]) -> list[str]:
    """Why the check does not pass; empty when it does."""
    found = []
    for outcome in outcomes:
        found += [f"{outcome.shape.name} {run.label}: {_disagreement(*said)}" for run, *said in outcome.disagreements]
        if not outcome.rows:
            found.append(f"{outcome.shape.name}: llama.cpp measured nothing of it")
        found += [row.text() for row in outcome.rows if row.wrong]
    mean = Summary.of(all_rows(outcomes)).mean
    if mean > EXCESS:
        found.append(f"compute is predicted {mean:.1%} too high in the mean, at most {EXCESS:.0%} are allowed")
    return found


def aborts(outcomes: list[Outcome]) -> list[str]:
    """The runs that llama.cpp does not survive, one line per shape and reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for outcome in outcomes:
        for run, said in outcome.aborted:
            place = said.rsplit("/", 1)[-1]
            reasons.setdefault((outcome.shape.name, place), []).append(run.label)
    return [
        f"llama.cpp aborts: {name}, {place}: {', '.join(runs[:3])}{f' and {len(runs) - 3} more' if runs[3:] else ''}"
        for (name, place), runs in reasons.items()
    ]


def _disagreement(ledger: str, truth: str) -> str:
    return f"only the ledger refuses: {ledger}" if ledger else f"only llama.cpp refuses: {truth}"


def detail(outcome: Outcome) -> list[str]:
    """Per run what llama.cpp says of its caches, and the ledger's sums over all devices."""
    lines = []
    for run, truth in outcome.truths:
        rows = [row for row in outcome.rows if row.run == run]
        caches = " + ".join(f"{size:.2f} ({cells} cells, {layers} layers)" for size, cells, layers in truth.kv) or "0"
        kv = sum(row.predicted.kv for row in rows) / MIB
        state = sum(row.predicted.recurrent for row in rows) / MIB
        lines.append(
            f"{outcome.shape.name} {run.label}: kv {kv:.2f} / {caches}, recurrent {state:.2f} / {truth.recurrent:.2f}, "
            f"{truth.copies} copies"
        )
    return lines
