# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory of Intel GPUs as the kernel's drivers xe and i915 show it.

There is no one place for it. What the drivers show, by driver and kernel:

- /sys/fs/cgroup/dmem.capacity and dmem.current (xe, Linux 6.14 or newer): total and use,
  see Documentation/admin-guide/cgroup-v2.rst;
- /sys/kernel/debug/dri/<address>/vram0_mm (xe) and i915_gem_objects (i915): total and use, for root only;
- tile*/physical_vram_size_bytes of the device (early and out-of-tree xe): total only;
- lmem_total_bytes of the card (Intel's out-of-tree i915): total only.

The mainline i915 driver shows nothing to others than root, not even for an Arc.
"""

from __future__ import annotations

import glob
import os
import re
from typing import NamedTuple

from ansible_collections.relay.pool.plugins.module_utils import small_files
from ansible_collections.relay.pool.plugins.module_utils.gpu import pci
from ansible_collections.relay.pool.plugins.module_utils.sizes import ABSURD_BYTES, MIB, digits, plausible

DRIVERS = ("xe", "i915")
GROUPS, DEBUGFS = "/sys/fs/cgroup", "/sys/kernel/debug/dri"
PCI, DRM = "/sys/bus/pci/devices", "/sys/class/drm"
# Discrete GPUs by PCI device, as pci.ids has them; xpu-smi calls some of them "Intel(R) Graphics [0xe211]" or nothing.
NAMES = {
    "0b6e": "Data Center GPU Max 1100C",
    "0bd5": "Data Center GPU Max 1550",
    "0bd6": "Data Center GPU Max 1550",
    "0bd9": "Data Center GPU Max 1100",
    "0bda": "Data Center GPU Max 1100",
    "0bdb": "Data Center GPU Max 1100",
    "5690": "Arc A770M",
    "5691": "Arc A730M",
    "5692": "Arc A550M",
    "5693": "Arc A370M",
    "5694": "Arc A350M",
    "5696": "Arc A570M",
    "5697": "Arc A530M",
    "56a0": "Arc A770",
    "56a1": "Arc A750",
    "56a2": "Arc A580",
    "56a5": "Arc A380",
    "56a6": "Arc A310",
    "56b0": "Arc Pro A30M",
    "56b1": "Arc Pro A40/A50",
    "56b2": "Arc Pro A60M",
    "56b3": "Arc Pro A60",
    "56c0": "Data Center GPU Flex 170",
    "56c1": "Data Center GPU Flex 140",
    "56c2": "Data Center GPU Flex 170V",
    "e20b": "Arc B580",
    "e20c": "Arc B570",
    "e211": "Arc Pro B60",
    "e212": "Arc Pro B50",
    "e222": "Arc Pro B65",
    "e223": "Arc Pro B70",
}
_SIZE = re.compile(r"(0x[0-9a-f]{1,16}|[0-9]{1,18})\Z", re.IGNORECASE)
_REGION = re.compile(r"drm/([0-9a-f:.]{1,20})/vram[0-9]*[ \t]+([0-9]{1,18})\Z", re.IGNORECASE)
_SIZE_LINE = re.compile(r"^[ \t]*size:[ \t]*([0-9]{1,18})[ \t]*$", re.MULTILINE)
_USE_LINE = re.compile(r"^[ \t]*usage:[ \t]*([0-9]{1,18})[ \t]*$", re.MULTILINE)
_LOCAL = re.compile(r"^local[0-9]+:", re.MULTILINE)
_OTHER_REGION = re.compile(r"^(?:system|stolen)[a-z-]*[0-9]*:", re.MULTILINE)
_BUDDY = re.compile(r"\btotal:[ \t]*([0-9]{1,12})MiB,[ \t]*free:[ \t]*([0-9]{1,12})MiB")


class Memory(NamedTuple):
    """Bytes, None where it is not known; ``source`` is where the total was read, ``tiles`` how many parts it has."""

    total: int | None = None
    free: int | None = None
    source: str | None = None
    tiles: int = 1


def parse_size(text: str) -> int | None:
    """Bytes of a file with one number, decimal or 0x...; None for 0 and for what is no size."""
    word = text.strip()
    if not _SIZE.match(word):
        return None
    return plausible(int(word, 16 if word[:2].lower() == "0x" else 10))


def parse_regions(text: str) -> dict[str, list[int]]:
    """dmem.capacity or dmem.current: bytes of every region of video memory by PCI address."""
    found: dict[str, list[int]] = {}
    for line in text.splitlines():
        match = _REGION.match(line.strip())
        address = pci.normal_address(match.group(1)) if match else None
        if match and address and int(match.group(2)) < ABSURD_BYTES:
            found.setdefault(address, []).append(int(match.group(2)))
    return found


def parse_manager(text: str) -> tuple[int | None, int | None]:
    """(total, free) in bytes of vram0_mm."""
    size, use = _SIZE_LINE.search(text), _USE_LINE.search(text)
    total = parse_size(size.group(1)) if size else None
    free = total - int(use.group(1)) if total is not None and use else None
    return total, free if free is not None and free >= 0 else None


def parse_objects(text: str) -> tuple[int | None, int | None]:
    """(total, free) in bytes, to a MiB, of the local memory in i915_gem_objects; the system's memory is in it too."""
    start = _LOCAL.search(text)
    if not start:
        return None, None
    end = _OTHER_REGION.search(text, start.end())
    total = free = 0
    for match in _BUDDY.finditer(text, start.end(), end.start() if end else len(text)):
        total += int(match.group(1)) * MIB
        free += int(match.group(2)) * MIB
    if plausible(total) is None:
        return None, None
    return total, free if free <= total else None


def cards(address: str, sys_root: str = "/sys") -> list[str]:
    """Folders of the DRM cards (cardN, no connectors and no render nodes) of the GPU."""
    found = {}
    inside = os.path.join(sys_root, "bus", "pci", "devices", address, "drm", "card[0-9]*")
    for path in glob.glob(inside) + glob.glob(os.path.join(sys_root, "class", "drm", "card[0-9]*")):
        name = os.path.basename(path)
        if digits(name[4:]) is None:
            continue
        of = pci.device_address(os.path.join(path, "device"))
        if of == address or os.path.basename(os.path.dirname(os.path.dirname(path))) == address:
            found.setdefault(name, path)
    return [found[name] for name in sorted(found)]


def _from_groups(address: str, sys_root: str) -> Memory:
    folder = os.path.join(sys_root, "fs", "cgroup")
    sizes = parse_regions(small_files.read_text(folder, "dmem.capacity")).get(address)
    if not sizes or not sum(sizes):
        return Memory()
    # Only the root has a capacity, so that the use beside it is that of all processes.
    uses = parse_regions(small_files.read_text(folder, "dmem.current")).get(address)
    free = sum(sizes) - sum(uses) if uses and len(uses) == len(sizes) else None
    return Memory(sum(sizes), free if free is not None and free >= 0 else None, GROUPS, len(sizes))


def _from_debugfs(address: str, folders: list[str], sys_root: str) -> Memory:
    names = [address] + [os.path.basename(folder)[4:] for folder in folders]
    for folder in (os.path.join(sys_root, "kernel", "debug", "dri", name) for name in names):
        managers = sorted(glob.glob(os.path.join(folder, "vram[0-9]*_mm")))
        parts = [parse_manager(small_files.read_text(path)) for path in managers]
        totals = [total for total, _free in parts if total is not None]
        if totals and len(totals) == len(parts):
            frees = [free for _total, free in parts if free is not None]
            return Memory(sum(totals), sum(frees) if len(frees) == len(totals) else None, DEBUGFS, len(totals))
        total, free = parse_objects(small_files.read_text(folder, "i915_gem_objects"))
        if total is not None:
            return Memory(total, free, DEBUGFS)
    return Memory()


def _from_files(address: str, folders: list[str], sys_root: str) -> Memory:
    devices = [os.path.join(sys_root, "bus", "pci", "devices", address)]
    devices += [os.path.join(folder, "device") for folder in folders]
    name = "physical_vram_size_bytes"
    for device in devices:
        tiles = glob.glob(os.path.join(device, "tile[0-9]*", name))
        tiles = tiles or glob.glob(os.path.join(device, "tile[0-9]*", "memory", name))
        sizes = [parse_size(small_files.read_text(path)) for path in tiles]
        known = [size for size in sizes if size is not None]
        if known and len(known) == len(sizes):
            return Memory(sum(known), None, PCI, len(known))
    for folder in folders:
        size = parse_size(small_files.read_text(folder, "lmem_total_bytes"))
        if size is not None:
            return Memory(size, None, DRM)
    return Memory()


def memory(address: str, sys_root: str = "/sys") -> Memory:
    """The GPU's own memory: the first place that says total and free, else the first that says the total."""
    folders = cards(address, sys_root)
    places = (
        _from_groups(address, sys_root),
        _from_debugfs(address, folders, sys_root),
        _from_files(address, folders, sys_root),
    )
    known = [place for place in places if place.total is not None]
    return next((place for place in known if place.free is not None), known[0] if known else Memory())


def needs_firmware(address: str, sys_root: str = "/sys") -> bool:
    """The xe driver found the firmware broken and only waits for a new one (survivability mode)."""
    return os.path.exists(os.path.join(sys_root, "bus", "pci", "devices", address, "survivability_mode"))
