# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import socket
import sys

import pytest
from ansible_collections.relay.pool.plugins.module_utils import sockets

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LISTEN = "   0: 0100007F:C384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 x\n"
PEER = "   1: 0100007F:C385 1800000A:C384 01 00000000:00000000 00:00000000 00000000     0        0 222 1 x\n"
ANY6 = (
    "   0: 00000000000000000000000000000000:20C0 00000000000000000000000000000000:0000 0A 00000000:00000000"
    " 00:00000000 00000000     0        0 333 1 x\n"
)
MAPPED = (
    "   1: 0000000000000000FFFF00001800000A:20C0 0000000000000000FFFF00001900000A:D431 01 00000000:00000000"
    " 00:00000000 00000000     0        0 444 1 x\n"
)
little = pytest.mark.skipif(sys.byteorder != "little", reason="the recorded lines are of a little-endian machine")


@little
def test_parse_tcp():
    found = sockets.parse_tcp(HEADER + LISTEN + PEER + "broken\n   9: zz:1 00000000:0000 0A 0 0 0 0 0 5 x\n")
    assert found == [
        sockets.TcpSocket("127.0.0.1", 50052, "0.0.0.0", 0, "0A", 111),
        sockets.TcpSocket("127.0.0.1", 50053, "10.0.0.24", 50052, "01", 222),
    ]


@little
def test_parse_tcp6():
    found = sockets.parse_tcp(HEADER + ANY6 + MAPPED)
    assert [(s.address, s.port, s.peer_address) for s in found] == [
        ("::", 8384, "::"),
        ("10.0.0.24", 8384, "10.0.0.25"),
    ]


def test_own_sockets_are_found():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            tcp = sockets.read_sockets()
            entry = next(e for e in sockets.listeners([port], tcp) if e["address"] == "127.0.0.1")
            assert entry["pid"] == os.getpid()
            assert entry["command"] == sockets.command_name(os.getpid())
            assert f"127.0.0.1:{port}" in sockets.established_peers([os.getpid()], tcp)
            assert f"127.0.0.1:{client.getsockname()[1]}" not in sockets.established_peers([], tcp)
    assert sockets.listeners([port], sockets.read_sockets()) == []


def test_listener_of_somebody_else_has_no_process(tmp_path):
    entry = sockets.TcpSocket("10.0.0.24", 50052, "0.0.0.0", 0, "0A", 111)
    assert sockets.listeners([50052, 1], [entry], str(tmp_path)) == [
        {"address": "10.0.0.24", "port": 50052, "pid": None, "command": None, "unit": None}
    ]


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/system.slice/relay-rpc.service\n", "relay-rpc.service"),
        ("9:memory:/x.service\n1:name=systemd:/system.slice/relay-rpc.service\n", "relay-rpc.service"),
        ("0::/machine.slice/libpod-1.scope/container/system.slice/relay-rpc.service\n", "relay-rpc.service"),
        ("0::/system.slice/relay-rpc.service/inner\n", "relay-rpc.service"),
        ("0::/user.slice/user-0.slice/session-1.scope\n", "session-1.scope"),
        ("0::/\n", None),
        ("", None),
        ("broken", None),
    ],
)
def test_unit_of_cgroup(text, unit):
    assert sockets.unit_of_cgroup(text) == unit
