# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a ``ggml-rpc-server`` what it is doing, without ever harming it.

The worker serves one client at a time and queues two more. A client that sends HELLO, gives up and closes makes
the worker write to a closed socket later, and SIGPIPE ends it. So:

- a connection that this machine already holds to the worker means busy, and nothing is sent at all;
- otherwise one byte that is no HELLO goes first: an idle worker answers by closing, a busy one by silence, and
  neither ever writes;
- only after that does HELLO go out, on a connection that is *reset* unless the exchange is complete: a reset
  socket makes the worker's write fail with ECONNRESET, which raises no signal.

Protocol: command u8, size u64 little endian, payload; the answer is size u64, payload.
"""

from __future__ import annotations

import re
import socket
import statistics
import struct
import time
from typing import Any, Callable

from ansible_collections.relay.pool.plugins.module_utils import deadline, sockets

NO_HELLO = b"\xff"
CMD_HELLO = 14
CMD_DEVICE_COUNT = 15
CMD_GET_DEVICE_MEMORY = 11
CAPS_BYTES = 24
# Command numbers other than HELLO hold within one major version only.
KNOWN_MAJOR = 7
MAX_DEVICES = 64
MAX_ANSWER_BYTES = 1024
RTT_SAMPLES = 3
_PORT = re.compile(r"[0-9]{1,5}\Z")


class NotRpc(Exception):
    """Whatever listens there does not answer as an RPC worker does."""


def parse_endpoint(endpoint: str) -> tuple[str, int]:
    """``10.0.0.24:50052`` -> (host, port). Raises ValueError; IPv6 is none that llama.cpp can use."""
    host, colon, port = endpoint.rpartition(":")
    if not colon or not host or re.search(r"[:\s\0]", host) or not _PORT.match(port) or not 0 < int(port) < 65536:
        raise ValueError(f"endpoint is {endpoint!r}: it must be IPv4:port such as 10.0.0.24:50052")
    return host, int(port)


def _left(end: float) -> float:
    """Seconds until ``end`` on the monotonic clock. Raises socket.timeout when there are none."""
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise socket.timeout("timed out")
    return seconds


def _receive(sock: socket.socket, size: int, end: float) -> bytes:
    data = b""
    while len(data) < size:
        sock.settimeout(_left(end))
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise NotRpc("it closed the connection in the middle of an answer")
        data += chunk
    return data


def _command(sock: socket.socket, number: int, payload: bytes, end: float) -> bytes:
    sock.settimeout(_left(end))
    sock.sendall(struct.pack("<BQ", number, len(payload)) + payload)
    size = struct.unpack("<Q", _receive(sock, 8, end))[0]
    if size > MAX_ANSWER_BYTES:
        raise NotRpc("it answers with something else than the RPC protocol")
    return _receive(sock, size, end)


def _reset_on_close(sock: socket.socket, on: bool) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", int(on), 0))


def _connect(host: str, port: int, end: float) -> tuple[socket.socket, float]:
    """A connection and the seconds it took to make it."""
    start = time.monotonic()
    sock = socket.create_connection((host, port), timeout=_left(end))
    return sock, time.monotonic() - start


def held_here(address: str, port: int, read: Callable[[], list[sockets.TcpSocket]] = sockets.read_sockets) -> bool:
    """Does a process of this machine hold an established connection to the worker?"""
    return any(
        s.state == sockets.STATE_ESTABLISHED and s.peer_address == address and s.peer_port == port for s in read()
    )


def _knock(sock: socket.socket, end: float) -> tuple[str, str | None]:
    """State after the one byte that is no HELLO: ``idle``, ``busy`` or ``not_rpc``, and why."""
    try:
        sock.settimeout(_left(end))
        sock.sendall(NO_HELLO)
        answer = sock.recv(64)
    except socket.timeout:
        return "busy", "it accepts connections and says nothing in time: another client holds it"
    except OSError:
        return "idle", None  # it closed with our byte unread, as an idle worker may
    if answer:
        return "not_rpc", f"it speaks first or answers, as no RPC worker does: {answer[:32]!r}"
    return "idle", None


def _interview(sock: socket.socket, end: float) -> tuple[str, list[dict[str, int]]]:
    """(protocol, devices) of an idle worker."""
    hello = _command(sock, CMD_HELLO, bytes(CAPS_BYTES), end)
    if len(hello) < 3:
        raise NotRpc("its answer to HELLO holds no version")
    major, minor, patch = hello[:3]
    protocol = f"{major}.{minor}.{patch}"
    devices: list[dict[str, int]] = []
    if major != KNOWN_MAJOR:
        return protocol, devices
    count = _command(sock, CMD_DEVICE_COUNT, b"", end)
    if len(count) != 4 or struct.unpack("<I", count)[0] > MAX_DEVICES:
        raise NotRpc("its device count cannot be read")
    for index in range(struct.unpack("<I", count)[0]):
        answer = _command(sock, CMD_GET_DEVICE_MEMORY, struct.pack("<I", index), end)
        if len(answer) != 16:
            raise NotRpc(f"the memory of its device {index} cannot be read")
        free, total = struct.unpack("<QQ", answer)
        devices.append({"memory_total_bytes": total, "memory_free_bytes": free})
    return protocol, devices


def _result(state: str, error: str | None = None, **found: Any) -> dict[str, Any]:
    result = {"state": state, "protocol": None, "devices": [], "rtt_seconds": None, "error": error}
    result.update(found)
    return result


def _round_trip(host: str, port: int, end: float, first: float) -> float:
    """Median of several TCP connects in seconds; only an idle worker gets the extra ones."""
    samples = [first]
    for _attempt in range(RTT_SAMPLES - 1):
        try:
            sock, seconds = _connect(host, port, end)
        except OSError:
            break
        sock.close()
        samples.append(seconds)
    return statistics.median(samples)


def ping(
    endpoint: str,
    timeout: float = 2.0,
    read: Callable[[], list[sockets.TcpSocket]] = sockets.read_sockets,
) -> dict[str, Any]:
    """State of the worker at ``endpoint``: ``idle``, ``busy``, ``unreachable`` or ``not_rpc``.

    ``timeout`` is in seconds and for all of it. Raises ValueError for an endpoint or a timeout that cannot be meant.
    """
    name, port = parse_endpoint(endpoint)
    end = time.monotonic() + deadline.check_timeout(timeout)
    try:
        host = deadline.within(timeout, lambda: socket.gethostbyname(name))  # IPv4 only, as llama.cpp does it
    except deadline.DeadlineError:
        return _result("unreachable", f"{endpoint} cannot be reached: {name} was not resolved within {timeout:g} s")
    except (OSError, UnicodeError) as exc:  # UnicodeError: a label that no name may have
        return _result("unreachable", f"{endpoint} cannot be reached: {name} has no IPv4 address ({exc})")
    if held_here(host, port, read):
        return _result("busy", f"{endpoint} is busy: this machine holds a connection to it")
    try:
        sock, first = _connect(host, port, end)
    except socket.timeout:
        return _result(
            "unreachable",
            f"{endpoint} gave no answer within {timeout:g} s: the machine is down, a firewall drops the port,"
            " or the worker is busy and its queue is full",
        )
    except OSError as exc:
        return _result("unreachable", f"{endpoint} cannot be reached: {exc.strerror or exc}")
    with sock:
        state, reason = _knock(sock, end)
    if state != "idle":
        return _result(state, f"{endpoint} is {state}: {reason}", rtt_seconds=first)
    try:
        sock, _seconds = _connect(host, port, end)
        with sock:
            _reset_on_close(sock, True)
            protocol, devices = _interview(sock, end)
            _reset_on_close(sock, False)
    except socket.timeout:
        return _result("busy", f"{endpoint} is busy: another client came first", rtt_seconds=first)
    except (OSError, NotRpc) as exc:
        return _result(
            "not_rpc",
            f"{endpoint} is no RPC worker, or one of another protocol version: {exc}",
            rtt_seconds=first,
        )
    error = None
    if not protocol.startswith(f"{KNOWN_MAJOR}."):
        error = f"{endpoint} speaks RPC protocol {protocol}, whose device list cannot be read by this module"
    rtt = _round_trip(host, port, end, first)
    return _result("idle", error, protocol=protocol, devices=devices, rtt_seconds=rtt)
