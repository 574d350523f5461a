# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command, nvidia

MIB = 1024 * 1024
MEMINFO = {"MemTotal": 128 * 1024**3, "MemAvailable": 100 * 1024**3}


def row(index=0, name="NVIDIA L40S", total="46068", free="45460", mode="Default", mig="[N/A]"):
    return f"{index}, {name}, GPU-{index}, 00000000:0{index}:00.0, 590.48, {total}, {free}, {mode}, {mig}"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            row(),
            {
                "memory_total_bytes": 46068 * MIB,
                "memory_free_bytes": 45460 * MIB,
                "placeable": True,
                "reason": None,
                "unified_memory": False,
                "device": "CUDA0",
                "uuid": "GPU-0",
                "driver": "590.48",
            },
        ),
        (
            row(name="NVIDIA GB10", total="[N/A]", free="[N/A]"),
            {
                "memory_total_bytes": MEMINFO["MemTotal"],
                "memory_free_bytes": MEMINFO["MemAvailable"],
                "unified_memory": True,
                "integrated": True,
                "placeable": True,
                "reason": None,
            },
        ),
        (
            row(total="[Insufficient Permissions]", free="[Insufficient Permissions]"),
            {"memory_total_bytes": None, "memory_free_bytes": None, "unified_memory": False}
            | {"reason": "insufficient_permissions"},
        ),
        (row(free="[Unknown Error]"), {"memory_total_bytes": 46068 * MIB, "memory_free_bytes": None}),
        (row(free="[GPU requires reset]"), {"memory_free_bytes": None, "reason": "gpu_requires_reset"}),
        (row(total="many"), {"memory_total_bytes": None, "reason": "unreadable value 'many'"}),
        (row(total="-1"), {"memory_total_bytes": None, "reason": "unreadable value '-1'"}),
        (row(total="1_0"), {"memory_total_bytes": None}),
        (row(total="\u0663"), {"memory_total_bytes": None}),
        (row(total="9" * 5000), {"memory_total_bytes": None, "reason": f"unreadable value '{'9' * 40}'"}),
        (
            row(total="0", free="0"),
            {"memory_total_bytes": None, "memory_free_bytes": None, "unified_memory": False}
            | {"reason": "nvidia-smi reports a memory of 0 MiB"},
        ),
        (
            row(total="100", free="101"),
            {"memory_total_bytes": 100 * MIB, "memory_free_bytes": None}
            | {"reason": "nvidia-smi reports 101 MiB free of 100 MiB"},
        ),
        (row(mode="Exclusive_Process"), {"placeable": True}),
        (row(mode="Prohibited"), {"placeable": False, "memory_total_bytes": 46068 * MIB}),
        (row(mig="Enabled"), {"placeable": False, "memory_total_bytes": 46068 * MIB}),
        # No memory, but MIG: the parent is not a part with unified memory.
        (row(total="[N/A]", free="[N/A]", mig="Enabled"), {"placeable": False, "unified_memory": False}),
        (row(name="[Unknown Error]"), {"name": "NVIDIA GPU"}),
    ],
)
def test_one_row(line, expected):
    gpus, messages = nvidia.parse_gpus(line + "\n", MEMINFO)
    assert messages == []
    assert {key: gpus[0][key] for key in expected} == expected


def test_refusals_have_words():
    gpus, _messages = nvidia.parse_gpus(row(mode="Prohibited") + "\n" + row(1, mig="Enabled"), MEMINFO)
    assert "Prohibited" in gpus[0]["reason"]
    assert gpus[1]["reason"].startswith("MIG is enabled")


def test_rows_and_messages_are_kept_apart():
    lost = "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system"
    gpus, messages = nvidia.parse_gpus("\n".join([row(0), "", lost, row(2), "1, short, row", row("x")]), MEMINFO)
    assert [gpu["index"] for gpu in gpus] == [0, 2]
    assert messages[:2] == [lost, "1, short, row"]
    assert "no index" in messages[2]


def test_unified_without_meminfo_is_unknown():
    gpus, _messages = nvidia.parse_gpus(row(total="[N/A]", free="[N/A]"), {})
    assert gpus[0]["memory_total_bytes"] is None
    assert "meminfo" in gpus[0]["reason"]


def fake(query: command.Result, apps: command.Result | None = None):
    calls = []

    def run(argv, timeout):
        calls.append(argv)
        return query if argv[1].startswith("--query-gpu=") else apps

    run.calls = calls
    return run


def ok(text):
    return command.Result(0, text, "", None)


def test_own_memory_counts_own_processes_only():
    apps = ok("GPU-0, 10, 500\nGPU-0, 11, 70\nGPU-1, 10, 30\nGPU-9, 10, 1\nGPU-1, 12, [N/A]\n")
    run = fake(ok(row(0) + "\n" + row(1)), apps)
    gpus, messages = nvidia.read_gpus(MEMINFO, [10, 12], 5, run, tool="nvidia-smi")
    assert [gpu["memory_own_bytes"] for gpu in gpus] == [500 * MIB, 30 * MIB]
    assert messages == ["memory of process 12 on GPU-1 is not known: n_a"]


def test_processes_are_not_asked_for_without_own_ones():
    run = fake(ok(row(0)))
    nvidia.read_gpus(MEMINFO, [], 5, run, tool="nvidia-smi")
    assert len(run.calls) == 1


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            command.Result(18, "Failed to initialize NVML: Driver/library version mismatch\n", "", "ended with 18"),
            "Driver/library version mismatch",
        ),
        (command.Result(None, "", "", "nvidia-smi gave no answer within 5 s"), "no answer"),
        (command.Result(2, "", "bad field", "nvidia-smi ended with 2: bad field"), "bad field"),
        (ok("No devices were found\n"), "No devices were found"),
    ],
)
def test_broken_tool_is_an_error_and_no_gpu(result, message):
    gpus, messages = nvidia.read_gpus(MEMINFO, [], 5, fake(result), tool="nvidia-smi")
    assert gpus == []
    assert len(messages) == 1
    assert message in messages[0]


def test_card_without_tool_is_an_error(tmp_path, monkeypatch):
    for name, vendor, kind in (
        ("01", "0x10de", "0x030200"),
        ("02", "0x10de", "0x040300"),
        ("03", "0x1002", "0x030000"),
    ):
        device = tmp_path / name
        device.mkdir()
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(kind + "\n")
    (tmp_path / "04").mkdir()
    monkeypatch.setattr(nvidia, "find_tool", lambda: None)
    gpus, messages = nvidia.read_gpus(MEMINFO, [], 5, fake(ok("")), pci_root=str(tmp_path))
    assert gpus == []
    assert messages == ["an NVIDIA GPU is at 01, but nvidia-smi is not found: install the driver"]


@pytest.mark.parametrize("index", [-1, "1_0", 0])
def test_a_row_with_an_impossible_or_a_second_index_is_a_message(index):
    gpus, messages = nvidia.parse_gpus(row(0) + "\n" + row(index), MEMINFO)
    assert [gpu["index"] for gpu in gpus] == [0]
    assert len(messages) == 1


@pytest.mark.parametrize("path", [None, "", ":", ".", "relative"])
def test_no_tool_is_taken_from_the_current_directory(tmp_path, monkeypatch, path):
    for folder in (tmp_path, tmp_path / "relative"):
        folder.mkdir(exist_ok=True)
        (folder / "nvidia-smi").write_text("#!/bin/sh\n")
        (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nvidia, "SEARCH_PATH", "/nonexistent")
    if path is None:
        monkeypatch.delenv("PATH")
    else:
        monkeypatch.setenv("PATH", path)
    assert nvidia.find_tool() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia.find_tool() == str(tmp_path / "nvidia-smi")
