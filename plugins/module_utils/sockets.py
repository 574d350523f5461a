# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TCP sockets of this machine, mapped to processes and systemd units.

/proc/net/tcp says who listens and who is connected; the inode there is the one in /proc/PID/fd, and
/proc/PID/cgroup names the unit. Other users' processes need root: their ``pid`` is then None.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
from dataclasses import dataclass
from typing import Any, Iterable

STATE_ESTABLISHED = "01"
STATE_LISTEN = "0A"
_INODE = re.compile(r"^socket:\[(\d+)\]$")
_UNIT = re.compile(r"\.(service|scope)$")


@dataclass(frozen=True)
class TcpSocket:
    """One line of /proc/net/tcp."""

    address: str
    port: int
    peer_address: str
    peer_port: int
    state: str
    inode: int


def _address(text: str) -> tuple[str, int]:
    """``"0100007F:C384"`` -> ``("127.0.0.1", 50052)``. Every 32-bit word is printed in the machine's byte order."""
    host, _colon, port = text.partition(":")
    order = "<" if sys.byteorder == "little" else ">"
    words = [struct.pack(order + "I", int(host[i : i + 8], 16)) for i in range(0, len(host), 8)]
    raw = b"".join(words)
    if len(raw) == 16 and raw.startswith(b"\0" * 10 + b"\xff\xff"):
        raw = raw[12:]  # an IPv4 peer of an IPv6 socket
    family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, raw), int(port, 16)


def parse_tcp(text: str) -> list[TcpSocket]:
    """Sockets in the text of /proc/net/tcp or tcp6; lines that are none are left out."""
    found = []
    for line in text.splitlines()[1:]:
        parts = line.split()
        if len(parts) < 10:
            continue
        try:
            address, port = _address(parts[1])
            peer, peer_port = _address(parts[2])
            found.append(TcpSocket(address, port, peer, peer_port, parts[3], int(parts[9])))
        except (ValueError, OSError, struct.error):
            continue
    return found


def read_sockets(proc: str = "/proc") -> list[TcpSocket]:
    """All TCP sockets of this network namespace."""
    found: list[TcpSocket] = []
    for name in ("tcp", "tcp6"):
        try:
            with open(os.path.join(proc, "net", name), encoding="ascii", errors="replace") as handle:
                found += parse_tcp(handle.read())
        except OSError:
            continue
    return found


def process_ids(proc: str = "/proc") -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return []


def socket_inodes(pid: int, proc: str = "/proc") -> set[int]:
    """Inodes of the sockets a process has open; empty when it is gone or belongs to somebody else."""
    found = set()
    folder = os.path.join(proc, str(pid), "fd")
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in names:
        try:
            match = _INODE.match(os.readlink(os.path.join(folder, name)))
        except OSError:
            continue
        if match:
            found.add(int(match.group(1)))
    return found


def owners(inodes: Iterable[int], proc: str = "/proc") -> dict[int, int]:
    """inode -> pid for the inodes whose owner can be seen; stops as soon as all are found."""
    wanted = set(inodes)
    found: dict[int, int] = {}
    for pid in process_ids(proc):
        if not wanted:
            break
        for inode in socket_inodes(pid, proc) & wanted:
            found[inode] = pid
            wanted.discard(inode)
    return found


def read_cgroup(pid: int, proc: str = "/proc") -> str:
    """Text of /proc/PID/cgroup, empty when the process is gone."""
    try:
        with open(os.path.join(proc, str(pid), "cgroup"), encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except OSError:
        return ""


def unit_of_cgroup(text: str) -> str | None:
    """The systemd unit in the text of /proc/PID/cgroup: the innermost service or scope on its path."""
    for line in text.splitlines():
        _id, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if controllers not in ("", "name=systemd"):
            continue
        for part in reversed(path.split("/")):
            if _UNIT.search(part):
                return part
    return None


def command_name(pid: int, proc: str = "/proc") -> str | None:
    try:
        with open(os.path.join(proc, str(pid), "comm"), encoding="utf-8", errors="replace") as handle:
            return handle.read().strip() or None
    except OSError:
        return None


def listeners(ports: Iterable[int], sockets: Iterable[TcpSocket], proc: str = "/proc") -> list[dict[str, Any]]:
    """Who listens on ``ports``: address, port, pid, command, unit."""
    wanted = set(ports)
    found = [s for s in sockets if s.state == STATE_LISTEN and s.port in wanted]
    pids = owners((s.inode for s in found), proc) if found else {}
    result = []
    for entry in sorted(found, key=lambda s: (s.port, s.address)):
        pid = pids.get(entry.inode)
        result.append(
            {
                "address": entry.address,
                "port": entry.port,
                "pid": pid,
                "command": None if pid is None else command_name(pid, proc),
                "unit": None if pid is None else unit_of_cgroup(read_cgroup(pid, proc)),
            }
        )
    return result


def established_peers(pids: Iterable[int], sockets: Iterable[TcpSocket], proc: str = "/proc") -> list[str]:
    """``address:port`` of the other end of every established connection of the processes ``pids``."""
    inodes: set[int] = set()
    for pid in pids:
        inodes |= socket_inodes(pid, proc)
    return sorted(
        {f"{s.peer_address}:{s.peer_port}" for s in sockets if s.state == STATE_ESTABLISHED and s.inode in inodes}
    )
