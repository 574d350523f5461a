# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.relay.pool.plugins.module_utils import overrides
from ansible_collections.relay.pool.plugins.module_utils.gpu import record

MIG_REASON = "MIG is enabled: use its parts"


def nvidia(index, **known):
    return record.new("nvidia", index, **{"name": f"Card {index}", "device": f"CUDA{index}", **known})


FACTS = {
    "memory": {"total_bytes": 100, "available_bytes": 60, "own_bytes": 20, "bandwidth_bytes_per_second": None},
    "cpu": {"model": "EPYC", "threads": 8, "physical_cores": 4},
    "gpus": [
        nvidia(
            1,
            uuid="GPU-aa11",
            bus_id="0000:41:00.0",
            memory_total_bytes=80,
            memory_free_bytes=70,
            memory_own_bytes=5,
        ),
        nvidia(3, uuid="GPU-bb22", bus_id="0000:42:00.0", device=None, placeable=False, reason=MIG_REASON),
        nvidia(
            None, uuid="MIG-cc33", bus_id="0000:42:00.0", device="CUDA0", visible_devices="MIG-cc33", partition_of="x"
        ),
        record.new("amd", 1, name="Radeon", device="ROCm1", bus_id="0000:c3:00.0", memory_total_bytes=40),
        record.new("amd", 2, device="ROCm2", reason="the tool hides the sizes"),
        record.new("intel", None, name="Arc", bus_id="0000:04:00.0", placeable=False, reason="no driver is bound"),
    ],
}
PLACE = {"GPU-aa11": 0, "GPU-bb22": 1, "MIG-cc33": 2, "amd1": 3, "amd2": 4, "arc": 5}


def apply(values, facts=None):
    """The facts after what Ansible makes of the values, and the paths that were set."""
    checked = ArgumentSpecValidator({"overrides": overrides.argument_spec()}).validate({"overrides": values})
    assert not checked.error_messages
    facts = copy.deepcopy(FACTS if facts is None else facts)
    return facts, overrides.apply_overrides(facts, checked.validated_parameters["overrides"])


def apply_gpu(**entry):
    facts, done = apply({"gpus": [entry]})
    return facts["gpus"], done


@pytest.mark.parametrize(
    ("values", "memory"),
    [
        ({}, (100, 60, 20, None)),
        ({"available_bytes": 50}, (100, 50, 0, None)),
        ({"available_bytes": "50"}, (100, 50, 0, None)),
        ({"available_bytes": 100}, (100, 100, 0, None)),
        ({"available_bytes": 0}, (100, 0, 0, None)),
        # No more can be available than there is, nor available and held.
        ({"total_bytes": 70}, (70, 60, 10, None)),
        ({"total_bytes": 40}, (40, 40, 0, None)),
        ({"total_bytes": 200, "available_bytes": 150}, (200, 150, 0, None)),
        ({"bandwidth_bytes_per_second": 7}, (100, 60, 20, 7)),
    ],
)
def test_memory(values, memory):
    facts, done = apply({"memory": values})
    assert tuple(facts["memory"].values()) == memory
    assert done == [f"memory.{key}" for key in values]


def test_memory_that_no_probe_could_read():
    unread = {**FACTS, "memory": dict.fromkeys(FACTS["memory"])}
    facts, _done = apply({"memory": {"available_bytes": 9}}, unread)
    assert facts["memory"]["available_bytes"] == 9
    facts, _done = apply({"memory": {"total_bytes": 9, "available_bytes": 9}}, unread)
    assert tuple(facts["memory"].values()) == (9, 9, 0, None)


def test_own_memory_that_no_probe_could_read():
    unread = {**FACTS, "memory": {**FACTS["memory"], "own_bytes": None}}
    assert tuple(apply({"memory": {"total_bytes": 90}}, unread)[0]["memory"].values()) == (90, 60, 0, None)


def test_cpu():
    facts, done = apply({"cpu": {"model": "Xeon", "threads": 2, "physical_cores": 1}})
    assert facts["cpu"] == {"model": "Xeon", "threads": 2, "physical_cores": 1}
    assert done == ["cpu.model", "cpu.threads", "cpu.physical_cores"]


def test_no_core_is_without_a_thread():
    assert apply({"cpu": {"threads": 2}})[0]["cpu"]["physical_cores"] == 2
    assert apply({"cpu": {"threads": 9, "physical_cores": 9}})[0]["cpu"]["physical_cores"] == 9


@pytest.mark.parametrize("device", ["CUDA0", "ROCm12", "SYCL0", "MTL0", "Metal", "Vulkan1", "GPUOpenCL", "rpc0"])
def test_devices(device):
    assert apply_gpu(index=0, memory_total_bytes=4, device=device)[0][0]["device"] == device


@pytest.mark.parametrize("value", ["", "0", "0, 1", "GPU-aa11,GPU-5c0f4a2e", "MIG-GPU-5c0f/1/0", "-1", 1])
def test_visible_devices(value):
    assert apply_gpu(uuid="GPU-aa11", visible_devices=value)[0][0]["visible_devices"] == str(value)


@pytest.mark.parametrize("values", [{}, {"memory": {}}, {"gpus": []}, {"cpu": None}, {"memory": {"total_bytes": None}}])
def test_nothing_given(values):
    assert apply(values) == (FACTS, [])
    assert overrides.apply_overrides(copy.deepcopy(FACTS), None) == []


STATED = {
    "name": "Card",
    "device": "CUDA7",
    "visible_devices": "GPU-aa11",
    "driver": "570.1",
    "memory_total_bytes": 90,
    "memory_free_bytes": 60,
    "memory_own_bytes": 8,
    "unified_memory": True,
    "integrated": True,
    "placeable": False,
    "reason": "the screen needs it",
    "bandwidth_bytes_per_second": 900,
}


@pytest.mark.parametrize("name", STATED)
def test_every_value_of_a_gpu(name):
    gpus, done = apply_gpu(uuid="GPU-aa11", **{name: STATED[name]})
    assert gpus[0][name] == STATED[name]
    assert gpus[0]["overridden"] == [name]
    assert done == [f"gpus.GPU-aa11.{name}"]
    assert gpus[1:] == FACTS["gpus"][1:]


def test_all_values_of_a_gpu():
    gpus, done = apply_gpu(uuid="GPU-aa11", **STATED)
    assert {name: gpus[0][name] for name in STATED} == STATED
    assert gpus[0]["overridden"] == sorted(STATED)
    assert sorted(done) == sorted(f"gpus.GPU-aa11.{name}" for name in STATED)
    rest = set(record.new("nvidia", 0)) - set(STATED) - {"overridden"}
    assert rest == {"index", "vendor", "uuid", "bus_id", "partition_of", "source", "processes"}
    assert all(gpus[0][name] == FACTS["gpus"][0][name] for name in rest)


@pytest.mark.parametrize(
    ("selector", "gpu", "path"),
    [
        ({"index": 3}, "GPU-bb22", "gpus.3"),
        ({"index": "2"}, "amd2", "gpus.2"),
        ({"index": 1, "vendor": "amd"}, "amd1", "gpus.amd1"),
        ({"index": 1, "vendor": "nvidia"}, "GPU-aa11", "gpus.nvidia1"),
        ({"uuid": "GPU-bb22"}, "GPU-bb22", "gpus.GPU-bb22"),
        ({"uuid": " mig-CC33 "}, "MIG-cc33", "gpus.mig-CC33"),
        # The part of a GPU has the address of the whole one, which is meant.
        ({"bus_id": "0000:42:00.0"}, "GPU-bb22", "gpus.0000:42:00.0"),
        ({"bus_id": "00000000:C3:00.0"}, "amd1", "gpus.0000:c3:00.0"),
        ({"bus_id": "04:00.0"}, "arc", "gpus.0000:04:00.0"),
    ],
)
def test_how_a_gpu_is_selected(selector, gpu, path):
    gpus, done = apply_gpu(**selector, name="Chosen")
    assert [entry["name"] == "Chosen" for entry in gpus] == [place == PLACE[gpu] for place in range(len(gpus))]
    assert done == [f"{path}.name"]


@pytest.mark.parametrize(
    ("values", "memory"),
    [
        ({"memory_free_bytes": 60}, (80, 60, 0)),
        ({"memory_free_bytes": 60, "memory_own_bytes": 8}, (80, 60, 8)),
        # No more can be free, or free and held, than there is.
        ({"memory_total_bytes": 40}, (40, 40, 0)),
        ({"memory_total_bytes": 72}, (72, 70, 2)),
        ({"memory_own_bytes": 30}, (80, 70, 10)),
        ({"memory_total_bytes": 160, "memory_free_bytes": 120}, (160, 120, 0)),
        ({"memory_free_bytes": 0}, (80, 0, 0)),
        ({"name": "x"}, (80, 70, 5)),
    ],
)
def test_memory_of_a_gpu(values, memory):
    gpu = apply_gpu(uuid="GPU-aa11", **values)[0][0]
    assert (gpu["memory_total_bytes"], gpu["memory_free_bytes"], gpu["memory_own_bytes"]) == memory


def test_what_a_probe_says_against_itself_is_left_alone_until_it_is_stated():
    odd = {**FACTS, "gpus": [nvidia(0, memory_total_bytes=10, memory_free_bytes=9, memory_own_bytes=4)]}
    assert apply({"gpus": [{"index": 0, "name": "x"}]}, odd)[0]["gpus"][0]["memory_own_bytes"] == 4


UNKNOWN = "{} unknown: state it in the overrides"


@pytest.mark.parametrize(
    ("selector", "values", "placeable", "reason"),
    [
        # A refusal is taken back, with what was said for it.
        (
            "GPU-bb22",
            {"placeable": True, "device": "CUDA3", "memory_total_bytes": 9, "memory_free_bytes": 9},
            True,
            None,
        ),
        (
            "GPU-bb22",
            {"placeable": True, "device": "CUDA3", "memory_total_bytes": 9},
            True,
            UNKNOWN.format("memory_free_bytes"),
        ),
        (
            "GPU-bb22",
            {"placeable": "yes", "device": "CUDA3"},
            True,
            UNKNOWN.format("memory_total_bytes and memory_free_bytes"),
        ),
        ("GPU-bb22", {"placeable": True, "device": "CUDA3", "reason": "tried it"}, True, "tried it"),
        # Sizes take nothing back.
        ("GPU-bb22", {"memory_total_bytes": 9, "memory_free_bytes": 9}, False, MIG_REASON),
        ("GPU-aa11", {"placeable": False}, False, overrides.LEFT_OUT),
        ("GPU-aa11", {"placeable": False, "reason": "for the desktop"}, False, "for the desktop"),
        ("GPU-aa11", {"name": "x"}, True, None),
    ],
)
def test_the_reason_belongs_to_what_holds(selector, values, placeable, reason):
    gpu = apply_gpu(uuid=selector, **values)[0][PLACE[selector]]
    assert (gpu["placeable"], gpu["reason"]) == (placeable, reason)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"memory_free_bytes": 7}, "the tool hides the sizes"),
        ({"memory_total_bytes": 8, "memory_free_bytes": 7}, None),
        ({"name": "x"}, "the tool hides the sizes"),
    ],
)
def test_the_reason_of_an_unknown_number_stays_while_it_is_unknown(values, reason):
    assert apply_gpu(index=2, **values)[0][PLACE["amd2"]]["reason"] == reason


@pytest.mark.parametrize(
    ("entry", "place", "known", "path"),
    [
        # Listed where a probe would have listed it.
        ({"index": 0}, 0, {"vendor": "nvidia", "device": "CUDA0"}, "gpus.0"),
        ({"index": 9}, 3, {"vendor": "nvidia", "device": "CUDA9"}, "gpus.9"),
        ({"index": 0, "vendor": "amd"}, 3, {"vendor": "amd", "device": "ROCm0"}, "gpus.amd0"),
        ({"index": 0, "vendor": "intel"}, 6, {"vendor": "intel", "device": "SYCL0"}, "gpus.intel0"),
        ({"index": 0, "vendor": "apple"}, 6, {"vendor": "apple", "device": "MTL0"}, "gpus.apple0"),
        ({"index": 2, "vendor": "nvidia", "device": "CUDA5"}, 1, {"device": "CUDA5"}, "gpus.nvidia2"),
    ],
)
def test_an_index_that_no_probe_found_adds_a_gpu(entry, place, known, path):
    gpus, done = apply_gpu(**entry, memory_free_bytes=24)
    gpu = gpus.pop(place)
    assert gpus == FACTS["gpus"]
    expected = {**record.new(entry.get("vendor", "nvidia"), entry["index"]), **known}
    expected.update(memory_free_bytes=24, reason=UNKNOWN.format("memory_total_bytes"), source="overrides")
    expected["overridden"] = sorted(set(entry) - {"index", "vendor"} | {"memory_free_bytes"})
    assert gpu == expected
    assert done == [f"{path}.{name}" for name in ("device", "memory_free_bytes") if name in gpu["overridden"]]


def test_an_added_gpu_with_only_a_total_is_free():
    gpus, done = apply_gpu(index=0, memory_total_bytes=24)
    assert (gpus[0]["memory_total_bytes"], gpus[0]["memory_free_bytes"], gpus[0]["reason"]) == (24, 24, None)
    assert gpus[0]["overridden"] == ["memory_free_bytes", "memory_total_bytes"]
    assert done == ["gpus.0.memory_total_bytes", "gpus.0.memory_free_bytes"]


@pytest.mark.parametrize("turn", [1, -1])
def test_entries_do_not_select_what_others_add(turn):
    entries = [
        {"index": 0, "vendor": "amd", "memory_total_bytes": 16},
        {"index": 0, "memory_total_bytes": 24},
    ][::turn]
    facts, _done = apply({"gpus": entries}, {**FACTS, "gpus": []})
    assert [(gpu["device"], gpu["memory_total_bytes"]) for gpu in facts["gpus"]] == [("CUDA0", 24), ("ROCm0", 16)]


def test_paths_in_order():
    values = {
        "gpus": [{"bus_id": "04:00.0", "driver": "xe"}, {"index": 3, "integrated": False}],
        "cpu": {"threads": 2},
        "memory": {"total_bytes": 90},
    }
    assert apply(values)[1] == ["memory.total_bytes", "cpu.threads", "gpus.0000:04:00.0.driver", "gpus.3.integrated"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"memory": {"total_bytes": -1}}, ["overrides.memory.total_bytes is -1", "whole number, 0 or more"]),
        ({"memory": {"total_bytes": True}}, ["overrides.memory.total_bytes is True"]),
        ({"memory": {"total_bytes": 2**50}}, ["overrides.memory.total_bytes is", "sizes are in bytes"]),
        ({"memory": {"bandwidth_bytes_per_second": 0}}, ["bandwidth_bytes_per_second is 0", "1 or more"]),
        ({"memory": {"available_bytes": 101}}, ["overrides.memory.available_bytes is 101", "100 of total_bytes"]),
        ({"memory": {"total_bytes": 5, "available_bytes": 6}}, ["overrides.memory.available_bytes is 6", "lower it"]),
        ({"cpu": {"threads": 0}}, ["overrides.cpu.threads is 0", "1 or more"]),
        ({"cpu": {"physical_cores": -3}}, ["overrides.cpu.physical_cores is -3"]),
        ({"cpu": {"physical_cores": False}}, ["overrides.cpu.physical_cores is False"]),
        ({"cpu": {"threads": 2**16}}, ["overrides.cpu.threads is 65536: it must be less than 65536"]),
        ({"cpu": {"physical_cores": 9}}, ["overrides.cpu.physical_cores is 9, more than the 8 of threads: lower it"]),
        ({"cpu": {"threads": 2, "physical_cores": 3}}, ["overrides.cpu.physical_cores is 3", "2 of threads"]),
    ],
)
def test_what_cannot_be_meant(values, words):
    with pytest.raises(ValueError, match="overrides") as error:
        apply(values)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"index": None}, ["selects no GPU", "give it an index, a uuid or a bus_id"]),
        ({"index": -1, "memory_free_bytes": 1}, ["overrides.gpus.index is -1"]),
        ({"index": True, "name": "x"}, ["overrides.gpus.index is True"]),
        # Two vendors, one index.
        (
            {"index": 1},
            ["overrides.gpus.1", "CUDA1 (nvidia 1, GPU-aa11", "ROCm1 (amd 1, ", "add vendor, amd or nvidia"],
        ),
        # Nothing there: what there is is listed.
        ({"uuid": "GPU-zz"}, ["overrides.gpus.GPU-zz", "correct the uuid", "CUDA1 (nvidia 1, GPU-aa11", "MIG-cc33"]),
        ({"uuid": " "}, ["overrides.gpus.uuid is empty", "CUDA1 (nvidia 1, GPU-aa11", "select by index"]),
        ({"bus_id": "0000:99:00.0"}, ["correct the bus_id", "Arc (intel, 0000:04:00.0)"]),
        ({"bus_id": "0000:99:00.0", "memory_total_bytes": 1}, ["correct the bus_id"]),
        # What YAML makes of an address without quotes.
        ({"bus_id": 60.0}, ["overrides.gpus.bus_id is '60.0'", "in quotes"]),
        ({"index": 5, "placeable": False}, ["overrides.gpus.5", "correct the index", "memory_total_bytes"]),
        ({"index": 3, "vendor": "amd", "name": "x"}, ["overrides.gpus.amd3", "correct the index"]),
        (
            {"uuid": "GPU-aa11", "memory_free_bytes": 81},
            ["gpus.GPU-aa11.memory_free_bytes is 81", "80 of memory_total"],
        ),
        ({"uuid": "GPU-aa11", "memory_free_bytes": -8}, ["overrides.gpus.GPU-aa11.memory_free_bytes is -8"]),
        ({"uuid": "GPU-aa11", "memory_own_bytes": 2**60}, ["memory_own_bytes is", "must be less than"]),
        ({"uuid": "GPU-aa11", "bandwidth_bytes_per_second": 0}, ["bandwidth_bytes_per_second is 0", "1 or more"]),
        ({"index": 0, "memory_total_bytes": 4, "memory_free_bytes": 5}, ["overrides.gpus.0.memory_free_bytes is 5"]),
        # Hidden or lost: llama.cpp has no name for it.
        ({"index": 3, "placeable": True}, ["overrides.gpus.3.placeable", MIG_REASON, "give device too, such as CUDA3"]),
        ({"bus_id": "04:00.0", "placeable": True}, ["overrides.gpus.0000:04:00.0.placeable", "such as SYCL0"]),
        # Each ends up in a command line or in a unit.
        *(
            ({"index": 0, "memory_total_bytes": 4, "device": name}, [f"gpus.0.device is {name!r}", "such as CUDA0"])
            for name in ("", "CPU", "RPC0", "CUDA0,CUDA1", "CUDA 0", "CUDA0\n", "--help", "0", "['CUDA0']", "C" * 65)
        ),
        *(
            ({"uuid": "GPU-aa11", "visible_devices": value}, ["gpus.GPU-aa11.visible_devices is", "such as '0,1'"])
            for value in ([0, 1], ["GPU-aa11"], {"a": 1}, "0\n", "0\n1", '"0"', "%i", "\x1b[2J", "GPU\u20ac")
        ),
        ({"index": 2**16, "memory_total_bytes": 4}, ["overrides.gpus.index is 65536: it must be less than 65536"]),
        # One process cannot have two GPUs of one name.
        ({"index": 3, "placeable": True, "device": "CUDA1"}, ["overrides.gpus.3 makes CUDA1", "GPU-aa11"]),
        ({"index": 0, "memory_total_bytes": 4, "device": "CUDA1"}, ["overrides.gpus.0 makes CUDA1", "another device"]),
    ],
)
def test_what_cannot_be_meant_of_a_gpu(entry, words):
    with pytest.raises(ValueError, match="overrides") as error:
        apply({"gpus": [entry]})
    assert [word for word in words if word not in str(error.value)] == []


def test_a_variable_has_one_value():
    values = {"gpus": [{"uuid": "GPU-aa11", "visible_devices": "GPU-aa11"}]}
    facts = copy.deepcopy(FACTS)
    with pytest.raises(ValueError, match=r"visible_devices 'GPU-aa11' for CUDA1 .* CUDA_VISIBLE_DEVICES is '1' in the"):
        overrides.apply_overrides(facts, values, {"CUDA_VISIBLE_DEVICES": "1"})
    for environment in ({"CUDA_VISIBLE_DEVICES": "GPU-aa11"}, {"ROCR_VISIBLE_DEVICES": "1"}, {}, None):
        assert overrides.apply_overrides(copy.deepcopy(FACTS), values, environment)


def test_nothing_there_at_all():
    with pytest.raises(ValueError, match="the machine has no GPU"):
        apply({"gpus": [{"uuid": "GPU-aa11"}]}, {**FACTS, "gpus": []})


def test_two_gpus_that_say_the_same_of_themselves():
    twins = [nvidia(0, uuid="GPU-0"), nvidia(1, uuid="GPU-0")]
    with pytest.raises(ValueError, match=r"selects CUDA0 .* and CUDA1 .*: select by index or bus_id"):
        apply({"gpus": [{"uuid": "GPU-0", "name": "x"}]}, {**FACTS, "gpus": twins})


@pytest.mark.parametrize(
    ("first", "second", "paths"),
    [
        ({"index": 3}, {"uuid": "GPU-bb22"}, "gpus.3 and gpus.GPU-bb22"),
        ({"bus_id": "42:00.0"}, {"bus_id": "0000:42:00.0"}, "gpus.0000:42:00.0"),
        (
            {"index": 7, "memory_free_bytes": 1},
            {"index": 7, "vendor": "nvidia", "memory_free_bytes": 2},
            "gpus.7 and gpus.nvidia7",
        ),
    ],
)
def test_two_entries_for_one_gpu(first, second, paths):
    with pytest.raises(ValueError, match="has two entries for .*" + paths):
        apply({"gpus": [first, second]})


def test_parts_of_a_gpu_may_share_a_name():
    part = nvidia(None, uuid="MIG-dd44", device="CUDA0", visible_devices="MIG-dd44", partition_of="x")
    facts, _done = apply({"gpus": [{"uuid": "MIG-dd44", "placeable": True}]}, {**FACTS, "gpus": [*FACTS["gpus"], part]})
    assert facts["gpus"][-1]["placeable"]


@pytest.mark.parametrize(
    "entries",
    [
        # Only what layers may be placed on needs a name of its own.
        [{"index": 3, "device": "CUDA1"}],
        [{"index": 3, "device": "CUDA1", "placeable": True}, {"uuid": "GPU-aa11", "placeable": False}],
        [{"index": 3, "device": "CUDA1", "placeable": True}, {"uuid": "GPU-aa11", "device": "CUDA0"}],
        [{"index": 3, "device": "CUDA1", "placeable": True, "visible_devices": "GPU-bb22"}],
    ],
)
def test_names_that_do_not_clash(entries):
    facts, _done = apply({"gpus": entries})
    assert facts["gpus"][1]["device"] == "CUDA1"


def test_the_name_of_an_added_gpu_may_be_taken_by_one_that_was_counted_anew():
    renamed = {**FACTS, "gpus": [nvidia(3, device="CUDA0")]}
    with pytest.raises(
        ValueError, match=r"overrides.gpus.0 makes CUDA0 the device of .* but CUDA0 \(nvidia 3\) has it"
    ):
        apply({"gpus": [{"index": 0, "memory_total_bytes": 4}]}, renamed)
    assert (
        apply({"gpus": [{"index": 0, "memory_total_bytes": 4, "device": "CUDA1"}]}, renamed)[0]["gpus"][0]["index"] == 0
    )


def test_a_gpu_without_a_name_is_the_planners_to_refuse():
    nameless = {**FACTS, "gpus": [nvidia(0, device=None)]}
    assert apply({"gpus": [{"index": 0, "driver": "570"}]}, nameless)[0]["gpus"][0]["driver"] == "570"


def test_the_spec_is_not_shared():
    overrides.argument_spec()["default"]["memory"] = None
    assert overrides.argument_spec()["default"] == {}
