# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The geometry of a plan's picture: every byte is drawn, all on one scale."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.views.picture import (
    MAX_TICKS,
    OPEN_END,
    bars,
    scale_bytes,
    ticks,
)
from hypothesis import given
from hypothesis import strategies as st

from tests import plans

GIB = 1024**3
SIZES = ("weights_bytes", "kv_bytes", "recurrent_bytes", "compute_bytes", "draft_bytes", "reserve_bytes")


def stage(*sizes, free, device="CUDA0", n_layers=1):
    """A stage with these bytes of SIZES, the others 0."""
    memory = dict(zip(SIZES, [*sizes, *[0] * (len(SIZES) - len(sizes))]))
    total = sum(sizes)
    left = None if free is None else free - total
    memory.update(total_bytes=total, free_bytes=free, left_bytes=left)
    return {"host": "a", "device": device, "n_layers": n_layers, "has_output": False, "memory": memory}


def drawn(*stages):
    return bars({"stages": stages})


@pytest.mark.parametrize("make", [plans.cpus, plans.vendors, plans.replica])
def test_the_parts_are_the_bytes_of_the_plan(make):
    plan = make()
    scale = scale_bytes(plan)
    for row, picture in zip(plan["stages"], bars(plan)):
        memory = row["memory"]
        sizes = {part.name: part.size_bytes for part in picture.parts}
        wanted = {
            "weights": memory["weights_bytes"],
            "kv": memory["kv_bytes"] + memory["recurrent_bytes"],
            "compute": memory["compute_bytes"],
            "draft": memory["draft_bytes"],
            "reserve": memory["reserve_bytes"],
            "left": memory["left_bytes"] or 0,
        }
        assert sizes == {name: size for name, size in wanted.items() if size}
        at = 0.0
        for part in picture.parts:
            assert part.start == pytest.approx(at)
            at += part.width
            if not (part.name == "left" and picture.cut):
                assert part.width * scale == pytest.approx(part.size_bytes)
        assert at <= 1 + 1e-9


def test_a_card_of_24_gb_is_three_times_one_of_8():
    wide, narrow = drawn(stage(GIB, free=24 * GIB), stage(GIB, free=8 * GIB))
    assert (wide.end, narrow.end) == (1, pytest.approx(1 / 3))
    assert wide.parts[0].width == narrow.parts[0].width


def test_the_recurrent_state_is_drawn_with_the_kv_cache():
    (picture,) = drawn(stage(10, 20, 30, free=100))
    assert [(part.name, part.size_bytes) for part in picture.parts] == [("weights", 10), ("kv", 50), ("left", 40)]


def test_what_does_not_fit_is_drawn_beyond_the_end():
    (picture,) = drawn(stage(60, 40, free=80))
    assert (picture.end, picture.over_bytes) == (0.8, 20)
    assert [part.name for part in picture.parts] == ["weights", "kv"]
    assert sum(part.width for part in picture.parts) == 1


def test_a_device_without_any_room():
    (picture,) = drawn(stage(60, free=0))
    assert (picture.end, picture.over_bytes) == (0, 60)


def test_unknown_memory_has_an_open_end_within_the_width():
    known, unknown = drawn(stage(10, free=100), stage(100, free=None))
    assert known.end == pytest.approx(100 / scale_bytes({"stages": [stage(100, free=None)]}), abs=0.01)
    assert (unknown.end, unknown.over_bytes, unknown.cut) == (None, 0, False)
    assert unknown.parts[-1].start + unknown.parts[-1].width + OPEN_END <= 1 + 0.01


def test_ram_that_holds_no_layers_does_not_make_the_cards_small():
    spare, card = drawn(stage(GIB, free=512 * GIB, device="CPU", n_layers=0), stage(GIB, free=24 * GIB))
    assert (card.end, spare.end, spare.cut, card.cut) == (1, 1, True, False)
    assert spare.parts[-1].size_bytes == 511 * GIB
    assert sum(part.width for part in spare.parts) == pytest.approx(1)
    # RAM that holds layers is a device as any other
    ram, card = drawn(stage(GIB, free=512 * GIB, device="CPU"), stage(GIB, free=24 * GIB))
    assert (ram.cut, card.end) == (False, 24 / 512)


@pytest.mark.parametrize(("free", "factor"), [(1000, 1), (63, 1), (62, 1), (50, 10), (10, 50), (1, 500), (0, 1)])
def test_a_very_small_device_is_drawn_once_more_magnified(free, factor):
    _large, small = drawn(stage(500, free=1000), stage(free, free=free))
    assert small.magnified == (factor if free else 1)
    assert small.end * small.magnified <= max(0.5, small.end)


@pytest.mark.parametrize(
    ("scale", "labels"),
    [
        (24 * GIB, ["8 GiB", "16 GiB", "24 GiB"]),
        (6 * GIB, ["2 GiB", "4 GiB", "6 GiB"]),
        (700 * 1024**2, ["128 MiB", "256 MiB", "384 MiB", "512 MiB", "640 MiB"]),
        (1, []),
    ],
)
def test_the_axis(scale, labels):
    assert [label for _share, label in ticks(scale)] == labels


@given(st.integers(1, 2**60))
def test_an_axis_for_any_size(scale):
    marks = ticks(scale)
    assert len(marks) < MAX_TICKS
    assert all(0 < share <= 1 for share, _label in marks)


FREE = st.none() | st.integers(0, 2**45)


@given(st.lists(st.tuples(st.lists(st.integers(0, 2**42), min_size=6, max_size=6), FREE, st.booleans()), max_size=9))
def test_whatever_the_plan_nothing_leaves_the_width_and_nothing_is_hidden(rows):
    stages = [stage(*sizes, free=free, device="CPU", n_layers=int(holds)) for sizes, free, holds in rows]
    for row, picture in zip(stages, drawn(*stages)):
        memory = row["memory"]
        needed = sum(part.size_bytes for part in picture.parts if part.name != "left")
        assert needed == memory["total_bytes"]
        assert sum(part.width for part in picture.parts) <= 1 + 1e-9
        assert picture.over_bytes == max(-(memory["left_bytes"] or 0), 0)
        assert (picture.end is None) == (memory["free_bytes"] is None)
