# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd units of this machine: what runs, since when, with which arguments."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from typing import Any, Callable, Iterable, Sequence

from ansible_collections.relay.pool.plugins.module_utils import command, sockets
from ansible_collections.relay.pool.plugins.module_utils.sizes import digits

PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "MainPID",
    "NRestarts",
    "FragmentPath",
    "DropInPaths",
    "InvocationID",
    "IPAddressAllow",
    "ExecMainStartTimestamp",
    "ExecMainStartTimestampMonotonic",
)
SYSTEMD_RUNS = "/run/systemd/system"


def parse_show(text: str) -> list[dict[str, str]]:
    """One dictionary per unit in the output of ``systemctl show``, which separates units by an empty line."""
    units: list[dict[str, str]] = []
    current: dict[str, str] = {}
    for line in [*text.splitlines(), ""]:
        key, equals, value = line.partition("=")
        if equals:
            current[key] = value
        elif not line.strip() and current:
            units.append(current)
            current = {}
    return units


def start_time(properties: dict[str, str]) -> float | None:
    """When the main process started, in seconds since the epoch, or None.

    The wall clock at the start is comparable to a file's time even when the clock was set or the machine slept
    in between. systemd before 247 prints it to the second and in local time: then the monotonic one must do.
    """
    words = properties.get("ExecMainStartTimestamp", "").split()
    if len(words) == 4 and words[3] == "UTC" and "." in words[2]:
        try:
            parsed = datetime.strptime(f"{words[1]} {words[2]}", "%Y-%m-%d %H:%M:%S.%f")
            return parsed.replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            pass
    monotonic = digits(properties.get("ExecMainStartTimestampMonotonic", ""))
    return time.time() - (time.monotonic() - monotonic / 1e6) if monotonic else None


def file_time(properties: dict[str, str]) -> float | None:
    """Last change of the unit file or of one of its drop-ins, in seconds since the epoch, or None."""
    times = []
    for path in [properties.get("FragmentPath", ""), *properties.get("DropInPaths", "").split()]:
        try:
            times.append(os.stat(path).st_mtime)
        except OSError:
            continue
    return max(times) if times else None


def show(
    names: Sequence[str],
    timeout: float,
    run: Callable[..., command.Result] = command.run,
    systemd_runs: str = SYSTEMD_RUNS,
) -> tuple[list[dict[str, str]], list[str]]:
    """Properties of the units that exist or run, and what went wrong. Nothing at all where systemd does not run."""
    if not names or not os.path.isdir(systemd_runs):
        return [], []
    base = ["systemctl", "show", "--no-pager", "--property=" + ",".join(PROPERTIES)]
    result = run([*base, "--timestamp=us+utc", "--", *names], timeout=timeout)
    if not result.ok and result.rc is not None:
        # systemd before 247 does not know --timestamp.
        result = run([*base, "--", *names], timeout=timeout)
    if not result.ok:
        return [], [result.error or ""]
    found = parse_show(result.stdout)
    return [u for u in found if u.get("LoadState") != "not-found" or u.get("ActiveState") == "active"], []


def main_pid(properties: dict[str, str]) -> int | None:
    return digits(properties.get("MainPID", "")) or None


def processes(pid: int | None, proc: str = "/proc") -> list[int]:
    """The main process and all others in exactly its control group.

    Comparing whole paths keeps a container's unit of the same name apart from the machine's own.
    """
    if pid is None:
        return []
    group = sockets.read_cgroup(pid, proc)
    if not sockets.unit_of_cgroup(group):
        return [pid]
    return [other for other in sockets.process_ids(proc) if other == pid or sockets.read_cgroup(other, proc) == group]


def allowed_addresses(properties: dict[str, str]) -> list[str]:
    """IPv4 and IPv6 addresses and networks of ``IPAddressAllow``, sorted; none for a unit that lets everybody in."""
    found = []
    for text in properties.get("IPAddressAllow", "").split():
        address, slash, length = text.partition("/")
        whole = slash and length == ("128" if ":" in address else "32")
        found.append(address if whole else text)
    return sorted(found)


def read_argv(pid: int | None, proc: str = "/proc") -> list[str]:
    if pid is None:
        return []
    try:
        with open(os.path.join(proc, str(pid), "cmdline"), "rb") as handle:
            data = handle.read()
    except OSError:
        return []
    return [part.decode("utf-8", "replace") for part in data.split(b"\0")[:-1]]


def describe(
    properties: dict[str, str], pids: Iterable[int], tcp: Sequence[sockets.TcpSocket], proc: str = "/proc"
) -> dict[str, Any]:
    """One entry of ``relay_node.units``."""
    pid = main_pid(properties)
    started, changed = start_time(properties), file_time(properties)
    return {
        "name": properties.get("Id", ""),
        "active": properties.get("ActiveState") == "active",
        "sub_state": properties.get("SubState", ""),
        "main_pid": pid,
        "argv": read_argv(pid, proc),
        "n_restarts": digits(properties.get("NRestarts", "")) or 0,
        "started_before_unit_file": pid is not None and None not in (started, changed) and started < changed,
        "allowed_addresses": allowed_addresses(properties),
        "established": sockets.established_peers(pids, tcp, proc),
    }
