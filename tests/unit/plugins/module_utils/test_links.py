# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

import pytest
from ansible_collections.relay.pool.plugins.module_utils import links, network

Address = network.Address
LOCAL = "127.0.0.1"


def target(port, name="gpu1", address=LOCAL):
    return {"name": name, "address": address, "port": port}


class Worker:
    """Accepts with the queue of an RPC worker and, when ``idle``, serves one client after the other to its end."""

    def __init__(self, idle=True, greeting=b"", backlog=1):
        self.seen = []
        self.greeting = greeting
        self.socket = socket.create_server((LOCAL, 0), backlog=backlog)
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        if idle:
            self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.socket.close()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                self.serve_one()

    def serve_one(self):
        client, _peer = self.socket.accept()
        with client:
            client.settimeout(5)
            data = b""
            try:
                if self.greeting:
                    client.sendall(self.greeting)
                while True:
                    chunk = client.recv(64)
                    if not chunk:
                        break
                    data += chunk
                    client.sendall(chunk)
            except OSError as exc:
                self.seen.append(type(exc))
                return
        self.seen.append(data)


def closed_port():
    with socket.create_server((LOCAL, 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def full_queue():
    """A port that drops every SYN."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind((LOCAL, 0))
        server.listen(0)
        for _attempt in range(2):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        time.sleep(0.05)
        yield server.getsockname()[1]


def measure(targets, addresses=(), timeout=1.0, **more):
    """The entries, which must have come in time."""
    started = time.monotonic()
    found = links.measure(targets, addresses, timeout, **{"read": list, **more})
    assert time.monotonic() - started < timeout + links.GRACE_SECONDS + 0.3
    return found


def test_refused_connection_is_a_round_trip():
    (found,) = measure([target(closed_port())])
    assert 0 < found.pop("rtt_seconds") < 0.5
    assert found == {
        "name": "gpu1",
        "address": LOCAL,
        "interface": "lo",
        "speed_mbps": None,
        "wireless": False,
        "reason": None,
    }


@pytest.fixture
def patient(monkeypatch):
    """The thread that plays the worker may have to wait for a processor."""
    monkeypatch.setattr(links, "BUSY_SECONDS", 5)


def test_idle_worker_gets_connections_one_by_one_and_no_byte(patient):
    with Worker() as worker:
        (found,) = measure([target(worker.port)], timeout=5)
        assert 0 < found["rtt_seconds"] < 0.5
        assert found["reason"] is None
        with socket.create_connection((LOCAL, worker.port), timeout=2) as client:
            client.sendall(b"next")
            assert client.recv(4) == b"next"
        time.sleep(0.1)
    assert worker.seen == [b""] * links.SAMPLES + [b"next"]


def test_busy_worker_gets_one_connection_that_it_survives():
    with Worker(idle=False) as worker:
        (found,) = measure([target(worker.port)])
        assert found["rtt_seconds"] > 0
        assert found["reason"] is None
        # Its queue of two takes another client.
        with socket.create_connection((LOCAL, worker.port), timeout=2) as client:
            client.sendall(b"next")
            worker.thread.start()
            assert client.recv(4) == b"next"
        time.sleep(0.1)
    assert worker.seen == [b"", b"next"]


def test_worker_of_this_machine_is_not_touched():
    with Worker(idle=False) as worker, socket.create_connection((LOCAL, worker.port)):
        known = {(LOCAL, worker.port): 0.00042}
        (found,) = links.measure([target(worker.port)], (), kernel=lambda: known)
        assert (found["rtt_seconds"], found["reason"]) == (0.00042, None)
        worker.socket.setblocking(False)
        worker.socket.accept()
        with pytest.raises(BlockingIOError):
            worker.socket.accept()


def broken_kernel():
    raise OSError(93, "Protocol not supported")


@pytest.mark.parametrize(
    ("kernel", "words"), [(broken_kernel, "Protocol not supported"), (dict, "no such connection"), (None, "callable")]
)
def test_kernel_that_does_not_tell_is_a_reason(kernel, words):
    with Worker(idle=False) as worker, socket.create_connection((LOCAL, worker.port)):
        (found,) = links.measure([target(worker.port)], (), kernel=kernel)
    assert found["rtt_seconds"] is None
    assert f"{LOCAL}:{worker.port} serves this machine" in found["reason"]
    assert words in found["reason"]


def test_kernel_here():
    with Worker() as worker, socket.create_connection((LOCAL, worker.port)) as client:
        client.sendall(b"x")
        client.recv(1)
        try:
            found = links.kernel_round_trips()
        except OSError:
            pytest.skip("no sock_diag here")
        assert 0 < found[LOCAL, worker.port] < 0.5


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b"x" * 70000])
def test_one_that_speaks_first_is_measured_as_well(greeting):
    with Worker(greeting=greeting) as worker:
        (found,) = measure([target(worker.port)])
    assert found["rtt_seconds"] > 0


def test_silence_costs_its_timeout_and_is_named():
    with full_queue() as port:
        (found,) = measure([target(port)], timeout=0.3)
    assert found["rtt_seconds"] is None
    assert found["reason"].startswith(f"{LOCAL}:{port} gave no answer within 0.3 s: the machine is down, a firewall")


def test_one_silent_target_takes_nothing_from_the_others(patient):
    with full_queue() as silent, Worker() as worker:
        found = measure([target(silent, "a"), target(worker.port, "b"), target(closed_port(), "c")], timeout=2)
    assert [entry["name"] for entry in found] == ["a", "b", "c"]
    assert [entry["rtt_seconds"] is None for entry in found] == [True, False, False]
    assert len(worker.seen) == links.SAMPLES


def test_lost_packet_costs_one_sample_only(monkeypatch):
    answers = [socket.timeout("timed out"), 0.9, 0.002, socket.timeout("timed out"), 0.004]
    given = []

    def knock(address, port, seconds, end):
        given.append(seconds)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, True

    monkeypatch.setattr(links, "_knock", knock)
    # what follows a good sample is not worth the wait
    assert links.round_trip("10.0.0.2", 1, 1.0) == (0.002, None)
    assert answers == [0.004]
    assert given[0] == 0.5


@pytest.mark.parametrize(
    ("exc", "words"),
    [
        (OSError(101, "Network is unreachable"), "10.9.9.9:50052 cannot be reached: Network is unreachable"),
        (OSError(113, "No route to host"), "10.9.9.9:50052 cannot be reached: No route to host"),
        (OSError(1, "Operation not permitted"), "10.9.9.9:50052 cannot be reached: Operation not permitted"),
        (RuntimeError("odd"), "10.9.9.9:50052 cannot be measured: odd"),
    ],
)
def test_errors_are_reasons(monkeypatch, exc, words):
    def knock(*_args):
        raise exc

    monkeypatch.setattr(links, "_knock", knock)
    (found,) = measure([target(50052, address="10.9.9.9")], source_of=lambda address: None)
    assert found["rtt_seconds"] is None
    assert found["reason"] == words


def test_twenty_workers_cost_a_fraction_of_a_second():
    port = closed_port()
    seconds = []
    for _attempt in range(3):
        started = time.monotonic()
        found = measure([target(port, str(number), f"127.0.0.{number}") for number in range(1, 21)])
        seconds.append(time.monotonic() - started)
        assert all(entry["rtt_seconds"] for entry in found)
    assert min(seconds) < 0.3


def test_no_threads_left(monkeypatch):
    def start(_self):
        raise RuntimeError("can't start new thread")

    port = closed_port()
    monkeypatch.setattr(threading.Thread, "start", start)
    assert measure([target(port)])[0]["rtt_seconds"] > 0


def test_worker_that_is_named_twice_is_measured_once(patient):
    with Worker() as worker:
        found = measure([target(worker.port, "a"), target(worker.port, "b")], timeout=5)
    assert found[0]["rtt_seconds"] == found[1]["rtt_seconds"] > 0
    assert len(worker.seen) == links.SAMPLES


@pytest.mark.parametrize(
    ("samples", "expected"),
    [([0.5], 0.5), ([0.5, 0.1], 0.1), ([0.5, 0.1, 0.3], 0.2), ([0.01, 0.3, 0.1, 0.2], 0.2), ([9, 1, 1, 8, 1, 1, 7], 1)],
)
def test_median_is_without_the_first(samples, expected):
    assert links.median(samples) == pytest.approx(expected)


LAN = Address("eno1", "192.168.1.20", 24, 1000)
WIFI = Address("wlp2s0", "192.168.1.30", 24, None, None, True)
OLD = Address("eth9", "192.168.1.30", 24, 10, None, False, True)


@pytest.mark.parametrize(
    ("addresses", "source", "expected"),
    [
        ([LAN, WIFI], "192.168.1.20", ("eno1", 1000, False)),
        ([LAN, WIFI], "192.168.1.30", ("wlp2s0", None, True)),
        # an address that is left on a card without a cable
        ([OLD, WIFI], "192.168.1.30", ("wlp2s0", None, True)),
        ([LAN], "10.0.0.1", (None, None, None)),
        ([LAN], None, (None, None, None)),
        ([], "192.168.1.20", (None, None, None)),
        # the worker is this machine
        ([LAN, Address("eno2", "192.0.2.77", 24, 25000)], "192.0.2.77", ("lo", None, False)),
    ],
)
def test_interface_of_the_way_there(monkeypatch, addresses, source, expected):
    monkeypatch.setattr(links, "round_trip", lambda *_args: (0.001, None))
    (found,) = measure([target(1, address="192.0.2.77")], addresses, source_of=lambda address: source)
    assert (found["interface"], found["speed_mbps"], found["wireless"]) == expected
    assert found["rtt_seconds"] == 0.001


@pytest.mark.parametrize(
    "bad",
    [
        None,
        5,
        "10.0.0.1:50052",
        {},
        {"name": "a"},
        {"name": "a", "address": None, "port": 1},
        {"name": "a", "address": "gpu1.lan", "port": 1},
        {"name": "a", "address": "fd00::1", "port": 1},
        {"name": "a", "address": "0.0.0.0", "port": 1},
        {"name": "a", "address": "239.0.0.1", "port": 1},
        {"name": "a", "address": "10.0.0.1", "port": 0},
        {"name": "a", "address": "10.0.0.1", "port": 65536},
        {"name": "a", "address": "10.0.0.1", "port": float("inf")},
        {"name": "a", "address": "10.0.0.1", "port": [1]},
        {"name": "a", "address": "x" * 100000, "port": 1},
    ],
)
def test_target_that_is_none_is_a_reason(bad):
    (found,) = measure([bad])
    assert (found["rtt_seconds"], found["interface"]) == (None, None)
    assert "is no worker" in found["reason"]
    assert len(found["reason"]) < 300


@pytest.mark.parametrize("targets", [None, 5, "", {}, []])
def test_no_targets(targets):
    assert measure(targets) == []


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), 1e9])
def test_timeout_that_cannot_be_meant(timeout):
    assert links.measure([target(str(closed_port()))], (), timeout, read=list)[0]["rtt_seconds"] > 0


def diagnosis(*entries):
    """An answer of sock_diag with (state, address, port, min_rtt, rtt) each."""
    parts = []
    for state, address, port, min_rtt, rtt in entries:
        info = bytearray(160)
        struct.pack_into("=I", info, links.RTT_OFFSET, rtt)
        struct.pack_into("=I", info, links.MIN_RTT_OFFSET, min_rtt)
        body = bytearray(links.ANSWER_BYTES)
        body[0:2] = 2, state
        struct.pack_into("!H", body, 6, port)
        body[24:28] = socket.inet_aton(address)
        # an attribute of odd length before the one that is wanted
        body += struct.pack("=HH5s3x", 9, 99, b"other") + struct.pack("=HH", 4 + len(info), links.INET_DIAG_INFO) + info
        parts.append(struct.pack("=IHHII", 16 + len(body), links.SOCK_DIAG_BY_FAMILY, 2, 1, 0) + bytes(body))
    return b"".join(parts)


DONE = struct.pack("=IHHIII", 20, links.NLMSG_DONE, 2, 1, 0, 0)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (diagnosis((1, "10.0.0.2", 50052, 120, 900)), ([("10.0.0.2", 50052, 0.00012)], False)),
        (diagnosis((1, "10.0.0.2", 50052, 120, 900)) + DONE, ([("10.0.0.2", 50052, 0.00012)], True)),
        # no minimum yet
        (diagnosis((1, "10.0.0.2", 50052, 2**32 - 1, 900)), ([("10.0.0.2", 50052, 0.0009)], False)),
        (diagnosis((1, "10.0.0.2", 50052, 0, 0)), ([], False)),
        # another state than established, then a good one
        (diagnosis((6, "10.0.0.3", 1, 5, 5), (1, "10.0.0.4", 2, 7, 9)), ([("10.0.0.4", 2, 0.000007)], False)),
        (DONE, ([], True)),
        (struct.pack("=IHHIIi", 20, links.NLMSG_ERROR, 0, 1, 0, -2), ([], True)),
        (b"", ([], False)),
    ],
)
def test_diagnosis(data, expected):
    assert links.parse_diagnosis(data) == expected


def test_mangled_diagnosis_does_not_raise():
    good = diagnosis((1, "10.0.0.2", 50052, 120, 900), (1, "10.0.0.3", 50052, 120, 900)) + DONE
    for cut in range(len(good)):
        links.parse_diagnosis(good[:cut])
        for value in (0, 1, 255):
            links.parse_diagnosis(good[:cut] + bytes([value]) + good[cut + 1 :])
