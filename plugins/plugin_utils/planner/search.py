# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which consecutive layers go to which of the ordered devices.

Dynamic programming over (device, layers placed so far). The items are the repeating layers 0..N-1 and the output
as item N. A state keeps the lexicographically least key of (time, devices used, fullest device); time is an integer,
so equal plans compare as equal and the later parts of the key decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence, Tuple

Key = Tuple[int, int, int]
PARTS_PER_MILLION = 1_000_000


@dataclass(frozen=True)
class Slot:
    """A device as the search sees it; ``room`` is by (holds the first item, holds the output)."""

    memory: tuple[int, ...]
    room: dict[tuple[bool, bool], int]
    capacity: int
    time: tuple[int, ...]
    hop: int
    first_only: bool = False
    may_hold_output: bool = True
    output_alone: bool = True


@dataclass(frozen=True)
class Segment:
    """Items first..end-1 on the slot of that index."""

    slot: int
    first: int
    end: int


@dataclass(frozen=True)
class Found:
    """A feasible placement and its key."""

    segments: tuple[Segment, ...]
    key: Key


def _prefix(values: Sequence[int]) -> list[int]:
    sums = [0]
    for value in values:
        sums.append(sums[-1] + value)
    return sums


def search(
    slots: Sequence[Slot], n_items: int, first_required: bool = False, few_devices: bool = False
) -> Found | None:
    """The best placement of n_items on the slots in their order, or None.

    first_required: the first slot must be used. few_devices: the number of devices weighs more than time.
    """
    best: list[Key | None] = [None] * (n_items + 1)
    best[0] = (0, 0, 0)
    trail: list[list[int]] = []
    for index, slot in enumerate(slots):
        came_from = [-1] * (n_items + 1)
        reached: list[Key | None] = [None] * (n_items + 1) if (index == 0 and first_required) else list(best)
        memory, time = _prefix(slot.memory), _prefix(slot.time)
        for first in range(1 if slot.first_only else n_items):
            before = best[first]
            if before is None:
                continue
            base_memory, base_time = memory[first], time[first]
            inner_room, last_room = slot.room[(first == 0, False)], slot.room[(first == 0, True)]
            widest = max(inner_room, last_room)
            for end in range(first + 1, n_items + 1):
                need = memory[end] - base_memory
                if need > widest:
                    break
                last = end == n_items
                room = last_room if last else inner_room
                if need > room:
                    continue
                if last and not (slot.may_hold_output and (slot.output_alone or end - first > 1)):
                    continue
                spent = time[end] - base_time + slot.hop
                used = (need + slot.capacity - room) * PARTS_PER_MILLION // slot.capacity
                if few_devices:
                    key = (before[0] + 1, before[1] + spent, max(before[2], used))
                else:
                    key = (before[0] + spent, before[1] + 1, max(before[2], used))
                known = reached[end]
                if known is None or key < known:
                    reached[end] = key
                    came_from[end] = first
        best = reached
        trail.append(came_from)
    final = best[n_items]
    if final is None:
        return None
    segments: list[Segment] = []
    end = n_items
    for index in range(len(slots) - 1, -1, -1):
        first = trail[index][end]
        if first >= 0:
            segments.append(Segment(index, first, end))
            end = first
    return Found(tuple(reversed(segments)), final)
