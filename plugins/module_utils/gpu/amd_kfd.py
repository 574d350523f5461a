# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of KFD, the kernel's part of ROCm: their order is the one in which HIP counts them.

A GPU without a node there does not exist for ROCm. A node whose files may not be read, because this container has
not been given the GPU, does not exist for the runtime either.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, replace
from typing import Iterable

from ansible_collections.relay.pool.plugins.module_utils import small_files
from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_card, pid_namespace, tool_values
from ansible_collections.relay.pool.plugins.module_utils.sizes import ABSURD_BYTES, digits, plausible

TOPOLOGY = ("class", "kfd", "kfd", "topology", "nodes")
PROCESSES = ("class", "kfd", "kfd", "proc")
# Kinds of a memory bank that are the GPU's own: seen by the CPU, and not seen by it.
FRAME_BUFFER = (1, 2)
_PROPERTY = re.compile(r"([a-z_0-9]+)\s+([0-9]{1,20})\s*\Z")


@dataclass(frozen=True)
class Node:
    """``index`` is HIP's number of the GPU, ``memory_total`` the bytes that HIP reports for it."""

    index: int
    number: int
    gpu_id: int
    address: str
    uuid: str | None = None
    gfx: str | None = None
    device: str | None = None
    memory_total: int | None = None


def parse_properties(text: str) -> dict[str, int]:
    """Lines of a name and a number; other lines are left out."""
    matches = (_PROPERTY.match(line.strip()) for line in text.splitlines())
    return {match.group(1): int(match.group(2)) for match in matches if match}


def gfx_name(version: int) -> str | None:
    """110501 -> gfx1151, 90010 -> gfx90a."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}" if 0 < major < 100 and minor < 16 and step < 16 else None


def parse_node(index: int, number: int, gpu_id: int, text: str, banks: Iterable[str] = ()) -> Node | None:
    """A node from its properties and those of its memory banks, or None if it is no GPU.

    The low 16 bits of location_id are bus, slot and function. Where a GPU is split into parts, the kernel puts the
    number of the part into the function, or into the highest four bits.
    """
    found = parse_properties(text)
    if not gpu_id or not found.get("simd_count"):
        return None
    location = found.get("location_id", 0)
    slot, function = location >> 3 & 0x1F, location & 7
    total = 0
    for bank in map(parse_properties, banks):
        if bank.get("heap_type") in FRAME_BUFFER:
            total += bank.get("size_in_bytes", 0)
    return Node(
        index=index,
        number=number,
        gpu_id=gpu_id,
        address=f"{found.get('domain', 0) & 0xFFFFFFFF:04x}:{location >> 8 & 0xFF:02x}:{slot:02x}.{function}",
        uuid=amd_card.unique_id(f"{found.get('unique_id', 0):x}"),
        gfx=gfx_name(found.get("gfx_target_version", 0)),
        device=f"{found['device_id'] & 0xFFFF:04x}" if found.get("device_id") else None,
        memory_total=plausible(total),
    )


def _numbers(folder: str) -> list[int]:
    try:
        numbers = [digits(name) for name in os.listdir(folder)]
    except OSError:
        return []
    return sorted(number for number in numbers if number is not None)


def read_nodes(sys_root: str = "/sys") -> list[Node] | None:
    """The GPUs in HIP's order; None where the kernel has no KFD, an empty list where KFD has no GPU."""
    folder = os.path.join(sys_root, *TOPOLOGY)
    numbers = _numbers(folder)
    if not numbers:
        return None
    nodes: list[Node] = []
    for number in numbers:
        place = os.path.join(folder, str(number))
        banks = os.path.join(place, "mem_banks")
        node = parse_node(
            len(nodes),
            number,
            tool_values.count(small_files.read_text(place, "gpu_id")) or 0,
            small_files.read_text(place, "properties"),
            [small_files.read_text(banks, str(bank), "properties") for bank in _numbers(banks)],
        )
        if node:
            nodes.append(node)
    # ROCm takes no id that two GPUs have, which older kernels give to the parts of one.
    every = [node.uuid for node in nodes]
    return [replace(node, uuid=None) if every.count(node.uuid) > 1 else node for node in nodes]


def own_bytes(pids: Iterable[int], sys_root: str = "/sys", proc_root: str = "/proc") -> tuple[dict[int, int], set[int]]:
    """Bytes that the processes hold per gpu_id, and which of the processes KFD knows.

    KFD counts what a process allocated for a GPU, wherever the kernel put it. It names processes by their numbers in
    the initial PID namespace; elsewhere the same number may be another process, so nothing is read there.
    """
    held: dict[int, int] = {}
    known: set[int] = set()
    if not pid_namespace.is_initial(proc_root):
        return held, known
    for pid in set(pids):
        folder = os.path.join(sys_root, *PROCESSES, str(pid))
        with contextlib.suppress(OSError):
            # A process may have further contexts, in folders of their own.
            contexts = [""] + [name for name in os.listdir(folder) if name.startswith("context_")]
            for context in contexts:
                for name in os.listdir(os.path.join(folder, context)):
                    gpu_id = tool_values.count(name[len("vram_") :]) if name.startswith("vram_") else None
                    size = tool_values.count(small_files.read_text(folder, context, name))
                    if gpu_id and size is not None and size < ABSURD_BYTES:
                        held[gpu_id] = held.get(gpu_id, 0) + size
                        known.add(pid)
    return held, known
