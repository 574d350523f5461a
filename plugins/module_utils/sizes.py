# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes in bytes, and numbers as the kernel and tools write them."""

from __future__ import annotations

import re

MIB, GIB = 1 << 20, 1 << 30
# Nothing has so much memory: such a size is a mistake, or in a wrong unit.
ABSURD_BYTES = 1 << 50
# int() takes digits of every alphabet, and raises for too many of them.
_DIGITS = re.compile(r"[0-9]{1,18}\Z")


def digits(text: str) -> int | None:
    """The number that the text is, without a sign; None for any other text."""
    return int(text) if _DIGITS.match(text) else None


def plausible(size: int | None) -> int | None:
    """The size, if anything can have so much memory; 0 stands for what is not known."""
    return size if size is not None and 0 < size < ABSURD_BYTES else None
