# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory of the machine as its services may use it: /proc/meminfo, limited by control groups; or that of macOS."""

from __future__ import annotations

import os

from ansible_collections.relay.pool.plugins.module_utils import darwin
from ansible_collections.relay.pool.plugins.module_utils.sizes import digits
from ansible_collections.relay.pool.plugins.module_utils.small_files import read_text

# A v1 group without a limit shows the largest page-aligned 64-bit number.
UNLIMITED = 1 << 60


def parse_meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo as bytes per name; names without a unit (counts) keep their number."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        name, _colon, rest = line.partition(":")
        parts = rest.split()
        number = digits(parts[0]) if parts else None
        if number is not None:
            values[name.strip()] = number * (1024 if parts[1:] == ["kB"] else 1)
    return values


def read_meminfo(proc: str = "/proc") -> dict[str, int]:
    """Bytes per name; empty when it cannot be read."""
    return parse_meminfo(read_text(proc, "meminfo"))


def _number(folder: str, name: str) -> int | None:
    number = digits(read_text(folder, name).strip())
    return number if number is not None and number < UNLIMITED else None


def _reclaimable(folder: str, names: tuple[str, str]) -> int:
    """Bytes of page cache in the group, which the kernel gives back and MemAvailable counts as free."""
    total = 0
    for line in read_text(folder, "memory.stat").splitlines():
        name, _space, value = line.partition(" ")
        if name in names:
            total += digits(value) or 0
    return total


def group_folders(root: str = "/sys/fs/cgroup", proc: str = "/proc") -> list[str]:
    """Folders of the memory groups whose limits hold for a service of this machine.

    Services run below the root as seen from here and ``system.slice``, whatever session this process runs in.
    Without a ``system.slice`` there is no systemd, and the limits of this process are the best guess.
    """
    base = os.path.join(root, "memory") if os.path.isdir(os.path.join(root, "memory")) else root
    folders = [base]
    slice_folder = os.path.join(base, "system.slice")
    if os.path.isdir(slice_folder):
        return [base, slice_folder]
    for line in read_text(proc, "self", "cgroup").splitlines():
        _id, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        folder = base
        for part in path.strip("/").split("/"):
            folder = os.path.join(folder, part)
            if part and part != ".." and os.path.isdir(folder) and folder not in folders:
                folders.append(folder)
    return folders


def group_limit(folder: str) -> tuple[int, int] | None:
    """(limit, use without page cache) in bytes of one memory group, or None where it has no limit."""
    limit = _number(folder, "memory.max")
    if limit is not None:
        use = _number(folder, "memory.current") or 0
        return limit, max(0, use - _reclaimable(folder, ("inactive_file", "active_file")))
    limit = _number(folder, "memory.limit_in_bytes")
    if limit is not None:
        use = _number(folder, "memory.usage_in_bytes") or 0
        return limit, max(0, use - _reclaimable(folder, ("total_inactive_file", "total_active_file")))
    return None


def read_memory(root: str = "/sys/fs/cgroup", proc: str = "/proc") -> tuple[int | None, int | None]:
    """(total, available) in bytes: the least of what the machine and every limiting group have; None if unreadable."""
    meminfo = read_meminfo(proc)
    total, available = meminfo.get("MemTotal"), meminfo.get("MemAvailable")
    if not meminfo and darwin.is_here():
        return darwin.read_memory()
    if total is None or available is None:
        return total, available
    for folder in group_folders(root, proc):
        found = group_limit(folder)
        if found:
            limit, use = found
            total = min(total, limit)
            available = min(available, max(0, limit - use))
    return total, available


def process_own_bytes(pid: int, proc: str = "/proc") -> int | None:
    """Anonymous and shared memory of a process in bytes, or None if it is gone.

    Pages of a mapped model file are page cache, which MemAvailable counts already. ``smaps_rollup`` shares out
    what several processes map; it is for root and the owner, everybody may read ``status``.
    """
    folder = os.path.join(proc, str(pid))
    for name, keys in (("smaps_rollup", ("Pss_Anon", "Pss_Shmem")), ("status", ("RssAnon", "RssShmem"))):
        values = parse_meminfo(read_text(folder, name))
        if keys[0] in values:
            return sum(values.get(key, 0) for key in keys)
    return None
