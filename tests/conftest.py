# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make ``ansible_collections.relay.pool`` importable from a plain checkout, and say what runs side by side."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

COLLECTIONS = Path(__file__).resolve().parent.parent / ".collections"
sys.path.insert(0, str(COLLECTIONS))

POOL = Path(__file__).resolve().parent / "pool"


def pytest_collection_modifyitems(items):
    """Which tests must not run beside each other: those of one file share what it sets up, and there is one pool."""
    for item in items:
        together = "pool" if POOL in item.path.parents else item.path.as_posix()
        item.add_marker(pytest.mark.xdist_group(together))
