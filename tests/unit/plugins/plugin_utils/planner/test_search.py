# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search against trying every placement."""

from __future__ import annotations

from itertools import combinations

from ansible_collections.relay.pool.plugins.plugin_utils.planner.search import PARTS_PER_MILLION, Slot, search
from hypothesis import given, settings
from hypothesis import strategies as st


def every_key(slots, n_items, first_required):
    """Keys of all feasible placements, found by trying them all."""
    for count in range(1, len(slots) + 1):
        for used in combinations(range(len(slots)), count):
            if first_required and used[0] != 0:
                continue
            for cuts in combinations(range(1, n_items), count - 1):
                bounds = list(zip((0, *cuts), (*cuts, n_items)))
                time = fullest = 0
                for index, (first, end) in zip(used, bounds):
                    slot, last = slots[index], end == n_items
                    need, room = sum(slot.memory[first:end]), slot.room[(first == 0, last)]
                    if need > room or (slot.first_only and first):
                        break
                    if last and not (slot.may_hold_output and (slot.output_alone or end - first > 1)):
                        break
                    time += sum(slot.time[first:end]) + slot.hop
                    fullest = max(fullest, (need + slot.capacity - room) * PARTS_PER_MILLION // slot.capacity)
                else:
                    yield time, count, fullest


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_the_best_of_all_placements_is_found(data):
    n_items = data.draw(st.integers(1, 6))
    sizes = st.lists(st.integers(0, 5), min_size=n_items, max_size=n_items).map(tuple)
    slots = []
    for _try in range(data.draw(st.integers(1, 4))):
        room = {(first, last): data.draw(st.integers(-2, 12)) for first in (False, True) for last in (False, True)}
        flags = {name: data.draw(st.booleans()) for name in ("first_only", "may_hold_output", "output_alone")}
        slots.append(Slot(data.draw(sizes), room, 20, data.draw(sizes), data.draw(st.integers(0, 3)), **flags))
    first_required, few_devices = data.draw(st.booleans()), data.draw(st.booleans())
    order = (lambda key: (key[1], key[0], key[2])) if few_devices else (lambda key: key)
    expected = min(map(order, every_key(slots, n_items, first_required)), default=None)
    found = search(slots, n_items, first_required=first_required, few_devices=few_devices)
    assert (found.key if found else None) == expected
    if found:
        assert [segment.first for segment in found.segments] == [0, *(segment.end for segment in found.segments[:-1])]
        assert found.segments[-1].end == n_items
