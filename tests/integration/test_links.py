# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measuring the way to a worker gives a time and never costs a client or the worker."""

from __future__ import annotations

import socket
import time

import pytest
from ansible_collections.relay.pool.plugins.module_utils import links, rpc

LOOPBACK = "127.0.0.1"
# For what takes milliseconds unless the machine that runs the tests is busy.
SECONDS = 10


def check_measurement(port: int, **options) -> None:
    """One measurement, which has to give a time."""
    (found,) = links.measure([{"name": "worker", "address": LOOPBACK, "port": port}], [], **options)
    assert found["reason"] is None
    assert 0 < found["rtt_seconds"] < 0.5
    assert found["interface"] == "lo"


def check_next_client(worker) -> None:
    answer = rpc.ping(worker.endpoint, SECONDS)
    assert (answer["state"], answer["error"]) == ("idle", None)
    assert [device["memory_total_bytes"] > 0 for device in answer["devices"]] == [True]
    assert worker.process.poll() is None


def test_idle_worker(brittle_worker):
    for _attempt in range(5):
        check_measurement(brittle_worker.port)
        check_next_client(brittle_worker)


# The sockets of this machine as they are, and without the client: as if it were on another machine.
@pytest.mark.parametrize("options", [{}, {"read": list}], ids=["client_here", "client_elsewhere"])
def test_busy_worker(brittle_worker, options):
    for _attempt in range(3):
        end = time.monotonic() + SECONDS
        with socket.create_connection((LOOPBACK, brittle_worker.port)) as client:
            _protocol, devices = rpc._interview(client, end)
            assert len(devices) == 1
            check_measurement(brittle_worker.port, **options)
            assert rpc._command(client, rpc.CMD_DEVICE_COUNT, b"", end) == b"\1\0\0\0"
        check_next_client(brittle_worker)


def test_port_without_a_worker():
    with socket.socket() as taken:  # but not listening
        taken.bind((LOOPBACK, 0))
        for _attempt in range(5):
            check_measurement(taken.getsockname()[1])
