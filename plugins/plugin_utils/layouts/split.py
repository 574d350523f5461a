# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp's assignment of layers to devices, bit for bit, and its exact inverse.

llama.cpp works in float32: prefix sums of ``--tensor-split`` divided by their total, and for each layer the
first device whose bound lies above ``(layer - first) / offloaded``. The output counts as one more layer.
Python has no float32, so every step is rounded by packing it to four bytes.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError

CPU = -1
# llama.cpp: llama_max_devices() is 16 and --tensor-split with 16 values or more is rejected;
# its scheduler takes 16 backends in all, one of them the CPU.
MAX_DEVICES = 15

_FLOAT32 = struct.Struct("<f")


def float32(value: float) -> float:
    """The float32 nearest to value."""
    return _FLOAT32.unpack(_FLOAT32.pack(value))[0]


def assign(n_layer: int, n_gpu_layers: int, tensor_split: Sequence[float], n_devices: int) -> list[int]:
    """Device index of each layer 0..n_layer (the last entry is the output); CPU (-1) for the host's CPU.

    n_layer is the GGUF's block_count, NextN layers included; n_gpu_layers < 0 means all.
    """
    if n_gpu_layers < 0:
        n_gpu_layers = n_layer + 1
    splits = [float32(value) for value in (list(tensor_split) + [0.0] * n_devices)[:n_devices]]
    if n_devices and not any(splits):
        raise PoolError("tensor_split holds no share above 0: llama.cpp would then split by reported free memory")
    total = 0.0
    bounds = []
    for share in splits:
        total = float32(total + share)
        bounds.append(total)
    bounds = [float32(bound / total) for bound in bounds]
    first = max(n_layer + 1 - n_gpu_layers, 0)
    offloaded = 0 if n_devices == 0 else min(n_gpu_layers, n_layer + 1)
    devices = []
    for layer in range(n_layer + 1):
        if layer < first or layer - first >= offloaded:
            devices.append(CPU)
        else:
            devices.append(bisect_right(bounds, float32(float32(layer - first) / float32(offloaded))))
    return devices


def invert(layers: Sequence[int], n_layer: int, output_device: int | None = None) -> tuple[int, list[int]]:
    """(n_gpu_layers, tensor_split) that give each device exactly these layers; the rest stays in front on the CPU.

    The output goes to output_device, by default the last device that holds a layer. Integers whose sum is the
    number of offloaded layers divide by the same denominator as the layers do, so nothing is rounded away.
    """
    if output_device is None:
        holders = [index for index, count in enumerate(layers) if count > 0]
        if not holders:
            raise PoolError("no device holds a layer: there is no split to write")
        output_device = holders[-1]
    if any(count for count in layers[output_device + 1 :]):
        raise PoolError("the output must be on the last device that holds a layer")
    split = list(layers)
    split[output_device] += 1
    n_gpu_layers = sum(split)
    if n_gpu_layers > n_layer + 1:
        raise PoolError(f"{sum(layers)} layers are to be placed, but the model has {n_layer}")
    wanted = [CPU] * (n_layer + 1 - n_gpu_layers)
    for index, count in enumerate(split):
        wanted += [index] * count
    if assign(n_layer, n_gpu_layers, split, len(split)) != wanted:
        raise PoolError(f"llama.cpp would not place {list(layers)} as {split} of {n_layer} layers")
    return n_gpu_layers, split
