# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command
from ansible_collections.relay.pool.plugins.module_utils.gpu import (
    amd,
    amd_apu,
    amd_join,
    amd_smi,
    pid_namespace,
    record,
    tools,
)

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "amd"
MIB, GIB = 1 << 20, 1 << 30
MEMINFO = {"MemTotal": 125 * GIB, "MemAvailable": 118 * GIB}
DGPU, OTHER, APU = "0000:03:00.0", "0000:08:00.0", "0000:c5:00.0"


class Box:
    """A machine that is made of a /sys, a /proc and two tools."""

    def __init__(self, root):
        self.root = root
        self.answers = {}
        self.ran = []
        (root / "proc" / "self" / "ns").mkdir(parents=True)
        self.namespace(pid_namespace.INITIAL)

    def write(self, path, text):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{text}\n")

    def namespace(self, name):
        link = self.root / "proc" / "self" / "ns" / "pid"
        if link.is_symlink():
            link.unlink()
        link.symlink_to(name)

    def pci(self, address, device, driver="amdgpu", pci_class="0x030000"):
        folder = f"sys/bus/pci/devices/{address}"
        for name, text in (("vendor", "0x1002"), ("device", f"0x{device}"), ("class", pci_class)):
            self.write(f"{folder}/{name}", text)
        if driver:
            place = self.root / "sys" / "bus" / "pci" / "drivers" / driver
            place.mkdir(parents=True, exist_ok=True)
            (self.root / folder / "driver").symlink_to(place)
        if driver == "amdgpu":
            (self.root / "sys" / "module" / "amdgpu").mkdir(parents=True, exist_ok=True)

    def card(self, number, address, vram=None, vram_used=0, gtt=16 * GIB, gtt_used=0, **files):
        """A card of amdgpu; it is a plain folder where no address is given."""
        values = {"vram_total": vram, "vram_used": vram_used, "gtt_total": gtt, "gtt_used": gtt_used}
        files.update({f"mem_info_{key}": size for key, size in values.items() if size is not None})
        drm = self.root / "sys" / "class" / "drm" / f"card{number}"
        drm.mkdir(parents=True)
        folder = f"sys/bus/pci/devices/{address}"
        if address:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
            (drm / "device").symlink_to(self.root / folder)
        else:
            folder = f"sys/class/drm/card{number}/device"
        for name, text in files.items():
            self.write(f"{folder}/{name}", text)

    def node(self, number, gpu_id, location=0, gfx=110000, unique=0, bank=None, simd=64, device=0):
        folder = f"sys/class/kfd/kfd/topology/nodes/{number}"
        self.write(f"{folder}/gpu_id", gpu_id)
        lines = {"simd_count": simd, "location_id": location, "gfx_target_version": gfx, "domain": 0}
        lines.update(unique_id=unique, device_id=device)
        self.write(f"{folder}/properties", "\n".join(f"{key} {value}" for key, value in lines.items()))
        if bank:
            self.write(f"{folder}/mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {bank}")

    def cpu_node(self):
        self.node(0, 0, simd=0, gfx=0)

    def tool(self, name, text, error=None, call=None, rc=0):
        self.answers[name, call] = command.Result(rc, text, "", error)

    def held(self, pid, gpu_id, size):
        self.write(f"sys/class/kfd/kfd/proc/{pid}/vram_{gpu_id}", size)

    def fdinfo(self, pid, address, client=1, **regions):
        lines = [f"drm-driver:\tamdgpu\ndrm-pdev:\t{address}\ndrm-client-id:\t{client}"]
        lines += [f"drm-memory-{region}:\t{size // 1024} KiB" for region, size in regions.items()]
        self.write(f"proc/{pid}/fdinfo/{client}", "\n".join(lines))

    def read(self, own_pids=(), meminfo=None):
        def run(argv, timeout):
            name = pathlib.PurePath(argv[0]).name
            self.ran.append((name, *argv[1:2]))
            call = argv[1] if name == "amd-smi" else None
            return self.answers.get((name, call)) or self.answers[name, None]

        machine = record.Machine(
            meminfo=MEMINFO if meminfo is None else meminfo,
            own_pids=tuple(own_pids),
            run=run,
            sys_root=str(self.root / "sys"),
            proc_root=str(self.root / "proc"),
        )
        return amd.read_gpus(machine)


@pytest.fixture
def box(tmp_path, monkeypatch):
    made = Box(tmp_path)
    monkeypatch.setattr(
        tools, "find", lambda name: f"/opt/{name}" if any(key[0] == name for key in made.answers) else None
    )
    return made


def brief(gpus, *keys):
    return [tuple(gpu[key] for key in keys) for gpu in gpus]


def placeable(gpus):
    return [gpu["memory_total_bytes"] for gpu in gpus if gpu["placeable"]]


def smi(*gpus):
    return json.dumps({"gpu_data": [{"gpu": number, **gpu} for number, gpu in enumerate(gpus)]})


def mib(number):
    return {"value": number, "unit": "MB"}


# Evidence


def test_a_machine_without_amd_runs_nothing(box, monkeypatch):
    box.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de")
    box.write("sys/bus/pci/devices/0000:01:00.0/class", "0x030000")
    monkeypatch.setattr(tools, "find", lambda name: pytest.fail("a tool was looked for"))
    assert box.read() == ([], [])


def test_a_loaded_driver_without_a_tool_is_no_evidence(box):
    (box.root / "sys" / "module" / "amdgpu").mkdir(parents=True)
    assert box.read() == ([], [])


@pytest.mark.parametrize("path", ["sys/module/amdgpu", "sys/class/kfd"])
def test_a_tool_beside_the_driver_is_evidence(box, path):
    (box.root / path).mkdir(parents=True)
    box.tool("rocm-smi", '{"card0": {"VRAM Total Memory (B)": "17163091968", "VRAM Total Used Memory (B)": "1"}}')
    gpus, messages = box.read()
    assert brief(gpus, "index", "memory_total_bytes", "memory_free_bytes", "source") == [
        (0, 17163091968, 17163091967, "rocm-smi")
    ]
    assert messages == []


def test_a_container_that_shows_the_card_alone(box):
    box.card(1, DGPU, vram=16 * GIB, vram_used=GIB, vendor="0x1002")
    gpus, messages = box.read()
    assert brief(gpus, "index", "bus_id", "memory_free_bytes", "placeable", "source") == [
        (0, DGPU, 15 * GIB, True, "/sys/class/drm/card1/device")
    ]
    assert messages == []


# Sources


def test_every_source_gives_what_it_knows_best(box):
    box.pci(DGPU, "744c")
    box.card(0, DGPU, vram=21458059264, vram_used=27246592, unique_id="7cb7a9a1f0bd6ea9")
    box.cpu_node()
    box.node(1, 41214, 0x0300, unique=0x7CB7A9A1F0BD6EA9, bank=21458059264)
    box.write("sys/module/amdgpu/version", "6.10.5")
    box.tool("amd-smi", smi({"asic": {"market_name": "AMD Radeon RX 7900 XT"}, "bus": {"bdf": DGPU}}))
    gpus, messages = box.read()
    assert messages == []
    assert gpus == [
        record.new(
            "amd",
            0,
            name="AMD Radeon RX 7900 XT",
            uuid="GPU-7cb7a9a1f0bd6ea9",
            bus_id=DGPU,
            driver="6.10.5",
            memory_total_bytes=21458059264,
            memory_free_bytes=21458059264 - 27246592,
            source="/sys/class/drm/card0/device",
        )
    ]
    # The memory is known to the byte, so the tool is asked for the name only.
    assert box.ran == [("amd-smi", "static")]


def test_no_tool_is_run_for_what_sys_says_already(box):
    box.pci(DGPU, "740f", pci_class="0x120000")
    box.card(0, DGPU, vram=64 * GIB, product_name="AMD Instinct MI210")
    box.tool("amd-smi", "")
    assert brief(box.read()[0], "name", "memory_total_bytes") == [("AMD Instinct MI210", 64 * GIB)]
    assert box.ran == []


def test_without_any_name_the_chip_is_named(box):
    box.pci(DGPU, "744c")
    box.card(0, DGPU, vram=16 * GIB)
    box.node(1, 5, 0x0300, gfx=110000)
    assert brief(box.read()[0], "name", "driver") == [("AMD GPU (gfx1100, PCI device 744c)", "amdgpu")]


@pytest.mark.parametrize(
    ("answers", "source"),
    [
        ({("amd-smi", "static"): smi({"bus": {"bdf": DGPU}}), ("amd-smi", "metric"): "METRIC"}, "amd-smi"),
        ({("rocm-smi", None): "ROCM"}, "rocm-smi"),
    ],
)
def test_the_numbers_of_a_tool_stand_where_sys_has_none(box, answers, source):
    box.pci(DGPU, "74a1", pci_class="0x120000")
    metric = smi({"mem_usage": {"total_vram": mib(196288), "used_vram": mib(2531)}})
    rocm = {"PCI Bus": DGPU, "VRAM Total Memory (B)": "205822885888", "VRAM Total Used Memory (B)": "2653945856"}
    for (name, call), text in answers.items():
        box.tool(name, {"METRIC": metric, "ROCM": json.dumps({"card0": rocm})}.get(text, text), call=call)
    gpus, messages = box.read()
    assert messages == []
    assert brief(gpus, "memory_total_bytes", "memory_free_bytes", "source", "index") == [
        (205822885888, 205822885888 - 2531 * MIB, source, 0)
    ]


def test_rocm_smi_fills_in_for_an_amd_smi_that_fails(box):
    box.pci("0000:07:00.0", "73df")
    error = "amd-smi ended with 255: Unable to detect any GPU devices"
    box.tool("amd-smi", "", error, rc=255)
    box.tool("rocm-smi", (FIXTURES / "rocm-smi-6.1.json").read_text())
    gpus, messages = box.read()
    assert brief(gpus, "memory_total_bytes", "name") == [(12868124672, "Navi 22 [Radeon RX 6700/6700 XT / 6800M]")]
    assert messages == [error]
    assert box.ran == [("amd-smi", "static"), ("rocm-smi", "--showproductname")]


def test_a_tool_that_hangs_is_not_asked_again(box):
    box.pci(DGPU, "744c")
    box.card(0, DGPU, vram=20 * GIB, gtt=None)
    box.tool("amd-smi", "", "amd-smi gave no answer within 10 s and was killed", rc=None)
    gpus, messages = box.read()
    assert box.ran == [("amd-smi", "static")]
    assert messages == ["amd-smi gave no answer within 10 s and was killed"]
    assert brief(gpus, "memory_total_bytes", "placeable") == [(20 * GIB, True)]


def test_gpus_of_a_tool_without_addresses_are_joined_in_their_order(box):
    box.pci(DGPU, "73bf")
    box.pci("0000:10:00.0", "164e")
    box.tool("rocm-smi", (FIXTURES / "rocm-smi-raphael.csv").read_text())
    gpus, _messages = box.read()
    assert brief(gpus, "bus_id", "memory_total_bytes", "integrated", "placeable") == [
        (DGPU, 17163091968, False, True),
        ("0000:10:00.0", None, True, False),
    ]


@pytest.mark.parametrize("devices", [("164e", "73bf"), ("73bf",), ("73bf", "164e", "744c")])
def test_gpus_of_a_tool_without_addresses_that_do_not_fit_are_not_used(box, devices):
    for number, device in enumerate(devices):
        box.pci(f"0000:0{number}:00.0", device)
    box.tool("rocm-smi", (FIXTURES / "rocm-smi-raphael.csv").read_text())
    gpus, messages = box.read()
    assert placeable(gpus) == []
    assert len(gpus) == len(devices)
    assert messages == [amd_join.NOT_JOINED.format(source="rocm-smi")]


def test_gpus_of_a_tool_without_addresses_are_joined_by_their_kfd_number(box):
    box.pci("0000:01:00.0", "164e")
    box.pci(DGPU, "73bf")
    box.node(1, 52156, 0x0100, gfx=100306)
    box.node(2, 45534, 0x0300, gfx=100300)
    box.tool("rocm-smi", (FIXTURES / "rocm-smi-raphael.csv").read_text())
    gpus, messages = box.read()
    assert brief(gpus, "index", "bus_id", "name", "placeable") == [
        (0, "0000:01:00.0", "Raphael", False),
        (1, DGPU, "Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]", True),
    ]
    assert messages == []


def test_a_gpu_that_only_a_tool_shows(box):
    (box.root / "sys" / "module" / "amdgpu").mkdir(parents=True)
    box.tool("amd-smi", smi({"bus": {"bdf": OTHER}}, {"bus": {"bdf": DGPU}}), call="static")
    box.tool(
        "amd-smi",
        smi(*[{"mem_usage": {"total_vram": mib(n), "used_vram": mib(1)}} for n in (8192, 9216)]),
        call="metric",
    )
    gpus, _messages = box.read()
    assert brief(gpus, "index", "bus_id", "memory_total_bytes") == [(0, DGPU, 9 * GIB), (1, OTHER, 8 * GIB)]


def test_a_card_without_an_address_is_the_only_gpu_of_the_bus(box):
    box.pci(DGPU, "744c")
    box.card(0, None, vram=20 * GIB)
    gpus, _messages = box.read()
    assert brief(gpus, "bus_id", "memory_total_bytes", "placeable") == [(DGPU, 20 * GIB, True)]


# The order


def test_index_is_the_place_in_kfd(box):
    for number, (address, device) in enumerate(((DGPU, "744c"), (OTHER, "73bf"))):
        box.pci(address, device)
        box.card(number, address, vram=16 * GIB)
    box.cpu_node()
    box.node(1, 100, 0x0800, gfx=100300, unique=0xA)
    box.node(2, 200, 0x0300, gfx=110000)
    gpus, messages = box.read()
    assert brief(gpus, "index", "bus_id", "uuid") == [(0, OTHER, "GPU-000000000000000a"), (1, DGPU, None)]
    assert messages == []


def test_index_without_kfd_is_a_guess_that_is_said(box):
    for number, address in enumerate((OTHER, DGPU)):
        box.pci(address, "744c")
        box.card(number, address, vram=16 * GIB)
    gpus, messages = box.read()
    assert brief(gpus, "index", "bus_id") == [(0, DGPU), (1, OTHER)]
    assert messages == [amd.BY_ADDRESS]


def test_a_gpu_that_rocm_does_not_know_takes_no_index(box):
    box.pci(DGPU, "67df")
    box.card(0, DGPU, vram=8 * GIB)
    box.pci(OTHER, "744c")
    box.card(1, OTHER, vram=24 * GIB)
    box.cpu_node()
    box.node(1, 5, 0x0800)
    gpus, _messages = box.read()
    assert brief(gpus, "index", "bus_id", "placeable", "reason") == [
        (0, OTHER, True, None),
        (None, DGPU, False, amd.NO_NODE),
    ]


def test_kfd_without_a_gpu_offers_none(box):
    box.pci(DGPU, "67df")
    box.card(0, DGPU, vram=8 * GIB)
    box.cpu_node()
    assert brief(box.read()[0], "index", "placeable", "reason") == [(None, False, amd.NO_NODE)]


# Not usable


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        ("vfio-pci", "virtual machines (vfio-pci)"),
        ("pci-stub", "virtual machines (pci-stub)"),
        ("radeon", "the driver radeon: ROCm needs amdgpu"),
        (None, "modprobe amdgpu"),
        ("amdgpu", "shows no memory of it"),
    ],
)
def test_a_gpu_of_the_bus_alone(box, driver, words):
    box.pci(DGPU, "744c", driver)
    box.write("sys/module/amdgpu/version", "6.10.5")
    gpus, messages = box.read()
    assert gpus[0]["driver"] == driver
    assert brief(gpus, "index", "bus_id", "name", "placeable", "memory_total_bytes", "memory_free_bytes") == [
        (None, DGPU, "AMD GPU (PCI device 744c)", False, None, None)
    ]
    assert words in gpus[0]["reason"]
    assert messages == []


def test_virtual_functions_are_no_gpus_of_their_host(box):
    box.pci(DGPU, "74a1", "gim", "0x120000")
    for function, driver in (("0000:03:02.0", "vfio-pci"), ("0000:03:02.1", None)):
        box.pci(function, "74b5", driver, "0x120000")
        (box.root / "sys/bus/pci/devices" / function / "physfn").symlink_to(f"../{DGPU}")
    gpus, messages = box.read()
    assert messages == []
    assert [(gpu["bus_id"], gpu["placeable"]) for gpu in gpus] == [(DGPU, False)]
    assert "gim" in gpus[0]["reason"]


def test_no_tool_is_asked_about_gpus_of_virtual_machines(box):
    box.pci(DGPU, "744c", "vfio-pci")
    box.tool("amd-smi", "")
    box.read()
    assert box.ran == []


def test_a_lost_gpu_beside_a_good_one(box):
    box.pci(DGPU, "744c")
    box.card(0, DGPU, vram="", vram_used="", gtt="", gtt_used="")
    box.pci(OTHER, "744c")
    box.card(1, OTHER, vram=24 * GIB, vram_used=GIB)
    box.cpu_node()
    box.node(1, 5, 0x0800)
    gpus, _messages = box.read()
    assert brief(gpus, "index", "bus_id", "placeable", "memory_free_bytes", "reason") == [
        (0, OTHER, True, 23 * GIB, None),
        (None, DGPU, False, None, amd.SILENT),
    ]


def test_what_is_in_use_is_not_known(box):
    box.pci(DGPU, "744c")
    box.card(0, DGPU, vram=24 * GIB, vram_used=25 * GIB)
    gpus, _messages = box.read()
    assert brief(gpus, "placeable", "memory_total_bytes", "memory_free_bytes") == [(True, 24 * GIB, None)]
    assert gpus[0]["reason"] == amd.NO_USE.format(way=amd.INSTALL)
    box.tool("amd-smi", smi({"bus": {"bdf": DGPU}}))
    assert box.read()[0][0]["reason"] == amd.NO_USE.format(way=amd.LOOK)


def test_memory_that_kfd_alone_knows(box):
    box.pci("0000:01:00.0", "74a0", pci_class="0x120000")
    box.card(0, "0000:01:00.0", vram=0, gtt=None, gtt_used=None)
    box.node(1, 5, 0x0100, gfx=90402, bank=128 * GIB)
    gpus, _messages = box.read()
    assert brief(gpus, "memory_total_bytes", "memory_free_bytes", "integrated", "unified_memory", "source") == [
        (128 * GIB, None, False, False, "/sys/class/kfd")
    ]
    box.tool("amd-smi", smi({"bus": {"bdf": "0000:01:00.0"}}), call="static")
    box.tool("amd-smi", smi({"mem_usage": {"total_vram": mib(131072), "used_vram": mib(1024)}}), call="metric")
    gpus, _messages = box.read()
    assert brief(gpus, "memory_total_bytes", "memory_free_bytes", "source") == [(128 * GIB, 127 * GIB, "amd-smi")]


# Integrated GPUs


def strix(box, vram=4 * GIB, gtt=103079215104, kfd=True, **more):
    box.pci(APU, "1586")
    box.card(1, APU, vram=vram, gtt=gtt, **more)
    if kfd:
        box.cpu_node()
        box.node(1, 64042, 0xC500, gfx=110501, bank=max(vram, gtt))


@pytest.mark.parametrize("with_kfd", [True, False])
def test_strix_halo_has_its_gtt(box, with_kfd):
    strix(box, kfd=with_kfd, vram_used=GIB, gtt_used=2 * GIB)
    gpus, messages = box.read()
    keys = ("index", "memory_total_bytes", "memory_free_bytes", "unified_memory", "integrated", "placeable")
    assert brief(gpus, *keys) == [(0, 103079215104, 103079215104 - 2 * GIB, True, True, True)]
    assert messages == []


def test_a_sys_that_shows_nothing_but_memory(box):
    box.card(1, None, vram=4294967296, gtt=103079215104)
    gpus, messages = box.read()
    assert brief(gpus, "memory_total_bytes", "unified_memory", "placeable") == [(103079215104, True, True)]
    assert messages == []


def test_a_tool_that_shows_nothing_but_memory(box):
    (box.root / "sys" / "module" / "amdgpu").mkdir(parents=True)
    cards = {"card0": {"VRAM Total Memory (B)": "536870912"}, "card1": {"VRAM Total Memory (B)": "17163091968"}}
    box.tool("rocm-smi", "WARNING: AMD GPU device(s) is/are in a low-power state.\n\n" + json.dumps(cards))
    gpus, _messages = box.read()
    assert placeable(gpus) == [17163091968]


def test_gtt_beyond_the_machine(box):
    meminfo = {"MemTotal": 120 * GIB, "MemAvailable": 110 * GIB}
    strix(box, vram=8589934592, gtt=133143986176)
    gpus, _messages = box.read(meminfo=meminfo)
    assert gpus[0]["memory_total_bytes"] == amd_apu.limit(120 * GIB) < 120 * GIB
    assert gpus[0]["memory_free_bytes"] == 110 * GIB


def test_the_same_out_of_a_tool(box):
    box.pci(APU, "1586")
    box.tool("rocm-smi", "GPU[0] VRAM Total Memory (B): 8589934592\nGPU[0] GTT  Total Memory (B): 133143986176\n")
    gpus, _messages = box.read(meminfo={"MemTotal": 128 * GIB, "MemAvailable": 110 * GIB})
    assert 120 * GIB < gpus[0]["memory_total_bytes"] <= 133143986176
    assert brief(gpus, "memory_free_bytes", "unified_memory", "source") == [(None, True, "rocm-smi")]


def test_a_carve_out_that_is_larger_is_the_gpus_own(box):
    strix(box, vram=96 * GIB, gtt=16 * GIB, vram_used=GIB, gtt_used=GIB)
    gpus, _messages = box.read(meminfo={"MemTotal": 31 * GIB, "MemAvailable": 20 * GIB})
    assert brief(gpus, "memory_total_bytes", "memory_free_bytes", "unified_memory", "integrated") == [
        (96 * GIB, 95 * GIB, False, True)
    ]


def test_an_old_kernel_is_named(box):
    box.pci(APU, "1586")
    box.card(1, APU, vram=4 * GIB, gtt=96 * GIB)
    box.node(1, 64042, 0xC500, gfx=110501, bank=4 * GIB)
    gpus, messages = box.read()
    assert brief(gpus, "memory_total_bytes", "unified_memory", "placeable") == [(4 * GIB, False, True)]
    assert messages == [f"AMD GPU (gfx1151, PCI device 1586) at {APU}: {amd_apu.OLD_KERNEL}"]


def test_an_old_kernel_is_not_named_for_a_gpu_that_is_refused(box):
    box.pci(APU, "164e")
    box.card(1, APU, vram=512 * MIB, gtt=16 * GIB)
    box.node(1, 64042, 0xC500, gfx=100306, bank=512 * MIB)
    gpus, messages = box.read()
    assert brief(gpus, "placeable", "reason") == [(False, amd.SMALL)]
    assert messages == []


def test_an_apu_of_which_a_tool_tells_the_carve_out_only(box):
    (box.root / "sys" / "module" / "amdgpu").mkdir(parents=True)
    box.tool("rocm-smi", (FIXTURES / "rocm-smi-apu.csv").read_text())
    gpus, messages = box.read()
    assert brief(gpus, "index", "name", "memory_total_bytes", "integrated", "placeable", "reason") == [
        (0, "AMD Radeon 8060S Graphics", None, True, True, amd_apu.NO_GTT),
        (1, "AMD Radeon RX 9070 XT", 17163091968, False, True, None),
    ]
    assert messages == [amd.BY_ADDRESS]


def test_a_gpu_for_the_screen_is_no_stage(box):
    (box.root / "sys" / "module" / "amdgpu").mkdir(parents=True)
    box.tool("rocm-smi", (FIXTURES / "rocm-smi-raphael.csv").read_text())
    gpus, _messages = box.read()
    assert placeable(gpus) == [17163091968]
    assert brief(gpus, "name", "index", "placeable") == [
        ("Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]", 0, True),
        ("Raphael", 1, False),
    ]
    assert gpus[1]["reason"] == amd.SMALL


@pytest.mark.parametrize(
    ("device", "gfx", "usable"), [("164e", 100306, False), ("1681", 100305, False), ("15bf", 110003, True)]
)
def test_families(box, device, gfx, usable):
    box.pci(APU, device)
    box.card(0, APU, vram=512 * MIB, gtt=16 * GIB)
    box.node(1, 5, 0xC500, gfx=gfx, bank=16 * GIB)
    gpus, _messages = box.read()
    assert brief(gpus, "integrated", "placeable", "memory_total_bytes", "index") == [(True, usable, 16 * GIB, 0)]


# What the pool holds


def test_own_memory_by_kfd(box):
    box.pci(DGPU, "744c")
    box.card(0, DGPU, vram=20 * GIB, vram_used=9 * GIB)
    box.node(1, 22, 0x0300)
    box.held(70, 22, 5 * GIB)
    box.held(71, 22, GIB)
    box.held(99, 22, 3 * GIB)
    assert brief(box.read(own_pids=(70, 71, 72))[0], "memory_own_bytes") == [(6 * GIB,)]
    assert brief(box.read()[0], "memory_own_bytes") == [(0,)]


@pytest.mark.parametrize("namespace", [pid_namespace.INITIAL, "pid:[4026532501]"])
def test_own_memory_by_open_files(box, namespace):
    box.namespace(namespace)
    box.pci(DGPU, "744c")
    box.card(0, DGPU, vram=20 * GIB, vram_used=9 * GIB)
    box.node(1, 22, 0x0300)
    box.held(70, 22, GIB)
    box.fdinfo(70, DGPU, vram=4 * GIB, gtt=2 * GIB)
    box.fdinfo(71, DGPU, client=2, vram=GIB)
    assert brief(box.read(own_pids=(70, 71))[0], "memory_own_bytes") == [(5 * GIB,)]


def test_own_memory_of_an_integrated_gpu_is_what_it_maps(box):
    strix(box, gtt_used=50 * GIB)
    box.fdinfo(70, APU, vram=GIB, gtt=40 * GIB)
    assert brief(box.read(own_pids=(70,))[0], "memory_own_bytes") == [(40 * GIB,)]


def test_own_memory_is_never_more_than_there_is(box):
    box.pci(DGPU, "744c")
    box.card(0, DGPU, vram=20 * GIB)
    box.fdinfo(70, DGPU, vram=21 * GIB)
    assert brief(box.read(own_pids=(70,))[0], "memory_own_bytes") == [(20 * GIB,)]


def test_own_memory_that_may_not_be_read(box, monkeypatch):
    box.pci(DGPU, "744c")
    box.card(0, DGPU, vram=20 * GIB)
    box.node(1, 22, 0x0300)

    def refuse(pid, proc_root):
        raise PermissionError(13, "no")

    monkeypatch.setattr("ansible_collections.relay.pool.plugins.module_utils.gpu.fdinfo._texts", refuse)
    gpus, messages = box.read(own_pids=(70,))
    assert brief(gpus, "memory_own_bytes") == [(None,)]
    assert messages == [amd.OWN_UNKNOWN]
    assert box.read()[1] == []
    # KFD knows the process, so its files are not missed.
    box.held(70, 22, GIB)
    gpus, messages = box.read(own_pids=(70,))
    assert brief(gpus, "memory_own_bytes") == [(GIB,)]
    assert messages == []


# Parts of a GPU


def mi300x(box, locations, bank=48 * GIB, vram_used=4 * GIB):
    box.pci("0000:0c:00.0", "74a1", pci_class="0x120000")
    box.card(0, "0000:0c:00.0", vram=192 * GIB, vram_used=vram_used)
    box.cpu_node()
    for number, location in enumerate(locations):
        box.node(number + 1, 100 + number, location, gfx=90402, unique=7, bank=bank)


@pytest.mark.parametrize(
    ("locations", "addresses"),
    [
        ((0x0C00, 0x0C01, 0x0C02, 0x0C03), [f"0000:0c:00.{number}" for number in range(4)]),
        ((0x0C00, 0x10000C00, 0x20000C00, 0x30000C00), ["0000:0c:00.0"] * 4),
    ],
)
def test_parts_are_gpus(box, locations, addresses):
    mi300x(box, locations)
    parts = [{"bus": {"bdf": f"0000:0c:00.{n}"}, "asic": {"market_name": "AMD Instinct MI300X"}} for n in range(4)]
    box.tool("amd-smi", smi(*parts))
    gpus, messages = box.read()
    assert messages == []
    assert brief(gpus, "index", "bus_id") == list(enumerate(addresses))
    # What is in use may be in any of them.
    assert {(48 * GIB, 44 * GIB, "AMD Instinct MI300X", None, True, "/sys/class/kfd")} == set(
        brief(gpus, "memory_total_bytes", "memory_free_bytes", "name", "uuid", "placeable", "source")
    )


def test_what_the_pool_holds_of_a_part_is_not_charged_to_the_others(box):
    mi300x(box, (0x0C00, 0x0C01), bank=96 * GIB, vram_used=34 * GIB)
    box.held(70, 100, 20 * GIB)
    box.held(70, 101, 10 * GIB)
    gpus, _messages = box.read(own_pids=(70,))
    assert brief(gpus, "memory_own_bytes", "memory_free_bytes") == [(20 * GIB, 72 * GIB), (10 * GIB, 82 * GIB)]


def test_the_files_say_nothing_of_parts(box):
    box.namespace("pid:[4026532501]")
    mi300x(box, (0x0C00, 0x0C01), bank=96 * GIB)
    assert brief(box.read(own_pids=(70,))[0], "memory_own_bytes") == [(0,), (0,)]
    box.fdinfo(70, "0000:0c:00.0", vram=GIB)
    assert brief(box.read(own_pids=(70,))[0], "memory_own_bytes") == [(None,), (None,)]


def test_a_part_that_a_container_has_alone(box):
    mi300x(box, (0x0C01,), bank=24 * GIB)
    assert brief(box.read()[0], "index", "bus_id", "memory_total_bytes") == [(0, "0000:0c:00.1", 24 * GIB)]


def test_parts_without_sizes(box):
    mi300x(box, (0x0C00, 0x0C01), bank=None)
    assert brief(box.read()[0], "memory_total_bytes", "reason") == [(None, amd.SPLIT_WITHOUT_SIZES)] * 2


# The tools


def test_rubbish_of_a_tool_is_a_message(box):
    box.pci(DGPU, "744c")
    box.card(0, DGPU, vram=20 * GIB)
    box.tool("amd-smi", "Traceback (most recent call last):\n")
    gpus, messages = box.read()
    assert placeable(gpus) == [20 * GIB]
    assert messages == amd_smi.parse("")[1]
