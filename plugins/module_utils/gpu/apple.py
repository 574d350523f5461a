# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU of an Apple chip. It works in the machine's memory, of which macOS lets it have a part.

That part is ``iogpu.wired_limit_mb`` where somebody has set it. 0, or a macOS without it, means the system's own
choice, which only Metal tells (recommendedMaxWorkingSetSize). llama.cpp prints it, in MB of 1 000 000 bytes:
11453.25 of 16 GiB (M1 Pro), 22906.50 of 32 GiB, 28991.03 of 36 GiB, 38654.71 of 48 GiB and 154618.82 of 192 GiB
(M2 Ultra): two thirds up to 32 GiB, three quarters above, and in newer versions of macOS more. The estimate is never
above these; for 36 GiB, of which others were told less, it is two thirds too.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.relay.pool.plugins.module_utils import darwin
from ansible_collections.relay.pool.plugins.module_utils.gpu import record
from ansible_collections.relay.pool.plugins.module_utils.sizes import GIB, MIB

LIMIT = "iogpu.wired_limit_mb"
# The same in macOS 13, in bytes.
OLD_LIMIT = "debug.iogpu.wired_limit"
BRAND = "machdep.cpu.brand_string"
CORES = "hw.physicalcpu"
LEVELS = ("hw.perflevel0.physicalcpu", "hw.perflevel1.physicalcpu")
NAMES = ("hw.model", "hw.memsize", BRAND, CORES, *LEVELS, LIMIT, OLD_LIMIT)
SMALL_BYTES = 36 * GIB

ESTIMATE = (
    "what macOS lets the GPU have is an estimate, {share} of the RAM: set iogpu.wired_limit_mb with sysctl, or state "
    "memory_total_bytes in relay_overrides, to have it exact"
)
NO_RAM = "sysctl does not say hw.memsize: state memory_total_bytes and memory_free_bytes in relay_overrides"
NO_FREE = "vm_stat does not say how much RAM is available: state memory_free_bytes in relay_overrides"


def estimate(ram: int) -> tuple[int, str]:
    """(bytes that the GPU may have of so much RAM when nobody set a limit, the share in words)."""
    return (ram * 2 // 3, "two thirds") if ram <= SMALL_BYTES else (ram * 3 // 4, "three quarters")


def stated_limit(values: dict[str, str]) -> int | None:
    """The limit that somebody set, in bytes; None where the system decides."""
    limit = darwin.number(values, LIMIT)
    if limit:
        return limit * MIB
    old = darwin.number(values, OLD_LIMIT)
    # Less cannot be meant in bytes.
    return old if old and old >= GIB else None


def _name(values: dict[str, str]) -> str:
    # A chip with fewer cores than others of its name may have slower memory.
    levels = [darwin.number(values, name) for name in LEVELS]
    cores = darwin.number(values, CORES) or (sum(levels) if all(levels) else None)
    name = values.get(BRAND) or f"Apple GPU {values.get('hw.model', '')}".strip()
    return f"{name} ({cores}-core CPU)" if cores else name


def parse_gpu(text: str, available: int | None) -> dict[str, Any] | None:
    """The GPU out of what sysctl printed; None for a Mac with an Intel CPU. ``available`` is RAM in bytes."""
    values = darwin.parse_sysctl(text)
    if "intel" in values.get(BRAND, "").lower() or not values:
        return None
    gpu = record.new(
        "apple",
        0,
        name=_name(values),
        unified_memory=True,
        integrated=True,
        source="sysctl",
    )
    ram = darwin.memory_size(values)
    if ram is None:
        gpu["reason"] = NO_RAM
        return gpu
    limit = stated_limit(values)
    if limit is None:
        limit, share = estimate(ram)
        gpu["reason"] = ESTIMATE.format(share=share)
    gpu["memory_total_bytes"] = min(limit, ram)
    if available is None:
        gpu["reason"] = NO_FREE
    else:
        gpu["memory_free_bytes"] = min(limit, ram, available)
    return gpu


def read_gpus(machine: record.Machine) -> tuple[list[dict[str, Any]], list[str]]:
    """The GPU of this machine, if it is a Mac with an Apple chip."""
    if not darwin.is_here():
        return [], []
    # It ends with 1 where this macOS does not know one of the names.
    result = machine.tool(darwin.SYSCTL, *NAMES)
    if not darwin.parse_sysctl(result.stdout):
        return [], [result.error or "sysctl printed nothing"]
    memory = machine.tool(darwin.VM_STAT)
    gpu = parse_gpu(result.stdout, darwin.parse_vm_stat(memory.stdout))
    messages = [answer.error or "" for answer in (result, memory) if answer.rc is None or answer is memory]
    return [gpu] if gpu else [], [message for message in messages if message]
