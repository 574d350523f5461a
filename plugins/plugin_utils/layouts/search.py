# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which consecutive layers go to which of the ordered devices: exact, by dynamic programming.

The items are the repeating layers 0..N-1 and the output as item N. The devices are looked at one after the other; by
the number of items placed so far a state keeps the least (time, devices used, fullest device) and how it was reached.
That is exact because what may follow depends on how many items are placed, not on how: times and devices are added up
and of two fullest devices the larger counts, so the best whole has the best beginning. Two things more matter for what
follows, and so there are states apart for them: whether the last device is on the machine of the next one, whose hop
then is a near one, and how many devices were used, where more would be used than llama.cpp takes.

Time is an integer, so that equal plans compare as equal and the later parts of a key decide. Time and devices are added
up in one integer, the cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Sequence, Tuple

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.needs import Row

Key = Tuple[int, int, int]
PARTS_PER_MILLION = 1_000_000
# A unit of time weighs more than all devices there can be, and with few_devices a device more than all time.
TIME = 1 << 20
DEVICE = 1 << 120
NEVER = 1 << 200


class Sizes(Protocol):
    """What needs.Needs says of a kind of device."""

    nested: bool

    def row(self, first: int) -> Row:
        """The ranges that begin with item first."""


@dataclass(frozen=True)
class Slot:
    """A device as the search sees it.

    room: bytes for what needs counts. taken: of capacity, bytes that are used beside that. Times are integers, all of
    one unit: time: prefix sums over the items. hop: what its use adds. near_hop: the same when the device before it is
    on the same machine. last: items that are placed at most when it is filled. first_only: it holds the first items or
    none.
    """

    needs: Sizes
    room: int
    taken: int
    capacity: int
    time: Sequence[int]
    hop: int
    near_hop: int
    machine: str
    last: int
    first_only: bool = False


@dataclass(frozen=True)
class Segment:
    """Items first..end-1 on the slot of that index."""

    slot: int
    first: int
    end: int


@dataclass(frozen=True)
class Found:
    """A feasible placement; key is (time, devices, fullest device in millionths)."""

    segments: tuple[Segment, ...]
    key: Key


class _States:
    """By items placed: least cost, fullest device of it, and its segments from the last to the first."""

    def __init__(self, n_items: int) -> None:
        self.cost = [NEVER] * (n_items + 1)
        self.full = [0] * (n_items + 1)
        self.path: list[Any] = [None] * (n_items + 1)


def search(
    slots: Sequence[Slot], n_items: int, limit: int, first_required: bool = False, few_devices: bool = False
) -> Found | None:
    """The best placement of n_items on at most ``limit`` of the slots, in their order, or None; exact.

    first_required: the first slot must be used. few_devices: the number of devices weighs more than time.
    """
    far = reach(slots, n_items, limit, first_required)
    if far is None and all(slot.needs.nested for slot in slots):
        return None
    found = _search(slots, n_items, None, first_required, few_devices)
    # Counting the devices makes as many times more states, and mostly the best uses few.
    if found is None or len(found.segments) <= limit:
        return found
    return None if few_devices else _search(slots, n_items, limit, first_required, few_devices)


def feasible(slots: Sequence[Slot], n_items: int, limit: int, first_required: bool = False) -> bool:
    """Whether search() finds anything; much quicker."""
    if reach(slots, n_items, limit, first_required):
        return True
    if all(slot.needs.nested for slot in slots):
        return False
    return search(slots, n_items, limit, first_required) is not None


def reach(slots: Sequence[Slot], n_items: int, limit: int, first_required: bool = False) -> tuple[Segment, ...] | None:
    """A feasible placement on few devices, each filled as far as it goes; by the number of devices, the most items.

    Where all needs are nested, no placement reaches further, so None proves that there is none. Elsewhere there may be
    one all the same: a longer beginning is not always better where a part of a range can need more than the range.
    """
    far = [0]
    path: list[Any] = [None]
    for index, slot in enumerate(slots):
        needs, room = slot.needs, slot.room
        for count in range(min(len(far), limit) - 1, -1, -1):
            first = far[count]
            if first < 0 or first >= slot.last or (slot.first_only and first):
                continue
            end = min(first + needs.row(first).longest(room), slot.last)
            if end <= (far[count + 1] if count + 1 < len(far) else first):
                continue
            # Where sizes do not rise, the last that fits may be cut off.
            sizes = needs.row(first).sizes
            end = next((at for at in range(end, first, -1) if sizes[at - first - 1] <= room), first)
            if count + 1 == len(far):
                far.append(-1)
                path.append(None)
            if end > max(far[count + 1], first):
                far[count + 1] = end
                path[count + 1] = ((index, first, end), path[count])
                if end == n_items:
                    return _segments(path[count + 1])
        if first_required and index == 0:
            far[0] = -1
    return None


def _segments(path: Any) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    while path:
        segment, path = path
        segments.append(Segment(*segment))
    return tuple(reversed(segments))


def _search(
    slots: Sequence[Slot], n_items: int, limit: int | None, first_required: bool, few_devices: bool
) -> Found | None:
    """With a limit, the states are kept by the number of devices used as well."""
    levels = 1 if limit is None else limit + 1
    sources = [0] if limit is None else list(range(limit - 1, -1, -1))
    step = 0 if limit is None else 1
    each = 1 + (DEVICE if few_devices else 0)
    anywhere = [_States(n_items) for _level in range(levels)]
    anywhere[0].cost[0] = 0
    here = [_States(n_items) for _level in range(levels)]
    for index, slot in enumerate(slots):
        if index and slot.machine != slots[index - 1].machine:
            here = [_States(n_items) for _level in range(levels)]
        # Where the device before is matters only if this or the next one would be cheaper beside it.
        neighbour = index + 1 < len(slots) and slots[index + 1].machine == slot.machine
        for level in sources:
            before, then = (anywhere[level], here[level]), (anywhere[level + step], here[level + step])
            _extend(slot, index, before, then, each, neighbour)
        if first_required and index == 0:
            anywhere[0].cost[0] = NEVER
    best = min(anywhere, key=lambda states: (states.cost[n_items], states.full[n_items]))
    cost = best.cost[n_items]
    if cost >= NEVER:
        return None
    segments = _segments(best.path[n_items])
    return Found(segments, ((cost % DEVICE) // TIME, len(segments), best.full[n_items]))


def _extend(
    slot: Slot,
    index: int,
    before: tuple[_States, _States],
    then: tuple[_States, _States],
    each: int,
    neighbour: bool,
) -> None:
    """Place more items on the slot; from the last ones on, so that nothing is placed on it twice.

    before, then: the states wherever the last device is, and those where it is on the machine of the slot.
    """
    (anywhere, here), (anywhere_then, here_then) = before, then
    hop, near_hop = slot.hop * TIME + each, slot.near_hop * TIME + each
    costs, fulls, paths = anywhere_then.cost, anywhere_then.full, anywhere_then.path
    room, taken, capacity, time, last = slot.room, slot.taken, slot.capacity, slot.time, slot.last
    for first in (0,) if slot.first_only else range(last - 1, -1, -1):
        base, full, path = anywhere.cost[first] + hop, anywhere.full[first], anywhere.path[first]
        if (here.cost[first] + near_hop, here.full[first]) < (base, full):
            base, full, path = here.cost[first] + near_hop, here.full[first], here.path[first]
        if base >= NEVER:
            continue
        row = slot.needs.row(first)
        sizes, top = row.sizes, min(first + row.longest(room), last)
        base -= time[first] * TIME
        for end in range(first + 1, top + 1):
            cost = base + time[end] * TIME
            if cost > costs[end] and not (neighbour and cost <= here_then.cost[end]):
                continue
            size = sizes[end - first - 1]
            if size > room:
                continue
            used = max(full, (size + taken) * PARTS_PER_MILLION // capacity)
            if cost < costs[end] or (cost == costs[end] and used < fulls[end]):
                costs[end], fulls[end], paths[end] = cost, used, ((index, first, end), path)
            if neighbour and (cost, used) < (here_then.cost[end], here_then.full[end]):
                here_then.cost[end], here_then.full[end] = cost, used
                here_then.path[end] = ((index, first, end), path)
