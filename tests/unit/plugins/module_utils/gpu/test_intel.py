# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import pathlib

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command, overrides
from ansible_collections.relay.pool.plugins.module_utils.gpu import (
    intel,
    intel_sysfs,
    record,
    tools,
    visible,
    xpu_smi,
)

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "intel"
MIB = 1024 * 1024
A770, B580, UHD = "0000:03:00.0", "0000:07:00.0", "0000:00:02.0"
TOOL = "/usr/bin/xpu-smi"


def fixture(name):
    return (FIXTURES / name).read_text()


class Sys:
    """A /sys to fill, and a machine that has it."""

    def __init__(self, root):
        self.root = root

    def write(self, path, text):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def gpu(self, address, device, driver="xe", card=None, pci_class="0x030000"):
        folder = f"bus/pci/devices/{address}"
        self.write(f"{folder}/vendor", "0x8086\n")
        self.write(f"{folder}/device", f"0x{device}\n")
        self.write(f"{folder}/class", f"{pci_class}\n")
        if driver:
            (self.root / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
            os.symlink(self.root / "bus/pci/drivers" / driver, self.root / folder / "driver")
        if card is not None:
            (self.root / folder / "drm" / f"card{card}").mkdir(parents=True)
            os.symlink(self.root / folder, self.root / folder / "drm" / f"card{card}" / "device")
            self.write("class/drm/version", "drm 1.1.0\n")
            os.symlink(self.root / folder / "drm" / f"card{card}", self.root / "class/drm" / f"card{card}")
            # A connector and a render node stand beside the card.
            (self.root / folder / "drm" / f"card{card}" / f"card{card}-DP-1").mkdir()

    def memory(self, address):
        return intel_sysfs.memory(address, str(self.root))


@pytest.fixture
def sys_tree(tmp_path):
    return Sys(tmp_path / "sys")


@pytest.fixture
def probe(sys_tree, monkeypatch):
    """Run the probe with what the tool answers, by the arguments after its name; without answers there is no tool."""

    def run(answers=None, own_pids=(), proc_root="/nowhere"):
        calls = []

        def fake(argv, timeout):
            calls.append(argv[1:])
            answer = answers.get(" ".join(argv[1:]), "")
            return answer if isinstance(answer, command.Result) else command.Result(0, answer, "", None)

        monkeypatch.setattr(tools, "find", lambda name: None if answers is None else TOOL)
        machine = record.Machine(run=fake, sys_root=str(sys_tree.root), own_pids=own_pids, proc_root=str(proc_root))
        gpus, messages = intel.read_gpus(machine)
        run.calls = calls
        return gpus, messages

    return run


def listed(**values):
    return json.dumps({"device_list": [values]})


# xpu-smi


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        # every number is a text
        (
            {"memory_physical_size_byte": "51522830336", "memory_free_size_byte": "51493543936"},
            {"total": 51522830336, "free": 51493543936},
        ),
        ({"memory_physical_size_byte": "12809404416", "device_id": "1"}, {"total": 12809404416, "number": 1}),
        ({"memory_physical_size_byte": 34242297856, "device_id": 0}, {"total": 34242297856, "number": 0}),
        ({"memory_physical_size": "14248.00 MiB"}, {"total": 14248 * MIB}),
        # what is not known is never 0
        ({"memory_physical_size_byte": "0", "memory_free_size_byte": "0"}, {"total": None, "free": None}),
        ({"memory_physical_size_byte": "N/A", "memory_physical_size": "N/A"}, {"total": None}),
        ({"memory_physical_size_byte": "-1"}, {"total": None}),
        ({"memory_physical_size_byte": "1e10"}, {"total": None}),
        ({"memory_physical_size_byte": 12.5}, {"total": None}),
        ({"memory_physical_size_byte": True}, {"total": None}),
        ({"memory_physical_size_byte": str(2**50)}, {"total": None}),
        ({"memory_physical_size_byte": "9" * 40}, {"total": None}),
        ({"memory_physical_size_byte": ["1"]}, {"total": None}),
        # more free than there is
        ({"memory_physical_size_byte": "1000", "memory_free_size_byte": "1001"}, {"total": 1000, "free": None}),
        ({"device_name": "Intel(R) Graphics [0xe211]", "pci_device_id": "0xE211"}, {"name": None, "device": "e211"}),
        ({"device_name": "", "uuid": "unknown", "serial_number": 5}, {"name": None, "uuid": None}),
        ({"device_name": {"a": 1}, "pci_bdf_address": "somewhere"}, {"name": None, "address": None}),
        ({"pci_bdf_address": "00000000:4D:00.0"}, {"address": "0000:4d:00.0"}),
        ({"device_type": "GPU"}, {"integrated": None}),
        ({"device_type": "Integrated GPU"}, {"integrated": True}),
        ({"device_type": "Discrete GPU"}, {"integrated": False}),
        ({"number_of_tiles": "2"}, {"tiles": 2}),
        ({"number_of_tiles": "N/A"}, {"tiles": 1}),
    ],
)
@pytest.mark.parametrize("form", ["list", "device_list", "one"])
def test_one_device(entry, expected, form):
    entry = {"device_name": "Intel(R) Arc(TM) Test", **entry}
    text = json.dumps({"list": [entry], "device_list": {"device_list": [entry]}, "one": entry}[form])
    devices, messages = xpu_smi.parse_devices("Warning: level zero is old\n\n" + text + "\n")
    assert messages == []
    assert [{key: getattr(devices[0], key) for key in expected}] == [expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"device_list": null}', "xpu-smi: no device discovered"),
        ('{"device_list": "No device discovered"}', "xpu-smi: No device discovered"),
        ('{"error": "level zero init failed", "errno": 1}', "xpu-smi: level zero init failed"),
        ('{"version": "2.0"}', "xpu-smi answered without device_list"),
        ("Segmentation fault", "xpu-smi printed no JSON"),
        ('{"device_list": [{"device_id": ', "xpu-smi printed no JSON"),
        ('{"device_list": [1, null, "x"]}', None),
        ("", None),
    ],
)
def test_no_devices(text, message):
    assert xpu_smi.parse_devices(text) == ([], [message] if message else [])


def test_a_device_listed_twice_counts_once():
    entries = [{"device_id": 0, "device_name": "a"}, {"device_id": 0, "device_name": "b"}]
    devices, messages = xpu_smi.parse_devices(json.dumps({"device_list": entries}))
    assert [device.name for device in devices] == ["a"]
    assert messages == ["xpu-smi lists device 0 twice"]


# /sys


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0x2fb800000\n", 12809404416),
        ("12809404416\n", 12809404416),
        ("0X10", 16),
        ("0\n", None),
        ("0x0\n", None),
        ("\n", None),
        ("-5", None),
        ("12 MiB", None),
        ("0x", None),
        (hex(2**50), None),
        ("9" * 30, None),
        ("\u0664", None),
    ],
)
def test_size_in_a_file(text, size):
    assert intel_sysfs.parse_size(text) == size


def test_tiles_add_up(sys_tree):
    sys_tree.gpu(A770, "0bd5", card=0)
    for tile, text in enumerate(("0xf00000000\n", "64424509440\n")):
        sys_tree.write(f"bus/pci/devices/{A770}/tile{tile}/physical_vram_size_bytes", text)
    assert sys_tree.memory(A770) == (2 * 64424509440, None, "/sys/bus/pci/devices", 2)


def test_a_tile_that_cannot_be_read_spoils_the_sum(sys_tree):
    sys_tree.gpu(A770, "0bd5", card=0)
    for tile, text in enumerate(("64424509440\n", "?\n")):
        sys_tree.write(f"bus/pci/devices/{A770}/tile{tile}/physical_vram_size_bytes", text)
    assert sys_tree.memory(A770).total is None


def test_out_of_tree_i915_shows_it_on_the_card(sys_tree):
    sys_tree.gpu(A770, "56c0", "i915", card=1)
    sys_tree.write(f"bus/pci/devices/{A770}/lmem_total_bytes", "1\n")
    assert sys_tree.memory(A770).total is None
    sys_tree.write("class/drm/card1/lmem_total_bytes", "14248050688\n")
    assert sys_tree.memory(A770) == (14248050688, None, "/sys/class/drm", 1)


def test_card_that_is_no_link_is_known_by_its_slot(sys_tree):
    sys_tree.write("class/drm/card0/device/uevent", f"DRIVER=xe\nPCI_SLOT_NAME={B580}\n")
    sys_tree.write("class/drm/card0/device/tile0/physical_vram_size_bytes", "0x2fb800000\n")
    assert sys_tree.memory(B580).total == 12809404416
    assert sys_tree.memory(A770).total is None


@pytest.mark.parametrize("folder", [A770, "1"])
def test_i915_debugfs(sys_tree, folder):
    sys_tree.gpu(A770, "56a0", "i915", card=1)
    sys_tree.write(f"kernel/debug/dri/{folder}/i915_gem_objects", fixture("i915_gem_objects_a770.txt"))
    assert sys_tree.memory(A770) == (15473 * MIB, 13404 * MIB, "/sys/kernel/debug/dri", 1)


@pytest.mark.parametrize(
    "text",
    [
        # an integrated GPU has no local memory, what the system has free is not it
        "system: total:0x7d7f4a000 bytes\nstolen-system: chunk_size: 4KiB, total: 64MiB, free: 60MiB\n",
        "local0: total:0x3c7100000 bytes\nstolen-local: chunk_size: 4KiB, total: 64MiB, free: 60MiB\n",
        "local0: chunk_size: 4KiB, total: 0MiB, free: 0MiB\n",
        "",
    ],
)
def test_i915_debugfs_without_local_memory(text):
    assert intel_sysfs.parse_objects(text) == (None, None)


def test_xe_debugfs(sys_tree):
    sys_tree.gpu(B580, "e20b", card=2)
    sys_tree.write(f"kernel/debug/dri/{B580}/vram0_mm", fixture("vram0_mm_b580.txt"))
    assert sys_tree.memory(B580) == (12688818176, 12688818176 - 4294967296, "/sys/kernel/debug/dri", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("size: 100\nusage: 40\n", (100, 60)),
        ("size: 100\n", (100, None)),
        ("size: 100\nusage: 101\n", (100, None)),
        ("size: 0\nusage: 0\n", (None, None)),
        ("visible_size: 12101MiB\nman size:100\n", (None, None)),
    ],
)
def test_memory_manager(text, expected):
    assert intel_sysfs.parse_manager(text) == expected


def test_control_group_of_device_memory_is_asked_first(sys_tree):
    sys_tree.gpu(B580, "e20b", card=2)
    sys_tree.write(f"kernel/debug/dri/{B580}/vram0_mm", fixture("vram0_mm_b580.txt"))
    capacity = f"drm/{A770}/vram 17095983104\ndrm/{B580}/vram0 12688818176\n"
    current = f"drm/{A770}/vram 1\ndrm/{B580}/vram0 0\n"
    sys_tree.write("fs/cgroup/dmem.capacity", capacity)
    assert sys_tree.memory(B580) == (12688818176, 12688818176 - 4294967296, "/sys/kernel/debug/dri", 1)
    sys_tree.write("fs/cgroup/dmem.current", current)
    assert sys_tree.memory(B580) == (12688818176, 12688818176, "/sys/fs/cgroup", 1)


def test_device_memory_of_two_tiles(sys_tree):
    sys_tree.write("fs/cgroup/dmem.capacity", f"drm/{B580}/vram0 1000\ndrm/{B580}/vram1 1000\nbad\n")
    sys_tree.write("fs/cgroup/dmem.current", f"drm/{B580}/vram0 300\ndrm/{B580}/vram1 0\n")
    assert sys_tree.memory(B580) == (2000, 1700, "/sys/fs/cgroup", 2)


# all of it


def test_no_evidence_runs_nothing(probe, sys_tree):
    assert probe() == ([], [])
    # the NPU of a CPU is a processing accelerator, and no GPU
    sys_tree.gpu("0000:00:0b.0", "7d1d", "intel_vpu", pci_class="0x120000")
    assert probe() == ([], [])
    assert probe.calls == []


def test_integrated_and_two_discrete(probe, sys_tree):
    sys_tree.gpu(UHD, "4680", "i915", card=0)
    sys_tree.gpu(A770, "56a0", "i915", card=1)
    sys_tree.gpu(B580, "e20b", "xe", card=2)
    answers = {
        "discovery -j": fixture("discovery_three.json"),
        "discovery -d 1 -j": fixture("detail_a770.json"),
        "discovery -d 2 -j": fixture("detail_b580.json"),
    }
    gpus, messages = probe(answers)
    assert messages == []
    assert [" ".join(call) for call in probe.calls] == list(answers)
    assert [(g["index"], g["bus_id"], g["name"]) for g in gpus] == [
        # Level Zero counts the discrete ones first, whatever xpu-smi does.
        (0, A770, "Intel(R) Arc(TM) A770 Graphics"),
        (1, B580, "Intel(R) Arc(TM) B580 Graphics"),
        (2, UHD, "Intel(R) UHD Graphics 770"),
    ]
    assert [(g["memory_total_bytes"], g["memory_free_bytes"]) for g in gpus] == [
        (16225243136, 15911096320),
        (12809404416, 12771655680),
        (None, None),
    ]
    assert [g["placeable"] for g in gpus] == [True, True, False]
    assert [g["integrated"] for g in gpus] == [False, False, True]
    assert gpus[0]["reason"] is None
    assert "relay_overrides" in gpus[2]["reason"]
    assert gpus[0]["driver"] == "1.6.31907.700000"
    assert gpus[0]["source"] == "xpu-smi"


def three(*cards):
    """What xpu-smi says of cards in PCI order, each of (PCI device, what is said of its execution units)."""
    memory = {"memory_physical_size_byte": "1000", "memory_free_size_byte": "900"}
    entries = [
        {"device_id": n, "pci_bdf_address": f"0000:0{n + 3}:00.0", "pci_device_id": f"0x{device}", **memory, **units}
        for n, (device, units) in enumerate(cards)
    ]
    return {"discovery -j": json.dumps({"device_list": entries})}


def slices(number):
    return {"number_of_slices": str(number), "number_of_sub_slices_per_slice": 4, "number_of_eus_per_sub_slice": "16"}


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        # llama.cpp begins with the first of Level Zero, and goes on with the one of most execution units.
        (
            [("56a5", {"number_of_eus": "128"}), ("e20b", {"number_of_eus": 160}), ("56a0", {"number_of_eus": 512})],
            [("0000:03:00.0", 0), ("0000:05:00.0", 1), ("0000:04:00.0", 2)],
        ),
        (
            [("e20b", {}), ("56a5", slices(2)), ("56a0", slices(8))],
            [("0000:03:00.0", 0), ("0000:05:00.0", 1), ("0000:04:00.0", 2)],
        ),
        # Those of one kind have as many, whatever that is.
        ([("56a5", {}), ("56a0", {}), ("56a0", {})], [("0000:03:00.0", 0), ("0000:04:00.0", 1), ("0000:05:00.0", 2)]),
        ([("56a5", {}), ("56a0", {})], [("0000:03:00.0", 0), ("0000:04:00.0", 1)]),
    ],
)
def test_order_of_several(probe, cards, expected):
    gpus, messages = probe(three(*cards))
    assert messages == []
    assert [(g["bus_id"], g["index"]) for g in gpus] == expected
    assert all(g["placeable"] for g in gpus)


@pytest.mark.parametrize("unknown", [{}, {"number_of_eus": "N/A"}, {**slices(2), "number_of_slices": "0"}])
def test_order_of_several_that_is_not_known(probe, unknown):
    gpus, _messages = probe(three(("56a5", {}), ("e20b", {"number_of_eus": 160}), ("56a0", unknown)))
    assert [(g["index"], g["placeable"]) for g in gpus] == [(0, True), (None, False), (None, False)]
    assert "execution units" in gpus[1]["reason"]


def test_list_that_has_everything_is_asked_once(probe):
    # As xpu-smi of an older version lists a card, without number and address.
    entry = {
        "device_name": "Intel(R) Data Center GPU Max 1100",
        "memory_free_size_byte": "51493543936",
        "memory_physical_size_byte": "51522830336",
        "number_of_tiles": "1",
        "serial_number": "unknown",
    }
    gpus, messages = probe({"discovery -j": json.dumps([entry, dict(entry, memory_free_size_byte="100")])})
    assert messages == []
    assert probe.calls == [["discovery", "-j"]]
    assert [(g["index"], g["memory_total_bytes"], g["memory_free_bytes"], g["placeable"]) for g in gpus] == [
        (0, 51522830336, 51493543936, True),
        (1, 51522830336, 100, True),
    ]


def test_only_the_gpu_of_the_cpu_is_not_asked_about(probe, sys_tree):
    sys_tree.gpu(UHD, "a780", "i915", card=0)
    gpus, messages = probe({"discovery -j": fixture("discovery_three.json")})
    assert probe.calls == []
    assert messages == []
    assert [(g["index"], g["integrated"], g["unified_memory"], g["placeable"]) for g in gpus] == [
        (0, True, True, False)
    ]
    assert gpus[0]["memory_total_bytes"] is None


@pytest.mark.parametrize(
    ("name", "integrated"),
    [
        ("Intel(R) UHD Graphics 770", True),
        ("Intel(R) Iris(R) Xe Graphics", True),
        ("Intel(R) Arc(TM) Graphics", True),
        ("Intel(R) Arc(TM) 140V GPU", True),
        ("Intel(R) Iris(R) Xe MAX Graphics", False),
        ("Intel(R) Arc(TM) A380 Graphics", False),
        ("Intel(R) Data Center GPU Max 1550", False),
    ],
)
def test_integrated_by_name_where_there_is_no_address(probe, name, integrated):
    text = listed(device_id=0, device_name=name, memory_physical_size_byte="1000", memory_free_size_byte="900")
    gpus, _messages = probe({"discovery -j": text})
    assert gpus[0]["integrated"] is integrated
    # What the tool calls the memory of an integrated GPU is the machine's.
    assert gpus[0]["memory_total_bytes"] == (None if integrated else 1000)


def test_discrete_gpu_that_a_virtual_machine_shows_in_the_slot_of_the_integrated(probe, sys_tree):
    sys_tree.gpu(UHD, "56a0", "i915", card=0)
    sys_tree.write("kernel/debug/dri/0/i915_gem_objects", fixture("i915_gem_objects_a770.txt"))
    gpus, _messages = probe()
    assert (gpus[0]["integrated"], gpus[0]["placeable"], gpus[0]["name"]) == (False, True, "Intel Arc A770")


def test_virtual_functions_are_no_gpus_of_their_host(probe, sys_tree):
    """Unless they have the driver that makes them GPUs to Level Zero."""
    drivers = {"0000:4d:00.0": "xe", "0000:4d:00.1": "vfio-pci", "0000:4d:00.2": None, "0000:4d:00.3": "xe"}
    for address, driver in drivers.items():
        sys_tree.gpu(address, "56c0", driver)
        if not address.endswith(".0"):
            os.symlink("../0000:4d:00.0", sys_tree.root / "bus/pci/devices" / address / "physfn")
    sizes = {"memory_physical_size_byte": "4000", "memory_free_size_byte": "3000"}
    seen = [{"device_id": place, "pci_bdf_address": address, **sizes} for place, address in enumerate(drivers)]
    gpus, messages = probe({"discovery -j": json.dumps({"device_list": seen})})
    assert messages == []
    assert [(gpu["index"], gpu["bus_id"], gpu["placeable"]) for gpu in gpus] == [
        (0, "0000:4d:00.0", True),
        (1, "0000:4d:00.3", True),
    ]


def test_sysfs_only_with_use_needs_no_tool(probe, sys_tree):
    sys_tree.gpu(B580, "e20b", card=0)
    sys_tree.write(f"kernel/debug/dri/{B580}/vram0_mm", fixture("vram0_mm_b580.txt"))
    gpus, messages = probe()
    assert messages == []
    assert gpus[0]["memory_total_bytes"] == 12688818176
    assert gpus[0]["memory_free_bytes"] == 12688818176 - 4294967296
    assert (gpus[0]["placeable"], gpus[0]["reason"], gpus[0]["index"]) == (True, None, 0)
    assert gpus[0]["driver"] == "xe"


def test_sysfs_only_without_use(probe, sys_tree):
    sys_tree.gpu(B580, "e20b", card=0)
    sys_tree.write(f"bus/pci/devices/{B580}/tile0/physical_vram_size_bytes", "0x2fb800000\n")
    gpus, _messages = probe()
    assert (gpus[0]["memory_total_bytes"], gpus[0]["memory_free_bytes"]) == (12809404416, None)
    assert gpus[0]["placeable"] is True
    assert "install xpu-smi" in gpus[0]["reason"]


def test_mainline_i915_shows_no_memory(probe, sys_tree):
    sys_tree.gpu(A770, "56a0", "i915", card=1)
    gpus, _messages = probe()
    assert (gpus[0]["memory_total_bytes"], gpus[0]["memory_free_bytes"]) == (None, None)
    assert (gpus[0]["placeable"], gpus[0]["index"], gpus[0]["integrated"]) == (False, 0, False)
    assert "install xpu-smi" in gpus[0]["reason"]
    assert gpus[0]["name"] == "Intel Arc A770"


@pytest.mark.parametrize(
    ("driver", "word"),
    [(None, "no driver is bound"), ("vfio-pci", "virtual machine"), ("somebody", "the driver somebody holds it")],
)
def test_gpu_without_its_driver(probe, sys_tree, driver, word):
    sys_tree.gpu(A770, "56a1", driver)
    sys_tree.gpu(B580, "e20b", "xe", card=0)
    text = listed(
        device_id=0,
        device_name="B580",
        pci_bdf_address=B580,
        memory_physical_size_byte="12809404416",
        memory_free_size_byte="12000000000",
    )
    gpus, _messages = probe({"discovery -j": text})
    assert [(g["bus_id"], g["index"], g["placeable"]) for g in gpus] == [(A770, None, False), (B580, 0, True)]
    assert word in gpus[0]["reason"]


def test_firmware_recovery(probe, sys_tree):
    sys_tree.gpu(B580, "e20b", "xe")
    sys_tree.write(f"bus/pci/devices/{B580}/survivability_mode", "Survivability mode type: Boot\n")
    gpus, _messages = probe({"discovery -j": '{"device_list": null}'})
    assert (gpus[0]["placeable"], gpus[0]["index"]) == (False, None)
    assert "firmware" in gpus[0]["reason"]


def test_state_that_only_the_tool_reports(probe, sys_tree):
    """Some versions report it of GPUs that work: the kernel's word counts, and a memory that can be read."""
    sys_tree.gpu(B580, "e20b", "xe", card=0)
    state = {"device_id": 0, "pci_bdf_address": B580, "device_state": "survivability mode"}
    gpus, _messages = probe({"discovery -j": listed(**state)})
    assert gpus[0]["placeable"] is False
    assert "survivability mode" in gpus[0]["reason"]
    sys_tree.write(f"kernel/debug/dri/{B580}/vram0_mm", fixture("vram0_mm_b580.txt"))
    gpus, _messages = probe({"discovery -j": listed(**state)})
    assert (gpus[0]["placeable"], gpus[0]["memory_total_bytes"]) == (True, 12688818176)


def test_tool_that_hangs_is_called_once(probe, sys_tree):
    sys_tree.gpu(A770, "56a0", "i915", card=1)
    sys_tree.gpu(B580, "e20b", card=2)
    hung = command.Result(None, fixture("discovery_three.json"), "", "xpu-smi gave no answer within 5 s and was killed")
    gpus, messages = probe({"discovery -j": hung})
    assert probe.calls == [["discovery", "-j"]]
    assert messages == ["xpu-smi gave no answer within 5 s and was killed"]
    assert [g["bus_id"] for g in gpus] == [A770, B580, UHD]


def test_detail_that_hangs_ends_it(probe, sys_tree):
    hung = command.Result(None, "", "", "xpu-smi gave no answer within 5 s and was killed")
    gpus, messages = probe({"discovery -j": fixture("discovery_three.json"), "discovery -d 0 -j": hung})
    assert probe.calls == [["discovery", "-j"], ["discovery", "-d", "0", "-j"]]
    assert len(messages) == 1
    assert [g["placeable"] for g in gpus] == [False, False, False]
    assert {g["memory_total_bytes"] for g in gpus} == {None}


def test_tool_that_crashes(probe, sys_tree):
    sys_tree.gpu(A770, "56a0", "i915", card=1)
    crashed = command.Result(-11, "", "", "xpu-smi was ended by signal 11")
    gpus, messages = probe({"discovery -j": crashed})
    assert messages == ["xpu-smi was ended by signal 11"]
    assert gpus[0]["placeable"] is False
    assert gpus[0]["reason"].startswith("xpu-smi was ended by signal 11")


def test_tool_that_says_why_it_fails(probe):
    said = '{\n    "errno": 25,\n    "error": "Level Zero Initialization Error"\n}\n'
    failed = command.Result(1, said, "", "xpu-smi ended with 1: {")
    assert probe({"discovery -j": failed}) == ([], ["xpu-smi: Level Zero Initialization Error"])


def test_gpu_that_the_tool_leaves_out(probe, sys_tree):
    sys_tree.gpu(A770, "56a0", "i915", card=1)
    sys_tree.gpu(B580, "e20b", card=2)
    text = json.dumps({"device_list": [json.loads(fixture("detail_b580.json"))]})
    gpus, _messages = probe({"discovery -j": text})
    assert [(g["index"], g["placeable"]) for g in gpus] == [(None, False), (0, True)]
    assert "does not list it" in gpus[0]["reason"]
    # With the driver's own word for it, it is used all the same.
    sys_tree.write("kernel/debug/dri/1/i915_gem_objects", fixture("i915_gem_objects_a770.txt"))
    gpus, _messages = probe({"discovery -j": text})
    assert [(g["index"], g["placeable"]) for g in gpus] == [(0, True), (1, True)]
    assert gpus[0]["memory_free_bytes"] == 13404 * MIB


def test_nothing_is_placed_where_the_number_is_not_known(probe):
    memory = {"memory_physical_size_byte": "1000", "memory_free_size_byte": "900"}
    text = json.dumps({"device_list": [dict(memory, device_id=3), dict(memory, device_name="Intel(R) Arc(TM) A750")]})
    gpus, _messages = probe({"discovery -j": text})
    assert [(g["index"], g["placeable"]) for g in gpus] == [(3, True), (None, False)]
    assert "number" in gpus[1]["reason"]


def test_tiles_are_devices_of_their_own(probe):
    text = listed(
        device_id=0,
        device_name="Intel(R) Data Center GPU Max 1550",
        pci_bdf_address=A770,
        memory_physical_size_byte="137438953472",
        memory_free_size_byte="137000000000",
        number_of_tiles="2",
    )
    gpus, _messages = probe({"discovery -j": text})
    assert (gpus[0]["memory_total_bytes"], gpus[0]["placeable"]) == (137438953472, False)
    assert "ZE_FLAT_DEVICE_HIERARCHY" in gpus[0]["reason"]


@pytest.mark.parametrize("reason", [intel.INTEGRATED, intel.TILES, intel.NO_TOOL, intel.UNLISTED, intel.NO_TOTAL])
def test_a_gpu_is_used_when_what_its_reason_says_is_stated(reason):
    gpu = record.new("intel", 0, placeable=False, reason=reason)
    visible.name_devices("intel", [gpu])
    values = {"placeable": True, "memory_total_bytes": 4096, "memory_free_bytes": 2048}
    stated = {name: value for name, value in values.items() if name in reason}
    facts = {"gpus": [gpu], "memory": {"total_bytes": None, "available_bytes": None, "own_bytes": 0}, "cpu": {}}
    overrides.apply_overrides(facts, {"gpus": [{"index": 0, **stated}]})
    assert (gpu["placeable"], gpu["device"]) == (True, "SYCL0")


def test_free_memory_that_the_tool_lacks_is_the_drivers(probe, sys_tree):
    sys_tree.gpu(B580, "e20b", card=2)
    text = listed(device_id=0, pci_bdf_address=B580, memory_physical_size_byte="12809404416")
    gpus, _messages = probe({"discovery -j": text})
    assert (gpus[0]["memory_total_bytes"], gpus[0]["memory_free_bytes"]) == (12809404416, None)
    assert "xpu-smi does not know its free memory" in gpus[0]["reason"]
    sys_tree.write(f"kernel/debug/dri/{B580}/vram0_mm", fixture("vram0_mm_b580.txt"))
    gpus, _messages = probe({"discovery -j": text})
    assert (gpus[0]["memory_total_bytes"], gpus[0]["memory_free_bytes"]) == (12688818176, 8393850880)
    assert gpus[0]["reason"] is None


def test_own_memory(probe, sys_tree, tmp_path):
    sys_tree.gpu(B580, "e20b", card=2)
    sys_tree.gpu(UHD, "4680", "i915", card=0)
    sys_tree.write(f"kernel/debug/dri/{B580}/vram0_mm", fixture("vram0_mm_b580.txt"))
    for number, (address, region) in enumerate(((B580, "vram0"), (UHD, "system0"))):
        folder = tmp_path / "proc" / "70" / "fdinfo"
        folder.mkdir(parents=True, exist_ok=True)
        lines = f"drm-driver:\txe\ndrm-pdev:\t{address}\ndrm-client-id:\t{number}\ndrm-resident-{region}:\t4096 KiB\n"
        (folder / str(number)).write_text(lines)
    gpus, _messages = probe(own_pids=(70,), proc_root=tmp_path / "proc")
    assert [(g["bus_id"], g["memory_own_bytes"]) for g in gpus] == [(B580, 4 * MIB), (UHD, 0)]
