# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the numbers of processes here are those that drivers know: those of the machine's first PID namespace."""

from __future__ import annotations

import os

# The kernel's number of the PID namespace that every machine starts with.
INITIAL = "pid:[4026531836]"


def is_initial(proc_root: str = "/proc") -> bool:
    """False in a container, under WSL, and where it cannot be read."""
    try:
        return os.readlink(os.path.join(proc_root, "self", "ns", "pid")) == INITIAL
    except OSError:
        return False
