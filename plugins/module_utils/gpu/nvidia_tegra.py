# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU of a Jetson without ``nvidia-smi``, which came with JetPack 6. It is on no bus, but in the device tree."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.relay.pool.plugins.module_utils import small_files
from ansible_collections.relay.pool.plugins.module_utils.gpu import nvidia_csv, record

TREE = ("firmware", "devicetree", "base")
SYSTEM_ON_CHIP = "nvidia,tegra"
NO_TOOL = (
    "nvidia-smi, which comes with JetPack 6, is not found: upgrade, or state placeable: true and device: CUDA0 for it "
    "in relay_overrides where llama.cpp runs on it"
)


def _strings(sys_root: str, name: str) -> list[str]:
    return [text for text in small_files.read_text(sys_root, *TREE, name).split("\0") if text]


def read_gpu(machine: record.Machine) -> dict[str, Any] | None:
    """The GPU of the board, which nothing is placed on; None where this is no board with one."""
    if not any(text.startswith(SYSTEM_ON_CHIP) for text in _strings(machine.sys_root, "compatible")):
        return None
    name = next(iter(_strings(machine.sys_root, "model")), "NVIDIA Jetson")
    gpu = record.new("nvidia", 0, name=name, source=os.path.join(machine.sys_root, *TREE))
    nvidia_csv.machine_memory(gpu, machine.meminfo)
    record.refuse(gpu, NO_TOOL)
    return gpu
