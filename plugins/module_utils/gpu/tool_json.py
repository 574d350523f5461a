# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON out of what a tool printed, with whatever stands before it."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

# A tool warns now and then before its answer; text that only looks like JSON must not cost minutes.
MAX_TRIES = 50
_START = re.compile(r"^[{\[]", re.MULTILINE)


def find_json(text: str) -> Any:
    """The first JSON object, or list of objects, at the start of a line; None if there is none.

    Python's warnings, notes about a GPU in a low-power state and empty lines stand before the answer of tools. An
    indented object is a part of an answer: taken for the whole of one that is cut off, it would hide the rest.
    """
    decoder = json.JSONDecoder()
    for match in itertools.islice(_START.finditer(text), MAX_TRIES):
        try:
            value, _end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            # ValueError: no JSON, or a number of more digits than Python reads.
            continue
        if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(entry, dict) for entry in value)):
            return value
    return None
