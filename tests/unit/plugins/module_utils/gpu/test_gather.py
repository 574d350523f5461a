# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of the GPUs of all vendors together, and the names that they get."""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command, overrides
from ansible_collections.relay.pool.plugins.module_utils.gpu import (
    amd,
    amd_smi,
    gather,
    nvidia_csv,
    nvidia_mig,
    record,
    rocm_smi,
    visible,
    xpu_smi,
)


def gpus_of(monkeypatch, *gpus, environment=None):
    """The GPUs as they come out when the probes found these."""
    probes = tuple(
        (vendor, lambda machine, vendor=vendor: ([gpu for gpu in gpus if gpu["vendor"] == vendor], []))
        for vendor in visible.BACKENDS
    )
    monkeypatch.setattr(gather, "PROBES", probes)
    errors = []
    found = gather.read_gpus(
        record.Machine(),
        5.0,
        environment or {},
        lambda probe, function, fallback: function(),
        lambda probe, messages: errors.extend(messages),
    )
    assert errors == []
    return found


def named(gpus):
    return [(gpu["device"], gpu["visible_devices"]) for gpu in gpus]


def nvidia(index, **known):
    return record.new("nvidia", index, uuid=f"GPU-{index}", **known)


def mig(number, parent):
    return record.new("nvidia", None, uuid=f"MIG-{number}", partition_of=f"GPU-{parent}")


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([], []),
        ([nvidia(0), nvidia(1)], [("CUDA0", None), ("CUDA1", None)]),
        # One that is lost is hidden, and the others move up.
        (
            [nvidia(0), nvidia(1, placeable=False, reason="lost"), nvidia(2)],
            [("CUDA0", "GPU-0,GPU-2"), (None, None), ("CUDA1", "GPU-0,GPU-2")],
        ),
        ([nvidia(0, placeable=False, reason="lost")], [(None, None)]),
        # Each MIG device is alone in its process.
        (
            [nvidia(0, placeable=False, reason="MIG"), mig(7, 0), mig(8, 0), nvidia(1)],
            [(None, None), ("CUDA0", "MIG-7"), ("CUDA0", "MIG-8"), ("CUDA0", "GPU-1")],
        ),
        # Two vendors count on their own.
        ([nvidia(0), record.new("amd", 0), record.new("amd", 1)], [("CUDA0", None), ("ROCm0", None), ("ROCm1", None)]),
        # Level Zero shows all of them whatever is placeable, but not one that has no driver.
        (
            [
                record.new("intel", 0, placeable=False, reason="no memory"),
                record.new("intel", 1),
                record.new("intel", None, placeable=False, reason="no driver"),
            ],
            [("SYCL0", None), ("SYCL1", None), (None, None)],
        ),
        # A list of both uuids and indexes, or with a uuid as a Jetson writes it, is none that CUDA takes.
        (
            [nvidia(0), record.new("nvidia", 1), nvidia(2, placeable=False, reason="lost")],
            [("CUDA0", "0,1"), ("CUDA1", "0,1"), (None, None)],
        ),
        (
            [record.new("nvidia", 0, uuid="ddae9891-0a5e"), nvidia(1, placeable=False, reason="lost")],
            [("CUDA0", "0"), (None, None)],
        ),
        ([record.new("apple", 0, integrated=True)], [("MTL0", None)]),
    ],
)
def test_names(monkeypatch, gpus, expected):
    assert named(gpus_of(monkeypatch, *gpus)) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1", [None, "CUDA0", None]),
        ("1,0", ["CUDA1", "CUDA0", None]),
        ("GPU-1", [None, "CUDA0", None]),
        (" 0 , 1 ", ["CUDA0", "CUDA1", None]),
        # As CUDA does: what follows a word that names none is not seen.
        ("0,9,1", ["CUDA0", None, None]),
        ("GPU-", [None, None, None]),
        ("1,1", [None, "CUDA0", None]),
        ("-1", [None, None, None]),
        ("\u00b2", [None, None, None]),
        ("9" * 5000, [None, None, None]),
        ("0," + "9" * 5000, ["CUDA0", None, None]),
        ("", [None, None, None]),
        # A process sees one MIG device and nothing beside it.
        ("MIG-7,0", [None, None, "CUDA0"]),
    ],
)
def test_what_the_user_hid_is_not_placeable(monkeypatch, value, expected):
    gpus = gpus_of(monkeypatch, nvidia(0), nvidia(1), mig(7, 2), environment={"CUDA_VISIBLE_DEVICES": value})
    assert [gpu["device"] for gpu in gpus] == expected
    assert [gpu["placeable"] for gpu in gpus] == [device is not None for device in expected]
    assert {gpu["visible_devices"] for gpu in gpus} == {None}
    hidden = f"CUDA_VISIBLE_DEVICES={value} in relay_environment hides it"
    assert {gpu["reason"] for gpu in gpus if not gpu["placeable"]} <= {hidden}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1", [None, "SYCL0", None]),
        ("2,1", [None, "SYCL0", "SYCL1"]),
        ("7,1,1", [None, "SYCL0", None]),
        ("0.1", [None, None, None]),
        ("1,0.1", [None, None, None]),
        ("", ["SYCL0", "SYCL1", "SYCL2"]),
    ],
)
def test_gpus_that_the_user_masked(monkeypatch, value, expected):
    gpus = [record.new("intel", index) for index in range(3)]
    found = gpus_of(monkeypatch, *gpus, environment={"ZE_AFFINITY_MASK": value})
    assert [gpu["device"] for gpu in found] == expected
    hidden = f"ZE_AFFINITY_MASK={value} in relay_environment hides it"
    assert [gpu["reason"] for gpu in found] == [None if device else hidden for device in expected]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0,1,2,3", ["SYCL0", "SYCL1", "SYCL2", "SYCL3"]),
        ("0,1", ["SYCL0", None, "SYCL1", None]),
        # The first that is left is the first of all, whatever its execution units.
        ("1,2", [None, "SYCL1", "SYCL0", None]),
        ("1,3", [None, None, "SYCL0", "SYCL1"]),
        ("2,3", [None, "SYCL0", None, "SYCL1"]),
    ],
)
def test_the_mask_counts_as_level_zero_does(monkeypatch, value, expected):
    buses = ["0000:03:00.0", "0000:05:00.0", "0000:04:00.0", "0000:00:02.0"]
    gpus = [record.new("intel", index, bus_id=bus, integrated=index == 3) for index, bus in enumerate(buses)]
    found = gpus_of(monkeypatch, *gpus, environment={"ZE_AFFINITY_MASK": value})
    assert [gpu["device"] for gpu in found] == expected


def test_a_gpu_that_is_refused_already_keeps_its_reason(monkeypatch):
    gpus = [nvidia(0, placeable=False, reason="lost"), nvidia(1)]
    found = gpus_of(monkeypatch, *gpus, environment={"CUDA_VISIBLE_DEVICES": "1"})
    assert [gpu["reason"] for gpu in found] == ["lost", None]


def test_hip_is_obeyed_too_and_other_vendors_variables_are_not(monkeypatch):
    gpus = [record.new("amd", 0), record.new("amd", 1), nvidia(0)]
    found = gpus_of(monkeypatch, *gpus, environment={"HIP_VISIBLE_DEVICES": "1"})
    assert [gpu["device"] for gpu in found] == ["CUDA0", None, "ROCm0"]
    assert "HIP_VISIBLE_DEVICES=1" in found[1]["reason"]


@pytest.mark.parametrize(
    ("environment", "devices", "hidden_by"),
    [
        # HIP counts what the runtime below it shows.
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, [None, None, "ROCm0"], ["ROCR", "HIP"]),
        ({"ROCR_VISIBLE_DEVICES": "2,0", "HIP_VISIBLE_DEVICES": "1,0"}, ["ROCm0", None, "ROCm1"], ["ROCR"]),
        ({"ROCR_VISIBLE_DEVICES": "2,0", "CUDA_VISIBLE_DEVICES": "2"}, [None, None, None], ["CUDA", "ROCR", "CUDA"]),
        ({"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"}, [None, None, None], ["ROCR"] * 3),
        # HIP takes an empty value for none, and its own variable before CUDA's.
        ({"HIP_VISIBLE_DEVICES": ""}, ["ROCm0", "ROCm1", "ROCm2"], []),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, [None, "ROCm0", None], ["CUDA", "CUDA"]),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, ["ROCm0", None, None], ["HIP", "HIP"]),
        ({"HIP_VISIBLE_DEVICES": "GPU-b"}, [None, "ROCm0", None], ["HIP", "HIP"]),
    ],
)
def test_both_runtimes_of_amd_are_obeyed(monkeypatch, environment, devices, hidden_by):
    gpus = [record.new("amd", index, uuid=f"GPU-{letter * 16}") for index, letter in enumerate("abc")]
    found = gpus_of(monkeypatch, *gpus, environment=environment)
    assert [gpu["device"] for gpu in found] == devices
    assert [gpu["reason"].partition("_")[0] for gpu in found if not gpu["placeable"]] == hidden_by
    assert {gpu["visible_devices"] for gpu in found} == {None}


def test_an_integrated_gpu_beside_a_discrete_one_is_left_alone(monkeypatch):
    igpu = record.new("amd", 1, integrated=True, unified_memory=True)
    found = gpus_of(monkeypatch, record.new("amd", 0), igpu)
    assert [(gpu["placeable"], gpu["reason"]) for gpu in found] == [(True, None), (False, gather.BESIDE)]
    assert named(found) == [("ROCm0", "0"), (None, None)]


@pytest.mark.parametrize("reason", [None, amd.SMALL])
def test_an_integrated_gpu_is_used_when_what_its_reason_says_is_stated(monkeypatch, reason):
    igpu = record.new("amd", 1, integrated=True, memory_total_bytes=4096, memory_free_bytes=2048)
    if reason:
        record.refuse(igpu, reason)
    found = gpus_of(monkeypatch, record.new("amd", 0), igpu)
    values = {"placeable": True, "device": "ROCm1"}
    stated = {name: value for name, value in values.items() if name in found[1]["reason"]}
    facts = {"gpus": found, "memory": {"total_bytes": None, "available_bytes": None, "own_bytes": 0}, "cpu": {}}
    overrides.apply_overrides(facts, {"gpus": [{"index": 1, **stated}]})
    assert found[1]["placeable"]


def test_an_integrated_gpu_alone_or_beside_a_broken_one_counts(monkeypatch):
    igpu = record.new("amd", 0, integrated=True, unified_memory=True)
    found = gpus_of(monkeypatch, nvidia(0, placeable=False, reason="lost"), igpu)
    assert [gpu["placeable"] for gpu in found] == [False, True]


def test_a_reason_that_a_probe_gave_stays(monkeypatch):
    tiny = record.new("amd", 1, integrated=True, placeable=False, reason="too small")
    assert gpus_of(monkeypatch, record.new("amd", 0), tiny)[1]["reason"] == "too small"


def test_every_vendor_has_its_own_time(monkeypatch):
    """A tool of one that hangs leaves the others theirs."""
    asked = []

    def probe(machine):
        machine.tool("x")
        return [], []

    monkeypatch.setattr(gather, "PROBES", (("nvidia", probe), ("amd", probe)))
    machine = record.Machine(run=lambda argv, timeout: asked.append(timeout) or command.Result(0, "", "", None))
    gather.read_gpus(machine, 2.0, {}, lambda probe, function, fallback: function(), lambda probe, messages: None)
    assert asked == [pytest.approx(2.0, abs=0.2)] * 2


def test_a_tool_is_not_started_when_the_time_is_used_up():
    machine = record.Machine(deadline=0.0, run=None)
    assert machine.tool("nvidia-smi", "-L").error == "nvidia-smi was not started: the time for tools is used up"


def bus(number):
    return f"{number // 256:04x}:{number % 256:02x}:00.0"


def csv_of(count):
    return "\n".join(f"{n}, GPU, GPU-{n}, 0000{bus(n)}, 1.1, 100, 50, Default, Disabled" for n in range(count))


def amd_of(count):
    return json.dumps([{"gpu": n, "bus": {"bdf": bus(n)}} for n in range(count)])


def rocm_of(count):
    return json.dumps({f"card{n}": {"PCI Bus": bus(n), "VRAM Total Memory (B)": "1000"} for n in range(count)})


def xpu_of(count):
    return json.dumps({"device_list": [{"device_id": n, "pci_bdf_address": bus(n)} for n in range(count)]})


@pytest.mark.parametrize(
    ("parse", "text_of", "tool"),
    [
        (lambda text: nvidia_csv.parse_cards(text, {}), csv_of, "nvidia-smi"),
        (amd_smi.parse, amd_of, "amd-smi"),
        (rocm_smi.parse, rocm_of, "rocm-smi"),
        (xpu_smi.parse_devices, xpu_of, "xpu-smi"),
    ],
    ids=["nvidia-smi", "amd-smi", "rocm-smi", "xpu-smi"],
)
def test_a_tool_that_lists_without_end(parse, text_of, tool):
    started = time.process_time()
    found, messages = parse(text_of(20_000))
    assert time.process_time() - started < 2
    assert len(found) == record.MOST_GPUS
    assert messages == [f"{tool} lists 20000 GPUs, of which only 256 are looked at"]
    found, messages = parse(text_of(record.MOST_GPUS))
    assert (len(found), messages) == (record.MOST_GPUS, [])


def test_parts_without_end():
    listed = {number: ("1g.5gb", f"MIG-{number}") for number in range(9999)}
    assert len(nvidia_mig.devices((), listed)) == record.MOST_GPUS


def test_a_probe_that_finds_gpus_without_end(monkeypatch):
    monkeypatch.setattr(gather, "PROBES", (("nvidia", lambda machine: ([nvidia(n) for n in range(1000)], [])),))
    said = []
    found = gather.read_gpus(
        record.Machine(), 5.0, {}, lambda probe, function, fallback: function(), lambda *words: said.append(words)
    )
    assert len(found) == record.MOST_GPUS
    assert ("nvidia", ["the probe of nvidia lists 1000 GPUs, of which only 256 are looked at"]) in said
