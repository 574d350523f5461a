# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make ``ansible_collections.relay.pool`` importable from a plain checkout, and say what runs side by side."""

from __future__ import annotations

import sys
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

COLLECTIONS = Path(__file__).resolve().parent.parent / ".collections"
sys.path.insert(0, str(COLLECTIONS))


class SideBySide(LoadScopeScheduling):
    """What runs beside each other: the tests of one file share what it sets up, and there is one pool."""

    def _split_scope(self, nodeid: str) -> str:
        return "tests/pool" if nodeid.startswith("tests/pool/") else nodeid.split("::", 1)[0]


def pytest_xdist_make_scheduler(config, log):
    """For every value of --dist."""
    return SideBySide(config, log)
