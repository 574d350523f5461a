# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One GPU as a fact, and what a vendor's probe is given."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping

from ansible_collections.relay.pool.plugins.module_utils import command

# More than any machine has, its parts included: what a tool lists beyond them is not looked at.
MOST_GPUS = 256

# A tool that prints rubbish must not fill the facts with it.
MAX_CHARACTERS = 500


@dataclass(frozen=True)
class Machine:
    """The machine as the probes see it.

    ``meminfo`` is /proc/meminfo in bytes, ``own_pids`` are the processes of the pool's units, ``deadline`` (of
    ``time.monotonic()``) is when the tools of a probe must be through, so that several calls of one that hangs do not
    add up.
    """

    meminfo: Mapping[str, int] = field(default_factory=dict)
    own_pids: tuple[int, ...] = ()
    deadline: float = float("inf")
    run: Callable[..., command.Result] = command.run
    sys_root: str = "/sys"
    proc_root: str = "/proc"

    def tool(self, *argv: str) -> command.Result:
        """Run a tool for at most the time that is left."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            return command.Result(None, "", "", f"{argv[0]} was not started: the time for tools is used up")
        return self.run(list(argv), timeout=left)


def new(vendor: str, index: int | None, **known: Any) -> dict[str, Any]:
    """A GPU of which nothing but the vendor and its index among the vendor's GPUs is known, and what is ``known``.

    Sizes are bytes. None means unknown: ``reason`` says why, and also why nothing may be placed where ``placeable``
    is False. ``partition_of`` is the uuid of the GPU whose part this is (MIG). ``device`` is llama.cpp's name of
    the GPU in a process whose vendor's variable (CUDA_VISIBLE_DEVICES, ...) is ``visible_devices``, or unset if None.
    ``processes`` are those that are not the pool's, None where nobody says which there are. ``source`` names the tool
    or the folder of /sys that was read, ``overridden`` the keys that the user stated.
    """
    gpu: dict[str, Any] = {
        "index": index,
        "vendor": vendor,
        "name": "unknown GPU",
        "uuid": None,
        "bus_id": None,
        "device": None,
        "visible_devices": None,
        "driver": None,
        "memory_total_bytes": None,
        "memory_free_bytes": None,
        "memory_own_bytes": 0,
        "processes": None,
        "unified_memory": False,
        "integrated": False,
        "partition_of": None,
        "placeable": True,
        "reason": None,
        "bandwidth_bytes_per_second": None,
        "source": None,
        "overridden": [],
    }
    unknown = set(known) - set(gpu)
    if unknown:
        raise KeyError(f"a GPU has no {', '.join(sorted(unknown))}")
    gpu.update(known)
    return gpu


def shown(text: str) -> str:
    """As much of a text as people read, in one line and without what would command their terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text[:MAX_CHARACTERS])


def few(entries: list[Any], source: str) -> tuple[list[Any], list[str]]:
    """At most as many entries as a machine can have GPUs, and a message where the tool ``source`` lists more."""
    if len(entries) <= MOST_GPUS:
        return entries, []
    return entries[:MOST_GPUS], [f"{source} lists {len(entries)} GPUs, of which only {MOST_GPUS} are looked at"]


def refuse(gpu: dict[str, Any], reason: str) -> None:
    """Nothing may be placed there, for this reason; the first one stays."""
    if gpu["placeable"] or not gpu["reason"]:
        gpu["reason"] = reason
    gpu["placeable"] = False
