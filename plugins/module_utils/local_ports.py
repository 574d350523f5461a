# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which TCP ports the kernel gives to outgoing connections."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.relay.pool.plugins.module_utils import small_files
from ansible_collections.relay.pool.plugins.module_utils.sizes import digits

SYSCTL = "/proc/sys/net/ipv4"


def parse_reserved(text: str) -> list[list[int]]:
    """``"8080,9148-9150"`` -> ``[[8080, 8080], [9148, 9150]]``; what is no port is left out."""
    found = []
    for part in text.replace("\n", ",").split(","):
        first, _dash, last = part.strip().partition("-")
        pair = [digits(first), digits(last or first)]
        if None not in pair:
            found.append(pair)
    return found


def read_ports(root: str = SYSCTL) -> dict[str, Any]:
    """``range``, the first and the last port, null where the kernel does not say it, and ``reserved`` ranges."""

    def text(name: str) -> str:
        try:
            return small_files.read_bytes(os.path.join(root, name)).decode("ascii", "replace")
        except OSError:
            return ""

    span = [digits(word) for word in text("ip_local_port_range").split()]
    known = len(span) == 2 and None not in span
    return {"range": span if known else None, "reserved": parse_reserved(text("ip_local_reserved_ports"))}
