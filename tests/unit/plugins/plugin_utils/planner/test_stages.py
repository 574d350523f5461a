# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which name and which layers a device of a sharded plan has: RPC0 and so on, and the split that llama.cpp reads."""

from __future__ import annotations

from random import Random

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import CPU, assign
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import model_ledger
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan

from tests.scale.pools import KINDS, random_model

GIGABIT = {"speed_mbps": 1000, "rtt_seconds": 0.0005}


def value(plan, flag):
    return plan["server_args"][plan["server_args"].index(flag) + 1]


def named(plan):
    """(machine, its own name of the device, llama-server's name of it) of every stage that holds something."""
    return [
        (stage["host"], stage["device"], stage["rpc_device"] or stage["device"])
        for stage in plan["stages"]
        if stage["n_layers"] or stage["has_output"]
    ]


def counted(plan, n_layer):
    """Layers by device, the host's CPU first, as llama.cpp reads the command line."""
    offload = value(plan, "--n-gpu-layers")
    split = [int(share) for share in value(plan, "--tensor-split").split(",")]
    devices = assign(n_layer, -1 if offload == "all" else int(offload), split, len(split))
    return [devices[:-1].count(device) for device in (CPU, *range(len(split)))]


def test_the_devices_of_one_worker_are_numbered_one_after_the_other(ask):
    """llama.cpp counts over the servers in the order of --rpc, and over the devices of each."""
    plan = make_plan(ask([400], [420, 410], [420], [400, 420], reserve_bytes=0, model=None, ctx_size=512))
    assert named(plan)[-1] == ("a", "CUDA0", "CUDA0")
    remote = named(plan)[:-1]
    assert [name for _host, _device, name in remote] == [f"RPC{number}" for number in range(len(remote))]
    assert len(remote) >= 2
    assert value(plan, "--device") == ",".join([*(name for _host, _device, name in remote), "CUDA0"])
    assert value(plan, "--rpc") == ",".join(dict.fromkeys(s["endpoint"] for s in plan["stages"] if s["endpoint"]))


def test_a_device_that_is_not_used_has_no_number(ask, world):
    """A worker offers only the devices of the plan, so an idle one before a used one moves no number."""
    node = world.node(2, [150, 1000, 150, 1000])
    plan = make_plan(ask([], node, world.node(3, [150, 900]), reserve_bytes=0, model=world.gguf(n_layer=20)))
    assert named(plan) == [("b", "CUDA1", "RPC0"), ("b", "CUDA3", "RPC1"), ("c", "CUDA1", "RPC2")]
    assert [worker["devices"] for worker in plan["workers"]] == [["CUDA1", "CUDA3"], ["CUDA1"]]
    for worker in plan["workers"]:
        assert worker["args"][worker["args"].index("--device") + 1] == ",".join(worker["devices"])


def test_vendors_may_differ_between_machines(ask, world):
    """Everything behind --rpc is an RPC device, whatever it is there; the host's own keep the vendor's name."""
    nvidia, amd, apple = world.node(1, [700]), world.node(2, [700]), world.node(3, [700])
    amd["gpus"][0].update(device="ROCm0", visible_devices="0")
    apple["gpus"][0].update(device="Metal", unified_memory=True)
    plan = make_plan(ask(nvidia, amd, apple, reserve_bytes=0, model=world.gguf(n_layer=14)))
    assert named(plan) == [("b", "ROCm0", "RPC0"), ("c", "Metal", "RPC1"), ("a", "CUDA0", "CUDA0")]
    assert [worker["devices"] for worker in plan["workers"]] == [["ROCm0"], ["Metal"]]
    assert plan["workers"][0]["environment"] == {"ROCR_VISIBLE_DEVICES": "0"}
    assert plan["server_environment"] == {}


def test_a_host_without_a_gpu_takes_no_number_and_the_first_layers(ask, world):
    nodes = [world.node(1, ram=900), world.node(2, [350, 350]), world.node(3, [350])]
    plan = make_plan(ask(*nodes, allow_cpu=True, reserve_bytes=0))
    first, *others = named(plan)
    assert first == ("a", "CPU", "CPU")
    assert [name for _host, _device, name in others] == [f"RPC{number}" for number in range(len(others))]
    assert value(plan, "--device") == ",".join(name for _host, _device, name in others)
    layers = [stage["n_layers"] for stage in plan["stages"]]
    assert layers[0] > 0
    assert counted(plan, 10) == layers
    assert int(value(plan, "--n-gpu-layers")) == 11 - layers[0]


def test_layers_for_drafting_count_in_the_split_though_they_are_not_loaded(ask, world):
    """block_count has the NextN layers, and llama.cpp splits over all of it: they weigh nothing, they do count."""
    model = world.gguf(n_layer=12, arch="glm4moe", nextn_predict_layers=2)
    plan = make_plan(ask([1150], [1150], model=model, ctx_size=512))
    layers = [stage["n_layers"] for stage in plan["stages"]]
    assert sum(layers) == 12
    assert sum(plan["tensor_split"]) == 13
    assert counted(plan, 12) == layers
    whole = sum(stage["memory"]["weights_bytes"] for stage in plan["stages"])
    tensors = model["tensors"]
    outside = tensors["token_embd_bytes"] + tensors["output_bytes"] + tensors["output_norm_bytes"]
    assert whole == sum(tensors["blocks"][:10]) + outside


def test_a_second_gpu_of_a_worker_costs_less_network_than_another_machine(ask, world):
    """From one GPU of a worker to the next the activations stay there, which is worth more than an emptier GPU."""
    # Too little RAM to serve, so that there is no replica.
    pair, single = world.node(2, [700, 700], ram=10), world.node(3, [900], ram=10)
    for order in ((pair, single), (single, pair)):
        nodes = [{**node, "address": f"10.0.0.{number}"} for number, node in enumerate(order, 2)]
        host = world.node(1, [], links=[{"name": name, **GIGABIT} for name in "bc"])
        plan = make_plan(ask(host, *nodes, reserve_bytes=0))
        machine = "b" if order[0] is pair else "c"
        assert [host for host, _device, _name in named(plan)] == [machine, machine]
        assert plan["kind"] == "sharded"


@pytest.mark.parametrize("limit", [1000, 1])
def test_the_output_is_where_its_logits_are_soonest_back(ask, world, limit):
    """Of two workers of a host without a GPU the last holds the output; a slow way there is worth avoiding."""
    links = [
        {"name": "b", "speed_mbps": 1000, "rtt_seconds": 0.0005},
        {"name": "c", "speed_mbps": limit, "rtt_seconds": 0.0005},
        {"name": "d", "speed_mbps": 1000, "rtt_seconds": 0.0005},
    ]
    machines = [world.node(number, [900]) for number in (2, 3, 4)]
    plan = make_plan(ask(world.node(1, [], links=links), *machines, reserve_bytes=0))
    assert [host for host, _device, _name in named(plan)] == (["b", "c"] if limit == 1000 else ["b", "d"])


@pytest.mark.parametrize("kind", KINDS)
def test_what_its_own_layers_need_is_enough_for_a_device(ask, world, kind):
    """Three GPUs with not one byte more than some split needs: a worst case of its layers would refuse it."""
    rng = Random(3)
    model = next(model for model in iter(lambda: random_model(rng, 18, 60), None) if model["architecture"] == kind)
    nodes = [world.node(number, [1]) for number in (1, 2, 3)]
    request = ask(*nodes, model=model, ctx_size=65536, reserve_bytes=0)
    ledger = model_ledger(model, request.target_spec())
    spared = 0
    # The last one is the host's.
    for name, first, end in (("b", 0, 6), ("c", 6, 11), ("a", 11, 19)):
        layers, output = (first, min(end, 18)), end == 19
        compute = ledger.device_bytes(first == 0, True, output, layers, gpu=True)
        spared += ledger.device_bytes(first == 0, True, output, gpu=True) - compute
        held = ledger.layer_weights(*layers, True) + (ledger.output_weights(True) if output else 0)
        state = sum(ledger.kv[slice(*layers)] + ledger.recurrent[slice(*layers)])
        request.nodes[name]["gpus"][0]["memory_free_bytes"] = held + state + ledger.per_device + compute
    assert (spared > 0) == (kind in ("gemma3", "gemma3n", "jamba"))
    plan = make_plan(request)
    assert [stage["n_layers"] for stage in plan["stages"]] == [0, 6, 5, 7]
    assert [stage["memory"]["left_bytes"] for stage in plan["stages"][1:]] == [0, 0, 0]
