# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The geometry of a plan's picture: a bar per stage, all bars on one scale. Bytes and shares, no markup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB

# A bar whose end is unknown is open; this share of the full width is kept for its open end.
OPEN_END = 0.06
# A device that is drawn narrower than this share is drawn a second time, magnified.
NARROW = 1 / 16
MAX_TICKS = 6
# Beyond a million million there is nothing to magnify.
MAX_POWER = 12
GIB = 1024 * MIB


@dataclass(frozen=True)
class Part:
    """What takes size_bytes of a device, drawn from start over width, both shares of the full width."""

    name: str
    size_bytes: int
    start: float
    width: float


@dataclass(frozen=True)
class Bar:
    """A device. parts: what is needed, in the order in which it is drawn, and what is left.

    end: share at which its memory ends, None if it is unknown. over_bytes: what does not fit.
    cut: more is left than the scale shows. magnified: by how much to enlarge it to see its parts, 1 for not at all.
    """

    parts: tuple[Part, ...]
    end: float | None
    over_bytes: int
    cut: bool
    magnified: int


def _is_spare_ram(stage: Mapping[str, Any]) -> bool:
    """RAM that holds no layers, of which there may be so much that no GPU could be seen beside it."""
    return stage["device"] == "CPU" and not stage["n_layers"] and not stage["has_output"]


def scale_bytes(plan: Mapping[str, Any]) -> int:
    """The bytes that the full width stands for: the largest device that holds layers, or the largest need."""
    widest = 1
    for stage in plan["stages"]:
        memory = stage["memory"]
        total, free = memory["total_bytes"], memory["free_bytes"]
        if free is None:
            # The open end must be seen whatever comes before it.
            total = round(total / (1 - OPEN_END))
        widest = max(widest, total, 0 if free is None or _is_spare_ram(stage) else free)
    return widest


def bars(plan: Mapping[str, Any]) -> tuple[Bar, ...]:
    """A bar for each stage of the plan, in the plan's order."""
    scale = scale_bytes(plan)
    return tuple(_bar(stage["memory"], scale) for stage in plan["stages"])


def _bar(memory: Mapping[str, Any], scale: int) -> Bar:
    needs = (
        ("weights", memory["weights_bytes"]),
        ("kv", memory["kv_bytes"] + memory["recurrent_bytes"]),
        ("compute", memory["compute_bytes"]),
        ("draft", memory["draft_bytes"]),
        ("reserve", memory["reserve_bytes"]),
    )
    parts, at = [], 0
    for name, size in needs:
        if size:
            parts.append(Part(name, size, at / scale, size / scale))
            at += size
    free = memory["free_bytes"]
    left = 0 if free is None else free - at
    if left > 0:
        parts.append(Part("left", left, at / scale, min(left, scale - at) / scale))
    extent = max(at, free or 0) / scale
    return Bar(
        parts=tuple(parts),
        end=None if free is None else min(free / scale, 1.0),
        over_bytes=max(-left, 0),
        cut=extent > 1,
        magnified=_magnified(extent),
    )


def _magnified(extent: float) -> int:
    """The largest of 10, 20, 50, 100, ... that keeps a narrow bar within half of the full width."""
    if not 0 < extent < NARROW:
        return 1
    factors = (digit * 10**power for power in range(1, MAX_POWER) for digit in (1, 2, 5))
    return max((factor for factor in factors if extent * factor <= 0.5), default=1)


def ticks(scale: int) -> tuple[tuple[float, str], ...]:
    """Where the axis is marked and with what: (share of the full width, "8 GiB"), after 0, fewer than MAX_TICKS."""
    unit, name = (GIB, "GiB") if scale >= 2 * GIB else (MIB, "MiB")
    whole = scale // unit
    step = 1
    while whole // step >= MAX_TICKS:
        step *= 2
    return tuple((number * unit / scale, f"{number} {name}") for number in range(step, whole + 1, step))
