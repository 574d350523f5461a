# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import socket
import struct
import threading
import time

import pytest
from ansible_collections.relay.pool.plugins.module_utils import rpc, sockets

GIB = 1024**3
HELLO = struct.pack("<Q", 28) + bytes([7, 0, 0, 0]) + bytes(24)


class Server:
    """A TCP server on loopback that gives the n-th connection to the n-th handler, and the last to all others."""

    def __init__(self, *handlers):
        self.handlers = handlers
        self.connections = 0
        self.problems = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self.socket.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self):
        while True:
            try:
                client, _address = self.socket.accept()
            except OSError:
                return
            handler = self.handlers[min(self.connections, len(self.handlers) - 1)]
            self.connections += 1
            with client:
                client.settimeout(5)
                try:
                    handler(client)
                except OSError as exc:
                    self.problems.append(exc)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_exc):
        # Shutting down wakes accept(); closing alone does not.
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(timeout=5)

    def ping(self, timeout=0.3):
        # The server is of this machine, so its connections would always be seen: look away.
        return rpc.ping(self.endpoint, timeout, read=list)


def worker(client, version=(7, 0, 0), memory=((5 * GIB, 16 * GIB), (1, 2))):
    """What ggml-rpc-server does with one client."""
    first = client.recv(1)
    if first != b"\x0e":
        return
    assert client.recv(32) == struct.pack("<Q", 24) + bytes(24)
    client.sendall(struct.pack("<Q", 28) + bytes([*version, 0]) + bytes(24))
    while True:
        command = client.recv(1)
        if not command:
            return
        size = struct.unpack("<Q", client.recv(8))[0]
        payload = client.recv(size) if size else b""
        if command == b"\x0f":
            client.sendall(struct.pack("<QI", 4, len(memory)))
        elif command == b"\x0b":
            client.sendall(struct.pack("<Q", 16) + struct.pack("<QQ", *memory[struct.unpack("<I", payload)[0]]))
        else:
            raise OSError(f"unexpected command {command!r}")


def silent(client):
    client.recv(1)
    client.recv(1)


def test_idle_worker():
    with Server(worker) as server:
        result = server.ping()
    assert result.pop("rtt_seconds") > 0
    assert result == {
        "state": "idle",
        "protocol": "7.0.0",
        "devices": [
            {"memory_total_bytes": 16 * GIB, "memory_free_bytes": 5 * GIB},
            {"memory_total_bytes": 2, "memory_free_bytes": 1},
        ],
        "error": None,
    }
    assert server.problems == []


def test_other_major_version_is_not_asked_further():
    with Server(lambda client: worker(client, version=(8, 1, 0))) as server:
        result = server.ping()
    assert (result["state"], result["protocol"], result["devices"]) == ("idle", "8.1.0", [])
    assert "8.1.0" in result["error"]
    assert server.problems == []


def test_busy_worker_gets_one_byte_on_one_connection():
    seen = []

    def busy(client):
        seen.append(client.recv(16))
        seen.append(client.recv(16))

    with Server(busy) as server:
        started = time.monotonic()
        result = server.ping()
        assert time.monotonic() - started < 1
    assert result["state"] == "busy"
    assert result["rtt_seconds"] > 0
    assert seen == [b"\xff", b""]
    assert server.connections == 1


def test_worker_held_by_this_machine_is_not_touched():
    with Server(silent) as server:
        port = server.socket.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            result = rpc.ping(f"localhost:{port}", 0.3)
    assert result["state"] == "busy"
    assert result["rtt_seconds"] is None
    assert "this machine holds a connection" in result["error"]
    assert server.connections == 1


@pytest.mark.parametrize(
    ("address", "port", "state"), [("10.0.0.3", 1, "01"), ("10.0.0.2", 2, "01"), ("10.0.0.2", 1, "06")]
)
def test_other_connections_do_not_hold_it(address, port, state):
    entry = sockets.TcpSocket("10.0.0.1", 4000, address, port, state, 5)
    assert not rpc.held_here("10.0.0.2", 1, lambda: [entry])


def test_lost_race_resets_so_that_the_worker_gets_no_sigpipe():
    """Another client came between the knock and HELLO: the worker answers when nobody listens any more."""
    outcome = []

    def late(client):
        client.recv(33)
        time.sleep(0.5)
        for _attempt in range(2):
            try:
                client.sendall(HELLO)
                outcome.append("sent")
            except OSError as exc:
                outcome.append(type(exc))
                return

    with Server(worker, late) as server:
        result = server.ping()
        time.sleep(0.4)
    assert result["state"] == "busy"
    # A closed socket instead of a reset one: "sent", then BrokenPipeError, which is SIGPIPE to the worker.
    assert outcome == [ConnectionResetError]


def answer(data):
    """A handler that takes HELLO, answers with ``data`` and waits for the client to go."""

    def handler(client):
        received = b""
        while len(received) < 33:
            received += client.recv(33)
        client.sendall(data)
        while data and client.recv(64):
            pass

    return handler


@pytest.mark.parametrize(
    ("handlers", "words"),
    [
        ([lambda client: client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")], "speaks first"),
        ([lambda client: client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")], "400 Bad"),
        # an older worker closes on a HELLO that it does not understand
        ([worker, answer(b"")], "closed the connection"),
        ([worker, answer(b"HTTP/1.1 400 Bad")], "something else than the RPC"),
        ([worker, answer(struct.pack("<Q", 0))], "no version"),
        ([worker, answer(HELLO + struct.pack("<QI", 4, 5000))], "device count"),
        ([worker, answer(HELLO + struct.pack("<QIQ", 4, 1, 8) + bytes(8))], "memory of its device 0"),
    ],
)
def test_not_rpc(handlers, words):
    with Server(*handlers) as server:
        result = server.ping()
    assert result["state"] == "not_rpc"
    assert words in result["error"]
    assert server.endpoint in result["error"]


def test_unreachable():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    result = rpc.ping(f"127.0.0.1:{port}", 0.3)
    assert (result["state"], result["devices"], result["rtt_seconds"]) == ("unreachable", [], None)
    assert result["error"] == f"127.0.0.1:{port} cannot be reached: Connection refused"


def test_full_queue_is_named_as_a_possibility():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        endpoint = server.getsockname()
        with socket.create_connection(endpoint), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(endpoint)
            result = rpc.ping(f"127.0.0.1:{endpoint[1]}", 0.2, read=list)
    assert result["state"] == "unreachable"
    assert "its queue is full" in result["error"]


def test_name_without_address():
    result = rpc.ping("worker.invalid:50052", 0.3)
    assert result["state"] == "unreachable"
    assert "worker.invalid has no IPv4 address" in result["error"]


def late_close(client):
    client.recv(1)
    time.sleep(0.4)


def late_hello(client):
    client.recv(64)
    time.sleep(0.4)
    client.sendall(HELLO)
    client.recv(64)
    time.sleep(1)


def test_timeout_is_for_all_steps_together():
    with Server(late_close, late_hello) as server:
        started = time.monotonic()
        result = server.ping(0.5)
        assert time.monotonic() - started < 0.8
    assert result["state"] == "busy"


def test_name_that_is_not_resolved_in_time(monkeypatch):
    monkeypatch.setattr(socket, "gethostbyname", lambda name: time.sleep(5))
    result = rpc.ping("worker:50052", 0.1)
    assert result["state"] == "unreachable"
    assert result["error"] == "worker:50052 cannot be reached: worker was not resolved within 0.1 s"


def test_name_that_cannot_be_one():
    assert rpc.ping("a" * 70 + ".x:50052", 0.3)["state"] == "unreachable"


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), 1e10])
def test_bad_timeout(timeout):
    with pytest.raises(ValueError, match="timeout is"):
        rpc.ping("127.0.0.1:1", timeout)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "10.0.0.1",
        "10.0.0.1:",
        ":1",
        "10.0.0.1:0",
        "10.0.0.1:70000",
        "fd00::1:50052",
        "10.0.0.1:\u00b2",
        "10.0.0.1:" + "9" * 5000,
        "a\0b:1",
        " 10.0.0.1:1",
    ],
)
def test_bad_endpoint(endpoint):
    with pytest.raises(ValueError, match="must be IPv4:port"):
        rpc.ping(endpoint)
