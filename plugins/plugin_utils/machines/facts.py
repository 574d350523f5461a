# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether facts are what node_facts returns: they may come from a cache, an older version, or somebody's hands."""

from __future__ import annotations

import math
import re
from typing import Any, Callable, Mapping, NamedTuple

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError

_DEVICE = re.compile(r"(?!(?:CPU|RPC[0-9]*)\Z)[A-Za-z][A-Za-z0-9_]*\Z")


class Kind(NamedTuple):
    """Whether a value is one, and how it is called."""

    fits: Callable[[Any], bool]
    name: str


def _whole(least: int) -> Kind:
    return Kind(
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63,
        f"a whole number, {least} or more",
    )


SIZE, COUNT = _whole(0), _whole(1)
SECONDS = Kind(
    lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf,
    "a number of seconds",
)
FLAG = Kind(lambda value: isinstance(value, bool), "true or false")
TEXT = Kind(lambda value: isinstance(value, str), "a text")
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


def _wrong(path: str, value: Any, expected: Any) -> str | None:
    """What is not as expected, the first there is, or None."""
    if isinstance(expected, Kind):
        return None if value is None or expected.fits(value) else f"{path} is {value!r:.80}, not {expected.name}"
    if isinstance(expected, list):
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            return f"{path} is {value!r:.80}, not a list"
        entries = ((f"{path}.{position}", entry, expected[0]) for position, entry in enumerate(value))
        return next(filter(None, (_wrong(*entry) for entry in entries)), None)
    if not isinstance(value, Mapping):
        return f"{path} is {value!r:.80}, not a dictionary"
    # A part of a machine may be unknown, a GPU in the list of GPUs may not.
    known = ((name, value[name], part) for name, part in expected.items() if value.get(name) is not None)
    parts = (_wrong(f"{path}.{name}" if path else name, entry, part) for name, entry, part in known)
    return next(filter(None, parts), None)


def check_facts(name: str, node: Any) -> None:
    """Raise for facts of a machine that are none."""
    problem = _wrong("", node, NODE) if isinstance(node, Mapping) else f"they are {node!r:.80}, not a dictionary"
    if problem:
        raise PoolError(
            f"the facts of {name} cannot be used: {problem}; gather them with relay.pool.node_facts, or correct them"
        )
