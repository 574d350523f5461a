# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search against trying every placement."""

from __future__ import annotations

from itertools import accumulate, combinations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.needs import Row
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.search import (
    PARTS_PER_MILLION,
    Slot,
    feasible,
    reach,
    search,
)
from hypothesis import given, settings
from hypothesis import strategies as st

CAPACITY = 20


class Table:
    """Bytes of every range, whatever they are, so that a longer one may need less."""

    def __init__(self, sizes):
        self.sizes = sizes
        n_items = max(end for _first, end in sizes)
        self.nested = all(
            size >= sizes[part]
            for (first, end), size in sizes.items()
            for part in sizes
            if first <= part[0] and part[1] <= end
        )
        self.rows = []
        for first in range(n_items):
            row = [sizes[first, end] for end in range(first + 1, n_items + 1)]
            floor = list(accumulate(reversed(row), min))[::-1]
            self.rows.append(Row(row, floor, row == floor))

    def row(self, first):
        return self.rows[first]


def every_key(slots, n_items, limit, first_required):
    """Keys of all feasible placements, found by trying them all."""
    for count in range(1, min(len(slots), limit) + 1):
        for used in combinations(range(len(slots)), count):
            if first_required and used[0] != 0:
                continue
            for cuts in combinations(range(1, n_items), count - 1):
                bounds = list(zip((0, *cuts), (*cuts, n_items)))
                time = fullest = 0
                machine = None
                for index, (first, end) in zip(used, bounds):
                    slot = slots[index]
                    need = slot.needs.sizes[first, end]
                    if need > slot.room or (slot.first_only and first) or end > slot.last:
                        break
                    time += slot.time[end] - slot.time[first]
                    time += slot.near_hop if slot.machine == machine else slot.hop
                    machine = slot.machine
                    fullest = max(fullest, (need + slot.taken) * PARTS_PER_MILLION // slot.capacity)
                else:
                    yield time, count, fullest


def drawn_slots(data, n_items, nested):
    sizes = st.lists(st.integers(0, 5), min_size=n_items, max_size=n_items)
    ranges = [(first, end) for first in range(n_items) for end in range(first + 1, n_items + 1)]
    tables = []
    for _kind in range(data.draw(st.integers(1, 2))):
        weights = data.draw(sizes)
        extra = data.draw(st.lists(st.integers(0, 4), min_size=len(ranges), max_size=len(ranges)))
        tables.append(
            Table({(a, b): sum(weights[a:b]) + (0 if nested else more) for (a, b), more in zip(ranges, extra)})
        )
    slots = []
    for _device in range(data.draw(st.integers(1, 4))):
        room = data.draw(st.integers(-2, 12))
        hop = data.draw(st.integers(0, 3))
        slots.append(
            Slot(
                needs=data.draw(st.sampled_from(tables)),
                room=room,
                taken=CAPACITY - room,
                capacity=CAPACITY,
                time=list(accumulate(data.draw(sizes), initial=0)),
                hop=hop,
                near_hop=data.draw(st.integers(0, hop)),
                machine=data.draw(st.sampled_from("ab")),
                last=n_items - data.draw(st.sampled_from([0, 0, 1, 2])),
                first_only=data.draw(st.sampled_from([False, False, True])),
            )
        )
    return sorted(slots, key=lambda slot: slot.machine)


@pytest.mark.parametrize("nested", [False, True])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_best_of_all_placements_is_found(nested, data):
    n_items = data.draw(st.integers(1, 6))
    slots = drawn_slots(data, n_items, nested)
    first_required, few_devices = data.draw(st.booleans()), data.draw(st.booleans())
    limit = data.draw(st.integers(1, 4))
    order = (lambda key: (key[1], key[0], key[2])) if few_devices else (lambda key: key)
    expected = min(every_key(slots, n_items, limit, first_required), key=order, default=None)
    found = search(slots, n_items, limit, first_required=first_required, few_devices=few_devices)
    assert (found.key if found else None) == expected
    assert feasible(slots, n_items, limit, first_required) == (expected is not None)
    for segments in (found.segments if found else (), reach(slots, n_items, limit, first_required) or ()):
        if segments:
            assert [segment.first for segment in segments] == [0, *(segment.end for segment in segments[:-1])]
            assert segments[-1].end == n_items
            assert all(slots[s.slot].needs.sizes[s.first, s.end] <= slots[s.slot].room for s in segments)
    if nested and found:
        assert reach(slots, n_items, limit, first_required)
