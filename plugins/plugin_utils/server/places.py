# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a plan has its bytes and where a log says that they lie, in the same words.

A place is ("local", name of a device) on the machine that serves, or (endpoint of a worker, number of the device
there). Buffers carry the number inside the worker, ``RPC0[10.0.0.3:50052]``; options count over all workers, ``RPC1``.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, Tuple

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError

Place = Tuple[str, Any]
CPU: Place = ("local", "CPU")
_REMOTE = re.compile(r"RPC(\d+)")


def planned(plan: Mapping[str, Any], stage: Mapping[str, Any]) -> Place:
    """Of a stage of the plan."""
    if stage["transport"] == "local":
        return ("local", stage["device"])
    for worker in plan["workers"]:
        if worker["endpoint"] == stage["endpoint"]:
            return (stage["endpoint"], worker["devices"].index(stage["device"]))
    return (stage["endpoint"], 0)


def of_draft(plan: Mapping[str, Any]) -> Place | None:
    """Of the draft's layers; None where it has no device of its own. Raises PoolError for one that is not there."""
    device = plan["draft"]["device"]
    if device is None:
        return None
    if device == "none":
        return CPU
    remote = _REMOTE.fullmatch(device)
    if not remote:
        return ("local", device)
    every = [(worker["endpoint"], number) for worker in plan["workers"] for number in range(len(worker["devices"]))]
    if int(remote.group(1)) >= len(every):
        raise PoolError(f"the draft is planned on {device}, and the workers have {len(every)} devices")
    return every[int(remote.group(1))]


def seen(buffer: Mapping[str, Any]) -> Place:
    """Of a buffer of the log."""
    device = buffer["device"]
    if buffer.get("endpoint"):
        index = device.split("[")[0].replace("RPC", "")
        return (buffer["endpoint"], int(index) if index.isdigit() else 0)
    # CPU_Mapped, CPU_REPACK and the pinned host buffers of a GPU (CUDA_Host) are all the host's RAM.
    if device.startswith("CPU") or device.endswith("_Host"):
        return CPU
    return ("local", device)


def name(place: Place) -> str:
    """For people."""
    return place[1] if place[0] == "local" else f"{place[0]} device {place[1]}"
