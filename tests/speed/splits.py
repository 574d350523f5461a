# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pool that is measured, as the planner sees it, and every split of its model that fits."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, NamedTuple

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout, stages
from ansible_collections.relay.pool.plugins.plugin_utils.machines.nodes import RAM_RESERVE_BYTES
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import Planner
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

from tests.speed.machines import ADDRESSES, ENDPOINTS, HOST, WORKERS

N_LAYER = 16
MIB = 1024 * 1024
# Layers that each machine has room for: no machine holds the model alone, the two quick ones nearly do.
ROOM = {HOST: 6, WORKERS[0]: 7, WORKERS[1]: 14}
# For what a machine needs beside layers.
BESIDE_BYTES = 24 * MIB


class Split(NamedTuple):
    """Layers of the host's CPU and of each worker."""

    host: int
    first: int
    second: int

    def args(self, model: str) -> list[str]:
        """llama-server's, with the plan's own way of writing a split."""
        workers = [(f"RPC{i}", ENDPOINTS[i], count) for i, count in enumerate(self[1:]) if count]
        names = ",".join(f"RPC{i}" for i in range(len(workers)))
        layers = [count for _name, _endpoint, count in workers]
        layers[-1] += 1
        n_gpu_layers = "all" if not self.host else str(sum(layers))
        return [
            "--model", model, "--rpc", ",".join(endpoint for _name, endpoint, _count in workers), "--device", names,
            "--tensor-split", ",".join(map(str, layers)), "--n-gpu-layers", n_gpu_layers, *COMMON, "--fit", "off",
        ]  # fmt: skip


COMMON = ["--parallel", "1", "--ctx-size", "512", "--threads", "1", "--cache-ram", "0"]


def by_default(model: str) -> list[str]:
    """llama-server's arguments of somebody who leaves the split to llama.cpp."""
    return ["--model", model, "--rpc", ",".join(ENDPOINTS), *COMMON]


def request(gguf: Mapping[str, Any], bandwidths: Mapping[str, float], rtts: Mapping[str, float]) -> Request:
    """The pool with so many bytes per second of each machine and seconds to each worker."""
    layer = gguf["tensors"]["blocks"][0]
    addresses = dict(zip(WORKERS, ADDRESSES))
    nodes = {
        name: {
            "memory": {
                "available_bytes": RAM_RESERVE_BYTES + BESIDE_BYTES + ROOM[name] * layer,
                "own_bytes": 0,
                "bandwidth_bytes_per_second": round(bandwidths[name]),
            },
            "cpu": {"physical_cores": 1},
            "address": addresses.get(name, "10.89.77.10"),
            "machine_id": name,
            "gpus": [],
        }
        for name in (HOST, *WORKERS)
    }
    nodes[HOST]["links"] = [{"name": name, "rtt_seconds": rtts[name]} for name in WORKERS]
    return Request(
        model=gguf, host=HOST, workers=WORKERS, nodes=nodes, ctx_size=512, parallel=1, allow_cpu=True, threads=1
    )


def chosen(plan: Mapping[str, Any]) -> Split:
    """The split of a plan."""
    layers = dict.fromkeys((HOST, *WORKERS), 0)
    for stage in plan["stages"]:
        layers[stage["host"]] += stage["n_layers"]
    return Split(layers[HOST], *(layers[name] for name in WORKERS))


def every(asked: Request) -> Iterator[Split]:
    """All splits that fit, by the ledger of every stage."""
    planner = Planner(asked)
    host, ledger = planner.pool.host, planner.ledger
    for split in (Split(n, m, N_LAYER - n - m) for n in range(N_LAYER) for m in range(N_LAYER - n + 1)):
        ends = (split.host, split.host + split.first, N_LAYER)
        parts = [(device, ends[i], ends[i + 1]) for i, device in enumerate(planner.pool.rpc) if split[1 + i]]
        # the output goes where the last layer is
        parts[-1] = (*parts[-1][:2], N_LAYER + 1)
        layout = Layout(host, ledger, split.host, tuple(parts), len(parts) > 1 and not split.host, None, (0, 0, 0))
        if all(stage["memory"]["left_bytes"] >= 0 for stage in stages(layout)):
            yield split
