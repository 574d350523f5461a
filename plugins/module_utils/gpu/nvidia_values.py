# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single values as ``nvidia-smi`` writes them, in its CSV and in its XML."""

from __future__ import annotations

import re

from ansible_collections.relay.pool.plugins.module_utils.sizes import ABSURD_BYTES, MIB

MAX_SHOWN_CHARACTERS = 40

_NUMBER = re.compile(r"([0-9]{1,12})(?: ?Mi?B)?\Z")
_WORDS = (
    "N/A|Not Supported|Not Found|Unknown Error|Insufficient Permissions|GPU requires reset|GPU is lost"
    "|Requested functionality has been deprecated"
)
_NO_VALUE = re.compile(rf"\[(.*)\]\Z|({_WORDS})\Z", re.DOTALL | re.IGNORECASE)


def no_value_reason(value: str) -> str | None:
    """``[Insufficient Permissions]`` -> ``insufficient_permissions``; None for a value that says something.

    Whatever stands in brackets is no value. The XML writes the same words without brackets.
    """
    match = _NO_VALUE.match(value)
    if not match:
        return None
    word = match.group(1) if match.group(1) is not None else match.group(2)
    return re.sub(r"[^a-z0-9]+", "_", word.lower()).strip("_") or "unknown"


def number(value: str) -> tuple[int | None, str | None]:
    """(number, None) or (None, reason). A size may end in MiB, or in MB, as old drivers call the same unit."""
    reason = no_value_reason(value)
    if reason:
        return None, reason
    match = _NUMBER.match(value)
    if match and int(match.group(1)) * MIB < ABSURD_BYTES:
        return int(match.group(1)), None
    return None, f"unreadable value {value[:MAX_SHOWN_CHARACTERS]!r}"


def memory(total: str, free: str) -> tuple[int | None, int | None, str | None]:
    """Total and free memory in MiB, None where it is no value, and the reason of the first that is none."""
    total_mib, total_reason = number(total)
    free_mib, free_reason = number(free)
    if total_mib == 0:
        return None, None, "nvidia-smi reports a memory of 0 MiB"
    if total_mib is not None and free_mib is not None and free_mib > total_mib:
        return total_mib, None, f"nvidia-smi reports {free_mib} MiB free of {total_mib} MiB"
    return total_mib, free_mib, total_reason or free_reason


def in_bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * MIB
