# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans to look at, made by the planner: CPUs with a draft, GPUs of three vendors, a replica."""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

from tests.unit.plugins.plugin_utils.conftest import MIB, World

DRAFT = {
    "draft": World.gguf("/srv/models/small.gguf", n_layer=30, layer_mib=7, embd_mib=30, output_mib=0),
    "draft_path": "/srv/models/small.gguf",
}


def _plan(nodes, model, **options):
    host, *workers = nodes
    return make_plan(Request(model=model, host=host, workers=tuple(workers), nodes=nodes, **options))


def _link(name, rtt_seconds, speed_mbps):
    return {"name": name, "rtt_seconds": rtt_seconds, "speed_mbps": speed_mbps, "interface": "eth0", "wireless": False}


def cpus():
    """Three CPUs, sharded, with a draft on the host."""
    links = [_link("node2", 0.00021, 10000), _link("node3", None, None)]
    nodes = {
        "node1": World.node(1, ram=700, links=links),
        "node2": World.node(2, ram=620),
        "node3": World.node(3, ram=620),
    }
    for node in nodes.values():
        node["memory"]["bandwidth_bytes_per_second"] = 20 * 10**9
    model = World.gguf("/srv/models/big.gguf", n_layer=120, layer_mib=7, embd_mib=30, output_mib=0)
    return _plan(nodes, model, allow_cpu=True, ctx_size=2048, parallel=1, reserve_bytes=64 * MIB, **DRAFT)


def vendors():
    """Five GPUs of three vendors on three machines; much RAM on the host, and a GPU that cannot be used."""
    links = [_link("mac", 0.0009, 1000), _link("amd", 0.00018, 10000)]
    nodes = {
        "rig": World.node(1, [23900, 11900], ram=96000, links=links),
        "mac": World.node(2, [30000], ram=40000),
        "amd": World.node(3, [16100, 7900], ram=30000),
    }
    nodes["mac"]["gpus"][0].update(device="MTL0", unified_memory=True)
    for index, gpu in enumerate(nodes["amd"]["gpus"]):
        gpu.update(device=f"ROCm{index}", visible_devices="0,1")
    unusable = {"index": 2, "device": "ROCm2", "placeable": False, "reason": "the driver reports no memory"}
    nodes["amd"]["gpus"].append({**nodes["amd"]["gpus"][0], **unusable, "uuid": "GPU-x", "memory_free_bytes": None})
    model = World.gguf("/models/large.gguf", n_layer=80, layer_mib=820, embd_mib=1000, output_mib=1000)
    return _plan(nodes, model, ctx_size=32768, parallel=4, **DRAFT)


def replica():
    """The whole model on a worker whose RAM is unknown."""
    nodes = {"gpu0": World.node(1, [11000], ram=64000), "gpu1": World.node(2, [23900], ram=None)}
    model = World.gguf("/models/coder.gguf", n_layer=48, layer_mib=280, embd_mib=400, output_mib=500)
    return _plan(nodes, model, ctx_size=16384, parallel=2, **DRAFT)
