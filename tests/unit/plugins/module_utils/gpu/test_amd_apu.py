# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_apu, amd_card

MIB, GIB = 1 << 20, 1 << 30
ROOMY = {"MemTotal": 125 * GIB, "MemAvailable": 118 * GIB}


def card(**known):
    return amd_card.Card("test", **known)


@pytest.mark.parametrize(
    ("known", "integrated", "worthwhile"),
    [
        ({"gfx": "gfx1151"}, True, True),
        ({"gfx": "gfx1103"}, True, True),
        ({"gfx": "gfx1036"}, True, False),
        ({"gfx": "gfx90c"}, True, False),
        ({"gfx": "gfx1100"}, False, False),
        ({"gfx": "gfx1201"}, False, False),
        ({"gfx": "gfx90a"}, False, False),
        ({"gfx": "gfx942", "device": "74a0"}, False, False),
        ({"device": "1586"}, True, True),
        ({"device": "164e"}, True, False),
        ({"device": "744c"}, False, False),
        ({"name": "AMD Radeon 8060S Graphics"}, True, True),
        ({"name": "AMD Radeon 780M"}, True, True),
        ({"name": "Radeon 890M Graphics"}, True, True),
        ({"name": "Phoenix1"}, True, True),
        ({"name": "Strix Halo [Radeon Graphics / Radeon 8050S Graphics]"}, True, True),
        ({"name": "Raphael"}, True, False),
        ({"name": "Granite Ridge [Radeon Graphics]"}, True, False),
        ({"name": "Rembrandt [Radeon 680M]"}, True, False),
        ({"name": "AMD Radeon 610M"}, True, False),
        ({"name": "AMD Radeon Vega 8 Graphics"}, True, False),
        ({"name": "Renoir"}, True, False),
        ({"name": "AMD Radeon Graphics"}, False, False),
        ({"name": "ASUS ROG STRIX RX 580"}, False, False),
        ({"name": "ROG Strix RX 7900 XTX"}, False, False),
        ({"name": "Vega 10 XL/XT [Radeon RX Vega 56/64]"}, False, False),
        ({"name": "Navi 22 [Radeon RX 6700/6700 XT / 6800M]"}, False, False),
        ({"name": "Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]"}, False, False),
        ({"name": "AMD Radeon RX 7600M XT"}, False, False),
        # What is known of the chip is worth more than its name.
        ({"gfx": "gfx1030", "name": "Raphael"}, False, False),
        ({"vram_total": 512 * MIB, "gtt_total": 8 * GIB}, True, False),
        ({"vram_total": 512 * MIB, "gtt_total": 256 * MIB}, False, False),
        ({"vram_total": 512 * MIB}, True, False),
        ({"vram_total": 513 * MIB}, False, False),
        ({}, False, False),
        # Of nothing but memory: more GTT than the kernel gives by itself.
        ({"vram_total": 4 * GIB, "gtt_total": 96 * GIB}, True, True),
        ({"vram_total": 4 * GIB, "gtt_total": 62 * GIB}, False, False),
        ({"vram_total": 96 * GIB, "gtt_total": 95 * GIB}, False, False),
        # A card in the same machine may map as much.
        ({"vram_total": 16 * GIB, "gtt_total": 96 * GIB, "gfx": "gfx1201"}, False, False),
        ({"vram_total": 16 * GIB, "gtt_total": 96 * GIB, "device": "7550"}, False, False),
        ({"vram_total": 16 * GIB, "gtt_total": 96 * GIB, "name": "AMD Radeon RX 9070 XT"}, False, False),
    ],
)
def test_family(known, integrated, worthwhile):
    assert amd_apu.family(card(**known), ROOMY["MemTotal"]) == (integrated, worthwhile)


def test_family_where_the_machines_memory_is_not_known():
    assert amd_apu.family(card(vram_total=4 * GIB, gtt_total=96 * GIB)) == (False, False)


def test_limit_is_that_of_the_kernel():
    # 63/64 of it, less 1.5 GiB; half of it on a small machine.
    assert amd_apu.limit(128 * GIB) == 126 * GIB - 3 * GIB // 2
    assert amd_apu.limit(2 * GIB) == (2 * GIB - 32 * MIB) // 2


@pytest.mark.parametrize(
    ("vram", "gtt", "offered", "meminfo", "expected"),
    [
        # The carve-out is small: the GTT is the pool, and never both together.
        (4 * GIB, 103079215104, None, ROOMY, (103079215104, 103079215104 - GIB, True)),
        (512 * MIB, 64 * GIB, 64 * GIB, ROOMY, (64 * GIB, 63 * GIB, True)),
        # ttm.pages_limit below amdgpu.gttsize.
        (512 * MIB, 96 * GIB, 62 * GIB, ROOMY, (62 * GIB, 61 * GIB, True)),
        # The machine's memory is in use.
        (512 * MIB, 96 * GIB, 96 * GIB, {"MemTotal": 125 * GIB, "MemAvailable": 5 * GIB}, (96 * GIB, 5 * GIB, True)),
        # The firmware set 96 GiB aside: the GPU's own.
        (96 * GIB, 15 * GIB, 96 * GIB, {"MemTotal": 31 * GIB, "MemAvailable": 20 * GIB}, (96 * GIB, 94 * GIB, False)),
        (16 * GIB, 16 * GIB, None, ROOMY, (16 * GIB, 14 * GIB, False)),
        # Linux before 6.10 offers the carve-out alone.
        (4 * GIB, 96 * GIB, 4 * GIB, ROOMY, (4 * GIB, 2 * GIB, False)),
        # GTT is not known: the carve-out is what is there for sure, save for one that is for a screen only.
        (8 * GIB, None, None, ROOMY, (8 * GIB, 6 * GIB, False)),
        (512 * MIB, None, None, ROOMY, (None, None, True)),
        (None, None, None, ROOMY, (None, None, True)),
        (None, 64 * GIB, None, ROOMY, (64 * GIB, 63 * GIB, True)),
        # Without /proc/meminfo.
        (512 * MIB, 64 * GIB, None, {}, (64 * GIB, None, True)),
    ],
)
def test_pool(vram, gtt, offered, meminfo, expected):
    known = card(
        vram_total=vram,
        vram_used=None if vram is None else min(vram, 2 * GIB),
        gtt_total=gtt,
        gtt_used=None if gtt is None else GIB,
    )
    found = amd_apu.pool(known, offered, meminfo)
    total, free, shared = expected
    assert (found.total, found.free, found.shared) == (total, free, shared)


@pytest.mark.parametrize("memory_total", [120 * GIB, 124 * GIB, 128 * GIB, 62 * GIB])
def test_gtt_as_large_as_the_machine(memory_total):
    known = card(vram_total=8589934592, gtt_total=133143986176, gtt_used=0)
    found = amd_apu.pool(known, None, {"MemTotal": memory_total, "MemAvailable": 100 * GIB})
    assert found.total == min(133143986176, amd_apu.limit(memory_total))
    assert found.total <= 133143986176
    assert found.total < memory_total
    assert found.free == min(found.total, 100 * GIB)
    assert found.shared


def test_reasons():
    assert amd_apu.pool(card(vram_total=MIB), None, ROOMY).reason == amd_apu.NO_GTT
    known = card(vram_total=MIB, gtt_total=GIB, gtt_used=0)
    assert amd_apu.pool(known, None, {}).reason == amd_apu.NO_MEMINFO
    assert amd_apu.pool(card(vram_total=GIB, gtt_total=2 * GIB), GIB, ROOMY).note == amd_apu.OLD_KERNEL
    assert amd_apu.pool(known, None, ROOMY)[3:] == (None, None)
