# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory bandwidth of GPUs by the names that the vendors' tools print.

A wrong number does more harm than none, so a name must match as a whole, and what a name leaves open gives None. To
add a card: one row, with the source, its line in docs/bandwidth.md, and a name that a tool prints in the test.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ansible_collections.relay.pool.plugins.module_utils.sizes import GIB

# A tool reports a little less than the nominal size (ECC, the firmware's share), or hardly more.
LEAST, MOST = 0.90, 1.02
# MIG divides the memory of a GPU into eight slices, or into a smaller power of two.
SLICES = 8


class Row(NamedTuple):
    """``name`` is as a tool prints it, less what ``key`` takes away; several are separated by a comma.

    ``memory_gib`` is the nominal size, where cards of one name differ by it or are divided by it (MIG, partitions).
    ``bus`` is (width in bits, Gbit/s per bit) where the source states them. One GB is 10^9 bytes.
    """

    name: str
    memory_gib: int | None
    gb_per_second: float
    bus: tuple[int, float] | None
    source: str


def _series(generation: str) -> str:
    return f"NVIDIA GeForce {generation} series specifications"


def _sheet(card: str) -> str:
    return f"{card} data sheet"


PASCAL, TURING, AMPERE, ADA, BLACKWELL = map(_series, ("10", "16 and 20", "30", "40", "50"))
LAPTOPS = "NVIDIA GeForce laptop GPU specifications (width), TechPowerUp GPU database (rate)"
RX6000, RX7000, RX9000 = (f"AMD Radeon RX {series} series specifications" for series in (6000, 7000, 9000))
ARC = "Intel Arc graphics specifications (ark.intel.com)"
MACS = "Apple technical specifications of the Macs with this chip"

TABLE: tuple[Row, ...] = (
    # NVIDIA GeForce and TITAN. Left out because the name says too little: GTX 1650 (GDDR5 or GDDR6), RTX 3060 Ti
    # (GDDR6 or GDDR6X), RTX 20 with Max-Q Design and RTX 30 Laptop GPU (each maker's choice of clocks).
    Row("GeForce GTX 1050 Ti", None, 112, (128, 7.0), PASCAL),
    Row("GeForce GTX 1060, GeForce GTX 1060 3GB, GeForce GTX 1060 6GB", None, 192, (192, 8.0), PASCAL),
    Row("GeForce GTX 1060 with Max-Q Design", None, 192, (192, 8.0), PASCAL),
    Row("GeForce GTX 1070, GeForce GTX 1070 with Max-Q Design", None, 256, (256, 8.0), PASCAL),
    Row("GeForce GTX 1070 Ti", None, 256, (256, 8.0), PASCAL),
    Row("GeForce GTX 1080, GeForce GTX 1080 with Max-Q Design", None, 320, (256, 10.0), PASCAL),
    Row("GeForce GTX 1080 Ti", None, 484, (352, 11.0), PASCAL),
    Row("TITAN X (Pascal)", None, 480, (384, 10.0), "NVIDIA TITAN X (Pascal) specifications"),
    Row("TITAN Xp", None, 547.7, (384, 11.4), "NVIDIA TITAN Xp specifications"),
    Row("TITAN V", None, 652.8, (3072, 1.7), "NVIDIA TITAN V specifications"),
    Row("GeForce GTX 1650 SUPER", None, 192, (128, 12.0), TURING),
    Row("GeForce GTX 1660", None, 192, (192, 8.0), TURING),
    Row("GeForce GTX 1660 SUPER", None, 336, (192, 14.0), TURING),
    Row("GeForce GTX 1660 Ti, GeForce GTX 1660 Ti with Max-Q Design", None, 288, (192, 12.0), TURING),
    Row("GeForce RTX 2060", None, 336, (192, 14.0), TURING),
    Row("GeForce RTX 2060 SUPER", None, 448, (256, 14.0), TURING),
    Row("GeForce RTX 2070", None, 448, (256, 14.0), TURING),
    Row("GeForce RTX 2070 SUPER", None, 448, (256, 14.0), TURING),
    Row("GeForce RTX 2080", None, 448, (256, 14.0), TURING),
    Row("GeForce RTX 2080 SUPER", None, 496, (256, 15.5), TURING),
    Row("GeForce RTX 2080 Ti", None, 616, (352, 14.0), TURING),
    Row("TITAN RTX", None, 672, (384, 14.0), "NVIDIA TITAN RTX specifications"),
    Row("GeForce RTX 3050", 8, 224, (128, 14.0), AMPERE),
    Row("GeForce RTX 3050", 6, 168, (96, 14.0), AMPERE),
    Row("GeForce RTX 3060", 12, 360, (192, 15.0), AMPERE),
    Row("GeForce RTX 3060", 8, 240, (128, 15.0), AMPERE),
    Row("GeForce RTX 3070", None, 448, (256, 14.0), AMPERE),
    Row("GeForce RTX 3070 Ti", None, 608, (256, 19.0), AMPERE),
    Row("GeForce RTX 3080", 10, 760, (320, 19.0), AMPERE),
    Row("GeForce RTX 3080", 12, 912, (384, 19.0), AMPERE),
    Row("GeForce RTX 3080 Ti", None, 912, (384, 19.0), AMPERE),
    Row("GeForce RTX 3090", None, 936, (384, 19.5), AMPERE),
    Row("GeForce RTX 3090 Ti", None, 1008, (384, 21.0), AMPERE),
    Row("GeForce RTX 4060", None, 272, (128, 17.0), ADA),
    Row("GeForce RTX 4060 Ti", None, 288, (128, 18.0), ADA),
    Row("GeForce RTX 4070", None, 504, (192, 21.0), ADA),
    Row("GeForce RTX 4070 SUPER", None, 504, (192, 21.0), ADA),
    Row("GeForce RTX 4070 Ti", None, 504, (192, 21.0), ADA),
    Row("GeForce RTX 4070 Ti SUPER", None, 672, (256, 21.0), ADA),
    Row("GeForce RTX 4080", None, 716.8, (256, 22.4), ADA),
    Row("GeForce RTX 4080 SUPER", None, 736, (256, 23.0), ADA),
    Row("GeForce RTX 4090, GeForce RTX 4090 D", None, 1008, (384, 21.0), ADA),
    Row("GeForce RTX 5050", None, 320, (128, 20.0), BLACKWELL),
    Row("GeForce RTX 5060", None, 448, (128, 28.0), BLACKWELL),
    Row("GeForce RTX 5060 Ti", None, 448, (128, 28.0), BLACKWELL),
    Row("GeForce RTX 5070", None, 672, (192, 28.0), BLACKWELL),
    Row("GeForce RTX 5070 Ti", None, 896, (256, 28.0), BLACKWELL),
    Row("GeForce RTX 5080", None, 960, (256, 30.0), BLACKWELL),
    Row("GeForce RTX 5090, GeForce RTX 5090 D", 32, 1792, (512, 28.0), BLACKWELL),
    Row("GeForce RTX 4050 Laptop GPU", None, 192, (96, 16.0), LAPTOPS),
    Row("GeForce RTX 4060 Laptop GPU", None, 256, (128, 16.0), LAPTOPS),
    Row("GeForce RTX 4070 Laptop GPU", None, 256, (128, 16.0), LAPTOPS),
    Row("GeForce RTX 4080 Laptop GPU", None, 432, (192, 18.0), LAPTOPS),
    Row("GeForce RTX 4090 Laptop GPU", None, 576, (256, 18.0), LAPTOPS),
    Row("GeForce RTX 5070 Ti Laptop GPU", None, 672, (192, 28.0), LAPTOPS),
    Row("GeForce RTX 5080 Laptop GPU", None, 896, (256, 28.0), LAPTOPS),
    Row("GeForce RTX 5090 Laptop GPU", None, 896, (256, 28.0), LAPTOPS),
    # NVIDIA workstations. Left out because sources differ: RTX 2000 Ada, RTX 5880 Ada, RTX PRO 6000 Blackwell Server
    # Edition, Quadro P4000 and P5000 (laptops of the same name are slower).
    Row("Quadro P2200", None, 200, (160, 10.0), _sheet("NVIDIA Quadro P2200")),
    Row("Quadro P6000", None, 432, (384, 9.0), _sheet("NVIDIA Quadro P6000")),
    Row("Quadro GV100", None, 870, (4096, 1.7), _sheet("NVIDIA Quadro GV100")),
    Row("Quadro RTX 4000", None, 416, (256, 13.0), _sheet("NVIDIA Quadro RTX 4000")),
    Row("Quadro RTX 5000", None, 448, (256, 14.0), _sheet("NVIDIA Quadro RTX 5000")),
    Row("Quadro RTX 6000", None, 672, (384, 14.0), _sheet("NVIDIA Quadro RTX 6000")),
    Row("Quadro RTX 8000", None, 672, (384, 14.0), _sheet("NVIDIA Quadro RTX 8000")),
    Row("T400, T400 4GB", None, 80, (64, 10.0), _sheet("NVIDIA T400")),
    Row("T1000, T1000 8GB", None, 160, (128, 10.0), _sheet("NVIDIA T1000")),
    Row("RTX A400", None, 96, (64, 12.0), _sheet("NVIDIA RTX A400")),
    Row("RTX A1000", None, 192, (128, 12.0), _sheet("NVIDIA RTX A1000")),
    Row("RTX A2000, RTX A2000 12GB", None, 288, (192, 12.0), _sheet("NVIDIA RTX A2000")),
    Row("RTX A4000", None, 448, (256, 14.0), _sheet("NVIDIA RTX A4000")),
    Row("RTX A4500", None, 640, (320, 16.0), _sheet("NVIDIA RTX A4500")),
    Row("RTX A5000", None, 768, (384, 16.0), _sheet("NVIDIA RTX A5000")),
    Row("RTX A5500", None, 768, (384, 16.0), _sheet("NVIDIA RTX A5500")),
    Row("RTX A6000", None, 768, (384, 16.0), _sheet("NVIDIA RTX A6000")),
    Row("RTX 4000 SFF Ada Generation", None, 280, (160, 14.0), _sheet("NVIDIA RTX 4000 SFF Ada Generation")),
    Row("RTX 4000 Ada Generation", None, 360, (160, 18.0), _sheet("NVIDIA RTX 4000 Ada Generation")),
    Row("RTX 4500 Ada Generation", None, 432, (192, 18.0), _sheet("NVIDIA RTX 4500 Ada Generation")),
    Row("RTX 5000 Ada Generation", None, 576, (256, 18.0), _sheet("NVIDIA RTX 5000 Ada Generation")),
    Row("RTX 6000 Ada Generation", None, 960, (384, 20.0), _sheet("NVIDIA RTX 6000 Ada Generation")),
    Row("RTX 3500 Ada Generation Laptop GPU", None, 432, (192, 18.0), "NVIDIA RTX laptop GPU line card"),
    Row("RTX 4000 Ada Generation Laptop GPU", None, 432, (192, 18.0), "NVIDIA RTX laptop GPU line card"),
    Row("RTX 5000 Ada Generation Laptop GPU", None, 576, (256, 18.0), "NVIDIA RTX laptop GPU line card"),
    Row("RTX PRO 2000 Blackwell", None, 288, (128, 18.0), _sheet("NVIDIA RTX PRO 2000 Blackwell")),
    Row("RTX PRO 4000 Blackwell", None, 672, (192, 28.0), _sheet("NVIDIA RTX PRO 4000 Blackwell")),
    Row("RTX PRO 4000 Blackwell SFF Edition", None, 432, (192, 18.0), _sheet("NVIDIA RTX PRO 4000 Blackwell SFF")),
    Row("RTX PRO 4500 Blackwell", None, 896, (256, 28.0), _sheet("NVIDIA RTX PRO 4500 Blackwell")),
    Row("RTX PRO 5000 Blackwell", None, 1344, (384, 28.0), _sheet("NVIDIA RTX PRO 5000 Blackwell")),
    Row(
        "RTX PRO 6000 Blackwell Workstation Edition, RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        96,
        1792,
        (512, 28.0),
        _sheet("NVIDIA RTX PRO 6000 Blackwell"),
    ),
    # NVIDIA data centres
    Row("Tesla P4", None, 192, (256, 6.0), _sheet("NVIDIA Tesla P4")),
    Row("Tesla P40", None, 346, (384, 7.2), _sheet("NVIDIA Tesla P40")),
    Row("Tesla P100-PCIE-12GB", None, 549, (3072, 1.43), _sheet("NVIDIA Tesla P100 PCIe")),
    Row("Tesla P100-PCIE-16GB, Tesla P100-SXM2-16GB", None, 732, (4096, 1.43), _sheet("NVIDIA Tesla P100")),
    Row(
        "Tesla V100-SXM2-16GB, Tesla V100-SXM2-32GB, Tesla V100-PCIE-16GB, Tesla V100-PCIE-32GB",
        None,
        900,
        (4096, 1.754),
        _sheet("NVIDIA V100"),
    ),
    Row("Tesla V100S-PCIE-32GB", None, 1134, (4096, 2.214), _sheet("NVIDIA V100")),
    Row("Tesla T4", None, 320, (256, 10.0), "NVIDIA T4 product brief"),
    Row("A2", None, 200, (128, 12.5), _sheet("NVIDIA A2")),
    Row("A10, A10G", None, 600, (384, 12.5), _sheet("NVIDIA A10")),
    Row("A16", None, 200, (128, 12.5), "NVIDIA A16 data sheet: four GPUs of 200 GB/s"),
    Row("A30", 24, 933, (3072, 2.43), _sheet("NVIDIA A30")),
    Row("A40", None, 696, (384, 14.5), _sheet("NVIDIA A40")),
    Row("A100-PCIE-40GB, A100-SXM4-40GB", 40, 1555, (5120, 2.43), "NVIDIA A100 whitepaper"),
    Row("A100 80GB PCIe", 80, 1935, (5120, 3.024), _sheet("NVIDIA A100")),
    Row("A100-SXM4-80GB", 80, 2039, (5120, 3.186), _sheet("NVIDIA A100")),
    Row("H100 PCIe", 80, 2000, (5120, 3.186), "NVIDIA H100 PCIe product brief"),
    Row("H100 NVL", 94, 3938, (6016, 5.24), "NVIDIA H100 NVL product brief"),
    Row("H100 80GB HBM3", 80, 3350, (5120, 5.23), _sheet("NVIDIA H100")),
    Row("H200, H200 NVL", 141, 4800, (6144, 6.25), _sheet("NVIDIA H200")),
    Row("GH200 480GB", 96, 4000, None, "NVIDIA GH200 data sheet: HBM3"),
    Row("B200", 180, 8000, (8192, 8.0), "NVIDIA HGX B200 data sheet: eight GPUs of 8 TB/s"),
    Row("L4", None, 300, (192, 12.5), _sheet("NVIDIA L4")),
    Row("L20", None, 864, (384, 18.0), _sheet("NVIDIA L20")),
    Row("L40", None, 864, (384, 18.0), _sheet("NVIDIA L40")),
    Row("L40S", None, 864, (384, 18.0), _sheet("NVIDIA L40S")),
    # NVIDIA systems on a chip. Orin with 8 GB is an NX, or a Nano of 68 or 102 GB/s.
    Row("GB10", None, 273, (256, 8.533), "NVIDIA DGX Spark specifications"),
    Row("Thor", None, 273, (256, 8.533), _sheet("NVIDIA Jetson Thor")),
    Row("Orin", 64, 204.8, (256, 6.4), _sheet("NVIDIA Jetson AGX Orin")),
    Row("Orin", 32, 204.8, (256, 6.4), _sheet("NVIDIA Jetson AGX Orin")),
    Row("Orin", 16, 102.4, (128, 6.4), _sheet("NVIDIA Jetson Orin NX")),
    # AMD Radeon. Left out because sources differ: RX 5600 XT, PRO W7500, PRO V710, Instinct MI25. GPUs of desktop
    # and laptop CPUs (Radeon 890M, 780M, ...) have the bandwidth of whatever RAM was put in.
    Row("Radeon RX 5700, Radeon RX 5700 XT", 8, 448, (256, 14.0), "AMD Radeon RX 5700 series specifications"),
    Row("Radeon RX 6400", 4, 128, (64, 16.0), RX6000),
    Row("Radeon RX 6500 XT", 4, 144, (64, 18.0), RX6000),
    Row("Radeon RX 6600, Radeon RX 6600M", 8, 224, (128, 14.0), RX6000),
    Row("Radeon RX 6600 XT", 8, 256, (128, 16.0), RX6000),
    Row("Radeon RX 6650 XT", 8, 280, (128, 17.5), RX6000),
    Row("Radeon RX 6700, Radeon RX 6700M", 10, 320, (160, 16.0), RX6000),
    Row("Radeon RX 6700 XT, Radeon RX 6800M", 12, 384, (192, 16.0), RX6000),
    Row("Radeon RX 6750 XT, Radeon RX 6850M XT", 12, 432, (192, 18.0), RX6000),
    Row("Radeon RX 6800", 16, 512, (256, 16.0), RX6000),
    Row("Radeon RX 6800 XT", 16, 512, (256, 16.0), RX6000),
    Row("Radeon RX 6900 XT", 16, 512, (256, 16.0), RX6000),
    Row("Radeon RX 6950 XT", 16, 576, (256, 18.0), RX6000),
    Row("Radeon RX 7600", 8, 288, (128, 18.0), RX7000),
    Row("Radeon RX 7600 XT", 16, 288, (128, 18.0), RX7000),
    Row("Radeon RX 7600M, Radeon RX 7600S", 8, 256, (128, 16.0), RX7000),
    Row("Radeon RX 7600M XT, Radeon RX 7700S", 8, 288, (128, 18.0), RX7000),
    Row("Radeon RX 7700 XT", 12, 432, (192, 18.0), RX7000),
    Row("Radeon RX 7800 XT", 16, 624, (256, 19.5), RX7000),
    Row("Radeon RX 7900 GRE, Radeon RX 7900M", 16, 576, (256, 18.0), RX7000),
    Row("Radeon RX 7900 XT", 20, 800, (320, 20.0), RX7000),
    Row("Radeon RX 7900 XTX", 24, 960, (384, 20.0), RX7000),
    Row("Radeon RX 9060 XT", None, 320, (128, 20.0), RX9000),
    Row("Radeon RX 9070", 16, 640, (256, 20.0), RX9000),
    Row("Radeon RX 9070 GRE", 12, 432, (192, 18.0), RX9000),
    Row("Radeon RX 9070 XT", 16, 640, (256, 20.0), RX9000),
    Row("Radeon AI PRO R9700", 32, 640, (256, 20.0), _sheet("AMD Radeon AI PRO R9700")),
    Row("Radeon PRO V620", 32, 512, (256, 16.0), _sheet("AMD Radeon PRO V620")),
    Row("Radeon PRO W6600", 8, 224, (128, 14.0), _sheet("AMD Radeon PRO W6600")),
    Row("Radeon PRO W6800", 32, 512, (256, 16.0), _sheet("AMD Radeon PRO W6800")),
    Row("Radeon PRO W7600", 8, 288, (128, 18.0), _sheet("AMD Radeon PRO W7600")),
    Row("Radeon PRO W7700", 16, 576, (256, 18.0), _sheet("AMD Radeon PRO W7700")),
    Row("Radeon PRO W7800", 32, 576, (256, 18.0), _sheet("AMD Radeon PRO W7800")),
    Row("Radeon PRO W7800, Radeon PRO W7800 48GB", 48, 864, (384, 18.0), _sheet("AMD Radeon PRO W7800 48GB")),
    Row("Radeon PRO W7900, Radeon PRO W7900 Dual Slot", 48, 864, (384, 18.0), _sheet("AMD Radeon PRO W7900")),
    Row("Radeon RX Vega 56", 8, 410, (2048, 1.6), "AMD Radeon RX Vega specifications"),
    Row("Radeon RX Vega 64", 8, 484, (2048, 1.89), "AMD Radeon RX Vega specifications"),
    Row("Radeon Vega Frontier Edition", 16, 484, (2048, 1.89), "AMD Radeon Vega Frontier Edition specifications"),
    Row("Radeon VII", 16, 1024, (4096, 2.0), "AMD Radeon VII specifications"),
    Row("Radeon Pro VII", 16, 1024, (4096, 2.0), _sheet("AMD Radeon Pro VII")),
    Row(
        "Radeon 8040S, Radeon 8050S, Radeon 8060S, Strix Halo", None, 256, (256, 8.0), "AMD Ryzen AI Max specifications"
    ),
    # AMD Instinct. The tools show each half of an MI250 as a GPU. A partition of an MI300 is a part of its memory.
    Row("Instinct MI50", None, 1024, (4096, 2.0), _sheet("AMD Instinct MI50")),
    Row("Instinct MI60", 32, 1024, (4096, 2.0), _sheet("AMD Instinct MI60")),
    Row("Instinct MI100", 32, 1229, (4096, 2.4), _sheet("AMD Instinct MI100")),
    Row("Instinct MI210", 64, 1638, (4096, 3.2), _sheet("AMD Instinct MI210")),
    Row("Instinct MI250, Instinct MI250X", 64, 1638, (4096, 3.2), "AMD Instinct MI250X data sheet: two GPUs in one"),
    Row("Instinct MI300A", 128, 5300, (8192, 5.2), _sheet("AMD Instinct MI300A")),
    Row("Instinct MI300X", 192, 5300, (8192, 5.2), _sheet("AMD Instinct MI300X")),
    Row("Instinct MI325X", 256, 6000, (8192, 6.0), _sheet("AMD Instinct MI325X")),
    Row("Instinct MI350X, Instinct MI355X", 288, 8000, (8192, 8.0), _sheet("AMD Instinct MI350 series")),
    # Intel. Left out because sources differ: Data Center GPU Flex.
    Row("Arc A310", None, 124, (64, 15.5), ARC),
    Row("Arc A380", None, 186, (96, 15.5), ARC),
    Row("Arc A580", None, 512, (256, 16.0), ARC),
    Row("Arc A750", None, 512, (256, 16.0), ARC),
    Row("Arc A770", 16, 560, (256, 17.5), ARC),
    Row("Arc A770", 8, 512, (256, 16.0), ARC),
    Row("Arc B570", None, 380, (160, 19.0), ARC),
    Row("Arc B580", None, 456, (192, 19.0), ARC),
    Row("Arc Pro A40, Arc Pro A50", None, 192, (96, 16.0), ARC),
    Row("Arc Pro A60", None, 384, (192, 16.0), ARC),
    Row("Arc Pro B50", None, 224, (128, 14.0), ARC),
    Row("Arc Pro B60", None, 456, (192, 19.0), ARC),
    Row("Arc Pro B70", None, 608, (256, 19.0), ARC),
    Row("Data Center GPU Max 1100", 48, 1229, (8192, 1.2), "Intel Data Center GPU Max series product brief"),
    Row("Data Center GPU Max 1550", 128, 3277, (8192, 3.2), "Intel Data Center GPU Max series product brief"),
    # Apple. Left out: M5 Max, of which two have the same CPU and another bandwidth.
    Row("Apple M1", None, 68.25, (128, 4.266), MACS),
    Row("Apple M1 Pro", None, 200, (256, 6.4), MACS),
    Row("Apple M1 Max", None, 400, (512, 6.4), MACS),
    Row("Apple M1 Ultra", None, 800, (1024, 6.4), MACS),
    Row("Apple M2", None, 100, (128, 6.4), MACS),
    Row("Apple M2 Pro", None, 200, (256, 6.4), MACS),
    Row("Apple M2 Max", None, 400, (512, 6.4), MACS),
    Row("Apple M2 Ultra", None, 800, (1024, 6.4), MACS),
    Row("Apple M3", None, 100, (128, 6.4), MACS),
    Row("Apple M3 Pro", None, 150, (192, 6.4), MACS),
    Row("Apple M3 Max (14-core CPU)", None, 300, (384, 6.4), MACS),
    Row("Apple M3 Max (16-core CPU)", None, 400, (512, 6.4), MACS),
    Row("Apple M3 Ultra", None, 819, (1024, 6.4), MACS),
    Row("Apple M4", None, 120, (128, 7.5), MACS),
    Row("Apple M4 Pro", None, 273, (256, 8.533), MACS),
    Row("Apple M4 Max (14-core CPU)", None, 410, (384, 8.533), MACS),
    Row("Apple M4 Max (16-core CPU)", None, 546, (512, 8.533), MACS),
    Row("Apple M5", None, 153, (128, 9.6), MACS),
    Row("Apple M5 Pro", None, 307, (256, 9.6), MACS),
)

_NOISE = frozenset(("nvidia", "amd", "ati", "intel", "geforce", "radeon", "tesla", "graphics", "(nvgpu)", "oam"))
_BRACKETS = re.compile(r"([^\[\]]*)\[([^\[\]]*)\]\s*\Z")
_CORES = re.compile(r" \([0-9]+-core cpu\)\Z")
_MIG = re.compile(r"(.+) MIG ([0-9]{1,2})g\.([0-9]{1,3})gb(?:\+[a-z.]+)*\Z", re.IGNORECASE)
MAX_NAME = 200


def key(name: str) -> str:
    """What is left of a name when the vendor's ornaments are gone: "Intel(R) Arc(TM) B580 Graphics" -> "arc b580"."""
    # In NVIDIA's driver a RTX 2080 SUPER is the desktop's card, and a RTX 2080 Super is the laptop's.
    name = re.sub(r"\bSuper\b", "super-mobile", name)
    name = re.sub(r"\((?:R|TM|C)\)|[\u00ae\u2122]", " ", name, flags=re.IGNORECASE).lower()
    return " ".join(word for word in name.split() if word not in _NOISE)


def _by_key() -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for row in TABLE:
        for name in row.name.split(", "):
            rows.setdefault(key(name), []).append(row)
    return rows


_ROWS = _by_key()


def _alternative(words: str, first: str) -> list[Row]:
    """Rows of one of the names that a list of names gives, which may lack the words that the first one begins with."""
    name = key(words)
    begin = key(first).split()
    for count in range(len(begin)):
        rows = _ROWS.get(" ".join([*begin[:count], name]))
        if rows:
            return rows
    return _ROWS.get(_CORES.sub("", name), [])


def rows_of(name: str, memory_bytes: int | None = None) -> list[Row]:
    """The rows that a GPU of this name, with so much memory in all, may be; none where it may be something else too.

    pci.ids, and tools that read it, put the names of all cards with a chip in brackets after the name of the chip, as
    in "Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]".
    """
    name = name[:MAX_NAME]
    match = _BRACKETS.match(name)
    names = (match.group(2) if match else name).split("/")
    found = [_alternative(words, names[0]) for words in names]
    if not all(found):
        found = [_ROWS.get(key(match.group(1)), [])] if match else []
    rows = [row for rows in found for row in rows]
    if memory_bytes:
        rows = [r for r in rows if not r.memory_gib or LEAST <= memory_bytes / GIB / r.memory_gib <= MOST]
    return rows


def _only(rows: list[Row]) -> Row | None:
    return rows[0] if rows and len({row.gb_per_second for row in rows}) == 1 else None


def of(gpu: dict[str, Any]) -> int | None:
    """Bytes per second of the GPU's memory, or None where its name does not tell.

    A MIG device has the share of its parent's bandwidth that it has of its memory slices.
    """
    name, memory = gpu.get("name"), gpu.get("memory_total_bytes")
    if not isinstance(name, str):
        return None
    match = _MIG.match(name[:MAX_NAME].strip())
    if not match:
        row = _only(rows_of(name, memory if isinstance(memory, int) else None))
        return None if row is None else round(row.gb_per_second * 10**9)
    parent = _only(rows_of(match.group(1)))
    if parent is None or not parent.memory_gib:
        return None
    slices = int(match.group(3)) * SLICES / parent.memory_gib
    if not 0.85 <= slices <= SLICES + 0.2 or abs(slices - round(slices)) > 0.15:
        return None
    return round(parent.gb_per_second * 10**9 * round(slices) / SLICES)
