# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU memory that processes hold, from the DRM drivers' lines in /proc/<pid>/fdinfo (amdgpu, i915, xe).

Every open file of a GPU has the address of the GPU and the number of the client it belongs to; several files, also
of several processes, may belong to one client, which counts once.
"""

from __future__ import annotations

import os
import re
from typing import Iterable, Mapping, NamedTuple

from ansible_collections.relay.pool.plugins.module_utils import small_files
from ansible_collections.relay.pool.plugins.module_utils.gpu import pci
from ansible_collections.relay.pool.plugins.module_utils.sizes import ABSURD_BYTES, GIB, MIB, digits

UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": MIB, "gib": GIB}
# What is in memory now, under its names from the newest kernels to the oldest; the last counts what is swapped out too.
KINDS = ("resident", "memory", "total")
_KEY = re.compile(r"drm-(resident|memory|total)-([a-z0-9_-]+)\Z")
_LOCAL = re.compile(r"(vram|local|lmem|stolen-local)[0-9]*\Z")
_SHARED = re.compile(r"(gtt|system|stolen|stolen-system)[0-9]*\Z")


class Client(NamedTuple):
    """``regions`` are bytes per region as the driver names it: vram, gtt, cpu (amdgpu), local0, system0 (i915), ..."""

    driver: str
    address: str
    number: str | None
    regions: dict[str, int]


class Held(NamedTuple):
    """Bytes per region per PCI address, and the processes whose files may not be looked at."""

    regions: dict[str, dict[str, int]]
    unreadable: tuple[int, ...]


def parse(text: str) -> Client | None:
    """One file of fdinfo, or None where it is not that of a GPU on the PCI bus."""
    names: dict[str, str] = {}
    sizes: dict[str, dict[str, int]] = {}
    for line in text.splitlines():
        key, _colon, value = (part.strip() for part in line.partition(":"))
        if key in ("drm-driver", "drm-pdev", "drm-client-id"):
            names[key] = value
            continue
        match = _KEY.match(key)
        word, unit = ([*value.split(), "", ""])[:2]
        number = digits(word)
        if match and number is not None and unit.lower() in UNITS:
            size = number * UNITS[unit.lower()]
            if size < ABSURD_BYTES:
                sizes.setdefault(match.group(2), {})[match.group(1)] = size
    address = pci.normal_address(names.get("drm-pdev"))
    if address is None:
        return None
    regions = {region: next(found[kind] for kind in KINDS if kind in found) for region, found in sizes.items()}
    return Client(names.get("drm-driver", ""), address, names.get("drm-client-id") or None, regions)


def _texts(pid: int, proc_root: str) -> list[str]:
    """The files of a process; none if it is gone. Raises PermissionError where they may not be looked at."""
    folder = os.path.join(proc_root, str(pid), "fdinfo")
    texts = []
    try:
        names = os.listdir(folder)
    except PermissionError:
        raise
    except OSError:
        return []
    for name in names:
        try:
            texts.append(small_files.read_bytes(os.path.join(folder, name)).decode("utf-8", "replace"))
        except PermissionError:
            raise
        except OSError:
            # Closed in between.
            continue
    return texts


def read(pids: Iterable[int], proc_root: str = "/proc") -> Held:
    """What the processes hold on every GPU of a driver that says so. A process that has ended holds nothing."""
    clients: dict[tuple[str, str], Client] = {}
    unreadable = []
    for pid in sorted(set(pids)):
        try:
            found = [client for client in map(parse, _texts(pid, proc_root)) if client]
        except PermissionError:
            unreadable.append(pid)
            continue
        for client in found:
            # Without a number it cannot be told which files are one client: those of a process are taken for one.
            key = (client.address, client.number or f"of process {pid}")
            seen = clients.setdefault(key, client)
            for region, size in client.regions.items():
                seen.regions[region] = max(seen.regions.get(region, 0), size)
    regions: dict[str, dict[str, int]] = {}
    for client in clients.values():
        total = regions.setdefault(client.address, {})
        for region, size in client.regions.items():
            total[region] = total.get(region, 0) + size
    return Held(regions, tuple(unreadable))


def local_bytes(regions: Mapping[str, int]) -> int | None:
    """Bytes in the GPU's own memory; None where the driver knows no such memory."""
    found = [size for region, size in regions.items() if _LOCAL.match(region)]
    return sum(found) if found else None


def shared_bytes(regions: Mapping[str, int]) -> int:
    """Bytes of the machine's memory that the GPU maps."""
    return sum(size for region, size in regions.items() if _SHARED.match(region))


def own_bytes(pids: Iterable[int], proc_root: str = "/proc") -> dict[str, int]:
    """Bytes that the processes hold per PCI address: in the GPU's own memory where it has any, else in the machine's.

    What cannot be read counts nothing here; ``read`` says of which processes that is so.
    """
    held = {}
    for address, regions in read(pids, proc_root).regions.items():
        local = local_bytes(regions)
        held[address] = shared_bytes(regions) if local is None else local
    return held
