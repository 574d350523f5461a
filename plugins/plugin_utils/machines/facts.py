# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether facts are what node_facts returns: they may come from a cache, an older version, or somebody's hands."""

from __future__ import annotations

import re
from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.kinds import COUNT, FLAG, SECONDS, SIZE, TEXT, Kind, wrong

_DEVICE = re.compile(r"(?!(?:CPU|RPC[0-9]*)\Z)[A-Za-z][A-Za-z0-9_]*\Z")


# An empty name is none.
DEVICE = Kind(
    lambda value: isinstance(value, str) and (not value or bool(_DEVICE.match(value))),
    "llama.cpp's name of one GPU of this machine, such as CUDA0",
)

# What the planner reads. A list with one entry says what is in a list; null is unknown, and what is not there too.
NODE: dict[str, Any] = {
    "gpus": [
        {
            "index": SIZE,
            "name": TEXT,
            "uuid": TEXT,
            "bus_id": TEXT,
            "device": DEVICE,
            "visible_devices": TEXT,
            "memory_total_bytes": SIZE,
            "memory_free_bytes": SIZE,
            "memory_own_bytes": SIZE,
            "unified_memory": FLAG,
            "placeable": FLAG,
            "reason": TEXT,
            "bandwidth_bytes_per_second": SIZE,
            "overridden": [TEXT],
        }
    ],
    "memory": {"total_bytes": SIZE, "available_bytes": SIZE, "own_bytes": SIZE, "bandwidth_bytes_per_second": SIZE},
    "cpu": {"physical_cores": COUNT},
    "addresses": [{"interface": TEXT, "address": TEXT, "speed_mbps": SIZE, "wireless": FLAG}],
    "links": [
        {
            "name": TEXT,
            "rtt_seconds": SECONDS,
            "interface": TEXT,
            "speed_mbps": SIZE,
            "wireless": FLAG,
            "reason": TEXT,
        }
    ],
    "address": TEXT,
    "address_reason": TEXT,
    "machine_id": TEXT,
    "listeners": [{"address": TEXT, "port": SIZE, "pid": SIZE, "command": TEXT, "unit": TEXT}],
    "units": [{"name": TEXT, "active": FLAG, "allowed_addresses": [TEXT], "established": [TEXT]}],
    "ports": {"range": [SIZE], "reserved": [[SIZE]]},
    "overrides": [TEXT],
    "backends": [TEXT],
    "llama": {"version": TEXT, "build": SIZE, "commit": TEXT, "rpc_protocol": TEXT},
}


def facts_problem(node: Any) -> str | None:
    """What is wrong with the facts of a machine, the first there is, or None."""
    return wrong("", node, NODE) if isinstance(node, Mapping) else f"they are {node!r:.80}, not a dictionary"


def check_facts(name: str, node: Any) -> None:
    """Raise for facts of a machine that are none."""
    problem = facts_problem(node)
    if problem:
        raise PoolError(
            f"the facts of {name} cannot be used: {problem}; gather them with relay.pool.node_facts, or correct them"
        )
