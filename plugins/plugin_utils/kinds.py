# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a value is of the kind that a module returns; it may come from a cache, or from hands."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, NamedTuple

DAY = 24 * 60 * 60


class Kind(NamedTuple):
    """Whether a value is one, and how it is called."""

    fits: Callable[[Any], bool]
    name: str


def whole(least: int) -> Kind:
    """Whole numbers from least on, as far as every program that reads them counts."""
    return Kind(
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63,
        f"a whole number, {least} or more",
    )


def _is_text(value: Any) -> bool:
    """JSON may hold halves of characters, which cannot be written to a file."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


SIZE, COUNT = whole(0), whole(1)
RATE = Kind(_is_number, "a rate")
SECONDS = Kind(lambda value: _is_number(value) and value < DAY, "a number of seconds, less than a day")
FLAG = Kind(lambda value: isinstance(value, bool), "true or false")
TEXT = Kind(_is_text, "a text")
KEYS = Kind(
    lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value), "a dictionary by name"
)


def wrong(path: str, value: Any, expected: Any) -> str | None:
    """What is not as expected, the first there is, or None.

    expected: a Kind, a list with what each entry is, or a dictionary with what its parts are. A part that is null is
    unknown and fits, and one that is not there does too, but no entry of a list. Other parts are not looked at.
    """
    if isinstance(expected, Kind):
        return None if expected.fits(value) else f"{path} is {value!r:.80}, not {expected.name}"
    if isinstance(expected, list):
        if not isinstance(value, (list, tuple)):
            return f"{path} is {value!r:.80}, not a list"
        entries = ((f"{path}.{position}", entry, expected[0]) for position, entry in enumerate(value))
        return next(filter(None, (wrong(*entry) for entry in entries)), None)
    if not isinstance(value, Mapping):
        return f"{path} is {value!r:.80}, not a dictionary"
    known = ((name, value[name], part) for name, part in expected.items() if value.get(name) is not None)
    parts = (wrong(f"{path}.{name}" if path else name, entry, part) for name, entry, part in known)
    return next(filter(None, parts), None)
