# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The type table against the one of the gguf package, and against ggml.h where that one is behind or wrong."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils.ggml_types import REMOVED, TYPES, type_name
from gguf import GGML_QUANT_SIZES

# sizeof(block_q8_1) is 36 in ggml-common.h, the gguf package says 40.
WRONG_IN_PACKAGE = {9}


@pytest.mark.parametrize(
    ("number", "name", "sizes"),
    [(int(kind), kind.name, sizes) for kind, sizes in GGML_QUANT_SIZES.items() if int(kind) not in WRONG_IN_PACKAGE],
)
def test_agrees_with_the_gguf_package(number, name, sizes):
    assert TYPES[number].name == name
    assert (TYPES[number].block_elements, TYPES[number].block_bytes) == sizes


@pytest.mark.parametrize(
    ("number", "name", "sizes"),
    [
        (9, "Q8_1", (32, 36)),
        (39, "MXFP4", (32, 17)),
        (40, "NVFP4", (64, 36)),
        (41, "Q1_0", (128, 18)),
        (42, "Q2_0", (64, 18)),
    ],
)
def test_agrees_with_ggml_common_h(number, name, sizes):
    assert TYPES[number].name == name
    assert (TYPES[number].block_elements, TYPES[number].block_bytes) == sizes


def test_knows_or_removed_every_number_below_the_count():
    assert set(TYPES) | set(REMOVED) == set(range(43))
    assert not set(TYPES) & set(REMOVED)


def test_only_plain_numbers_are_not_quantised():
    plain = {kind.name for kind in TYPES.values() if not kind.quantised}
    assert plain == {"F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"}


def test_an_unknown_type_keeps_its_number():
    assert type_name(43) == "type43"
    assert type_name(12) == "Q4_K"


@pytest.mark.parametrize(
    ("number", "row", "padding"),
    [
        (3, 576, 448 // 32 * 20),  # 576 = 512 + 64
        (3, 1536, 0),
        (12, 256, 144),
        (0, 576, 0),  # not quantised
        (8, 32, 480 // 32 * 34),
    ],
)
def test_row_padding(number, row, padding):
    assert TYPES[number].padding_bytes(row) == padding
