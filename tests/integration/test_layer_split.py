# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layers that llama-server puts on each device are exactly those that the planner meant."""

from __future__ import annotations

import random

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import CPU, assign, invert

# (seed, devices, whether the host's CPU keeps the first layers)
SPLITS = [(seed, 2 + seed % 2, seed % 4 >= 2) for seed in range(12)]


def random_split(seed: int, n_devices: int, cpu_layers: bool) -> tuple[int, list[int]]:
    """(layers of the model, layers of each device): every device holds at least one, the CPU at least one if asked."""
    rng = random.Random(seed)
    n_layers = rng.randint(n_devices + 3, 64)
    placed = rng.randint(n_devices, n_layers - 1) if cpu_layers else n_layers
    cuts = sorted(rng.sample(range(1, placed), n_devices - 1))
    return n_layers, [end - start for start, end in zip([0, *cuts], [*cuts, placed])]


def load_only(model, workers, n_gpu_layers, tensor_split) -> list:
    """Arguments that load the model on these workers, log the layers, and spend no time on anything else."""
    return [
        "--model", model, "--rpc", ",".join(worker.endpoint for worker in workers),
        "--device", ",".join(f"RPC{index}" for index in range(len(workers))),
        "--tensor-split", ",".join(str(share) for share in tensor_split), "--n-gpu-layers", n_gpu_layers,
        "--ctx-size", 256, "--parallel", 1, "--threads", 1, "--fit", "off", "--no-warmup", "-lv", 5,
    ]  # fmt: skip


@pytest.mark.parametrize(("seed", "n_devices", "cpu_layers"), SPLITS)
def test_random_split(tiny_model, workers, server, seed, n_devices, cpu_layers):
    n_layers, wanted = random_split(seed, n_devices, cpu_layers)
    n_gpu_layers, tensor_split = invert(wanted, n_layers)
    with server(load_only(tiny_model(n_layers), workers(n_devices), n_gpu_layers, tensor_split)) as running:
        devices = running.layers()

    assert len(devices) == n_layers + 1
    assert [devices[:-1].count(f"RPC{index}") for index in range(n_devices)] == wanted
    assert devices[:-1].count("CPU") == n_layers - sum(wanted)
    assert devices[-1] == f"RPC{n_devices - 1}"
    predicted = assign(n_layers, n_gpu_layers, tensor_split, n_devices)
    assert devices == ["CPU" if device == CPU else f"RPC{device}" for device in predicted]


def test_split_that_is_rounded(tiny_model, workers, server):
    """A split that the planner would not write, to see that the arithmetic agrees where float32 rounds."""
    n_layers, tensor_split = 37, [0.3, 0.7]
    with server(load_only(tiny_model(n_layers), workers(2), n_layers, tensor_split)) as running:
        devices = running.layers()
    predicted = assign(n_layers, n_layers, tensor_split, 2)
    assert devices == ["CPU" if device == CPU else f"RPC{device}" for device in predicted]
