# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs of a machine one process can use, how much of them, and under which environment."""

from __future__ import annotations

import copy
import dataclasses
import json

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gpu import record, visible
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.machines import backends
from ansible_collections.relay.pool.plugins.plugin_utils.machines.nodes import machine
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.server import dialect
from ansible_collections.relay.pool.plugins.plugin_utils.views.table import plan_table

MIB = 1024 * 1024


def gpu(index, device, free, uuid=None, visible_devices=None, **fields):
    """A GPU with so many free MiB, as node_facts returns it."""
    return {
        "index": index,
        "vendor": {"CUDA": "nvidia", "ROCm": "amd", "SYCL": "intel", "MTL": "apple"}[backends.prefix(device)],
        "name": "some GPU",
        "uuid": uuid,
        "bus_id": None,
        "device": device,
        "visible_devices": visible_devices,
        "memory_total_bytes": free * MIB,
        "memory_free_bytes": free * MIB,
        "memory_own_bytes": 0,
        "unified_memory": False,
        "partition_of": None,
        "placeable": True,
        "reason": None,
        "overridden": [],
        **fields,
    }


def parts(*sizes):
    """A GPU that is split, and its parts."""
    whole = gpu(0, "CUDA0", 9000, "GPU-w", placeable=False, reason="it is split into MIG devices")
    return [
        dict(whole, device=None),
        *(
            gpu(None, "CUDA0", size, f"MIG-{n}", f"MIG-{n}", partition_of="GPU-w", bus_id="0000:01:00.0")
            for n, size in enumerate(sizes)
        ),
    ]


def made(gpus, **options):
    refused = []
    node = {"gpus": gpus, "memory": {"available_bytes": 4096 * MIB, "own_bytes": 0}, **options.pop("node", {})}
    return machine("a", node, None, refused, **options), refused


def uuids(member):
    return [device.uuid for device in member.gpus]


# -- one process sees one set of GPUs ---------------------------------------------------------------------------


def test_the_table_is_that_of_the_facts():
    for vendor in visible.BACKENDS.values():
        assert backends.variable(f"{vendor.prefix}3") == vendor.variable
        assert backends.lacking(f"{vendor.prefix}0", ("CPU",)) is not None


@pytest.mark.parametrize(
    ("gpus", "chosen"),
    [
        # whole GPUs that are seen alike are used together
        ([gpu(0, "CUDA0", 2000, "u0"), gpu(1, "CUDA1", 3000, "u1")], ["u0", "u1"]),
        ([gpu(0, "CUDA0", 2000, "u0", "u0,u2"), gpu(2, "CUDA1", 3000, "u2", "u0,u2")], ["u0", "u2"]),
        # of several sets, the one with most room beside its reserves
        (parts(2000, 4000, 3000), ["MIG-1"]),
        (parts(2000, 2000, 2000), ["MIG-0"]),
        ([gpu(0, "CUDA0", 4000, "n"), gpu(0, "ROCm0", 3000, "r0"), gpu(1, "ROCm1", 3000, "r1")], ["r0", "r1"]),
        ([gpu(0, "CUDA0", 4000, "n"), *(gpu(i, f"ROCm{i}", 600, f"r{i}") for i in range(9))], ["n"]),
        ([gpu(1, "ROCm1", 3000, "r"), gpu(0, "SYCL0", 3000, "i")], ["i"]),
        ([*parts(5000), gpu(1, "CUDA0", 3000, "u1", "u1"), gpu(2, "CUDA1", 3000, "u2", "u1")], ["u1", "u2"]),
        # Vulkan finds GPUs of any vendor, and has no list of uuids
        ([gpu(0, "CUDA0", 2000, "n") | {"device": "Vulkan0", "visible_devices": "n"}], ["n"]),
        (
            [
                gpu(0, "CUDA0", 2000, "n") | {"device": "Vulkan0", "visible_devices": "n"},
                gpu(0, "ROCm0", 2000, "r") | {"device": "Vulkan1"},
            ],
            ["n", "r"],
        ),
    ],
)
def test_the_gpus_that_one_process_uses(gpus, chosen):
    member, refused = made(gpus)
    assert uuids(member) == chosen
    others = [entry for entry in gpus if entry["placeable"] and entry["uuid"] not in chosen]
    left_out = [entry for entry in refused if entry["reason"] == "other_visible_devices"]
    assert [entry["device"] for entry in left_out] == [other["device"] for other in others]
    assert len(refused) - len(left_out) == sum(not entry["placeable"] for entry in gpus)


def test_why_a_gpu_is_left_out_and_how_it_is_not():
    _member, refused = made(parts(2000, 4000))
    assert refused[0]["message"] == "a GPU 0: it is split into MIG devices"
    assert refused[1]["message"] == (
        "a CUDA0 (MIG-0) is left out: a process has one CUDA_VISIBLE_DEVICES, and the plan has MIG-1: "
        "set CUDA_VISIBLE_DEVICES to MIG-0 in relay_environment to have this one instead"
    )
    _member, refused = made([gpu(0, "CUDA0", 2000, "n"), gpu(0, "ROCm0", 3000, "r0")])
    assert refused[0]["message"] == (
        "a CUDA0 is left out: a process uses the GPUs of one back end, and the plan has those of ROCm: "
        "set placeable to false for those in relay_overrides to have this one instead"
    )
    _member, refused = made([gpu(0, "CUDA0", 2000, "u0"), *parts(3000)[1:]])
    assert "and the plan has MIG-0: set placeable to false" in refused[0]["message"]
    _member, refused = made([gpu(0, "CUDA0", 4000, "u0"), *parts(3000)[1:]])
    assert "and the plan has the GPUs that are seen without: set CUDA_VISIBLE_DEVICES to MIG-0" in refused[0]["message"]


def test_two_gpus_of_one_name_cannot_be_told_apart():
    member, refused = made([gpu(0, "CUDA0", 2000, "u0"), gpu(1, "CUDA0", 3000, "u1")])
    assert uuids(member) == ["u0"]
    assert refused[0]["reason"] == "same_name"


def test_memory_is_shared_within_the_set_only():
    unified = {"unified_memory": True}
    member, refused = made(
        [
            gpu(0, "CUDA0", 3000, "n", **unified),
            gpu(0, "ROCm0", 5000, "r0", **unified),
            gpu(1, "ROCm1", 5000, "r1", **unified),
        ]
    )
    assert uuids(member) == ["r0"]
    assert [(entry["device"], entry["reason"]) for entry in refused] == [
        ("ROCm1", "shared_memory"),
        ("CUDA0", "other_visible_devices"),
    ]


def test_a_machine_offers_more_gpus_than_llama_cpp_takes():
    """Which of them are used is for the plan to say, which knows how fast they are."""
    many = [gpu(i, f"CUDA{i}", 1000 + i, f"u{i}") for i in range(17)]
    member, refused = made([*many, gpu(0, "ROCm0", 600, "r")])
    assert len(member.gpus) == 17
    assert [(entry["device"], entry["reason"]) for entry in refused] == [("ROCm0", "other_visible_devices")]


# -- the build ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "chosen", "lacking"),
    [
        ((), "r", []),
        (("CPU", "CUDA", "RPC"), "n", ["ROCm0", "SYCL0"]),
        (("CPU", "CUDA", "ROCm", "RPC"), "r", ["SYCL0"]),
        (("SYCL",), "s", ["CUDA0", "ROCm0"]),
        (("CPU", "Metal"), None, ["CUDA0", "ROCm0", "SYCL0"]),
    ],
)
def test_gpus_for_which_the_build_has_no_back_end(build, chosen, lacking):
    gpus = [gpu(0, "CUDA0", 2000, "n"), gpu(0, "ROCm0", 3000, "r"), gpu(0, "SYCL0", 1000, "s")]
    member, refused = made(gpus, build=build)
    assert uuids(member) == ([chosen] if chosen else [])
    assert [entry["device"] for entry in refused if entry["reason"] == "no_backend"] == lacking


def test_a_missing_back_end_is_said_with_the_way_out():
    _member, (entry,) = made([gpu(0, "ROCm0", 3000)], build=("CPU", "CUDA", "RPC"))
    assert entry["message"] == (
        "a ROCm0: the llama.cpp on a has no ROCm back end, only CPU, CUDA, RPC: build it with -DGGML_HIP=ON, "
        "or state the device of that build which this GPU is in relay_overrides"
    )


@pytest.mark.parametrize(("device", "build"), [("MTL0", ("Metal",)), ("Metal", ("Metal",)), ("MUSA0", ("CPU",))])
def test_names_that_differ_from_those_of_the_back_end_and_back_ends_that_nobody_looks_for(device, build):
    member, refused = made([{"device": device, "memory_free_bytes": 900 * MIB}], build=build)
    assert [entry.name for entry in member.gpus] == [device]
    assert refused == []


def test_the_build_is_that_of_the_machine(ask, world):
    amd = world.node(2, [3000])
    amd["gpus"][0]["device"] = "ROCm0"
    llama = {"flags": [*dialect.REQUIRED, *dialect.REQUIRED_SHARDED], "backends": ["CPU", "CUDA", "RPC"]}
    # nobody has looked at the worker's build
    assert make_plan(ask([900], amd, llama=llama))["host"] == "b"
    plan = make_plan(ask([3000], dict(amd, backends=["CPU", "CUDA", "RPC"]), llama=llama))
    assert [(entry["host"], entry["reason"]) for entry in plan["refused"]] == [("b", "no_backend"), ("b", "no_gpu")]
    amd["gpus"][0]["memory_free_bytes"] = 9000 * MIB
    with pytest.raises(
        PoolError, match=r"no usable GPU on a: set relay_allow_cpu .* \(not counted: a ROCm0: .* no ROCm"
    ):
        make_plan(ask(dict(amd, backends=["ROCm"]), llama=llama))


def test_what_is_not_counted_is_said_when_nothing_fits(ask):
    with pytest.raises(PoolError, match=r"\(not counted: a CUDA1: the free memory could not be read\)$"):
        make_plan(ask([700, None]))


# -- messages ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ({"index": 0, "uuid": "GPU-u", "bus_id": "0000:01:00.0"}, "a GPU 0"),
        ({"index": None, "uuid": "GPU-u", "bus_id": "0000:01:00.0"}, "a GPU GPU-u"),
        ({"index": None, "uuid": None, "bus_id": "0000:01:00.0"}, "a GPU 0000:01:00.0"),
        ({"bus_id": "", "name": "Some Card"}, "a GPU Some Card"),
        ({"device": "CUDA7", "index": 1}, "a CUDA7"),
        ({}, "a GPU of which nothing is known"),
    ],
)
@pytest.mark.parametrize(
    ("state", "reason", "rest"),
    [
        ({"placeable": False, "reason": "lost"}, "not_placeable", ": lost"),
        ({"placeable": False}, "not_placeable", ": marked as not placeable"),
        ({}, "unknown_memory", ": the free memory could not be read"),
        ({"reason": "run it as root"}, "unknown_memory", ": the free memory could not be read: run it as root"),
    ],
)
def test_a_gpu_is_named_by_what_is_known_of_it(fields, label, state, reason, rest):
    _member, (entry,) = made([{**fields, **state}])
    assert entry == {"host": "a", "device": fields.get("device"), "reason": reason, "message": label + rest}


def test_a_gpu_without_a_name_in_llama_cpp(ask):
    _member, (entry,) = made([{"uuid": "GPU-u", "memory_free_bytes": MIB}])
    assert (entry["device"], entry["message"]) == (None, "a GPU GPU-u: llama.cpp's name of it is unknown")
    request = ask({**ask([1]).nodes["a"], "gpus": parts(3000)})
    plan = make_plan(request)
    assert "None" not in plan_table(plan) + json.dumps(plan["refused"])


# -- how much ----------------------------------------------------------------------------------------------------


def held(plan, host, place):
    """Bytes that the plan's units hold in RAM (CPU) or on the GPUs of a machine."""
    return sum(
        stage["memory"]["total_bytes"] - stage["memory"]["reserve_bytes"]
        for stage in plan["stages"]
        if stage["host"] == host and (stage["device"] == "CPU") == (place == "CPU")
    )


def running(node, in_ram, on_gpu):
    """The same machine while its units hold so much."""
    node = copy.deepcopy(node)
    shared = any(entry["unified_memory"] for entry in node["gpus"])
    node["memory"]["own_bytes"] = in_ram
    node["memory"]["available_bytes"] -= in_ram + (on_gpu if shared else 0)
    for entry in node["gpus"]:
        entry["memory_own_bytes"] = on_gpu
        entry["memory_free_bytes"] -= on_gpu
        if shared:
            entry["memory_free_bytes"] = min(entry["memory_free_bytes"], node["memory"]["available_bytes"])
    return node


def unified(total, free):
    return [gpu(0, "CUDA0", total, "GPU-g", unified_memory=True, memory_free_bytes=free * MIB)]


# 2400 of 2600 MiB of RAM are free. The GPU may have all of that, 1800 or 2500 MiB of it, or memory of its own.
GB10, PART, MOST = unified(2600, 2400), unified(1800, 1750), unified(2500, 2400)
DISCRETE = [gpu(0, "CUDA0", 2000, "GPU-d")]
KINDS = [GB10, PART, MOST, DISCRETE, []]


@pytest.mark.parametrize("host", KINDS)
@pytest.mark.parametrize("worker", KINDS)
@pytest.mark.parametrize("layer_mib", [100, 200])
def test_a_running_pool_is_as_large_as_an_idle_one(ask, world, host, worker, layer_mib):
    def node(number, gpus):
        made = world.node(number, ram=2400, gpus=[])
        gpus = [dict(entry, uuid=f"{entry['uuid']}-{number}") for entry in gpus]
        return {**made, "memory": {**made["memory"], "total_bytes": 2600 * MIB}, "gpus": gpus}

    request = ask(node(1, host), node(2, worker), allow_cpu=True, model=world.gguf(layer_mib=layer_mib))
    idle = make_plan(request)
    nodes = {
        name: running(entry, held(idle, name, "CPU"), held(idle, name, "GPU")) for name, entry in request.nodes.items()
    }
    if not nodes["b"]["gpus"] and idle["kind"] == "sharded":
        assert nodes["b"]["memory"]["own_bytes"] > 0
    request = dataclasses.replace(request, nodes=nodes)
    assert make_plan(request) == idle
    assert make_plan(dataclasses.replace(request, previous=idle)) == {**idle, "kept": True}


@pytest.mark.parametrize(
    ("node", "fields", "ram", "on_gpu"),
    [
        # what the machine's units hold on a GPU of its own is not in RAM
        ({}, {"memory_own_bytes": 300 * MIB}, 1000, 1300),
        ({}, {"memory_own_bytes": 300 * MIB, "unified_memory": True}, 1300, 1300),
        ({"own": 50}, {"memory_own_bytes": 300 * MIB, "unified_memory": True}, 1350, 1350),
        ({"own": 50}, {"memory_own_bytes": None, "unified_memory": True}, 1050, 1050),
        ({"own": None}, {"memory_own_bytes": None}, 1000, 1000),
        # all of the RAM may be the GPU's, although it was read a moment later
        (
            {"own": 50, "total_bytes": 2000 * MIB},
            {
                "memory_own_bytes": 300 * MIB,
                "unified_memory": True,
                "memory_total_bytes": 2000 * MIB,
                "memory_free_bytes": 999 * MIB,
            },
            1350,
            1349,
        ),
        # never more than there is
        ({"total_bytes": 1200 * MIB}, {"memory_own_bytes": 300 * MIB, "unified_memory": True}, 1200, 1300),
        ({"own": 50}, {"memory_own_bytes": 300 * MIB, "memory_total_bytes": 1250 * MIB}, 1050, 1250),
        # what is stated is meant to be all
        (
            {"own": 50},
            {"memory_own_bytes": 0, "unified_memory": True, "overridden": ["memory_free_bytes"]},
            1050,
            1000,
        ),
        ({"stated": True}, {"memory_own_bytes": 300 * MIB, "unified_memory": True}, 1000, 1300),
    ],
)
def test_what_the_units_hold_is_counted_once(node, fields, ram, on_gpu):
    memory = {"available_bytes": 1000 * MIB, "own_bytes": node.get("own", 0) and node["own"] * MIB}
    memory["total_bytes"] = node.get("total_bytes")
    entry = {"index": 0, "device": "CUDA0", "memory_free_bytes": 1000 * MIB, **fields}
    overrides = ["memory.available_bytes"] if node.get("stated") else []
    member, _refused = made([entry], node={"memory": memory, "overrides": overrides})
    assert (member.ram.capacity_bytes // MIB, member.gpus[0].capacity_bytes // MIB) == (ram, on_gpu)


@pytest.mark.parametrize(
    ("fields", "overrides", "stated"),
    [
        ({"overridden": ["memory_free_bytes"]}, [], True),
        ({"overridden": ["placeable"]}, ["gpus.0.memory_free_bytes"], False),
        ({}, ["gpus.0.memory_free_bytes"], True),
        ({"overridden": None}, ["gpus.0.memory_free_bytes"], True),
        ({}, ["gpus.1.memory_free_bytes", "memory.available_bytes"], False),
    ],
)
def test_a_stated_size_is_an_intention(fields, overrides, stated):
    entry = {"index": 0, "device": "CUDA0", "memory_free_bytes": MIB, **fields}
    member, _refused = made([entry], node={"overrides": overrides})
    assert member.gpus[0].overridden == stated


def test_a_node_given_outright_may_lack_nearly_everything(ask):
    sparse = {"gpus": [{"device": "CUDA0", "memory_free_bytes": 1300 * MIB}], "memory": {"available_bytes": 2**32}}
    plan = make_plan(ask(dict(sparse, address="10.0.0.1"), dict(sparse, address="10.0.0.2")))
    assert (plan["kind"], plan["server_environment"], plan["workers"][0]["environment"]) == ("sharded", {}, {})


# -- the environment ---------------------------------------------------------------------------------------------


def with_gpus(node, gpus):
    return {**node, "gpus": gpus}


@pytest.fixture
def split_pool(ask, world):
    """A host that uses two of its three GPUs, and a worker whose GPU is split."""
    seen = "GPU-0,GPU-2"
    lost = gpu(1, "CUDA1", 1, "GPU-1", placeable=False, reason="fell off the bus", memory_free_bytes=None)
    host = [gpu(0, "CUDA0", 900, "GPU-0", seen), dict(lost, device=None), gpu(2, "CUDA1", 900, "GPU-2", seen)]
    return ask(with_gpus(world.node(1), host), with_gpus(world.node(2), parts(1300, 1100)), [900])


def test_the_plan_says_under_which_environment_its_names_hold(split_pool):
    plan = make_plan(split_pool)
    assert plan["devices"] == ["RPC0", "CUDA0", "CUDA1"]
    assert plan["server_environment"] == {"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-2"}
    assert [worker["environment"] for worker in plan["workers"]] == [{"CUDA_VISIBLE_DEVICES": "MIG-0"}]
    lines = plan_table(plan).splitlines()
    assert "worker   b: CUDA_VISIBLE_DEVICES=MIG-0 ggml-rpc-server --host 10.0.0.2 --port 50052" in plan_table(plan)
    assert any(line.startswith("server   a: CUDA_VISIBLE_DEVICES=GPU-0,GPU-2 llama-server --model") for line in lines)


@pytest.mark.parametrize(
    ("environment", "devices", "planned"),
    [
        ({}, ["CUDA0", "CUDA1"], {"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-2"}),
        # the unit gets what the user says, and the plan is for that
        ({"CUDA_VISIBLE_DEVICES": "2"}, ["CUDA0"], {}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2,GPU-0"}, ["CUDA0", "CUDA1"], {}),
    ],
)
def test_the_names_that_the_facts_give(ask, world, environment, devices, planned):
    gpus = [
        record.new("nvidia", index, uuid=f"GPU-{index}", memory_free_bytes=(2000 + 1000 * index) * MIB)
        for index in range(3)
    ]
    record.refuse(gpus[1], "it fell off the bus")
    visible.name_devices("nvidia", gpus, environment)
    plan = make_plan(ask(with_gpus(world.node(1), gpus), model=world.gguf(n_layer=20)))
    assert plan["server_environment"] == planned
    assert sorted(entry["device"] for entry in plan["inputs"]["devices"][1:]) == devices


def test_long_lists_of_gpus_break_between_words(ask, world):
    names = [f"GPU-{number}-aaaa-bbbb-cccc-dddddddddddd" for number in range(3)]
    gpus = [gpu(i, f"CUDA{i}", 3000, name, ",".join(names)) for i, name in enumerate(names)]
    lines = plan_table(make_plan(ask(with_gpus(world.node(1), gpus)))).splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("server"))
    assert lines[at] == f"server   a: CUDA_VISIBLE_DEVICES={','.join(names)} \\"
    assert lines[at + 1].split()[0] == "llama-server"


@pytest.mark.parametrize(
    ("device", "variable"), [("ROCm0", "ROCR_VISIBLE_DEVICES"), ("CUDA0", "CUDA_VISIBLE_DEVICES"), ("SYCL0", None)]
)
def test_the_variable_is_that_of_the_vendor(ask, world, device, variable):
    node = with_gpus(world.node(1), [gpu(0, device, 3000, "GPU-0", "GPU-0")])
    assert make_plan(ask(node))["server_environment"] == ({variable: "GPU-0"} if variable else {})


def test_a_server_without_a_gpu_needs_none(ask, world, split_pool):
    host = [gpu(0, "CUDA0", 520, "GPU-0", "GPU-0")]
    nodes = {**split_pool.nodes, "a": with_gpus(world.node(1), host), "c": world.node(3, [1300])}
    plan = make_plan(dataclasses.replace(split_pool, nodes=nodes))
    assert not any(stage["transport"] == "local" and stage["n_layers"] for stage in plan["stages"])
    assert plan["server_environment"] == {}


def test_a_draft_alone_on_its_gpu_needs_it(ask, world):
    draft = world.gguf("/models/draft.gguf", n_layer=2, layer_mib=20, embd_mib=10, output_mib=10)
    gpus = [gpu(i, f"CUDA{i}", size, f"GPU-{i}", "GPU-0,GPU-1") for i, size in enumerate((3000, 900))]
    options = {"draft": draft, "draft_path": draft["path"], "draft_scope": "any", "draft_device": "CUDA1"}
    plan = make_plan(ask(with_gpus(world.node(1), gpus), **options))
    assert plan["draft"]["device"] == "CUDA1"
    assert plan["server_environment"] == {"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1"}


@pytest.mark.parametrize("name", ["a", "b"])
def test_another_environment_is_another_plan(split_pool, name):
    first = make_plan(split_pool)
    assert make_plan(dataclasses.replace(split_pool, previous=json.loads(json.dumps(first)))) == {**first, "kept": True}
    nodes = copy.deepcopy(split_pool.nodes)
    for entry in nodes[name]["gpus"]:
        entry["visible_devices"] = entry["visible_devices"] and entry["visible_devices"] + ",GPU-9"
    plan = make_plan(dataclasses.replace(split_pool, nodes=nodes, previous=first))
    assert not plan["kept"]
    assert plan_table(plan) != plan_table(first)
    # a plan that was edited by hand is not what its own layout gives
    edited = copy.deepcopy(first)
    (edited["server_environment"] if name == "a" else edited["workers"][0]["environment"]).update(X="1")
    assert not make_plan(dataclasses.replace(split_pool, previous=edited))["kept"]


def test_a_running_pool_stays_on_its_part_of_a_gpu(ask, world):
    gpus = parts(2500, 2500)
    request = ask(with_gpus(world.node(1), gpus))
    first = make_plan(request)
    assert first["server_environment"] == {"CUDA_VISIBLE_DEVICES": "MIG-0"}
    now = copy.deepcopy(gpus)
    # 3 MiB are in no account, as with every process that uses a GPU
    now[1].update(memory_free_bytes=1000 * MIB, memory_own_bytes=1497 * MIB)
    request = dataclasses.replace(request, nodes={"a": with_gpus(world.node(1), now)})
    assert make_plan(dataclasses.replace(request, previous=first))["kept"]
    # but a plan that is made anew looks for most room
    anew = make_plan(dataclasses.replace(request, previous=first, ctx_size=8192))
    assert (anew["kept"], anew["server_environment"]) == (False, {"CUDA_VISIBLE_DEVICES": "MIG-1"})


def test_more_for_a_part_of_a_gpu_is_not_more_for_the_others(ask, world):
    unknown = dict(parts(1)[1], uuid="MIG-9", visible_devices="MIG-9", memory_free_bytes=None)
    request = ask(with_gpus(world.node(1), [*parts(600, 900), unknown]))
    with pytest.raises(PoolError, match=r"give a CUDA0 [0-9 ]+ MiB more") as caught:
        make_plan(request)
    more = int(str(caught.value).split("give a CUDA0 ")[1].split(" MiB")[0].replace(" ", ""))
    assert make_plan(ask(with_gpus(world.node(1), parts(600, 900 + more))))["kind"] == "replica"
    with pytest.raises(PoolError):
        make_plan(ask(with_gpus(world.node(1), parts(600, 900 + more - 64))))
