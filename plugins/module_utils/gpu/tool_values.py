# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single values as AMD's and Intel's tools and drivers write them: whatever is there, or None."""

from __future__ import annotations

import math
import re
from typing import Any

from ansible_collections.relay.pool.plugins.module_utils.sizes import digits

MAX_TEXT_CHARACTERS = 200
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+\Z")
_PCI_DEVICE = re.compile(r"(?:0x)?([0-9a-f]{1,4})\Z", re.IGNORECASE)
_NO_VALUE = re.compile(r"\[.*\]\Z|n/?a\b|none\Z|unknown\Z|-1\Z", re.IGNORECASE)


def text(value: Any) -> str | None:
    """A text that says something; None for N/A, [anything] and what is no text."""
    if not isinstance(value, str):
        return None
    value = " ".join(value.split())[:MAX_TEXT_CHARACTERS]
    return None if not value or _NO_VALUE.match(value) else value


def count(value: Any) -> int | None:
    """A whole number that is not negative, also out of a text of digits or of groups of three digits."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = value.strip()
        return digits(value.replace(",", "") if _GROUPED.match(value) else value)
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value >= 0 and value.is_integer() else None
    return value if isinstance(value, int) and value >= 0 else None


def pci_device(value: Any) -> str | None:
    """0x73DF -> 73df, four hex digits; None for what is no PCI device."""
    match = _PCI_DEVICE.match(value.strip()) if isinstance(value, str) else None
    return f"{int(match.group(1), 16):04x}" if match else None
