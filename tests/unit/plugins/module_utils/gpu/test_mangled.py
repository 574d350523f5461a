# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a tool prints: no traceback, no zero for an unknown, no GPU with another's number.

What tools print on machines that work is mangled in the ways of the field: lines lost, doubled, cut short, messages
between them, values that are no numbers, types that are others.
"""

from __future__ import annotations

import json
import pathlib
from unittest import mock

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command, cpu, darwin, memory, network, units
from ansible_collections.relay.pool.plugins.module_utils.gpu import (
    amd,
    amd_kfd,
    amd_smi,
    apple,
    bandwidth,
    fdinfo,
    gather,
    intel,
    intel_sysfs,
    nvidia,
    nvidia_csv,
    nvidia_list,
    nvidia_xml,
    record,
    rocm_smi,
    tools,
    visible,
    xpu_smi,
)
from hypothesis import given, settings
from hypothesis import strategies as st

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
PROBES = {"nvidia": nvidia.read_gpus, "amd": amd.read_gpus, "intel": intel.read_gpus}
GIB = 1 << 30
MEMINFO = {"MemTotal": 125 * GIB, "MemAvailable": 118 * GIB}
LOST = "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU"
# Values that stand where a number should.
ODD = (
    "[N/A]",
    "N/A",
    "[Unknown Error]",
    "[Insufficient Permissions]",
    "[GPU requires reset]",
    "",
    "-1",
    "1e999",
    "NaN",
    "Infinity",
    "0x10",
    "\u0663",
    "9" * 400,
    "1.5",
    "1,024",
    "null",
    "\x00",
)
NOISE = (
    LOST,
    "WARNING: low-power state",
    "<!ENTITY a 'b'>",
    "{",
    "]",
    '"',
    "No devices were found",
    "\ud7ff\r",
    "GPU 0:",
)


def nvidia_row(index: int, name: str = "NVIDIA L40S", total: str = "46068") -> str:
    return f"{index}, {name}, GPU-{index}, 00000000:0{index + 1}:00.0, 590.48, {total}, 400, Default, [N/A]"


def nvidia_element(index: int) -> str:
    process = "<process_info><pid>7</pid><type>C</type><used_memory>100 MiB</used_memory></process_info>"
    return (
        f'<gpu id="00000000:0{index + 1}:00.0">\n<uuid>GPU-{index}</uuid>\n<fb_memory_usage>\n'
        "<total>46068 MiB</total>\n"
        f"<free>400 MiB</free>\n</fb_memory_usage>\n<processes>{process}</processes>\n</gpu>"
    )


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


AMD_STATIC = json.dumps(
    {
        "gpu_data": [
            {
                "gpu": number,
                "asic": {"market_name": "AMD Radeon RX 7900 XTX", "device_id": "0x744c"},
                "bus": {"bdf": f"0000:0{number + 3}:00.0"},
                "vram": {"size": {"value": 24560, "unit": "MB"}},
            }
            for number in range(3)
        ]
    },
    indent=1,
)
AMD_METRIC = json.dumps(
    [
        {
            "gpu": number,
            "mem_usage": {
                "total_vram": {"value": 24560, "unit": "MB"},
                "used_vram": {"value": 283, "unit": "MB"},
                "free_vram": {"value": 24277, "unit": "MB"},
            },
        }
        for number in range(3)
    ],
    indent=1,
)
# What each vendor's tools print, by a word of the command line.
PRINTED = {
    "nvidia": {
        "--query-gpu": "\n".join(nvidia_row(index) for index in range(4)),
        "-x": "<nvidia_smi_log>\n" + "\n".join(nvidia_element(index) for index in range(4)) + "\n</nvidia_smi_log>",
        "--query-compute-apps": "GPU-0, 7, 100\nGPU-1, 9, [N/A]",
        "-L": "\n".join(f"GPU {index}: NVIDIA L40S (UUID: GPU-{index})" for index in range(4)),
    },
    "amd": {"static": AMD_STATIC, "metric": AMD_METRIC, "--json": fixture("amd/rocm-smi-6.1.json")},
    "intel": {"-d": fixture("intel/detail_b580.json"), "discovery": fixture("intel/discovery_three.json")},
}
MIG = {**PRINTED["nvidia"], "-x": fixture("nvidia/mig.xml"), "-L": fixture("nvidia/mig-list.txt")}


@st.composite
def mangled(draw, text: str) -> str:
    """The text after a few accidents."""
    for _accident in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(("drop", "double", "swap", "noise", "odd", "cut", "characters")))
        lines = text.split("\n")
        place = draw(st.integers(0, len(lines) - 1))
        if kind == "drop":
            del lines[place]
        elif kind == "double":
            lines.insert(place, lines[place])
        elif kind == "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[place], lines[other] = lines[other], lines[place]
        elif kind == "noise":
            lines.insert(place, draw(st.sampled_from(NOISE) | st.text(max_size=20)))
        elif kind == "odd":
            words = lines[place].split(" ")
            words[draw(st.integers(0, len(words) - 1))] = draw(st.sampled_from(ODD))
            lines[place] = " ".join(words)
        elif kind == "cut":
            lines[place:] = [lines[place][: draw(st.integers(0, 80))]]
        else:
            at = draw(st.integers(0, len(lines[place])))
            lines[place] = lines[place][:at] + draw(st.text(max_size=8)) + lines[place][at + draw(st.integers(0, 8)) :]
        text = "\n".join(lines)
    return text


def answers(printed: dict[str, str]) -> st.SearchStrategy:
    """What each call prints, whole or mangled, with an exit code; or no answer at all."""
    texts = {word: st.just(text) | mangled(text) | st.text(max_size=200) for word, text in printed.items()}
    return st.fixed_dictionaries(
        {word: st.tuples(text, st.sampled_from((0, 0, 0, 0, 1, 15, 18, None))) for word, text in texts.items()}
    )


def read(vendor: str, said: dict[str, tuple], sys_root: str = "/nonexistent") -> list[dict]:
    """The GPUs as the facts have them when the tools say this."""

    def run(argv, timeout):
        for word, (text, rc) in said.items():
            if any(part.startswith(word) for part in argv[1:]):
                return command.Result(rc, text, "", None if rc == 0 else f"ended with {rc}")
        return command.Result(2, "", "unknown option", "ended with 2: unknown option")

    machine = record.Machine(meminfo=MEMINFO, own_pids=(7,), run=run, sys_root=sys_root, proc_root="/nonexistent")
    with mock.patch.object(tools, "find", lambda name: f"/usr/bin/{name}"), mock.patch.object(
        gather, "PROBES", ((vendor, PROBES[vendor]),)
    ):
        return gather.read_gpus(machine, 60.0, {}, lambda probe, function, fallback: function(), lambda *said: None)


def check(gpus: list[dict]) -> None:
    """What holds for the GPUs of any machine."""
    json.dumps(gpus, allow_nan=False)
    for gpu in gpus:
        assert set(gpu) == set(record.new("nvidia", 0))
        total, free, own = (gpu[f"memory_{name}_bytes"] for name in ("total", "free", "own"))
        assert total is None or 0 < total < 1 << 50
        assert free is None or 0 <= free < 1 << 50
        assert None in (total, free) or free <= total
        assert own is None or own >= 0
        assert gpu["bandwidth_bytes_per_second"] is None or gpu["bandwidth_bytes_per_second"] > 10**9
        assert gpu["index"] is None or 0 <= gpu["index"] < 10**6
        # What is unknown, or must not be used, has its reason.
        if not gpu["placeable"] or total is None or free is None:
            assert gpu["reason"]
        if gpu["placeable"]:
            assert gpu["device"], gpu
    indexes = [gpu["index"] for gpu in gpus if gpu["index"] is not None]
    assert len(indexes) == len(set(indexes))
    names = [(gpu["device"], gpu["visible_devices"]) for gpu in gpus if gpu["placeable"]]
    assert len(names) == len(set(names))


@pytest.fixture(scope="module")
def sys_root(tmp_path_factory):
    """A /sys in which all GPUs of the texts above are on the PCI bus, with their vendors' drivers."""
    root = tmp_path_factory.mktemp("sys")
    cards = [("0x10de", f"0000:0{n + 1}:00.0", "nvidia") for n in range(4)]
    cards += [("0x1002", f"0000:1{n}:00.0", "amdgpu") for n in range(3)]
    cards += [("0x8086", f"0000:2{n}:00.0", "xe") for n in range(3)]
    for vendor, address, driver in cards:
        folder = root / "bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text("0x744c\n")
        (folder / "class").write_text("0x030000\n")
        (root / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(root / "bus/pci/drivers" / driver)
        (root / "module" / driver).mkdir(parents=True, exist_ok=True)
    return str(root)


@pytest.mark.parametrize(
    ("vendor", "printed"),
    [*PRINTED.items(), ("nvidia", MIG)],
    ids=[*PRINTED, "mig"],
)
@pytest.mark.parametrize("on_bus", [False, True])
def test_the_facts_hold_whatever_the_tools_print(vendor, printed, on_bus, sys_root):
    @settings(max_examples=120, deadline=None)
    @given(answers(printed))
    def run(said):
        check(read(vendor, said, sys_root if on_bus else "/nonexistent"))

    run()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_gpu_keeps_its_number_when_others_are_lost(data):
    """Rows that vanish, or messages in their place, do not move those that stay."""
    rows = [nvidia_row(index) for index in range(4)]
    kept = data.draw(st.lists(st.sampled_from(range(4)), unique=True))
    lines = [rows[index] for index in kept]
    for noise in data.draw(st.lists(st.sampled_from(NOISE) | st.text(max_size=30), max_size=3)):
        lines.insert(data.draw(st.integers(0, len(lines))), noise.replace("\n", " "))
    elements = data.draw(st.permutations([nvidia_element(index) for index in range(4)]))
    said = {
        **{word: (text, 0) for word, text in PRINTED["nvidia"].items()},
        "--query-gpu": ("\n".join(lines), data.draw(st.sampled_from((0, 15)))),
        "-x": ("<nvidia_smi_log>" + "".join(elements) + "</nvidia_smi_log>", 0),
    }
    found = {gpu["uuid"]: gpu for gpu in read("nvidia", said) if gpu["uuid"]}
    assert {f"GPU-{index}" for index in kept} <= set(found)
    assert all(gpu["index"] == int(uuid[4:]) for uuid, gpu in found.items())


def machine_of_amd(root, numbers) -> str:
    """A /sys with KFD's nodes of GPUs, some of them gone."""
    for number in numbers:
        folder = root / "class/kfd/kfd/topology/nodes" / str(number + 1)
        folder.mkdir(parents=True)
        (folder / "gpu_id").write_text(f"{number + 100}\n")
        location = (number + 3) << 8
        (folder / "properties").write_text(
            f"simd_count 96\nlocation_id {location}\ndomain 0\ngfx_target_version 110000\nunique_id {number + 1}\n"
        )
    return str(root)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1,), ()])
def test_the_number_of_an_amd_gpu_is_that_of_the_runtime_in_any_order_of_the_tool(tmp_path, order):
    root = machine_of_amd(tmp_path, range(3))
    entries = json.loads(AMD_STATIC)["gpu_data"]
    said = {
        "static": (json.dumps({"gpu_data": [entries[index] for index in order]}), 0),
        "metric": (json.dumps([json.loads(AMD_METRIC)[index] for index in order]), 0),
    }
    found = read("amd", said, root)
    check(found)
    assert [(gpu["bus_id"], gpu["index"]) for gpu in found] == [(f"0000:0{n + 3}:00.0", n) for n in range(3)]
    named = {gpu["bus_id"] for gpu in found if gpu["name"] == "AMD Radeon RX 7900 XTX"}
    assert named == {f"0000:0{index + 3}:00.0" for index in order}


# Every parser on its own, with a text of its kind.
PARSERS = {
    "nvidia_csv.parse_cards": (lambda text: nvidia_csv.parse_cards(text, MEMINFO), PRINTED["nvidia"]["--query-gpu"]),
    "nvidia_csv.parse_apps": (nvidia_csv.parse_apps, PRINTED["nvidia"]["--query-compute-apps"]),
    "nvidia_csv.unknown_fields": (nvidia_csv.unknown_fields, 'Field "mig.mode.current" is not a valid field to query.'),
    "nvidia_xml.parse_xml": (nvidia_xml.parse_xml, MIG["-x"]),
    "nvidia_list.parse_list": (nvidia_list.parse_list, MIG["-L"]),
    "nvidia_list.lost_gpus": (nvidia_list.lost_gpus, LOST),
    "amd_smi.parse": (amd_smi.parse, AMD_STATIC),
    "amd_smi.parse metric": (amd_smi.parse, fixture("amd/amd-smi-metric.json")),
    "rocm_smi.parse json": (rocm_smi.parse, fixture("amd/rocm-smi-4.3.json")),
    "rocm_smi.parse csv": (rocm_smi.parse, fixture("amd/rocm-smi-apu.csv")),
    "rocm_smi.parse text": (rocm_smi.parse, fixture("amd/rocm-smi.txt")),
    "amd_kfd.parse_node": (
        lambda text: amd_kfd.parse_node(0, 1, 2, text, [text]),
        "simd_count 96\nlocation_id 768\ndomain 0",
    ),
    "fdinfo.parse": (fdinfo.parse, "drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t12 KiB"),
    "xpu_smi.parse_devices": (xpu_smi.parse_devices, fixture("intel/discovery_three.json")),
    "intel_sysfs.parse_size": (intel_sysfs.parse_size, "0x300000000"),
    "intel_sysfs.parse_regions": (intel_sysfs.parse_regions, "local0 total: 0x1000 available: 0x10"),
    "intel_sysfs.parse_manager": (intel_sysfs.parse_manager, fixture("intel/vram0_mm_b580.txt")),
    "intel_sysfs.parse_objects": (intel_sysfs.parse_objects, fixture("intel/i915_gem_objects_a770.txt")),
    "apple.parse_gpu": (lambda text: apple.parse_gpu(text, 8 * GIB), fixture("apple/sysctl_m3_max.txt")),
    "darwin.parse_vm_stat": (darwin.parse_vm_stat, fixture("apple/vm_stat.txt")),
    "darwin.parse_sysctl": (darwin.parse_sysctl, fixture("apple/sysctl_m3_max.txt")),
    "bandwidth.of": (
        lambda text: bandwidth.of(record.new("nvidia", 0, name=text, memory_total_bytes=24 * GIB)),
        "NVIDIA GeForce RTX 3080",
    ),
    "memory.parse_meminfo": (memory.parse_meminfo, "MemTotal:       125489508 kB\nMemFree: 7 kB"),
    "cpu.parse_cpuinfo": (cpu.parse_cpuinfo, "processor\t: 0\nphysical id\t: 0\ncore id\t: 0\nmodel name\t: x"),
    "units.parse_show": (units.parse_show, "Id=a.service\nMainPID=7\n\nId=b.service\nMainPID=0"),
}


@pytest.mark.parametrize("name", PARSERS)
def test_no_parser_raises(name):
    parse, text = PARSERS[name]

    @settings(max_examples=120, deadline=None)
    @given(mangled(text) | st.text(max_size=300))
    def run(printed):
        parse(printed)

    run()


@settings(max_examples=200, deadline=None)
@given(mangled('[{"ifname": "eth0", "addr_info": [{"family": "inet", "local": "10.0.0.1", "prefixlen": 24}]}]'))
def test_addresses_survive_what_ip_prints(printed):
    found, _errors = network.read_addresses(1.0, lambda argv, timeout: command.Result(0, printed, "", None))
    assert all(entry.to_dict()["interface"] for entry in found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.sampled_from(ODD),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def other_types(draw, value):
    """The same document with some of its values of another type."""
    if draw(st.integers(0, 9)) == 0:
        return draw(JSON)
    if isinstance(value, dict):
        return {key: draw(other_types(inner)) for key, inner in value.items()}
    if isinstance(value, list):
        return [draw(other_types(inner)) for inner in value]
    return value


@pytest.mark.parametrize(
    ("vendor", "words"), [("amd", ("static", "metric")), ("amd", ("--json",)), ("intel", ("discovery", "-d"))]
)
def test_the_facts_hold_whatever_types_the_values_have(vendor, words, sys_root):
    documents = {word: json.loads(PRINTED[vendor][word]) for word in words}

    @settings(max_examples=100, deadline=None)
    @given(st.fixed_dictionaries({word: other_types(document) for word, document in documents.items()}))
    def run(said):
        check(read(vendor, {word: (json.dumps(value), 0) for word, value in said.items()}, sys_root))

    run()


def test_every_vendor_is_here():
    assert {*PROBES, "apple"} == set(visible.BACKENDS)
