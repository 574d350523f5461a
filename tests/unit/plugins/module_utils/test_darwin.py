# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pathlib
import platform

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command, cpu, darwin, memory

VM_STAT = (pathlib.Path(__file__).parent / "gpu" / "fixtures" / "apple" / "vm_stat.txt").read_text()
GIB = 1024**3


def run_with(answers):
    """A fake of command.run that answers by the name of the tool."""

    def run(argv, timeout):
        text = answers.get(argv[0].rpartition("/")[2])
        if text is None:
            return command.Result(None, "", "", f"{argv[0]} cannot be started: No such file or directory")
        return command.Result(0, text, "", None)

    return run


def test_sysctl_values():
    text = "hw.model: Mac14,12\nhw.memsize: 34359738368\nsysctl: unknown oid 'kern.y'\n\nrubbish\nkern.x: a: b\n"
    values = darwin.parse_sysctl(text)
    assert values == {"hw.model": "Mac14,12", "hw.memsize": "34359738368", "kern.x": "a: b"}
    assert darwin.memory_size(values) == 32 * GIB


@pytest.mark.parametrize("value", ["", "0", "1", "-1", "12 GB", "9" * 40, "inf", "\u0663", str(2**50)])
def test_memory_size_that_is_none(value):
    assert darwin.memory_size(darwin.parse_sysctl(f"hw.memsize: {value}\n")) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (VM_STAT, (196608 + 851968 + 65536) * 16384),
        ("Mach Virtual Memory Statistics: (page size of 4096 bytes)\nPages free: 10.\n", 40960),
        # without the size of a page, or without the free pages, nothing is known
        ("Pages free: 10.\nPages inactive: 5.\n", None),
        ("(page size of 4096 bytes)\nPages inactive: 5.\n", None),
        ("(page size of 4096 bytes)\nPages free: -1.\nPages inactive: 5.\n", None),
        ("(page size of 99999999 bytes)\nPages free: 999999999999999999.\n", None),
        ("", None),
    ],
)
def test_vm_stat(text, expected):
    assert darwin.parse_vm_stat(text) == expected


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"sysctl": "hw.memsize: 34359738368\n", "vm_stat": VM_STAT}, (32 * GIB, 1114112 * 16384)),
        ({"sysctl": f"hw.memsize: {8 * GIB}\n", "vm_stat": VM_STAT}, (8 * GIB, 8 * GIB)),
        ({"sysctl": "hw.memsize: 34359738368\n"}, (32 * GIB, None)),
        ({"vm_stat": VM_STAT}, (None, 1114112 * 16384)),
        ({}, (None, None)),
    ],
)
def test_memory(answers, expected):
    assert darwin.read_memory(run_with(answers)) == expected


CPU = "machdep.cpu.brand_string: Apple M2 Max\nhw.logicalcpu: 12\nhw.physicalcpu: 12\n"


def test_cpu():
    assert darwin.read_cpu(run_with({"sysctl": CPU})) == {"model": "Apple M2 Max", "threads": 12, "physical_cores": 12}
    assert darwin.read_cpu(run_with({})) == {"model": None, "threads": None, "physical_cores": None}
    text = "machdep.cpu.brand_string: \nhw.logicalcpu: 0\nhw.physicalcpu: many\n"
    assert darwin.read_cpu(run_with({"sysctl": text})) == {"model": None, "threads": None, "physical_cores": None}


def test_machine_without_proc(monkeypatch, tmp_path):
    """The probes of every machine take these where there is no /proc, and only on macOS."""
    monkeypatch.setattr(darwin, "read_memory", lambda: (32 * GIB, 8 * GIB))
    monkeypatch.setattr(darwin, "read_cpu", lambda: {"model": "Apple M1", "threads": 8, "physical_cores": 4})
    assert memory.read_memory(str(tmp_path), str(tmp_path)) == (None, None)
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert memory.read_memory(str(tmp_path), str(tmp_path)) == (32 * GIB, 8 * GIB)
    expected = {"model": "Apple M1", "threads": 8, "physical_cores": 4}
    assert cpu.read_cpu(str(tmp_path), str(tmp_path)) == expected


def test_cpu_that_macos_does_not_describe(monkeypatch, tmp_path):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(darwin, "read_cpu", lambda: {"model": None, "threads": None, "physical_cores": None})
    found = cpu.read_cpu(str(tmp_path), str(tmp_path))
    assert found["model"] == platform.machine()
    assert found["threads"] == found["physical_cores"] >= 1
