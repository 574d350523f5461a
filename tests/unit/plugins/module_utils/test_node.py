# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import socket
import time

import pytest
from ansible_collections.relay.pool.plugins.module_utils import links, memory, network, node, sockets, units
from ansible_collections.relay.pool.plugins.module_utils.gpu import gather, record


@pytest.fixture
def bare(monkeypatch):
    """A machine whose probes that run tools find nothing."""
    monkeypatch.setattr(gather, "PROBES", ())
    monkeypatch.setattr(units, "show", lambda *args: ([], []))
    monkeypatch.setattr(network, "read_addresses", lambda *args: ([network.Address("eth0", "10.0.0.24", 24)], []))


def test_shape(bare):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        facts = node.gather(node.Options(ports=[port]))
    assert set(facts) == {
        "gpus",
        "memory",
        "cpu",
        "addresses",
        "links",
        "address",
        "address_reason",
        "hostname",
        "machine_id",
        "architecture",
        "gathered_at",
        "python_version",
        "units",
        "listeners",
        "ports",
        "overrides",
        "errors",
    }
    assert set(facts["memory"]) == {"total_bytes", "available_bytes", "own_bytes", "bandwidth_bytes_per_second"}
    assert set(facts["cpu"]) == {"model", "threads", "physical_cores"}
    assert (facts["address"], facts["address_reason"]) == ("10.0.0.24", None)
    assert [entry["port"] for entry in facts["listeners"]] == [port]
    assert facts["errors"] == []
    assert facts["gathered_at"].endswith("Z")
    json.dumps(facts)


def test_own_memory_of_units_is_summed(bare, monkeypatch):
    shown = [{"Id": "a.service", "MainPID": "7", "ActiveState": "active"}, {"Id": "b.service", "MainPID": "9"}]
    asked = {}
    monkeypatch.setattr(units, "show", lambda *args: (shown, []))
    monkeypatch.setattr(units, "processes", lambda pid: [pid, pid + 1])
    monkeypatch.setattr(memory, "process_own_bytes", lambda pid: None if pid == 10 else pid)
    probe = ("nvidia", lambda machine: asked.update(pids=machine.own_pids) or ([], []))
    monkeypatch.setattr(gather, "PROBES", (probe,))
    facts = node.gather(node.Options())
    assert facts["memory"]["own_bytes"] == 7 + 8 + 9
    assert asked == {"pids": (7, 8, 9, 10)}
    assert [(u["name"], u["active"]) for u in facts["units"]] == [("a.service", True), ("b.service", False)]


@pytest.mark.parametrize(
    ("module", "name", "probe"),
    [
        (links, "measure", "links"),
        (units, "show", "units"),
        (network, "read_addresses", "network"),
        (memory, "read_memory", "memory"),
        (sockets, "read_sockets", "sockets"),
    ],
)
def test_broken_probe_is_an_entry(bare, monkeypatch, module, name, probe):
    def broken(*args):
        raise RuntimeError("surprise")

    monkeypatch.setattr(module, name, broken)
    facts = node.gather(node.Options())
    assert {"probe": probe, "message": "RuntimeError: surprise"} in facts["errors"]


def test_messages_of_probes_are_entries(bare, monkeypatch):
    monkeypatch.setattr(gather, "PROBES", (("nvidia", lambda machine: ([], ["GPU is lost"])),))
    assert node.gather(node.Options())["errors"] == [{"probe": "nvidia", "message": "GPU is lost"}]


def test_a_vendor_whose_probe_breaks_does_not_hide_the_others(bare, monkeypatch):
    def broken(machine):
        raise RuntimeError("surprise")

    probes = (("nvidia", broken), ("amd", lambda machine: ([record.new("amd", 0)], [])))
    monkeypatch.setattr(gather, "PROBES", probes)
    facts = node.gather(node.Options())
    assert facts["errors"] == [{"probe": "nvidia", "message": "RuntimeError: surprise"}]
    assert [gpu["device"] for gpu in facts["gpus"]] == ["ROCm0"]


def test_a_tool_that_hangs_costs_its_time_and_is_named(monkeypatch, tmp_path):
    """It leaves a child that holds the pipe, as a driver that hangs does."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nsleep 30 &\nwait\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    started = time.monotonic()
    facts = node.gather(node.Options(timeout=1.0))
    assert time.monotonic() - started < 1.0 + 1.0
    said = [entry["message"] for entry in facts["errors"] if entry["probe"] == "nvidia"]
    assert said == ["nvidia-smi gave no answer within 1 s and was killed"]
    assert facts["memory"]["total_bytes"] > 0


@pytest.mark.parametrize(
    ("value", "said"), [(None, "is null"), (["secret"], "is no text"), ({"secret": 1}, "no text"), (True, "no text")]
)
def test_an_environment_that_cannot_be_meant(bare, value, said):
    with pytest.raises(ValueError, match=said) as error:
        node.gather(node.Options(environment={"CUDA_VISIBLE_DEVICES": value}))
    assert "secret" not in str(error.value)


def test_overrides_and_environment_that_contradict_each_other(bare):
    overrides = {"gpus": [{"index": 0, "memory_total_bytes": 5, "visible_devices": "1"}]}
    with pytest.raises(ValueError, match="leave one of them out"):
        node.gather(node.Options(overrides=overrides, environment={"CUDA_VISIBLE_DEVICES": 0}))


def test_overrides_are_applied_and_listed(bare):
    facts = node.gather(node.Options(overrides={"memory": {"available_bytes": 5}}))
    assert facts["memory"]["available_bytes"] == 5
    assert facts["overrides"] == ["memory.available_bytes"]


def test_it_is_quick(bare):
    """The best of several, because the machine that runs the tests may be busy."""
    seconds = []
    for _attempt in range(5):
        started = time.monotonic()
        node.gather(node.Options())
        seconds.append(time.monotonic() - started)
    assert min(seconds) < 0.3


@pytest.mark.parametrize(("text", "expected"), [("0123abcd\n", "0123abcd"), ("uninitialized\n", None), ("", None)])
def test_machine_id(tmp_path, text, expected):
    (tmp_path / "id").write_text(text)
    assert node.read_machine_id((str(tmp_path / "missing"), str(tmp_path / "id"))) == expected


def test_rubbish_of_a_tool_does_not_fill_the_facts(bare, monkeypatch):
    rubbish = record.new("nvidia", 0, name="\x1b[2JGPU\r\n\0", uuid="GPU-\u00e9", reason="x" * 10_000)
    monkeypatch.setattr(gather, "PROBES", (("nvidia", lambda machine: ([rubbish], ["\x07" + "x" * 10_000] * 1000)),))
    facts = node.gather(node.Options())
    assert (facts["gpus"][0]["name"], facts["gpus"][0]["uuid"]) == ("\ufffd[2JGPU\ufffd\ufffd\ufffd", "GPU-\u00e9")
    assert len(facts["gpus"][0]["reason"]) == record.MAX_CHARACTERS
    errors = [entry["message"] for entry in facts["errors"]]
    assert errors[0].startswith("\ufffdx")
    assert len(errors) == node.MAX_MESSAGES + 1
    assert max(map(len, errors)) == record.MAX_CHARACTERS
    assert errors[-1] == "and 984 messages more"
