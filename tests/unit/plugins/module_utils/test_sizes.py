# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils import sizes


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("9" * 18, 10**18 - 1),
        # int() would take some of these, and raise for the last.
        *((text, None) for text in ("", " 1", "1\n", "-1", "+1", "1.5", "1_0", "0x1", "\u0663", "\u00b2", "9" * 5000)),
    ],
)
def test_digits(text, number):
    assert sizes.digits(text) == number


@pytest.mark.parametrize(("size", "expected"), [(1, 1), (2**50 - 1, 2**50 - 1), (0, None), (-1, None), (2**50, None)])
def test_plausible(size, expected):
    assert sizes.plausible(size) == expected
    assert sizes.plausible(None) is None
