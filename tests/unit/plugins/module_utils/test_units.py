# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import subprocess
import time

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command, sockets, units

# As systemctl of systemd 252 prints three units, the last of which does not exist.
SHOW = """\
MainPID=70
NRestarts=2
ExecMainStartTimestamp=Sun 2026-11-29 15:38:58.780687 UTC
ExecMainStartTimestampMonotonic=1985152365
Id=relay-rpc.service
LoadState=loaded
ActiveState=active
SubState=running
FragmentPath=/etc/systemd/system/relay-rpc.service
DropInPaths=
InvocationID=47c9c106f13040019a05ae4f9911d064
IPAddressAllow=::1/128 127.0.0.0/8 10.89.77.10/32

MainPID=0
NRestarts=0
ExecMainStartTimestamp=
ExecMainStartTimestampMonotonic=0
Id=relay-llama.service
LoadState=loaded
ActiveState=inactive
SubState=dead
FragmentPath=/etc/systemd/system/relay-llama.service
DropInPaths=/etc/systemd/system/relay-llama.service.d/a.conf
InvocationID=

MainPID=0
Id=nope.service
LoadState=not-found
ActiveState=inactive
SubState=dead
"""
NAMES = ["relay-rpc.service", "relay-llama.service", "nope.service"]
STARTED = 1795966738.780687


def test_units_that_exist(tmp_path):
    def run(argv, timeout):
        assert argv[-3:] == NAMES
        return command.Result(0, SHOW, "", None)

    found, errors = units.show(NAMES, 5, run, str(tmp_path))
    assert errors == []
    assert [u["Id"] for u in found] == NAMES[:2]
    assert [units.main_pid(u) for u in found] == [70, None]


def test_a_unit_whose_file_is_gone_and_which_runs_is_there(tmp_path):
    text = "Id=x.service\nLoadState=not-found\nActiveState=active\n"
    found, _errors = units.show(
        ["x.service"], 5, lambda argv, timeout: command.Result(0, text, "", None), str(tmp_path)
    )
    assert [u["Id"] for u in found] == ["x.service"]


def test_old_systemctl_is_asked_again_without_timestamp(tmp_path):
    def run(argv, timeout):
        if any(a.startswith("--timestamp") for a in argv):
            return command.Result(1, "", "unrecognized option", "systemctl ended with 1")
        return command.Result(0, SHOW, "", None)

    assert len(units.show(NAMES, 5, run, str(tmp_path))[0]) == 2


def test_no_systemd_means_no_units_and_no_error(tmp_path):
    assert units.show(NAMES, 5, None, str(tmp_path / "missing")) == ([], [])


def test_broken_systemctl_is_an_error(tmp_path):
    result = command.Result(None, "", "", "systemctl gave no answer within 5 s and was killed")
    assert units.show(NAMES, 5, lambda argv, timeout: result, str(tmp_path)) == ([], [result.error])


def test_start_time():
    assert units.start_time(units.parse_show(SHOW)[0]) == pytest.approx(STARTED)
    # An old systemd prints local time to the second.
    old = {"ExecMainStartTimestamp": "Sun 2026-11-29 16:38:58 CET"}
    assert units.start_time(old) is None
    old["ExecMainStartTimestampMonotonic"] = str(int((time.monotonic() - 60) * 1e6))
    assert units.start_time(old) == pytest.approx(time.time() - 60, abs=1)
    assert units.start_time({"ExecMainStartTimestampMonotonic": "0"}) is None


@pytest.mark.parametrize(
    ("unit_file", "drop_in", "expected"),
    [(-10, None, False), (10, None, True), (-10, -5, False), (-10, 10, True), (None, None, False)],
)
def test_started_before_unit_file(tmp_path, unit_file, drop_in, expected):
    properties = dict(
        units.parse_show(SHOW)[0], FragmentPath=str(tmp_path / "unit"), DropInPaths=str(tmp_path / "conf")
    )
    for name, seconds in (("unit", unit_file), ("conf", drop_in)):
        if seconds is not None:
            (tmp_path / name).write_text("")
            os.utime(tmp_path / name, (STARTED + seconds, STARTED + seconds))
    entry = units.describe(properties, [], [], str(tmp_path))
    assert entry["started_before_unit_file"] is expected
    assert (entry["name"], entry["active"], entry["n_restarts"]) == ("relay-rpc.service", True, 2)


def test_who_is_let_in():
    running, stopped, missing = units.parse_show(SHOW)
    assert units.describe(running, [], [])["allowed_addresses"] == ["10.89.77.10", "127.0.0.0/8", "::1"]
    assert units.describe(stopped, [], [])["allowed_addresses"] == []
    assert units.describe({**missing, "IPAddressAllow": ""}, [], [])["allowed_addresses"] == []
    assert "IPAddressAllow" in units.PROPERTIES


def test_a_stopped_unit_did_not_start_before_anything(tmp_path):
    properties = dict(units.parse_show(SHOW)[1], FragmentPath=str(tmp_path))
    entry = units.describe(properties, [], [], str(tmp_path))
    assert entry["started_before_unit_file"] is False
    assert (entry["active"], entry["main_pid"], entry["argv"], entry["established"]) == (False, None, [], [])


def test_argv_of_a_real_process():
    argv = ["/bin/sleep", "30"]
    with subprocess.Popen(argv) as process:
        for _attempt in range(100):
            if units.read_argv(process.pid) == argv:
                break
            time.sleep(0.01)
        found = units.read_argv(process.pid)
        process.kill()
    assert found == argv
    assert units.read_argv(None) == []


def test_processes_share_the_whole_path_of_the_group(tmp_path):
    groups = {
        1: "0::/init.scope\n",
        70: "0::/system.slice/relay-rpc.service\n",
        71: "0::/system.slice/relay-rpc.service\n",
        90: "0::/machine.slice/libpod-1.scope/system.slice/relay-rpc.service\n",
    }
    for pid, text in groups.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(text)
    assert units.processes(70, str(tmp_path)) == [70, 71]
    assert units.processes(None, str(tmp_path)) == []
    # Outside of any unit a shared group says nothing.
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "cgroup").write_text("0::/\n")
    (tmp_path / "6").mkdir()
    (tmp_path / "6" / "cgroup").write_text("0::/\n")
    assert units.processes(5, str(tmp_path)) == [5]


def test_established_peers_are_those_of_the_processes(tmp_path):
    (tmp_path / "70" / "fd").mkdir(parents=True)
    os.symlink("socket:[222]", tmp_path / "70" / "fd" / "3")
    os.symlink("/dev/null", tmp_path / "70" / "fd" / "0")
    tcp = [
        sockets.TcpSocket("10.0.0.1", 40000, "10.0.0.24", 50052, "01", 222),
        sockets.TcpSocket("10.0.0.1", 40001, "10.0.0.25", 50052, "01", 223),
        sockets.TcpSocket("10.0.0.1", 8384, "0.0.0.0", 0, "0A", 222),
    ]
    entry = units.describe(units.parse_show(SHOW)[0], [70], tcp, str(tmp_path))
    assert entry["established"] == ["10.0.0.24:50052"]


@pytest.mark.parametrize("number", ["\u00b2", "9" * 5000, "-1", ""])
def test_numbers_that_are_none(number, tmp_path):
    properties = {"MainPID": number, "NRestarts": number, "ExecMainStartTimestampMonotonic": number}
    assert units.start_time(properties) is None
    entry = units.describe(properties, [], [], str(tmp_path))
    assert (entry["main_pid"], entry["n_restarts"]) == (None, 0)
