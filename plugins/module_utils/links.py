# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Round-trip times from this machine to the workers, over the way that RPC traffic takes.

A TCP connect is one round trip, whether somebody listens or not: before the first deploy the answer is a refusal. A
worker serves one client at a time and queues two more, and a connection that is closed stays in its queue until the
worker comes to it. So:

- a worker to which this machine holds a connection is not touched: the kernel knows that connection's round trip;
- every other connection is closed for writing at once, without a byte. An idle worker then closes its side, and only
  after that is the next one made; a busy one stays silent, is left alone, and never writes to what it finds later.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import threading
import time
from typing import Any, Callable, Iterable, Iterator, Sequence

from ansible_collections.relay.pool.plugins.module_utils import network, sockets

ANY = ipaddress.IPv4Address("0.0.0.0")
SAMPLES = 7
TIMEOUT_SECONDS = 1.0
SPACING_SECONDS = 0.003
# How long a worker that accepted may take to notice that nothing comes. It is in a blocking read, so this is much.
BUSY_SECONDS = 0.1
# A lost packet is sent again after a second at the earliest, so one that is not answered is given up before.
TRIES = 2
GRACE_SECONDS = 0.2
MOST_SECONDS = 60.0
MOST_SAMPLES = 100

# Of the kernel's sock_diag: the numbers, and where in its answer things are.
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR, NLMSG_DONE = 2, 3
INET_DIAG_INFO = 2
TCP_ESTABLISHED = 1
MESSAGE_BYTES, ANSWER_BYTES = 16, 72
RTT_OFFSET, MIN_RTT_OFFSET = 68, 148
UNKNOWN_RTT = 2**32 - 1


def _attributes(data: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    while start + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, start)
        if length < 4:
            return
        yield kind, data[start + 4 : start + length]
        start += (length + 3) // 4 * 4


def parse_diagnosis(data: bytes) -> tuple[list[tuple[str, int, float]], bool]:
    """([(peer address, peer port, round trip in seconds)], whether this was the last part) of a sock_diag answer."""
    found = []
    start = 0
    while start + MESSAGE_BYTES <= len(data):
        length, kind = struct.unpack_from("=IH", data, start)
        if kind in (NLMSG_ERROR, NLMSG_DONE) or length < MESSAGE_BYTES:
            return found, True
        body = data[start + MESSAGE_BYTES : start + length]
        start += (length + 3) // 4 * 4
        if len(body) < ANSWER_BYTES or body[1] != TCP_ESTABLISHED:
            continue
        for attribute, info in _attributes(body, ANSWER_BYTES):
            fields = [info[at : at + 4] for at in (MIN_RTT_OFFSET, RTT_OFFSET)]
            values = [struct.unpack("=I", field)[0] for field in fields if len(field) == 4]
            known = [value for value in values if 0 < value < UNKNOWN_RTT]
            if attribute == INET_DIAG_INFO and known:
                found.append((socket.inet_ntoa(body[24:28]), struct.unpack_from("!H", body, 6)[0], known[0] / 1e6))
    return found, False


def kernel_round_trips(timeout: float = 0.2) -> dict[tuple[str, int], float]:
    """Shortest round trip in seconds that the kernel saw of late, by peer, of the IPv4 connections that exist.

    Needs no root. Raises OSError where the kernel does not tell.
    """
    best: dict[tuple[str, int], float] = {}
    end = time.monotonic() + timeout
    query = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 1 << TCP_ESTABLISHED)
    query += bytes(48)  # any socket
    header = struct.pack("=IHHII", MESSAGE_BYTES + len(query), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG) as sock:
        sock.settimeout(timeout)
        sock.sendto(header + query, (0, 0))
        last = False
        while not last and time.monotonic() < end:
            found, last = parse_diagnosis(sock.recv(1 << 18))
            for address, port, seconds in found:
                best[address, port] = min(seconds, best.get((address, port), seconds))
    return best


def _finish(sock: socket.socket, seconds: float) -> bool:
    """End a connection that was accepted. False when the other side is busy with somebody else."""
    try:
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(seconds)
        sock.recv(1)
    except socket.timeout:
        return False
    except OSError:
        pass  # it reset the connection, which is an end as well
    return True


def _knock(address: str, port: int, seconds: float, end: float) -> tuple[float, bool]:
    """(seconds of one connect, whether another may follow). Raises OSError when there is no answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.settimeout(seconds)
        start = time.perf_counter()
        try:
            sock.connect((address, port))
        except ConnectionRefusedError:
            return time.perf_counter() - start, True
        taken = time.perf_counter() - start
        # Nothing is left behind here, whatever becomes of the other side.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return taken, _finish(sock, max(0.001, min(BUSY_SECONDS + 4 * taken, end - time.monotonic())))


def median(samples: Sequence[float]) -> float:
    """The middle one, without the first unless it is alone: that one waits for ARP and for a card that sleeps."""
    rest = sorted(samples[1:] or samples)
    return (rest[(len(rest) - 1) // 2] + rest[len(rest) // 2]) / 2


def round_trip(
    address: str, port: int, timeout: float = TIMEOUT_SECONDS, n: int = SAMPLES
) -> tuple[float | None, str | None]:
    """(seconds, None) or (None, why none), after at most ``timeout`` seconds in all. ``n`` connects, if they can be."""
    end = time.monotonic() + timeout
    samples: list[float] = []
    reason = f"{address}:{port} gave no answer within {timeout:g} s: the machine is down, a firewall drops the port, or"
    reason += " the worker is busy and its queue is full"
    while len(samples) < n:
        left = end - time.monotonic()
        if left <= 0:
            break
        try:
            seconds, more = _knock(address, port, min(left, timeout / TRIES), end)
        except socket.timeout:
            if samples:
                break
            continue
        except OSError as exc:
            reason = f"{address}:{port} cannot be reached: {exc.strerror or exc}"
            break
        samples.append(seconds)
        if not more:
            break
        # Not in step with the other targets.
        time.sleep(SPACING_SECONDS * (1 + os.urandom(1)[0] / 256))
    return (median(samples), None) if samples else (None, reason)


def _endpoint(target: Any) -> tuple[str, int]:
    """(address, port) of a target. Raises ValueError for one that RPC traffic cannot have."""
    try:
        parsed, port = ipaddress.IPv4Address(str(target["address"])), int(target["port"])
    except (ArithmeticError, KeyError, TypeError, ValueError):
        parsed, port = ANY, 0
    address = str(parsed)
    # To connect to any address means this machine itself.
    if parsed == ANY or parsed.is_multicast or not 0 < port < 65536:
        raise ValueError(f"{target!r:.200} is no worker: it takes a name, a dotted IPv4 address and a port")
    return address, port


def _held(wanted: Iterable[tuple[str, int]], read: Callable[[], list[sockets.TcpSocket]]) -> set[tuple[str, int]]:
    """To which of the workers does a process of this machine hold a connection?"""
    peers = {(s.peer_address, s.peer_port) for s in read() if s.state == sockets.STATE_ESTABLISHED}
    return peers.intersection(wanted)


def _told_by_kernel(
    held: set[tuple[str, int]], kernel: Callable[[], dict[tuple[str, int], float]]
) -> dict[tuple[str, int], tuple[float | None, str | None]]:
    try:
        known, why = (kernel() if held else {}), "it lists no such connection"
    except Exception as exc:  # a kernel without sock_diag, or no Linux
        known, why = {}, getattr(exc, "strerror", None) or str(exc)
    outcomes: dict[tuple[str, int], tuple[float | None, str | None]] = {}
    for address, port in held:
        reason = (
            f"{address}:{port} serves this machine, and the kernel does not tell that connection's round trip ({why})"
        )
        seconds = known.get((address, port))
        outcomes[address, port] = (seconds, None) if seconds else (None, reason)
    return outcomes


def _measured(
    endpoints: Iterable[tuple[str, int]], timeout: float, n: int
) -> dict[tuple[str, int], tuple[float | None, str | None]]:
    """The outcome of each, all at the same time."""
    outcomes: dict[tuple[str, int], tuple[float | None, str | None]] = {}

    def work(address: str, port: int) -> None:
        try:
            outcomes[address, port] = round_trip(address, port, timeout, n)
        except Exception as exc:
            outcomes[address, port] = None, f"{address}:{port} cannot be measured: {exc}"

    end = time.monotonic() + timeout + GRACE_SECONDS
    threads = []
    for endpoint in endpoints:
        thread = threading.Thread(target=work, args=endpoint, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads for this process
            work(*endpoint)
        else:
            threads.append(thread)
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(outcomes)


def _way(address: str, addresses: Sequence[network.Address], source_of: Callable[[str], str | None]) -> dict[str, Any]:
    """The interface by which traffic to the address leaves this machine."""
    if address.startswith("127.") or any(a.address == address for a in addresses):
        return {"interface": "lo", "wireless": False}
    source = source_of(address)
    # The same address may be on two interfaces.
    having = sorted((a for a in addresses if a.address == source), key=lambda a: (a.down, a.virtual is not None))
    if not having:
        return {}
    return {"interface": having[0].interface, "speed_mbps": having[0].speed_mbps, "wireless": having[0].wireless}


def measure(
    targets: Sequence[Any],
    addresses: Sequence[network.Address],
    timeout: float = TIMEOUT_SECONDS,
    n: int = SAMPLES,
    read: Callable[[], list[sockets.TcpSocket]] = sockets.read_sockets,
    kernel: Callable[[], dict[tuple[str, int], float]] = kernel_round_trips,
    source_of: Callable[[str], str | None] = network.route_source,
) -> list[dict[str, Any]]:
    """One entry per target ``{name, address, port}``, in their order. Never raises; takes ``timeout`` seconds at most.

    ``rtt_seconds`` is the median of up to ``n`` connects, or None with a ``reason``. ``interface`` is this machine's
    towards the target, ``speed_mbps`` its link speed in Mbit/s and ``wireless`` whether it is Wi-Fi; all None when
    ``addresses`` does not hold the source of the route there.
    """
    timeout = timeout if 0 < timeout <= MOST_SECONDS else TIMEOUT_SECONDS
    n = max(1, min(int(n), MOST_SAMPLES))
    results: list[dict[str, Any]] = []
    endpoints: list[tuple[str, int] | None] = []
    for target in targets if isinstance(targets, (list, tuple)) else []:
        name, address = (target.get(key) if isinstance(target, dict) else None for key in ("name", "address"))
        result: dict[str, Any] = {"name": name, "address": address, "rtt_seconds": None}
        result.update(interface=None, speed_mbps=None, wireless=None, reason=None)
        try:
            endpoint = _endpoint(target)
            result.update(_way(endpoint[0], addresses, source_of))
        except ValueError as exc:
            endpoint, result["reason"] = None, str(exc)
        results.append(result)
        endpoints.append(endpoint)
    wanted = dict.fromkeys(endpoint for endpoint in endpoints if endpoint)
    outcomes = _told_by_kernel(_held(wanted, read), kernel)
    outcomes.update(_measured([endpoint for endpoint in wanted if endpoint not in outcomes], timeout, n))
    for result, endpoint in zip(results, endpoints):
        if endpoint:
            late = None, f"{endpoint[0]}:{endpoint[1]} gave no answer within {timeout:g} s"
            result["rtt_seconds"], result["reason"] = outcomes.get(endpoint, late)
    return results
