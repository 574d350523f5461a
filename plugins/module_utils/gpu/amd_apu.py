# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD GPUs that are a part of the processor, and how much memory such a one can use.

The kernel (amdgpu with KFD, since Linux 6.10) serves what ROCm allocates on an integrated GPU from the larger of two
pools, and never from both: from VRAM, which the firmware takes out of the machine's memory and the operating system
does not see, or from GTT, which is the machine's memory. llama.cpp's HIP back end reports as total what KFD offers,
for GTT the limit of the kernel's memory manager, and unlike its CUDA back end looks at no MemAvailable. So the pool
here is the larger one too, of GTT no more than KFD lets processes have, and free is what the machine really has left.
An older kernel offers the VRAM alone; KFD's own number of the memory says so.
GGML_CUDA_ENABLE_UNIFIED_MEMORY would take memory beyond the pool; it is not counted on.
"""

from __future__ import annotations

import re
from typing import Mapping, NamedTuple

from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_card

# Integrated GPUs by their instruction set, from Raven Ridge (2018) on. MI300A (gfx942) is none of them: its memory
# is its own HBM, and counts as such.
INTEGRATED = frozenset(
    (
        "gfx902",
        "gfx909",
        "gfx90c",
        "gfx1013",
        "gfx1033",
        "gfx1035",
        "gfx1036",
        "gfx1037",
        "gfx1103",
        "gfx1150",
        "gfx1151",
        "gfx1152",
        "gfx1153",
    )
)
# Those that read memory fast enough, and count fast enough, to be better than the processor beside them.
WORTHWHILE = frozenset(("gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"))
# The same by PCI device, for a machine where neither KFD nor a tool names the instruction set.
DEVICES = {
    "15d8": "gfx902",  # Picasso, Raven Ridge 2
    "15dd": "gfx902",  # Raven Ridge
    "15e7": "gfx90c",  # Barcelo
    "1636": "gfx90c",  # Renoir
    "1638": "gfx90c",  # Cezanne
    "164c": "gfx90c",  # Lucienne
    "13fe": "gfx1013",  # Cyan Skillfish
    "163f": "gfx1033",  # Van Gogh
    "1435": "gfx1033",  # Sephiroth
    "164d": "gfx1035",  # Rembrandt
    "1681": "gfx1035",  # Rembrandt
    "164e": "gfx1036",  # Raphael
    "13c0": "gfx1036",  # Granite Ridge
    "1506": "gfx1037",  # Mendocino
    "15bf": "gfx1103",  # Phoenix
    "15c8": "gfx1103",  # Phoenix 2
    "1900": "gfx1103",  # Hawk Point
    "1901": "gfx1103",  # Hawk Point 2
    "150e": "gfx1150",  # Strix Point
    "1586": "gfx1151",  # Strix Halo
    "1114": "gfx1152",  # Krackan Point
}
# A graphics card may be called "ROG STRIX", and a large one "Vega 10 [Radeon RX Vega 64]".
_WORTHWHILE_NAMES = re.compile(
    r"\b(7[468]0M|8[2-9]0M|80[4-6]0S)\b|\bPhoenix|\bHawk Point|\bKrackan|(?<!ROG )(?<!ROG-)\bStrix\b|\bSTRXLGEN\b"
)
_SMALL_NAMES = re.compile(
    r"\b6[168]0M\b|\bVega \d+ (Mobile )?Graphics\b|\bRadeon Vega Gfx\b"
    r"|\b(Raphael|Granite Ridge|Dragon Range|Rembrandt|Mendocino|Renoir|Cezanne|Lucienne|Barcelo|Picasso|Raven Ridge"
    r"|Van ?Gogh|Cyan Skillfish)",
    re.IGNORECASE,
)
# So little is set aside for a screen only; a graphics card with so little has less GTT than that.
SCREEN_BYTES = 512 << 20
# The kernel lets a GPU map a half of the machine's memory. Somebody who lets it have much more of it, and so all GPUs,
# has an integrated one that is meant to use it; this counts only where nothing else says what the GPU is.
LARGE_GTT = (5, 8)
# What the kernel keeps from processes that use memory through KFD: a part of all, and 1.5 GiB.
KEPT_SHARE = 64
KEPT_BYTES = 3 << 29
OLD_KERNEL = (
    "this kernel gives ROCm only the memory that the firmware set aside for it: "
    "use Linux 6.10 or newer, or set more aside in the firmware"
)
NO_GTT = "how much of the machine's memory the integrated GPU may use (GTT) is not known: see that amdgpu is loaded"
NO_MEMINFO = "it shares the machine's memory, and /proc/meminfo does not say how much of that is available"


class Family(NamedTuple):
    """Whether a GPU is integrated, and whether it is worth to be used when it is."""

    integrated: bool
    worthwhile: bool


class Pool(NamedTuple):
    """Bytes that can be used; ``shared`` where they are the operating system's too.

    ``reason`` says why a size is unknown, where the general one would be wrong; ``note`` what the user can do better.
    """

    total: int | None
    free: int | None
    shared: bool
    reason: str | None = None
    note: str | None = None


def family(card: amd_card.Card, memory_total: int | None = None) -> Family:
    """By instruction set, else by PCI device, else by name, else by its memory beside that of the machine, in bytes."""
    gfx = card.gfx if card.gfx in INTEGRATED else DEVICES.get(card.device or "")
    if gfx:
        return Family(True, gfx in WORTHWHILE)
    if not card.gfx:
        name = card.name or ""
        if _WORTHWHILE_NAMES.search(name):
            return Family(True, True)
        if _SMALL_NAMES.search(name):
            return Family(True, False)
    vram, gtt = card.vram_total or 0, card.gtt_total
    unnamed = not (card.gfx or card.device or card.name)
    if unnamed and memory_total and gtt and gtt > max(vram, memory_total // LARGE_GTT[1] * LARGE_GTT[0]):
        return Family(True, True)
    return Family(0 < vram <= SCREEN_BYTES and (gtt is None or gtt > vram), False)


def limit(memory_total: int) -> int:
    """Bytes that KFD lets all processes have of a machine's memory."""
    most = memory_total - memory_total // KEPT_SHARE
    return most // 2 if most < 2 * KEPT_BYTES else most - KEPT_BYTES


def vram_pool(card: amd_card.Card, note: str | None = None) -> Pool:
    """The memory of a GPU that uses VRAM only."""
    free = None if card.vram_total is None or card.vram_used is None else card.vram_total - card.vram_used
    return Pool(card.vram_total, free, False, note=note)


def pool(card: amd_card.Card, offered: int | None, meminfo: Mapping[str, int]) -> Pool:
    """The memory of an integrated GPU; ``offered`` is what KFD says of it, in bytes."""
    vram, gtt = card.vram_total or 0, card.gtt_total
    if gtt is None:
        return Pool(None, None, True, NO_GTT) if vram <= SCREEN_BYTES else vram_pool(card)
    if vram >= gtt:
        return vram_pool(card)
    if offered is not None and offered <= vram:
        return vram_pool(card, OLD_KERNEL)
    bounds = [gtt, offered, limit(meminfo["MemTotal"]) if "MemTotal" in meminfo else None]
    total = min(bound for bound in bounds if bound)
    available = meminfo.get("MemAvailable")
    if available is None:
        return Pool(total, None, True, NO_MEMINFO)
    return Pool(total, None if card.gtt_used is None else min(max(0, total - card.gtt_used), available), True)
