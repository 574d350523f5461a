# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of the embedded pool, whatever became of them."""

from __future__ import annotations

import os
import signal
import time

import pytest

pytestmark = pytest.mark.pool

KILLED = "relay-demo-worker2"


def test_a_machine_killed_with_its_monitor_is_brought_up_again(machines):
    machines.settled = False
    pids = machines.podman("container", "inspect", "--format", "{{.State.ConmonPid}} {{.State.Pid}}", KILLED)
    for pid in map(int, pids.split()):
        os.kill(pid, signal.SIGKILL)
    # The kernel takes a moment to end all processes of the machine.
    deadline = time.monotonic() + 20
    while (states := machines.states())[KILLED] == "running" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert states.pop(KILLED) == "killed"
    assert set(states.values()) == {"running"}
    machines.machines("up")
    assert set(machines.states().values()) == {"running"}
    assert machines.on(KILLED, "hostname").strip() == KILLED
