# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ansible_collections.relay.pool.plugins.module_utils import cpu, memory

GIB = 1024**3
MEMINFO = "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\nHugePages_Total:       7\nBad line\n"


@pytest.fixture
def machine(tmp_path):
    """A /proc and a /sys/fs/cgroup to fill; 16 GiB, 8 GiB of it available."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text(MEMINFO)
    (tmp_path / "cgroup").mkdir()

    def write(path, text):
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(str(text))

    def read():
        return memory.read_memory(str(tmp_path / "cgroup"), str(tmp_path / "proc"))

    write.read = read
    return write


def test_meminfo_units():
    assert memory.parse_meminfo(MEMINFO) == {"MemTotal": 16 * GIB, "MemAvailable": 8 * GIB, "HugePages_Total": 7}


@pytest.mark.parametrize("number", ["\u00b2", "\u0663", "9" * 5000, "1.5", "-1"])
def test_what_is_no_number_is_left_out(machine, number):
    assert memory.parse_meminfo(f"MemTotal: {number} kB\nMemFree: 1 kB\n") == {"MemFree": 1024}
    machine("cgroup/memory.max", number)
    machine("cgroup/memory.limit_in_bytes", f"{GIB}\n")
    machine("cgroup/memory.usage_in_bytes", number)
    machine("cgroup/memory.stat", f"total_inactive_file {number}\n")
    assert machine.read() == (GIB, GIB)


def test_no_limit(machine):
    machine("cgroup/memory.max", "max\n")
    machine("cgroup/memory.current", 3 * GIB)
    assert machine.read() == (16 * GIB, 8 * GIB)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        # v2: page cache in the group is given back by the kernel and does not count as used
        (
            {
                "memory.max": 4 * GIB,
                "memory.current": 3 * GIB,
                "memory.stat": f"anon 1\ninactive_file {GIB}\nactive_file {GIB}\n",
            },
            (4 * GIB, 3 * GIB),
        ),
        # the slice of the services is what limits
        ({"memory.max": "max", "system.slice/memory.max": 2 * GIB}, (2 * GIB, 2 * GIB)),
        # a limit above what is there changes nothing
        ({"memory.max": 64 * GIB, "memory.current": GIB}, (16 * GIB, 8 * GIB)),
        # more used than allowed is nothing left, not less than nothing
        ({"memory.max": GIB, "memory.current": 2 * GIB}, (GIB, 0)),
        # v1
        (
            {
                "memory/memory.limit_in_bytes": 4 * GIB,
                "memory/memory.usage_in_bytes": 2 * GIB,
                "memory/memory.stat": f"total_inactive_file {GIB}\ninactive_file {GIB}\n",
            },
            (4 * GIB, 3 * GIB),
        ),
        ({"memory/memory.limit_in_bytes": 0x7FFFFFFFFFFFF000}, (16 * GIB, 8 * GIB)),
    ],
)
def test_group_limits(machine, files, expected):
    for name, text in files.items():
        machine("cgroup/" + name, text)
    assert machine.read() == expected


@pytest.mark.parametrize("systemd", [False, True])
def test_own_session_counts_only_without_system_slice(machine, systemd):
    machine("proc/self/cgroup", "0::/user.slice/session\n")
    machine("cgroup/user.slice/session/memory.max", GIB)
    if systemd:
        machine("cgroup/system.slice/memory.max", "max")
    assert machine.read()[0] == (16 * GIB if systemd else GIB)


def test_unreadable_meminfo_is_none(tmp_path):
    assert memory.read_memory(str(tmp_path), str(tmp_path)) == (None, None)


def test_own_bytes_prefer_shares_and_leave_out_files(tmp_path):
    folder = tmp_path / "7"
    folder.mkdir()
    assert memory.process_own_bytes(7, str(tmp_path)) is None
    (folder / "status").write_text("Name:\tx\nRssAnon:\t  100 kB\nRssFile:\t 900 kB\nRssShmem:\t  10 kB\n")
    assert memory.process_own_bytes(7, str(tmp_path)) == 110 * 1024
    (folder / "smaps_rollup").write_text("Pss:  5 kB\nPss_Anon:  60 kB\nPss_File:  9 kB\nPss_Shmem:  5 kB\n")
    assert memory.process_own_bytes(7, str(tmp_path)) == 65 * 1024


def test_own_bytes_of_a_real_process():
    code = "x = bytearray(50_000_000); x[::4096] = b'1' * len(x[::4096]); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        own = memory.process_own_bytes(process.pid)
        process.communicate(b"\n")
    assert 50_000_000 <= own < 90_000_000


X86 = "".join(
    f"processor : {i}\nmodel name : EPYC\nphysical id : {i // 4}\ncore id : {i % 4 // 2}\n\n" for i in range(8)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (X86, ("EPYC", 8, 4)),
        ("processor : 0\nBogoMIPS : 1\n\nprocessor : 1\n\nModel : Raspberry Pi 5\n", ("Raspberry Pi 5", 2, 0)),
        ("", (None, 0, 0)),
    ],
)
def test_cpuinfo(text, expected):
    assert cpu.parse_cpuinfo(text) == expected


def test_cores_by_sibling_threads(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor : 0\nprocessor : 1\nprocessor : 2\nprocessor : 3\n")
    for number, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    found = cpu.read_cpu(str(tmp_path), str(tmp_path))
    assert (found["threads"], found["physical_cores"]) == (4, 2)


def test_every_thread_of_a_large_machine_counts(tmp_path):
    flags = "flags\t: " + "avx512_bf16 " * 120
    text = "".join(f"processor\t: {n}\nphysical id\t: 0\ncore id\t: {n // 2}\n{flags}\n\n" for n in range(1024))
    (tmp_path / "cpuinfo").write_text(text)
    found = cpu.read_cpu(str(tmp_path), str(tmp_path))
    assert (found["threads"], found["physical_cores"]) == (1024, 512)


def test_cpu_without_anything(tmp_path):
    found = cpu.read_cpu(str(tmp_path), str(tmp_path))
    assert found == {"model": os.uname().machine, "threads": os.cpu_count(), "physical_cores": os.cpu_count()}
