# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pathlib
import re

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gpu import bandwidth

DOCS = pathlib.Path(__file__).parents[5] / "docs" / "bandwidth.md"
GIB = 1024**3

# Names as the tools print them, with the memory in MiB that they report where it matters: nvidia-smi, rocm-smi and
# amd-smi (which print the names of pci.ids, or those of libdrm), xpu-smi; those of Apple chips are this collection's.
NAMES = """
NVIDIA GeForce GTX 1050 Ti
GeForce GTX 1060 3GB | 3072
NVIDIA GeForce GTX 1060 6GB | 6144
GeForce GTX 1060 with Max-Q Design | 6144
NVIDIA GeForce GTX 1070
GeForce GTX 1070 with Max-Q Design
GeForce GTX 1070 Ti
GeForce GTX 1080
GeForce GTX 1080 Ti | 11178
TITAN X (Pascal)
NVIDIA TITAN Xp
NVIDIA TITAN V
NVIDIA GeForce GTX 1650 SUPER
NVIDIA GeForce GTX 1660
NVIDIA GeForce GTX 1660 SUPER
GeForce GTX 1660 Ti
NVIDIA GeForce RTX 2060
NVIDIA GeForce RTX 2060 SUPER
NVIDIA GeForce RTX 2070
NVIDIA GeForce RTX 2070 SUPER
NVIDIA GeForce RTX 2080
NVIDIA GeForce RTX 2080 SUPER
GeForce RTX 2080 Ti | 11019
NVIDIA TITAN RTX
NVIDIA GeForce RTX 3050 | 8192
NVIDIA GeForce RTX 3050 | 6144
NVIDIA GeForce RTX 3060 | 12288
NVIDIA GeForce RTX 3060 | 8192
NVIDIA GeForce RTX 3070
NVIDIA GeForce RTX 3070 Ti
NVIDIA GeForce RTX 3080 | 10240
NVIDIA GeForce RTX 3080 | 12288
NVIDIA GeForce RTX 3080 Ti
NVIDIA GeForce RTX 3090 | 24576
NVIDIA GeForce RTX 3090 Ti
NVIDIA GeForce RTX 4060
NVIDIA GeForce RTX 4060 Ti | 16380
NVIDIA GeForce RTX 4070
NVIDIA GeForce RTX 4070 SUPER
NVIDIA GeForce RTX 4070 Ti
NVIDIA GeForce RTX 4070 Ti SUPER
NVIDIA GeForce RTX 4080
NVIDIA GeForce RTX 4080 SUPER
NVIDIA GeForce RTX 4090 | 24564
NVIDIA GeForce RTX 4090 D
NVIDIA GeForce RTX 5050
NVIDIA GeForce RTX 5060
NVIDIA GeForce RTX 5060 Ti
NVIDIA GeForce RTX 5070
NVIDIA GeForce RTX 5070 Ti
NVIDIA GeForce RTX 5080
NVIDIA GeForce RTX 5090 | 32607
NVIDIA GeForce RTX 4050 Laptop GPU
NVIDIA GeForce RTX 4060 Laptop GPU
NVIDIA GeForce RTX 4070 Laptop GPU
NVIDIA GeForce RTX 4080 Laptop GPU
NVIDIA GeForce RTX 4090 Laptop GPU
NVIDIA GeForce RTX 5070 Ti Laptop GPU
NVIDIA GeForce RTX 5080 Laptop GPU
NVIDIA GeForce RTX 5090 Laptop GPU
Quadro P2200
Quadro P6000
Quadro GV100
Quadro RTX 4000
Quadro RTX 5000
Quadro RTX 6000
Quadro RTX 8000
NVIDIA T400 4GB
NVIDIA T1000 8GB
NVIDIA RTX A400
NVIDIA RTX A1000
NVIDIA RTX A2000 | 6138
NVIDIA RTX A2000 12GB | 12282
NVIDIA RTX A4000
NVIDIA RTX A4500
NVIDIA RTX A5000
NVIDIA RTX A5500
NVIDIA RTX A6000
NVIDIA RTX 4000 SFF Ada Generation
NVIDIA RTX 4000 Ada Generation
NVIDIA RTX 4500 Ada Generation
NVIDIA RTX 5000 Ada Generation
NVIDIA RTX 6000 Ada Generation
NVIDIA RTX 3500 Ada Generation Laptop GPU
NVIDIA RTX 4000 Ada Generation Laptop GPU
NVIDIA RTX 5000 Ada Generation Laptop GPU
NVIDIA RTX PRO 2000 Blackwell
NVIDIA RTX PRO 4000 Blackwell
NVIDIA RTX PRO 4000 Blackwell SFF Edition
NVIDIA RTX PRO 4500 Blackwell
NVIDIA RTX PRO 5000 Blackwell
NVIDIA RTX PRO 6000 Blackwell Workstation Edition | 97887
NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition | 97887
Tesla P4
Tesla P40
Tesla P100-PCIE-12GB
Tesla P100-PCIE-16GB
Tesla P100-SXM2-16GB
Tesla V100-SXM2-16GB | 16384
Tesla V100-PCIE-32GB
Tesla V100S-PCIE-32GB
Tesla T4 | 15360
NVIDIA A2
NVIDIA A10 | 23028
NVIDIA A10G
NVIDIA A16
NVIDIA A30 | 24576
NVIDIA A40 | 46068
A100-PCIE-40GB | 40960
NVIDIA A100-SXM4-40GB | 40960
NVIDIA A100 80GB PCIe | 81920
NVIDIA A100-SXM4-80GB | 81920
NVIDIA H100 PCIe | 81559
NVIDIA H100 NVL | 95830
NVIDIA H100 80GB HBM3 | 81559
NVIDIA H200 | 143771
NVIDIA GH200 480GB | 97871
NVIDIA B200 | 183359
NVIDIA L4
NVIDIA L20
NVIDIA L40
NVIDIA L40S | 46068
NVIDIA GB10 | 122548
NVIDIA Thor
Orin (nvgpu) | 62841
Orin (nvgpu) | 30697
Orin (nvgpu) | 15656
AMD Radeon RX 5700 XT | 8176
AMD Radeon RX 6400 | 4080
AMD Radeon RX 6500 XT | 4080
AMD Radeon RX 6600 | 8176
AMD Radeon RX 6600 XT | 8176
AMD Radeon RX 6650 XT | 8176
AMD Radeon RX 6700M | 10224
AMD Radeon RX 6700 XT | 12272
AMD Radeon RX 6750 XT | 12272
AMD Radeon RX 6800 | 16368
AMD Radeon RX 6800 XT | 16368
Navi 21 [Radeon RX 6800/6800 XT / 6900 XT] | 16368
Navi 21 [Radeon RX 6950 XT] | 16368
AMD Radeon RX 7600 | 8176
AMD Radeon RX 7600 XT | 16368
AMD Radeon RX 7600S | 8176
AMD Radeon RX 7700S | 8176
Navi 32 [Radeon RX 7700 XT / 7800 XT] | 12272
Navi 32 [Radeon RX 7700 XT / 7800 XT] | 16368
Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M] | 16368
Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M] | 20464
Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M] | 24560
AMD Radeon RX 9060 XT | 16304
Navi 48 [Radeon RX 9070/9070 XT/9070 GRE] | 16304
AMD Radeon RX 9070 GRE | 12240
AMD Radeon RX 9070 XT | 16304
AMD Radeon AI PRO R9700 | 32624
Navi 21 [Radeon Pro V620] | 32752
AMD Radeon PRO W6600 | 8176
Navi 21 GL-XL [Radeon PRO W6800] | 32752
AMD Radeon PRO W7600 | 8176
Navi 32 [Radeon PRO W7700] | 16368
Navi 31 [Radeon Pro W7800] | 32752
Navi 31 [Radeon Pro W7800 48GB] | 49136
AMD Radeon PRO W7900 | 49136
Navi 31 [Radeon Pro W7900 Dual Slot] | 49136
Radeon RX Vega 56 | 8176
Radeon RX Vega 64 | 8176
Vega 10 XTX [Radeon Vega Frontier Edition] | 16368
Vega 20 [Radeon VII] | 16368
AMD Radeon Pro VII | 16368
Radeon 8060S Graphics | 98304
Strix Halo [Radeon Graphics / Radeon 8050S Graphics / Radeon 8060S Graphics] | 98304
Vega 20 [Radeon Pro VII/Radeon Instinct MI50] | 32752
AMD Instinct MI60 / MI50 | 32752
Arcturus GL-XL [Instinct MI100] | 32752
AMD Instinct MI210 | 65520
Aldebaran/MI200 [Instinct MI250X/MI250] | 65520
AMD Instinct MI300A | 128000
AMD Instinct MI300X | 196592
AMD Instinct MI325X | 262128
AMD Instinct MI355X | 294896
Intel(R) Arc(TM) A310 Graphics
Intel(R) Arc(TM) A380 Graphics
Intel(R) Arc(TM) A580 Graphics
Intel(R) Arc(TM) A750 Graphics
Intel(R) Arc(TM) A770 Graphics | 15473
Intel Arc A770 Graphics | 7933
Intel(R) Arc(TM) B570 Graphics
Intel(R) Arc(TM) B580 Graphics | 12216
DG2 [Arc Pro A40/A50]
Intel(R) Arc(TM) Pro A60 Graphics
Intel(R) Arc(TM) Pro B50 Graphics
Intel(R) Arc(TM) Pro B60 Graphics
Intel(R) Arc(TM) Pro B70 Graphics
Intel(R) Data Center GPU Max 1100 | 49136
Intel(R) Data Center GPU Max 1550 | 131072
Apple M1 (8-core CPU)
Apple M1 Pro (10-core CPU)
Apple M1 Max (10-core CPU)
Apple M1 Ultra (20-core CPU)
Apple M2 (8-core CPU)
Apple M2 Pro (12-core CPU)
Apple M2 Max (12-core CPU)
Apple M2 Ultra (24-core CPU)
Apple M3 (8-core CPU)
Apple M3 Pro (11-core CPU)
Apple M3 Max (14-core CPU)
Apple M3 Max (16-core CPU)
Apple M3 Ultra (32-core CPU)
Apple M4 (10-core CPU)
Apple M4 Pro (14-core CPU)
Apple M4 Max (14-core CPU)
Apple M4 Max (16-core CPU)
Apple M5 (10-core CPU)
Apple M5 Pro (18-core CPU)
"""
SEEN = [
    (name.strip(), int(mib) * 1024**2 if mib.strip() else None)
    for name, _bar, mib in (line.partition("|") for line in NAMES.strip().splitlines())
]


def of(name, gib=None):
    """GB/s, for a card with so many GiB."""
    found = bandwidth.of({"name": name, "memory_total_bytes": None if gib is None else int(gib * GIB)})
    return None if found is None else found / 10**9


@pytest.mark.parametrize(("name", "memory"), SEEN)
def test_name_of_a_tool(name, memory):
    gpu = {"name": name, "memory_total_bytes": memory}
    values = {row.gb_per_second for row in bandwidth.rows_of(name, memory)}
    assert len(values) == 1
    assert bandwidth.of(gpu) == round(values.pop() * 10**9)
    # Nor does the vendor's name before it matter, or a stray space after it.
    assert bandwidth.of(dict(gpu, name=name + " ")) == bandwidth.of(gpu)


def test_every_row_is_reached():
    reached = {row for name, memory in SEEN for row in bandwidth.rows_of(name, memory)}
    assert [row for row in bandwidth.TABLE if row not in reached] == []


@pytest.mark.parametrize(
    ("name", "gib", "expected"),
    [
        ("NVIDIA GeForce RTX 3090", 24, 936),
        ("GeForce RTX 2080 Ti", 11, 616),
        # modded to twice the memory, on the same bus
        ("NVIDIA GeForce RTX 2080 Ti", 22, 616),
        ("Tesla V100-SXM2-16GB", 16, 900),
        ("NVIDIA A100-SXM4-40GB", 40, 1555),
        ("NVIDIA A100 80GB PCIe", 80, 1935),
        ("NVIDIA A100-SXM4-80GB", 80, 2039),
        ("NVIDIA H100 80GB HBM3", 79.6, 3350),
        ("NVIDIA H100 PCIe", 79.6, 2000),
        ("NVIDIA H100 NVL", 93.6, 3938),
        ("AMD Radeon RX 7800 XT", 16, 624),
        ("Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]", 15.98, 512),
        ("Intel(R) Arc(TM) B580 Graphics", 11.93, 456),
        ("Apple M2 Ultra (24-core CPU)", 144, 800),
        ("Apple M2 Ultra", None, 800),
        ("NVIDIA GB10", 119.7, 273),
        # names that begin with another card's
        ("NVIDIA GeForce RTX 4080", 16, 716.8),
        ("NVIDIA GeForce RTX 4080 SUPER", 16, 736),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 16, 672),
        ("NVIDIA L4", 24, 300),
        ("NVIDIA L40", 48, 864),
        ("NVIDIA RTX 4000 SFF Ada Generation", 20, 280),
        ("NVIDIA RTX PRO 4000 Blackwell SFF Edition", 24, 432),
        ("NVIDIA RTX 6000 Ada Generation", 48, 960),
        ("Quadro RTX 6000", 24, 672),
        ("AMD Radeon RX 7900 XT", 20, 800),
        ("AMD Radeon RX 7900 XTX", 24, 960),
        # cards of one name, by their memory
        ("NVIDIA GeForce RTX 3060", 12, 360),
        ("NVIDIA GeForce RTX 3060", 8, 240),
        ("NVIDIA GeForce RTX 3080", 10, 760),
        ("NVIDIA GeForce RTX 3080", 12, 912),
        ("NVIDIA GeForce RTX 3050", 6, 168),
        ("NVIDIA GeForce RTX 4060 Ti", 8, 288),
        ("NVIDIA GeForce RTX 4060 Ti", 16, 288),
        ("Intel(R) Arc(TM) A770 Graphics", 15.1, 560),
        ("Intel(R) Arc(TM) A770 Graphics", 7.75, 512),
        ("Apple M3 Max (14-core CPU)", 27, 300),
        ("Apple M4 Max (16-core CPU)", 96, 546),
    ],
)
def test_value(name, gib, expected):
    assert of(name, gib) == expected


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        # the memory decides, and is not known or that of no such card
        ("NVIDIA GeForce RTX 3060", None),
        ("NVIDIA GeForce RTX 3080", 20),
        ("NVIDIA GeForce RTX 3080", 16),
        ("Orin (nvgpu)", 7.4),
        ("AMD Instinct MI300X", 24),
        # one name, two kinds of memory
        ("NVIDIA GeForce RTX 3060 Ti", 8),
        ("NVIDIA GeForce GTX 1650", 4),
        # each laptop has other clocks
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 16),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", 6),
        ("NVIDIA RTX A2000 8GB Laptop GPU", 8),
        ("NVIDIA GeForce RTX 2070 with Max-Q Design", 8),
        ("NVIDIA GeForce RTX 2080 Super", 8),
        ("NVIDIA GeForce RTX 2080 Super with Max-Q Design", 8),
        # the number of cores decides
        ("Apple M3 Max", 48),
        ("Apple M4 Max (12-core CPU)", 48),
        ("Apple M5 Max (18-core CPU)", 96),
        # cards of a chip that differ, or that are not all known
        ("Navi 23 [Radeon RX 6600/6600 XT/6600M]", 8),
        ("Vega 10 XL/XT [Radeon RX Vega 56/64]", 8),
        ("Navi 33 [Radeon RX 7600/7600 XT/7600M XT/7600S/7700S / PRO W7600]", 8),
        ("Navi 44 [Radeon RX 9050 / 9060 XT]", 16),
        ("Strix [Radeon 880M / 890M]", 96),
        ("AMD Radeon 890M Graphics", 48),
        ("AMD Radeon Graphics", 16),
        # a part of a card, and what is like a card
        ("NVIDIA A10-24Q", 24),
        ("GRID T4-4Q", 4),
        ("NVIDIA GeForce RTX 3090 Fake", 24),
        ("NVIDIA RTX 4000", 8),
        ("GeForce 3090", 24),
        ("RTX", None),
        ("NVIDIA", None),
        ("NVIDIA Graphics Device", 80),
        ("unknown GPU", None),
        ("", None),
        ("[]", None),
        ("/", None),
        ("[[Radeon VII]", 16),
        ("Radeon VII" + " " * 300, 16 * 10**6),
    ],
)
def test_unknown(name, gib):
    assert of(name, gib) is None


def test_part_of_a_list_of_names_by_its_memory():
    name = "Navi 33 [Radeon RX 7600/7600 XT/7600M XT/7600S/7700S / PRO W7600]"
    assert of(name, 16) == 288


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", 3350 * 4 / 8),
        ("NVIDIA H100 80GB HBM3 MIG 2g.20gb", 3350 * 2 / 8),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 3350 / 8),
        ("NVIDIA H100 80GB HBM3 MIG 1g.20gb", 3350 * 2 / 8),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", 3350 / 8),
        ("NVIDIA H100 80GB HBM3 MIG 7g.80gb", 3350),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 1555 / 8),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 1555 / 2),
        ("NVIDIA A30 MIG 1g.6gb", 933 / 4),
        ("NVIDIA H200 MIG 1g.18gb", 600),
        ("NVIDIA H200 MIG 4g.71gb", 2400),
        ("NVIDIA H100 NVL MIG 1g.12gb", 3938 / 8),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition MIG 1g.24gb", 1792 / 4),
        # a part of a part, a profile of another GPU, a parent that is not known
        ("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.7gb", None),
        ("NVIDIA A100-SXM4-40GB MIG 7g.80gb", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.0gb", None),
        ("NVIDIA X100 MIG 1g.10gb", None),
        ("NVIDIA L40S MIG 1g.10gb", None),
        ("NVIDIA H100 80GB HBM3 MIG", None),
        ("NVIDIA H100 80GB HBM3 MIG 0", None),
        ("MIG 1g.10gb", None),
    ],
)
def test_mig(name, expected):
    assert of(name, 10) == expected


@pytest.mark.parametrize(
    "gpu",
    [
        {},
        {"name": None},
        {"name": 5},
        {"name": ["NVIDIA A40"]},
        {"name": "NVIDIA GeForce RTX 3060", "memory_total_bytes": "12"},
    ],
)
def test_wrong_types(gpu):
    assert bandwidth.of(gpu) is None


def test_rows_are_consistent():
    seen = set()
    for row in bandwidth.TABLE:
        assert 50 < row.gb_per_second < 10000
        assert row.source
        for name in row.name.split(", "):
            assert (bandwidth.key(name), row.memory_gib) not in seen
            seen.add((bandwidth.key(name), row.memory_gib))
        if row.bus:
            width, rate = row.bus
            # The vendors round: 5 TB/s, or a clock that is a little lower.
            assert width * rate / 8 == pytest.approx(row.gb_per_second, rel=0.025)


def test_rows_of_one_name_exclude_each_other():
    by_key = {}
    for row in bandwidth.TABLE:
        for name in row.name.split(", "):
            by_key.setdefault(bandwidth.key(name), []).append(row)
    for rows in by_key.values():
        for row in rows if len(rows) > 1 else []:
            total = row.memory_gib * GIB
            assert [other for other in rows if other in bandwidth.rows_of(row.name.split(", ")[0], total)] == [row]


def line(row):
    memory = f"{row.memory_gib} GiB" if row.memory_gib else ""
    bus = f"{row.bus[0]} bit x {row.bus[1]:g} Gbit/s" if row.bus else ""
    return f"| {row.name} | {memory} | {row.gb_per_second:g} | {bus} | {row.source} |"


def test_documentation_lists_the_table():
    """A row that is missing there has to be added as this prints it."""
    shown = [text for text in DOCS.read_text(encoding="utf-8").splitlines() if re.match(r"\| (?!Card|---)", text)]
    assert shown == [line(row) for row in bandwidth.TABLE]
