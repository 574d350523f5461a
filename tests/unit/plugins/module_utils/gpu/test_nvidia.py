# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pathlib
import time

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command
from ansible_collections.relay.pool.plugins.module_utils.gpu import (
    nvidia,
    nvidia_pci,
    nvidia_processes,
    nvidia_tegra,
    pid_namespace,
    record,
    tools,
)

MIB = 1024 * 1024
FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "nvidia"
MEMINFO = {"MemTotal": 128 * 1024**3, "MemAvailable": 100 * 1024**3}
TOOL = "/usr/bin/nvidia-smi"
LOST = "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU"
UNKNOWN = "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 590.48\n"


def row(index=0, name="NVIDIA L40S", total="46068", free="45460", mode="Default", mig="[N/A]", bus=None):
    bus = f"0{index + 1}" if bus is None else bus
    return f"{index}, {name}, GPU-{index}, 00000000:{bus}:00.0, 590.48, {total}, {free}, {mode}, {mig}"


def ok(text):
    return command.Result(0, text, "", None)


def failed(rc, stdout="", stderr=""):
    said = command.first_line(stdout, stderr)
    return command.Result(rc, stdout, stderr, f"nvidia-smi ended with {rc}: {said}")


SILENT = command.Result(None, "", "", "nvidia-smi gave no answer within 5 s and was killed")
NO_XML = failed(1, "no XML today\n")


def process(pid, used="100 MiB", kind="C", name="python3", instance="N/A"):
    return (
        f"<process_info><gpu_instance_id>{instance}</gpu_instance_id><pid>{pid}</pid><type>{kind}</type>"
        f"<process_name>{name}</process_name><used_memory>{used}</used_memory></process_info>"
    )


def gpu_xml(index, *processes, extra=""):
    return (
        f'<gpu id="00000000:0{index + 1}:00.0"><uuid>GPU-{index}</uuid>{extra}'
        f"<processes>{''.join(processes)}</processes></gpu>"
    )


def xml(*gpus):
    return ok(f"<?xml version='1.0'?><nvidia_smi_log>{''.join(gpus)}</nvidia_smi_log>")


def fake(query, details=None, apps=None, listing=None, alone=None):
    """nvidia-smi with an answer for each question; ``alone`` has them by the id behind -i. No answer: no question."""

    def run(argv, timeout):
        assert argv[0] == TOOL
        run.calls.append(argv[1:])
        if "-i" in argv:
            return alone[argv[argv.index("-i") + 1]]
        if argv[1].startswith("--query-gpu="):
            return query
        answer = {"-q": details, "-L": listing}.get(argv[1], apps)
        assert answer is not None, f"{argv} was not to be asked"
        return answer

    run.calls = []
    return run


def pci_tree(root, *devices):
    """/sys with (address, driver) of NVIDIA's display controllers, a sound device and another vendor's GPU."""
    kinds = [(address, driver, "0x10de", "0x030200") for address, driver in devices]
    kinds += [("0000:01:00.1", None, "0x10de", "0x040300"), ("0000:7f:00.0", "amdgpu", "0x1002", "0x030000")]
    for address, driver, vendor, kind in kinds:
        folder = root / "bus" / "pci" / "devices" / address
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")
        (folder / "device").write_text("0x26b9\n")
        if driver:
            target = root / "bus" / "pci" / "drivers" / driver
            target.mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(target)
    return str(root)


@pytest.fixture
def read(monkeypatch, tmp_path):
    """Read the GPUs of a machine with this nvidia-smi and these (address, driver) on its PCI bus."""

    def do(run, *devices, pids=(), tool=TOOL, **known):
        monkeypatch.setattr(tools, "find", lambda name: tool)
        root = pci_tree(tmp_path / "sys", *devices)
        return nvidia.read_gpus(record.Machine(meminfo=MEMINFO, own_pids=pids, run=run, sys_root=root, **known))

    return do


def brief(gpus, *keys):
    return [tuple(gpu[key] for key in keys) for gpu in gpus]


def test_two_healthy_gpus(read):
    run = fake(ok(row(0) + "\n" + row(1) + "\n"), xml(gpu_xml(1), gpu_xml(0)))
    gpus, messages = read(run, ("0000:01:00.0", "nvidia"), ("0000:02:00.0", "nvidia"))
    assert messages == []
    assert brief(gpus, "index", "uuid", "bus_id", "placeable", "reason", "memory_own_bytes") == [
        (0, "GPU-0", "0000:01:00.0", True, None, 0),
        (1, "GPU-1", "0000:02:00.0", True, None, 0),
    ]
    assert gpus[0] == record.new(
        "nvidia",
        0,
        name="NVIDIA L40S",
        uuid="GPU-0",
        bus_id="0000:01:00.0",
        driver="590.48",
        memory_total_bytes=46068 * MIB,
        memory_free_bytes=45460 * MIB,
        processes=[],
        source="nvidia-smi",
    )
    assert [call[0] for call in run.calls] == [run.calls[0][0], "-q"]


def test_no_gpu_and_no_tool_is_nothing(read):
    def never(argv, timeout):
        raise AssertionError(argv)

    assert read(never, tool=None) == ([], [])


# What the pool's processes hold.


@pytest.mark.parametrize(
    ("namespace", "opened", "named", "own"),
    [
        # In a container or under WSL nvidia-smi may leave out the processes that use a GPU.
        ("pid:[4026532501]", "/dev/nvidia1", None, None),
        ("pid:[4026532501]", "/dev/dxg", None, None),
        # Newer drivers name those of the container.
        ("pid:[4026532501]", "/dev/nvidia1", 10, 100 * MIB),
        ("pid:[4026532501]", "/dev/nvidiactl", None, 0),
        ("pid:[4026532501]", "/dev/null", None, 0),
        # On the machine itself they are all named: such a process has nothing on the GPU yet.
        (pid_namespace.INITIAL, "/dev/nvidia1", None, 0),
    ],
)
def test_own_memory_is_unknown_where_the_processes_are_hidden(read, tmp_path, namespace, opened, named, own):
    for link, target in (("proc/self/ns/pid", namespace), ("proc/10/fd/3", opened), ("proc/10/fd/0", "/dev/null")):
        (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / link).symlink_to(target)
    details = xml(gpu_xml(0, *([process(named)] if named else [])))
    gpus, messages = read(fake(ok(row(0)), details), pids=(9, 10), proc_root=str(tmp_path / "proc"))
    assert brief(gpus, "memory_own_bytes", "placeable", "reason") == [(own, True, None)]
    assert messages == ([] if own is not None else [nvidia_processes.HIDDEN])


def test_own_memory_counts_own_processes_only(read):
    details = xml(
        gpu_xml(1, process(10, "30 MiB"), process(12, "N/A")),
        gpu_xml(0, process(10, "500 MiB"), process(11, "70 MiB"), process(10, "500 MiB", "G")),
    )
    gpus, messages = read(fake(ok(row(0) + "\n" + row(1)), details), pids=(10, 12))
    # What one process holds on the second is not known, so neither is the sum.
    assert [gpu["memory_own_bytes"] for gpu in gpus] == [500 * MIB, None]
    assert messages == ["memory of process 12 on GPU-1 is not known: n_a"]


def test_processes_that_are_not_the_pools(read):
    details = xml(
        gpu_xml(1),
        gpu_xml(0, process(10), process(11, "70 MiB", name="/usr/bin/X"), process(12, "500 MiB", "G"),
                process(12, "600 MiB"), process(13, "N/A", name=""), *(process(20 + n, "1 MiB") for n in range(9))),
    )  # fmt: skip
    gpus, _messages = read(fake(ok(row(0) + "\n" + row(1)), details), pids=(10,))
    assert gpus[1]["processes"] == []
    assert [(entry["pid"], entry["name"], entry["memory_bytes"]) for entry in gpus[0]["processes"][:3]] == [
        (12, "python3", 600 * MIB),
        (11, "/usr/bin/X", 70 * MIB),
        (20, "python3", MIB),
    ]
    assert len(gpus[0]["processes"]) == 8


def test_processes_that_nobody_names(read):
    gpus, _messages = read(fake(ok(row(0)), NO_XML))
    assert gpus[0]["processes"] is None


def test_own_memory_of_the_csv_where_there_is_no_xml(read):
    apps = ok("GPU-0, 10, 500\nGPU-0, 11, 70\nGPU-1, 10, 30\nGPU-9, 10, 1\nGPU-2, 12, [N/A]\n")
    gpus, messages = read(fake(ok("\n".join(map(row, range(4)))), NO_XML, apps), pids=(10, 12))
    assert [gpu["memory_own_bytes"] for gpu in gpus] == [500 * MIB, 30 * MIB, None, 0]
    assert [gpu["placeable"] for gpu in gpus] == [True] * 4
    assert len(messages) == 2
    assert messages[0].startswith("nvidia-smi -q -x: nvidia-smi ended with 1: no XML today")
    assert messages[1] == "memory of process 12 on GPU-2 is not known: n_a"


@pytest.mark.parametrize("details", [NO_XML, ok(""), ok("<nvidia_smi_log><gpu>"), ok('<!ENTITY a "b">'), xml()])
def test_processes_are_not_asked_for_without_own_ones(read, details):
    run = fake(ok(row(0)), details)
    gpus, messages = read(run)
    assert brief(gpus, "index", "memory_own_bytes", "placeable") == [(0, 0, True)]
    assert len(run.calls) == 2
    assert len(messages) == 1
    assert "nvidia-smi -q -x" in messages[0]


@pytest.mark.parametrize("own", [(10,), ()])
def test_own_memory_is_unknown_where_nothing_names_the_processes(read, own):
    run = fake(ok(row(0)), xml(gpu_xml(0).replace("<processes></processes>", "")), failed(4, "Insufficient rights"))
    gpus, messages = read(run, pids=own)
    assert gpus[0]["memory_own_bytes"] == (None if own else 0)
    assert messages == (
        ["the processes on the GPUs are not known: nvidia-smi ended with 4: Insufficient rights"] if own else []
    )


def test_process_that_is_listed_with_and_without_its_memory(read):
    details = xml(gpu_xml(0, process(10, "N/A", "G"), process(10, "5 MiB")))
    gpus, messages = read(fake(ok(row(0)), details), pids=(10,))
    assert (gpus[0]["memory_own_bytes"], messages) == (5 * MIB, [])


def test_xml_is_matched_by_address_or_uuid(read):
    details = xml(
        f"<gpu><uuid>GPU-1</uuid><processes>{process(10, '7 MiB')}</processes></gpu>",
        f'<gpu id="00000000:01:00.0"><processes>{process(10, "5 MiB")}</processes></gpu>',
        f'<gpu id="00000000:09:00.0"><uuid>GPU-9</uuid><processes>{process(10, "3 MiB")}</processes></gpu>',
    )
    run = fake(ok("\n".join(map(row, range(3)))), details, ok("GPU-2, 10, 9\nGPU-0, 10, 1\n"))
    gpus, messages = read(run, pids=(10,))
    assert [gpu["memory_own_bytes"] for gpu in gpus] == [5 * MIB, 7 * MIB, 9 * MIB]
    assert messages == ["nvidia-smi -q -x says nothing about NVIDIA L40S (GPU 2)"]


# GPUs that must not be used.


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("<gpu_recovery_action>None</gpu_recovery_action>", None),
        ("<gpu_recovery_action>N/A</gpu_recovery_action>", None),
        ("<gpu_recovery_action>Reset</gpu_recovery_action>", ["Reset", "nvidia-smi --gpu-reset -i 0"]),
        ("<gpu_recovery_action>Reboot</gpu_recovery_action>", ["Reboot", "reboot the machine"]),
        ("<gpu_recovery_action>Drain P2P</gpu_recovery_action>", ["Drain P2P", "together with other GPUs"]),
        ("<gpu_recovery_action>Drain and Reset</gpu_recovery_action>", ["Drain and Reset", "--gpu-reset -i 0"]),
        ("<gpu_recovery_action>Pray</gpu_recovery_action>", ["Pray", "do so before"]),
        ("<temperature><gpu_temp>GPU requires reset</gpu_temp></temperature>", ["Reset", "--gpu-reset -i 0"]),
    ],
)
def test_recovery_action(read, extra, words):
    gpus, messages = read(fake(ok(row(0) + "\n" + row(1)), xml(gpu_xml(0, extra=extra), gpu_xml(1))))
    assert [gpu["placeable"] for gpu in gpus] == [words is None, True]
    assert messages == []
    for word in words or []:
        assert word in gpus[0]["reason"]


@pytest.mark.parametrize(
    ("mode", "placeable"),
    [("Host VGPU", False), ("Host VSGA", False), ("VGPU", True), ("Pass-Through", True), ("None", True), ("N/A", True)],
)
def test_gpu_that_virtual_machines_share(read, mode, placeable):
    extra = f"<gpu_virtualization_mode><virtualization_mode>{mode}</virtualization_mode></gpu_virtualization_mode>"
    gpus, messages = read(fake(ok(row(0, "NVIDIA A40")), xml(gpu_xml(0, extra=extra))))
    assert messages == []
    assert gpus[0]["placeable"] is placeable
    assert placeable or "Host V" in gpus[0]["reason"]


def test_virtual_functions_are_no_gpus_of_their_host(read, tmp_path):
    """They have the driver of the GPU whose shares they are, or that of virtual machines."""
    shares = [("0000:01:00.4", "nvidia"), ("0000:01:00.5", "vfio-pci"), ("0000:01:00.6", None)]
    for address, _driver in shares:
        folder = tmp_path / "sys" / "bus" / "pci" / "devices" / address
        folder.mkdir(parents=True)
        (folder / "physfn").symlink_to("../0000:01:00.0")
    run = fake(ok(row(0) + "\n" + row(1)), xml(gpu_xml(0), gpu_xml(1)))
    gpus, _messages = read(run, ("0000:01:00.0", "nvidia"), *shares, ("0000:02:00.0", "nvidia"))
    assert brief(gpus, "index", "bus_id") == [(0, "0000:01:00.0"), (1, "0000:02:00.0")]


@pytest.mark.parametrize(
    ("mode", "processes", "pids", "words"),
    [
        ("Exclusive_Process", [], (), None),
        ("Exclusive_Process", [process(10)], (10,), None),
        ("Exclusive_Process", [process(3, kind="G", name="Xorg")], (10,), None),
        ("Exclusive_Process", [process(10), process(77, name="train.py")], (10,), "process 77 (train.py)"),
        ("Exclusive_Thread", [process(78, kind="C+G", name="blender")], (), "process 78 (blender)"),
        ("Exclusive_Process", [process(79, used="N/A", name="")], (), "process 79 has the GPU"),
        ("Default", [process(77, name="train.py")], (), None),
    ],
)
def test_exclusive_compute_mode(read, mode, processes, pids, words):
    gpus, messages = read(fake(ok(row(0, mode=mode)), xml(gpu_xml(0, *processes))), pids=pids)
    assert messages == []
    assert gpus[0]["placeable"] is (words is None)
    if words:
        assert words in gpus[0]["reason"]
        assert mode in gpus[0]["reason"]
        assert "nvidia-smi -i 0 -c 0" in gpus[0]["reason"]


@pytest.mark.parametrize(("apps", "placeable"), [("GPU-0, 77, 5\n", False), ("GPU-1, 77, 5\n", True), ("", True)])
def test_exclusive_compute_mode_without_xml(read, apps, placeable):
    gpus, _messages = read(fake(ok(row(0, mode="Exclusive_Process")), NO_XML, ok(apps)))
    assert gpus[0]["placeable"] is placeable
    assert placeable or "process 77" in gpus[0]["reason"]


@pytest.mark.parametrize(
    ("mig", "reason"),
    [("[N/A]", "insufficient_permissions"), ("Enabled", "insufficient_permissions; MIG is enabled: ")],
)
def test_missing_permissions_say_what_to_do(read, mig, reason):
    words = "[Insufficient Permissions]"
    gpus, messages = read(fake(ok(row(0, "NVIDIA A100-SXM4-80GB", words, words, mig=mig)), xml(gpu_xml(0))))
    assert brief(gpus, "memory_total_bytes", "memory_free_bytes") == [(None, None)]
    assert gpus[0]["reason"] == reason or gpus[0]["reason"].startswith(reason + "no process")
    assert len(messages) == 1
    assert "as root" in messages[0]


@pytest.mark.parametrize("size", ["20475 MiB", "Insufficient Permissions"])
def test_mig_devices_that_a_container_may_read_are_enough(read, size):
    words = "[Insufficient Permissions]"
    part = (
        "<mig_devices><mig_device><index>0</index><uuid>MIG-5</uuid><fb_memory_usage>"
        f"<total>{size}</total><free>{size}</free></fb_memory_usage></mig_device></mig_devices>"
    )
    run = fake(ok(row(0, total=words, free=words, mig="Enabled")), xml(gpu_xml(0, extra=part)))
    gpus, messages = read(run)
    assert brief(gpus, "placeable", "uuid") == [(False, "GPU-0"), (True, "MIG-5")]
    if size == "20475 MiB":
        assert (messages, gpus[1]["reason"]) == ([], None)
    else:
        assert len(messages) == 1
        assert gpus[1]["reason"].startswith("insufficient_permissions: ")
        assert "relay_overrides" in gpus[1]["reason"]


@pytest.mark.parametrize(
    ("total", "free", "reason", "names"),
    [
        ("46068", "[N/A]", "n_a: ", "memory_free_bytes"),
        ("[Unknown Error]", "[Unknown Error]", "unknown_error: ", "memory_total_bytes and memory_free_bytes"),
        ("ERR!", "1", "unreadable value 'ERR!': ", "memory_total_bytes"),
        ("0", "0", "nvidia-smi reports a memory of 0 MiB: ", "memory_total_bytes and memory_free_bytes"),
        ("100", "101", "nvidia-smi reports 101 MiB free of 100 MiB: ", "memory_free_bytes"),
    ],
)
def test_unknown_memory_says_what_to_do(read, total, free, reason, names):
    gpus, messages = read(fake(ok(row(0, total=total, free=free)), xml(gpu_xml(0))))
    assert messages == []
    assert gpus[0]["placeable"] is True
    assert gpus[0]["reason"].startswith(reason)
    assert gpus[0]["reason"].endswith(f"or state {names} in relay_overrides")


def test_memory_of_the_machine(read):
    gpus, messages = read(fake(ok(row(0, "NVIDIA N1X", "8128", "7929")), xml(gpu_xml(0))))
    assert brief(gpus, "memory_total_bytes", "unified_memory") == [(MEMINFO["MemTotal"], True)]
    assert "131072 MiB" in messages[0]
    assert "nvidia-smi reports 8128 MiB of it" in messages[0]


@pytest.mark.parametrize(
    ("name", "total", "hint"),
    [
        ("NVIDIA XB900", "200000", True),
        ("NVIDIA XB900", "[N/A]", False),
        ("NVIDIA GB10", "[N/A]", False),
        ("NVIDIA GH200 480GB", "97871", False),
    ],
)
def test_page_tables_of_the_cpu_are_a_hint(read, name, total, hint):
    details = xml(gpu_xml(0, extra="<addressing_mode>ATS</addressing_mode>"))
    _gpus, messages = read(fake(ok(row(0, name, total, total)), details))
    assert [message for message in messages if "ATS" in message] == messages
    assert len(messages) == hint


# MIG.

H200 = "0, NVIDIA H200, GPU-6d1f9c0e-1111-2222-3333-444455556666, 00000000:83:00.0, 590.48, 143771, 139757, Default, "
MIG_KEYS = ("index", "name", "uuid", "memory_total_bytes", "memory_own_bytes", "placeable")


def test_mig_devices(read):
    details, listing = ok((FIXTURES / "mig.xml").read_text()), ok((FIXTURES / "mig-list.txt").read_text())
    run = fake(ok(H200 + "Enabled"), details, listing=listing)
    gpus, messages = read(run, ("0000:83:00.0", "nvidia"), pids=(4100,))
    assert messages == []
    assert brief(gpus, *MIG_KEYS) == [
        (0, "NVIDIA H200", "GPU-6d1f9c0e-1111-2222-3333-444455556666", 143771 * MIB, 0, False),
        (
            None,
            "NVIDIA H200 MIG 1c.3g.71gb",
            "MIG-aaaa0000-1111-5222-8333-444455556660",
            71424 * MIB,
            2194 * MIB,
            True,
        ),
        # The second compute instance has the same memory, which cannot be planned twice.
        (
            None,
            "NVIDIA H200 MIG 2c.3g.71gb",
            "MIG-aaaa0001-1111-5222-8333-444455556661",
            71424 * MIB,
            2194 * MIB,
            False,
        ),
        (None, "NVIDIA H200 MIG 2g.35gb", "MIG-aaaa0002-1111-5222-8333-444455556662", 33280 * MIB, 0, True),
        (None, "NVIDIA H200 MIG 3", None, None, 0, False),
    ]
    assert "MIG is enabled" in gpus[0]["reason"]
    assert "shares its memory with MIG device 0" in gpus[2]["reason"]
    assert "no UUID" in gpus[4]["reason"]
    assert {gpu["partition_of"] for gpu in gpus[1:]} == {gpus[0]["uuid"]}
    assert {gpu["bus_id"] for gpu in gpus} == {"0000:83:00.0"}
    assert gpus[1]["memory_free_bytes"] == 68038 * MIB


def mig_xml(index, *parts, processes=(), extra=""):
    devices = "".join(
        f"<mig_device><index>{number}</index><gpu_instance_id>{instance}</gpu_instance_id>{uuid}"
        "<fb_memory_usage><total>9984 MiB</total><free>9976 MiB</free></fb_memory_usage></mig_device>"
        for number, instance, uuid in parts
    )
    mode = "<mig_mode><current_mig>Enabled</current_mig></mig_mode>"
    return gpu_xml(index, *processes, extra=f"{mode}<mig_devices>{devices}</mig_devices>{extra}")


def test_uuids_of_the_xml_need_no_list(read):
    parts = [(0, 7, "<uuid>MIG-7</uuid>"), (1, 8, "<uuid>MIG-8</uuid>")]
    gpus, messages = read(fake(ok(row(0, mig="Enabled") + "\n" + row(1)), xml(gpu_xml(1), mig_xml(0, *parts))))
    assert messages == []
    # Behind the GPU whose parts they are.
    assert brief(gpus, "uuid", "name", "placeable", "partition_of") == [
        ("GPU-0", "NVIDIA L40S", False, None),
        ("MIG-7", "NVIDIA L40S MIG 0", True, "GPU-0"),
        ("MIG-8", "NVIDIA L40S MIG 1", True, "GPU-0"),
        ("GPU-1", "NVIDIA L40S", True, None),
    ]


def test_mig_that_only_the_xml_knows(read):
    gpus, _messages = read(fake(ok(row(0)), xml(mig_xml(0, (0, 7, "<uuid>MIG-7</uuid>")))))
    assert brief(gpus, "uuid", "placeable") == [("GPU-0", False), ("MIG-7", True)]


@pytest.mark.parametrize(("mode", "words"), [("Default", "there is no MIG device"), ("Prohibited", "Prohibited")])
def test_mig_without_a_device_says_so(read, mode, words):
    gpus, messages = read(fake(ok(row(0, mode=mode, mig="Enabled")), xml(mig_xml(0))))
    assert (len(gpus), gpus[0]["placeable"], messages) == (1, False, [])
    assert words in gpus[0]["reason"]


@pytest.mark.parametrize(
    ("mode", "extra", "words"),
    [
        ("Prohibited", "", "Prohibited"),
        ("Default", "<gpu_recovery_action>Reset</gpu_recovery_action>", "recovery action Reset"),
    ],
)
def test_mig_devices_of_a_gpu_with_a_fault_are_refused(read, mode, extra, words):
    details = xml(mig_xml(0, (0, 7, "<uuid>MIG-7</uuid>"), extra=extra))
    gpus, _messages = read(fake(ok(row(0, mode=mode, mig="Enabled")), details))
    assert [gpu["placeable"] for gpu in gpus] == [False, False]
    assert words in gpus[1]["reason"]


@pytest.mark.parametrize(("pids", "own"), [((), [0, 0, 0]), ((10,), [40 * MIB, None, None]), ((11,), [0, 0, 5 * MIB])])
def test_what_the_pool_holds_of_mig_devices(read, pids, own):
    processes = [process(10, "40 MiB"), process(11, "5 MiB", instance="8")]
    parts = [(0, 7, "<uuid>MIG-7</uuid>"), (1, 8, "<uuid>MIG-8</uuid>")]
    gpus, _messages = read(fake(ok(row(0, mig="Enabled")), xml(mig_xml(0, *parts, processes=processes))), pids=pids)
    assert [gpu["memory_own_bytes"] for gpu in gpus] == own


def test_mig_without_xml(read):
    listing = ok(
        "GPU 0: NVIDIA L40S (UUID: GPU-1)\n  MIG 7g.80gb     Device  0: (UUID: MIG-9)\n"
        "GPU 1: NVIDIA L40S (UUID: GPU-0)\n"
        "  MIG 3g.40gb     Device  0: (UUID: MIG-0)\n  MIG 1g.10gb     Device  2: (UUID: MIG-2)\n"
    )
    gpus, messages = read(fake(ok(row(0, mig="Enabled")), NO_XML, listing=listing))
    assert brief(gpus[1:], "name", "uuid", "memory_total_bytes", "placeable") == [
        ("NVIDIA L40S MIG 3g.40gb", "MIG-0", None, True),
        ("NVIDIA L40S MIG 1g.10gb", "MIG-2", None, True),
    ]
    assert "memory" in gpus[1]["reason"]
    assert len(messages) == 1


def test_list_is_asked_for_once(read):
    rows = row(0, mig="Enabled") + "\n" + row(1, mig="Enabled")
    run = fake(ok(rows), xml(mig_xml(0, (0, 7, "")), mig_xml(1, (0, 7, ""))), listing=ok("GPU 1: A (UUID: GPU-1)\n"))
    gpus, messages = read(run)
    assert (len(gpus), [gpu["placeable"] for gpu in gpus], messages) == (4, [False] * 4, [])
    assert [call for call in run.calls if call == ["-L"]] == [["-L"]]


def test_mig_without_xml_and_list(read):
    gpus, messages = read(fake(ok(row(0, mig="Enabled")), NO_XML, listing=failed(9, "no list")))
    assert (len(gpus), gpus[0]["placeable"]) == (1, False)
    assert messages[1] == "nvidia-smi -L: nvidia-smi ended with 9: no list"


# GPUs that the tool does not report.


@pytest.mark.parametrize("sentence", [LOST, UNKNOWN, LOST.replace("GPU 0000", "gpu 0000")])
def test_lost_gpu_without_evidence_is_a_message(read, sentence):
    gpus, messages = read(fake(failed(15, sentence + "\n"), listing=failed(15, sentence.lower())))
    assert (gpus, messages) == ([], [sentence])


@pytest.mark.parametrize("sentence", [LOST, UNKNOWN])
def test_lost_gpu_on_the_bus(read, sentence):
    listing = f"{sentence.replace('GPU 0000', 'gpu 0000')}\nGPU 0: NVIDIA L40S (UUID: GPU-0)\nGPU 2: A (UUID: GPU-2)\n"
    run = fake(
        failed(15, sentence + "\n"),
        xml(gpu_xml(0), gpu_xml(2)),
        listing=failed(15, listing),
        alone={"0": ok(row(0) + "\n"), "2": ok(row(2) + "\n")},
    )
    gpus, messages = read(run, *[(f"0000:0{bus}:00.0", "nvidia") for bus in (3, 1, 2)])
    assert brief(gpus, "index", "bus_id", "placeable") == [
        (0, "0000:01:00.0", True),
        (1, "0000:02:00.0", False),
        (2, "0000:03:00.0", True),
    ]
    assert sentence in gpus[1]["reason"]
    assert "eboot" in gpus[1]["reason"]
    assert messages == [sentence]


def test_lost_gpu_among_rows(read):
    """Newer tools go on behind the sentence, and give the place of the GPU in it."""
    sentence = "Unable to determine the device handle for GPU1: 0000:02:00.0: Unknown Error"
    run = fake(failed(15, f"{sentence}\n{row(0)}\n"), xml(gpu_xml(0)), listing=ok("GPU 0: A (UUID: GPU-0)\n"))
    gpus, messages = read(run, ("0000:01:00.0", "nvidia"), ("0000:02:00.0", "nvidia"))
    assert brief(gpus, "index", "placeable") == [(0, True), (1, False)]
    assert messages == [sentence]


def test_lost_gpu_that_is_named_by_its_place_alone(read):
    sentence = "Unable to determine the device handle for GPU1: Unknown Error"
    run = fake(failed(15, f"{sentence}\n{row(0)}\n"), xml(gpu_xml(0)), listing=ok("GPU 0: A (UUID: GPU-0)\n"))
    gpus, _messages = read(run, ("0000:01:00.0", "nvidia"), ("0000:02:00.0", "nvidia"))
    assert brief(gpus, "index", "bus_id", "placeable")[1] == (1, "0000:02:00.0", False)
    assert sentence in gpus[1]["reason"]


@pytest.mark.parametrize(("index", "expected"), [(0, 0), (1, None)])
def test_place_in_the_sentence_counts_where_the_bus_says_nothing_certain(read, index, expected):
    sentence = f"Unable to determine the device handle for GPU{index}: 0000:02:00.0: Unknown Error"
    run = fake(failed(15, f"{sentence}\n{row(1, bus='01')}\n"), NO_XML, listing=ok("GPU 1: A (UUID: GPU-1)\n"))
    gpus, _messages = read(run, ("0000:01:00.0", "nvidia"), ("0000:02:00.0", "nvidia"))
    assert [gpu["index"] for gpu in gpus if not gpu["placeable"]] == [expected]


@pytest.mark.parametrize(
    "result",
    [
        failed(14, "WARNING: infoROM is corrupted at gpu 0000:02:00.0"),
        failed(255, f"{row(0)}\nsomething is wrong"),
    ],
)
def test_gpus_that_a_failing_query_leaves_out_are_asked_alone(read, result):
    listing = ok("GPU 0: A (UUID: GPU-0)\nGPU 1: A (UUID: GPU-1)\n")
    run = fake(result, xml(gpu_xml(0), gpu_xml(1)), listing=listing, alone={"0": ok(row(0)), "1": ok(row(1))})
    gpus, messages = read(run)
    assert brief(gpus, "index", "placeable") == [(0, True), (1, True)]
    assert len(messages) == 1


def test_endless_list_is_not_asked_through(read):
    names = [str(index) for index in range(1000)]
    listing = ok("".join(f"GPU {name}: A\n" for name in names))
    run = fake(failed(15, LOST), listing=listing, alone=dict.fromkeys(names, failed(6, "No devices were found")))
    assert read(run)[0] == []
    assert len(run.calls) < 100


def test_gpu_with_a_row_and_a_sentence_is_lost(read):
    run = fake(failed(15, f"{UNKNOWN}\n{row(0)}\n{row(1)}\n"), xml(gpu_xml(0), gpu_xml(1)), listing=failed(15, UNKNOWN))
    gpus, messages = read(run)
    assert brief(gpus, "index", "placeable") == [(0, True), (1, False)]
    assert UNKNOWN in gpus[1]["reason"]
    assert messages == [UNKNOWN]


def test_healthy_gpus_are_asked_by_address_where_the_list_fails(read):
    run = fake(
        failed(15, LOST),
        NO_XML,
        listing=failed(15, LOST),
        alone={"0000:01:00.0": ok(row(0)), "0000:03:00.0": failed(6, "No devices were found")},
    )
    devices = [("0000:01:00.0", "nvidia"), ("0000:02:00.0", "nvidia"), ("0000:03:00.0", "nvidia")]
    gpus, _messages = read(run, *devices, ("0000:04:00.0", "vfio-pci"))
    assert brief(gpus, "bus_id", "placeable") == [
        ("0000:01:00.0", True),
        ("0000:02:00.0", False),
        ("0000:03:00.0", False),
        ("0000:04:00.0", False),
    ]


@pytest.mark.parametrize(
    ("result", "message", "reason"),
    [
        (
            failed(18, MISMATCH.splitlines()[0]),
            "Driver/library version mismatch",
            "Failed to initialize NVML: Driver/library version mismatch (reboot, or reload the nvidia kernel module)",
        ),
        (SILENT, "no answer", "no answer within 5 s"),
        (failed(2, "", "bad field"), "bad field", "bad field"),
        (ok("No devices were found\n"), "No devices were found", "No devices were found"),
        (ok("\n"), "names no GPU", "does not list it"),
        (
            failed(9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that"),
            "couldn't communicate",
            "Make sure that",
        ),
        (failed(-11), "ended with -11", "ended with -11"),
        (command.Result(None, "", "", "nvidia-smi cannot be started: Exec format error"), "Exec format", "Exec format"),
    ],
)
def test_broken_tool_is_an_error_and_no_gpu(read, tmp_path, monkeypatch, result, message, reason):
    run = fake(result)
    gpus, messages = read(run)
    assert gpus == []
    assert len(messages) == 1
    assert message in messages[0]
    assert len(run.calls) == 1
    # With evidence of a GPU it is in the list, and nothing is placed on it.
    root = pci_tree(tmp_path / "again", ("0000:65:00.0", "nvidia"))
    gpus, again = nvidia.read_gpus(record.Machine(run=fake(result), sys_root=root))
    assert brief(gpus, "index", "bus_id", "placeable", "memory_total_bytes") == [(None, "0000:65:00.0", False, None)]
    assert reason in gpus[0]["reason"]
    assert again == messages


def test_every_line_of_a_failing_tool_is_a_message(read):
    gpus, messages = read(fake(failed(18, MISMATCH)), ("0000:01:00.0", "nvidia"))
    assert messages == MISMATCH.splitlines()
    assert gpus[0]["reason"].startswith("Failed to initialize NVML: Driver/library version mismatch")


@pytest.mark.parametrize(
    "answers",
    [
        {"query": SILENT},
        {"query": ok(row(0)), "details": SILENT},
        {"query": ok(row(0)), "details": NO_XML, "apps": SILENT},
        {"query": ok(row(0, mig="Enabled")), "details": NO_XML, "apps": ok(""), "listing": SILENT},
        {"query": failed(15, LOST), "listing": SILENT},
        {"query": failed(15, LOST), "listing": ok("GPU 0: A\nGPU 1: B\n"), "alone": {"0": SILENT}},
    ],
)
def test_a_tool_that_gives_no_answer_is_not_asked_again(read, answers):
    run = fake(**answers)
    _gpus, messages = read(run, ("0000:01:00.0", "nvidia"), pids=(10,))
    silent = [answer is SILENT for answer in answers.values()].index(True) if "alone" not in answers else 2
    assert len(run.calls) == silent + 1
    assert any("no answer" in message for message in messages)


def test_rows_that_came_before_the_tool_hung_are_kept(read):
    run = fake(command.Result(None, row(0) + "\n1, NVIDI", "", SILENT.error))
    gpus, messages = read(run, ("0000:01:00.0", "nvidia"), ("0000:02:00.0", "nvidia"))
    assert brief(gpus, "index", "placeable") == [(0, True), (1, False)]
    assert "no answer" in gpus[1]["reason"]
    assert SILENT.error in messages


def test_no_time_is_left(read):
    def never(argv, timeout):
        raise AssertionError(argv)

    gpus, messages = read(never, ("0000:01:00.0", "nvidia"), deadline=time.monotonic() - 1)
    assert brief(gpus, "placeable") == [(False,)]
    assert "time for tools is used up" in messages[0]


def test_driver_that_knows_fewer_fields(read):
    def run(argv, timeout):
        if argv[1].startswith("--query-gpu="):
            if "mig.mode.current" in argv[1]:
                return failed(2, 'Field "mig.mode.current" is not a valid field to query.\n\n')
            return ok(row(0).rpartition(",")[0])
        return xml(gpu_xml(0))

    gpus, messages = read(run)
    assert brief(gpus, "index", "memory_total_bytes", "placeable") == [(0, 46068 * MIB, True)]
    assert messages == []


def test_driver_that_refuses_a_field_it_needs(read):
    said = 'Field "memory.total" is not a valid field to query.'
    run = fake(failed(2, said))
    assert read(run) == ([], [said])
    assert len(run.calls) == 1


@pytest.mark.parametrize(
    ("driver", "reason", "said"),
    [
        (None, "nvidia-smi is not found: install the driver", True),
        ("nvidia", "nvidia-smi is not found: install the driver", True),
        ("nouveau", "nouveau driver holds it, with which CUDA does not work", True),
        ("vfio-pci", "vfio-pci holds it for a virtual machine", False),
        ("pci-stub", "the driver pci-stub holds it", True),
    ],
)
def test_card_without_tool_is_an_error(read, driver, reason, said):
    gpus, messages = read(None, ("0000:01:00.0", driver), tool=None)
    assert brief(gpus, "index", "vendor", "bus_id", "placeable") == [(None, "nvidia", "0000:01:00.0", False)]
    assert reason in gpus[0]["reason"]
    assert gpus[0]["source"].endswith("/bus/pci/devices")
    assert messages == (
        ["an NVIDIA GPU is at 0000:01:00.0, but nvidia-smi is not found: install the driver"] if said else []
    )


def board(root, compatible):
    folder = root / "sys" / "firmware" / "devicetree" / "base"
    folder.mkdir(parents=True)
    (folder / "compatible").write_text(compatible)
    (folder / "model").write_text("NVIDIA Jetson AGX Xavier\0")


def test_jetson_without_tool(read, tmp_path):
    board(tmp_path, "nvidia,p2972-0000\0nvidia,tegra194\0")
    gpus, messages = read(None, tool=None)
    keys = ("index", "name", "memory_total_bytes", "memory_free_bytes", "unified_memory", "placeable", "reason")
    sizes = (MEMINFO["MemTotal"], MEMINFO["MemAvailable"])
    assert brief(gpus, *keys) == [(0, "NVIDIA Jetson AGX Xavier", *sizes, True, False, nvidia_tegra.NO_TOOL)]
    assert [message for message in messages if "JetPack" in message] == messages
    assert len(messages) == 1


def test_other_boards_without_tool_have_no_gpu(read, tmp_path):
    board(tmp_path, "raspberrypi,5-model-b\0brcm,bcm2712\0")
    assert read(None, tool=None) == ([], [])


def test_jetson_with_its_tool(read, tmp_path):
    board(tmp_path, "nvidia,p3737-0000+p3701-0000\0nvidia,tegra234\0")
    gpus, _messages = read(fake(ok(row(0, "Orin (nvgpu)", "[N/A]", "[N/A]")), xml(gpu_xml(0))))
    assert brief(gpus, "name", "placeable") == [("Orin (nvgpu)", True)]


def test_jetson_with_a_card_in_its_slot(read, tmp_path):
    board(tmp_path, "nvidia,p3740-0002+p3701-0008\0nvidia,tegra234\0")
    gpus, _messages = read(None, ("0000:01:00.0", None), tool=None)
    assert brief(gpus, "index", "bus_id") == [(None, "0000:01:00.0")]


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        ("nvidia", nvidia_pci.UNLISTED),
        (None, nvidia_pci.NO_DRIVER),
        ("nouveau", nvidia_pci.OTHER_DRIVERS["nouveau"]),
        ("vfio-pci", nvidia_pci.OTHER_DRIVERS["vfio-pci"]),
    ],
)
def test_gpu_that_a_working_tool_does_not_list(read, driver, reason):
    gpus, messages = read(fake(ok(row(0)), xml(gpu_xml(0))), ("0000:01:00.0", "nvidia"), ("0000:02:00.0", driver))
    assert brief(gpus, "bus_id", "placeable", "reason") == [
        ("0000:01:00.0", True, None),
        ("0000:02:00.0", False, reason),
    ]
    assert messages == []
    # One with another driver has no place among nvidia-smi's GPUs.
    assert gpus[1]["index"] == (1 if driver == "nvidia" else None)


@pytest.mark.parametrize(
    ("rows", "buses", "indexes"),
    [
        # One GPU is missing in the middle, and the places fit.
        ([row(0), row(2)], ["01", "02", "03"], {"02": 1}),
        # nvidia-smi does not count the missing one.
        ([row(0), row(1, bus="03")], ["01", "02", "03"], {"02": None}),
        # A GPU that it reports is not on the bus.
        ([row(0), row(3, bus="09")], ["01", "02"], {"02": None}),
        # It counts otherwise than the bus.
        ([row(0, bus="02"), row(1, bus="01")], ["01", "02", "03"], {"03": None}),
        ([row(0), row(1)], ["01", "02", "03", "04"], {"03": 2, "04": 3}),
    ],
)
def test_index_of_a_gpu_that_only_the_bus_shows(read, rows, buses, indexes):
    devices = [(f"0000:{bus}:00.0", "nvidia") for bus in buses]
    gpus, _messages = read(fake(ok("\n".join(rows)), NO_XML), *devices)
    assert {gpu["bus_id"][5:7]: gpu["index"] for gpu in gpus if not gpu["placeable"]} == indexes
    known = [gpu["index"] for gpu in gpus if gpu["index"] is not None]
    assert known == sorted(known)


def test_real_tool_that_hangs_with_a_child_on_its_pipe(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nsleep 60 &\nwait\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    root = pci_tree(tmp_path / "sys", ("0000:01:00.0", "nvidia"))
    started = time.monotonic()
    gpus, messages = nvidia.read_gpus(record.Machine(deadline=started + 0.5, sys_root=root, own_pids=(1,)))
    assert time.monotonic() - started < 2
    assert brief(gpus, "bus_id", "placeable") == [("0000:01:00.0", False)]
    assert "gave no answer" in messages[0]
