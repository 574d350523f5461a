# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tensor types of ggml: block size in elements, block size in bytes, and which numbers were removed.

The numbers are those of ``enum ggml_type`` in ggml.h, the sizes those of the ``static_assert`` lines in ggml-common.h.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GgmlType:
    """One tensor type: rows are stored in blocks of ``block_elements`` that take ``block_bytes`` each."""

    number: int
    name: str
    block_elements: int
    block_bytes: int
    quantised: bool

    def row_bytes(self, elements: int) -> int:
        """Bytes of a row of ``elements``, which must be a multiple of the block size."""
        return elements // self.block_elements * self.block_bytes

    def padding_bytes(self, row_elements: int, multiple: int = 512) -> int:
        """Bytes that a backend adds once per tensor when rows are no multiple of ``multiple`` elements.

        CUDA pads the last row of a quantised matrix to 512 elements so that its kernels may read past the end.
        """
        rest = row_elements % multiple
        if not self.quantised or rest == 0:
            return 0
        return self.row_bytes(multiple - rest)


def _plain(number: int, name: str, element_bytes: int) -> GgmlType:
    return GgmlType(number, name, 1, element_bytes, False)


def _blocks(number: int, name: str, block_elements: int, block_bytes: int) -> GgmlType:
    return GgmlType(number, name, block_elements, block_bytes, True)


TYPES = {
    entry.number: entry
    for entry in (
        _plain(0, "F32", 4),
        _plain(1, "F16", 2),
        _blocks(2, "Q4_0", 32, 18),
        _blocks(3, "Q4_1", 32, 20),
        _blocks(6, "Q5_0", 32, 22),
        _blocks(7, "Q5_1", 32, 24),
        _blocks(8, "Q8_0", 32, 34),
        _blocks(9, "Q8_1", 32, 36),
        _blocks(10, "Q2_K", 256, 84),
        _blocks(11, "Q3_K", 256, 110),
        _blocks(12, "Q4_K", 256, 144),
        _blocks(13, "Q5_K", 256, 176),
        _blocks(14, "Q6_K", 256, 210),
        _blocks(15, "Q8_K", 256, 292),
        _blocks(16, "IQ2_XXS", 256, 66),
        _blocks(17, "IQ2_XS", 256, 74),
        _blocks(18, "IQ3_XXS", 256, 98),
        _blocks(19, "IQ1_S", 256, 50),
        _blocks(20, "IQ4_NL", 32, 18),
        _blocks(21, "IQ3_S", 256, 110),
        _blocks(22, "IQ2_S", 256, 82),
        _blocks(23, "IQ4_XS", 256, 136),
        _plain(24, "I8", 1),
        _plain(25, "I16", 2),
        _plain(26, "I32", 4),
        _plain(27, "I64", 8),
        _plain(28, "F64", 8),
        _blocks(29, "IQ1_M", 256, 56),
        _plain(30, "BF16", 2),
        _blocks(34, "TQ1_0", 256, 54),
        _blocks(35, "TQ2_0", 256, 66),
        _blocks(39, "MXFP4", 32, 17),
        _blocks(40, "NVFP4", 64, 36),
        _blocks(41, "Q1_0", 128, 18),
        _blocks(42, "Q2_0", 64, 18),
    )
}

# Numbers that no llama.cpp loads any more, and what their files are made from today.
REMOVED = {
    4: ("Q4_2", "Q4_0"),
    5: ("Q4_3", "Q4_1"),
    31: ("Q4_0_4_4", "Q4_0"),
    32: ("Q4_0_4_8", "Q4_0"),
    33: ("Q4_0_8_8", "Q4_0"),
    36: ("IQ4_NL_4_4", "IQ4_NL"),
    37: ("IQ4_NL_4_8", "IQ4_NL"),
    38: ("IQ4_NL_8_8", "IQ4_NL"),
}


def type_name(number: int) -> str:
    """The name of a type; ``type43`` for one that this table does not know yet."""
    known = TYPES.get(number)
    return known.name if known else f"type{number}"
