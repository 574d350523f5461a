# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the processes on a GPU mean for it: what of its memory is the pool's, and whether somebody has it alone."""

from __future__ import annotations

import os
import re
from typing import Any, Collection, Iterable, Sequence

from ansible_collections.relay.pool.plugins.module_utils.gpu import pid_namespace
from ansible_collections.relay.pool.plugins.module_utils.gpu.nvidia_csv import Card, Process

# Graphics processes share a GPU with whoever computes on it.
COMPUTE_KINDS = ("C", "C+G")
MAX_NAME_CHARACTERS = 120
# Of those that are not the pool's, as many are told as an operator would look at.
MOST_OTHERS = 8
# A GPU as a process has it open, and under WSL all of them.
_DEVICE = re.compile(r"/dev/(?:nvidia[0-9]+|dxg)\Z")
HIDDEN = (
    "nvidia-smi names none of the pool's processes, as in a container or under WSL: what they hold on the GPUs counts "
    "as taken by others, unless memory_free_bytes is stated in relay_overrides"
)


def set_own(gpu: dict[str, Any], processes: Sequence[Process], pids: Collection[int]) -> list[str]:
    """Set what the processes ``pids`` hold, None where one holds an unknown share; say which; and the others."""
    gpu["processes"] = _others(processes, pids)
    label = gpu["uuid"] or gpu["bus_id"] or gpu["name"]
    held: dict[int, int] = {}
    unknown: dict[int, str | None] = {}
    for process in processes:
        if process.pid not in pids:
            continue
        if process.used_bytes is None:
            unknown[process.pid] = process.reason
        else:
            # One that computes and draws may be listed once for each.
            held[process.pid] = max(held.get(process.pid, 0), process.used_bytes)
    unknown = {pid: reason for pid, reason in unknown.items() if pid not in held}
    gpu["memory_own_bytes"] = None if unknown else sum(held.values())
    return [f"memory of process {pid} on {label} is not known: {reason}" for pid, reason in unknown.items()]


def _others(processes: Sequence[Process], pids: Collection[int]) -> list[dict[str, Any]]:
    """Those that are not the pool's, the largest first."""
    found: dict[int, dict[str, Any]] = {}
    for process in processes:
        known = found.get(process.pid)
        if process.pid in pids or (known and (known["memory_bytes"] or 0) >= (process.used_bytes or 0)):
            continue
        name = process.name[:MAX_NAME_CHARACTERS]
        found[process.pid] = {"pid": process.pid, "name": name or None, "memory_bytes": process.used_bytes}
    return sorted(found.values(), key=lambda entry: -(entry["memory_bytes"] or 0))[:MOST_OTHERS]


def are_hidden(named: Iterable[Sequence[Process]], pids: Collection[int], proc_root: str) -> bool:
    """Whether nvidia-smi, asked in a container, says nothing of those of the processes that have a GPU open."""
    if pid_namespace.is_initial(proc_root) or any(process.pid in pids for each in named for process in each):
        return False
    return any(_has_gpu(os.path.join(proc_root, str(pid), "fd")) for pid in pids)


def _has_gpu(folder: str) -> bool:
    try:
        return any(_DEVICE.match(os.readlink(os.path.join(folder, name))) for name in os.listdir(folder))
    except OSError:
        # It has ended, or is somebody else's.
        return False


def refuse_taken(card: Card, processes: Sequence[Process], pids: Collection[int]) -> None:
    """A GPU in an exclusive compute mode is nobody else's while a process computes on it."""
    if not card.exclusive:
        return
    other = next((p for p in processes if p.kind in COMPUTE_KINDS and p.pid not in pids), None)
    if other:
        name = f" ({other.name[:MAX_NAME_CHARACTERS]})" if other.name else ""
        card.refuse(
            f"compute mode is {card.exclusive}, and process {other.pid}{name} has the GPU: "
            f"end it, or let several in with nvidia-smi {card.option} -c 0"
        )
