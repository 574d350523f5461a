# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one source says of one AMD GPU, and how its sizes and identifiers are read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.relay.pool.plugins.module_utils.sizes import plausible

_HEX = re.compile(r"(?:0x)?([0-9a-f]{1,16})\Z", re.IGNORECASE)
_GFX = re.compile(r"gfx[0-9a-f]{3,6}\Z")


@dataclass(frozen=True)
class Card:
    """One GPU as one source sees it; None is unknown.

    ``source`` says where the memory comes from, ``number`` is the source's own, ``gpu_id`` is that of KFD, ``device``
    is the PCI device in four hex digits. Sizes are bytes: VRAM is the GPU's own memory or what the firmware set aside
    for it, GTT is the part of the machine's memory that the GPU may map.
    """

    source: str
    number: int | None = None
    address: str | None = None
    gpu_id: int | None = None
    device: str | None = None
    name: str | None = None
    uuid: str | None = None
    gfx: str | None = None
    vram_total: int | None = None
    vram_used: int | None = None
    gtt_total: int | None = None
    gtt_used: int | None = None


def memory(
    vram_total: int | None, vram_used: int | None, gtt_total: int | None, gtt_used: int | None
) -> dict[str, int | None]:
    """The sizes of a card as far as they can be true: 0 is no memory, more than all of it is not in use."""

    def used(size: int | None, total: int | None) -> int | None:
        return size if size is not None and total is not None and 0 <= size <= total else None

    vram_total, gtt_total = plausible(vram_total), plausible(gtt_total)
    return {
        "vram_total": vram_total,
        "vram_used": used(vram_used, vram_total),
        "gtt_total": gtt_total,
        "gtt_used": used(gtt_used, gtt_total),
    }


def unique_id(value: Any) -> str | None:
    """0x7cb7a9a1f0bd6ea9 -> GPU-7cb7a9a1f0bd6ea9, as the ROCm runtime writes it; None for 0 and what is no number."""
    match = _HEX.match(value.strip()) if isinstance(value, str) else None
    number = int(match.group(1), 16) if match else 0
    return f"GPU-{number:016x}" if number else None


def gfx(value: Any) -> str | None:
    """gfx1151, also out of gfx1151:xnack-; None for what is none."""
    name = value.split(":")[0].strip().lower() if isinstance(value, str) else ""
    return name if _GFX.match(name) else None


def merge(first: Card, second: Card) -> Card:
    """What ``first`` says, and where it says nothing, what ``second`` says. A total and its use stay together."""
    values = {
        key: getattr(first, key) if getattr(first, key) is not None else getattr(second, key)
        for key in ("address", "gpu_id", "device", "name", "uuid", "gfx")
    }
    for total, used in (("vram_total", "vram_used"), ("gtt_total", "gtt_used")):
        giver = first
        if getattr(first, total) is None or (getattr(first, used) is None and getattr(second, used) is not None):
            giver = second if getattr(second, total) is not None else first
        values[total], values[used] = getattr(giver, total), getattr(giver, used)
        if total == "vram_total":
            values["source"] = giver.source
    return Card(number=first.number, **values)
