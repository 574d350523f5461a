# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pathlib
import platform

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command
from ansible_collections.relay.pool.plugins.module_utils.gpu import apple, record

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "apple"
GIB, MIB = 1024**3, 1024**2


def fixture(name):
    return (FIXTURES / name).read_text()


def sysctl(ram=32 * GIB, limit="iogpu.wired_limit_mb: 0", brand="Apple M2 Pro"):
    lines = ["hw.model: Mac14,12", f"hw.memsize: {ram}", limit]
    if brand:
        lines.append(f"machdep.cpu.brand_string: {brand}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "limit",
    [
        "iogpu.wired_limit_mb: 0",
        "sysctl: unknown oid 'iogpu.wired_limit_mb'",
        "",
        "iogpu.wired_limit_mb: -1",
        "iogpu.wired_limit_mb: much",
        "debug.iogpu.wired_limit: 0",
        # too little to be meant in bytes
        "debug.iogpu.wired_limit: 24576",
    ],
)
@pytest.mark.parametrize("brand", ["Apple M2 Pro", ""])
def test_default_is_an_estimate(limit, brand):
    gpu = apple.parse_gpu(sysctl(limit=limit, brand=brand), 30 * GIB)
    assert gpu["placeable"] is True
    assert "estimate" in gpu["reason"]
    assert "relay_overrides" in gpu["reason"]
    # never nothing, never all RAM
    assert gpu["memory_total_bytes"] == 32 * GIB * 2 // 3
    assert gpu["memory_free_bytes"] == gpu["memory_total_bytes"]
    assert (gpu["unified_memory"], gpu["integrated"], gpu["vendor"], gpu["index"]) == (True, True, "apple", 0)


@pytest.mark.parametrize(
    ("gib", "printed_mb"),
    # What llama.cpp printed as recommendedMaxWorkingSetSize, in MB of 10^6 bytes.
    [
        (16, 11453.25),
        (32, 22906.50),
        (36, 28991.03),
        (48, 38654.71),
        (192, 154618.82),
        (64, 51539.61),
        (128, 103079.22),
    ],
)
def test_estimate_is_never_above_what_macos_gives(gib, printed_mb):
    limit, _words = apple.estimate(gib * GIB)
    assert gib * GIB * 0.66 < limit <= printed_mb * 1e6 + 5000


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("iogpu.wired_limit_mb: 24576", 25769803776),
        ("iogpu.wired_limit_mb: 1", MIB),
        ("debug.iogpu.wired_limit: 25769803776", 25769803776),
        # not above the RAM
        ("iogpu.wired_limit_mb: 40000", 32 * GIB),
        ("iogpu.wired_limit_mb: 999999999999999999", 32 * GIB),
    ],
)
def test_explicit_limit_holds(limit, expected):
    gpu = apple.parse_gpu(sysctl(limit=limit), 31 * GIB)
    assert gpu["memory_total_bytes"] == expected
    assert gpu["memory_free_bytes"] == min(expected, 31 * GIB)
    assert (gpu["placeable"], gpu["reason"]) == (True, None)


def test_free_is_what_the_machine_has():
    gpu = apple.parse_gpu(sysctl(limit="iogpu.wired_limit_mb: 24576"), 5 * GIB)
    assert (gpu["memory_total_bytes"], gpu["memory_free_bytes"]) == (24 * GIB, 5 * GIB)
    gpu = apple.parse_gpu(sysctl(), None)
    assert (gpu["memory_total_bytes"], gpu["memory_free_bytes"]) == (32 * GIB * 2 // 3, None)
    assert "vm_stat" in gpu["reason"]


@pytest.mark.parametrize("ram", ["", "0", "unknown", "9" * 30])
def test_unknown_ram(ram):
    gpu = apple.parse_gpu(sysctl(ram=ram), GIB)
    assert (gpu["memory_total_bytes"], gpu["memory_free_bytes"]) == (None, None)
    assert "hw.memsize" in gpu["reason"]


@pytest.mark.parametrize(
    "text",
    [sysctl(brand="Intel(R) Core(TM) i9-9980HK CPU @ 2.40GHz"), "", "sysctl: unknown oid 'hw.memsize'\n", "\x00\xff{["],
)
def test_no_gpu(text):
    assert apple.parse_gpu(text, GIB) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (fixture("sysctl_m3_max.txt"), "Apple M3 Max (16-core CPU)"),
        (fixture("sysctl_macos13.txt"), "Apple M1 Pro (8-core CPU)"),
        (sysctl(), "Apple M2 Pro"),
        (sysctl(brand=""), "Apple GPU Mac14,12"),
        ("hw.memsize: 34359738368\n", "Apple GPU"),
    ],
)
def test_name(text, name):
    assert apple.parse_gpu(text, GIB)["name"] == name


@pytest.fixture
def probe(monkeypatch):
    def run(answers, system="Darwin"):
        monkeypatch.setattr(platform, "system", lambda: system)
        calls = []

        def fake(argv, timeout):
            calls.append(argv[0])
            return answers[argv[0]]

        run.calls = calls
        return apple.read_gpus(record.Machine(run=fake))

    return run


def test_other_systems_run_nothing(probe):
    assert probe({}, system="Linux") == ([], [])
    assert probe.calls == []


def test_probe(probe):
    # sysctl ends with 1 because it does not know one of the names.
    known = command.Result(
        1, fixture("sysctl_m3_max.txt"), "sysctl: unknown oid", "sysctl ended with 1: hw.model: Mac15,8"
    )
    answers = {"/usr/sbin/sysctl": known, "/usr/bin/vm_stat": command.Result(0, fixture("vm_stat.txt"), "", None)}
    gpus, messages = probe(answers)
    assert messages == []
    assert [(g["memory_total_bytes"], g["memory_free_bytes"]) for g in gpus] == [(36 * GIB, 1114112 * 16384)]
    assert gpus[0]["source"] == "sysctl"


def test_tools_that_fail(probe):
    hung = command.Result(None, "", "", "sysctl gave no answer within 5 s and was killed")
    assert probe({"/usr/sbin/sysctl": hung}) == ([], ["sysctl gave no answer within 5 s and was killed"])
    known = command.Result(0, fixture("sysctl_macos13.txt"), "", None)
    broken = command.Result(1, "", "", "vm_stat ended with 1: no")
    gpus, messages = probe({"/usr/sbin/sysctl": known, "/usr/bin/vm_stat": broken})
    assert messages == ["vm_stat ended with 1: no"]
    assert (gpus[0]["memory_total_bytes"], gpus[0]["memory_free_bytes"]) == (13 * GIB, None)
