# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gpu import tool_values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("  AMD  Radeon\n", "AMD Radeon"),
        ("Native", "Native"),
        ("x" * 300, "x" * 200),
        *(
            (value, None)
            for value in ("", " ", "N/A", "n/a", "NA", "[Unknown Error]", "none", "unknown", "-1", 5, None)
        ),
    ],
)
def test_text(value, text):
    assert tool_values.text(value) == text


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (5, 5),
        (5.0, 5),
        (" 5\n", 5),
        ("1,234,567", 1234567),
        *(
            (value, None)
            for value in (True, -5, 1.5, float("nan"), float("inf"), "-5", "1,23", "1e3", "\u0663", [5], None)
        ),
    ],
)
def test_count(value, count):
    assert tool_values.count(value) == count


@pytest.mark.parametrize(
    ("value", "device"),
    [("0x73DF", "73df"), ("73df\n", "73df"), ("0x1", "0001"), ("0x12345", None), ("N/A", None), (0x73DF, None)],
)
def test_pci_device(value, device):
    assert tool_values.pci_device(value) == device
