# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp's layer split and its inverse."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import CPU, assign, invert
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("n_layer", "ngl", "split", "counts"),
    [
        (48, -1, [20, 28], [0, 21, 28]),  # the output counts: 21 and 27 layers, then the output
        (48, -1, [20, 29], [0, 20, 29]),
        (48, 99, [20, 28, 1], [0, 20, 28, 1]),
        (30, 21, [10, 11], [10, 10, 11]),
        (8, 0, [1, 1], [9, 0, 0]),
        (10, -1, [0.3, 0.7], [0, 4, 7]),
        (10, -1, [1, 0], [0, 11, 0]),
    ],
)
def test_assign_counts_the_output(n_layer, ngl, split, counts):
    devices = assign(n_layer, ngl, split, len(split))
    assert [devices.count(device) for device in (CPU, *range(len(split)))] == counts
    assert len(devices) == n_layer + 1


def test_assign_rounds_to_float32():
    # In float64 layer 4 of the first and layer 5 of the second fall on the other side of the bound.
    assert assign(5, -1, [0.1, 0.5, 0.3], 3)[4] == 2
    assert assign(5, -1, [0.1, 1.4, 0.3], 3)[5] == 1


def test_extra_values_are_ignored_and_missing_ones_are_zero():
    assert assign(4, -1, [1, 5, 9], 1) == [0] * 5
    assert assign(4, -1, [1], 2) == [0] * 5


def test_no_share_at_all_is_an_error():
    with pytest.raises(PoolError, match="no share above 0"):
        assign(4, -1, [0, 0], 2)


@pytest.mark.parametrize(
    ("layers", "n_layer", "output", "expected"),
    [
        ([20, 28], 48, None, (49, [20, 29])),
        ([5, 5], 30, None, (11, [5, 6])),
        ([30, 0], 30, 1, (31, [30, 1])),
        ([7], 7, None, (8, [8])),
    ],
)
def test_invert(layers, n_layer, output, expected):
    assert invert(layers, n_layer, output) == expected


@pytest.mark.parametrize(
    ("layers", "n_layer", "output", "text"),
    [([0, 0], 4, None, "no device holds"), ([3, 3], 5, None, "6 layers"), ([2, 2], 4, 0, "must be on the last")],
)
def test_invert_refuses(layers, n_layer, output, text):
    with pytest.raises(PoolError, match=text):
        invert(layers, n_layer, output)


@given(st.data())
def test_inverse_is_exact(data):
    n_layer = data.draw(st.integers(1, 200))
    counts = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=15).filter(any))
    while sum(counts) > n_layer:
        counts[counts.index(max(counts))] -= 1
    if not any(counts):
        counts[0] = 1
    ngl, split = invert(counts, n_layer)
    devices = assign(n_layer, ngl, split, len(split))
    assert [devices[:-1].count(device) for device in range(len(counts))] == counts
    assert devices[:-1].count(CPU) == n_layer - sum(counts)
    assert devices == sorted(devices)
