# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of machines that work: a pool that runs must look like one that is idle."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.pool

HOST, WORKERS = "relay-demo-host", ("relay-demo-worker1", "relay-demo-worker2")
MIB = 1024 * 1024
READ = """
- hosts: relay_pool
  gather_facts: false
  tasks:
    - relay.pool.node_facts: {}
    - ansible.builtin.copy:
        content: "{{ ansible_facts.relay_node | to_json }}"
        dest: "{{ folder }}/{{ inventory_hostname }}"
        mode: "0600"
      delegate_to: localhost
"""


@pytest.fixture
def read_nodes(pool, tmp_path):
    """Reads the facts of all three machines, without the demo's overrides."""
    playbook = tmp_path / "read.yml"
    playbook.write_text(READ)

    def read() -> dict[str, dict]:
        played = pool.play(str(playbook), folder=str(tmp_path))
        assert played.rc == 0, played.text
        return {name: json.loads((tmp_path / name).read_text()) for name in (HOST, *WORKERS)}

    return read


def wait_for_freed_memory() -> None:
    """The kernel keeps pages that were freed in lists of each CPU for some seconds, and counts them as not free."""
    before, deadline = 0, time.monotonic() + 30
    while time.monotonic() < deadline:
        text = Path("/proc/meminfo").read_text()
        available = int(re.search(r"^MemAvailable: +(\d+) kB", text, re.MULTILINE).group(1)) * 1024
        if available < before + 2 * MIB:
            return
        before = available
        time.sleep(2)


def stop_and_compare(pool, read_nodes) -> tuple[int, int, int]:
    """(bytes available while idle, bytes available while running, own bytes while running) of the machines together."""
    running = read_nodes()
    pool.on(HOST, "systemctl", "stop", "relay-llama")
    for worker in WORKERS:
        pool.on(worker, "systemctl", "stop", "relay-rpc")
    wait_for_freed_memory()
    idle = read_nodes()
    assert [node["memory"]["own_bytes"] for node in idle.values()] == [0, 0, 0]
    assert all(node["memory"]["own_bytes"] > 64 * MIB for node in running.values())
    # The machines are containers, which share one RAM: what one holds is missing in all.
    available = [min(node["memory"]["available_bytes"] for node in nodes.values()) for nodes in (idle, running)]
    return available[0], available[1], sum(node["memory"]["own_bytes"] for node in running.values())


def test_facts_give_the_same_capacity_before_and_after_the_start(pool, read_nodes):
    pool.settled = False
    # What else runs on this machine takes and frees memory too, and not every time.
    for _attempt in range(3):
        idle, running, own = stop_and_compare(pool, read_nodes)
        print(f"idle {idle / MIB:.0f} MiB, running {running / MIB:.0f} MiB + own {own / MIB:.0f} MiB")
        difference = abs(running + own - idle)
        # The second by what is held, which the size of this machine cannot hide.
        if difference < MIB + 0.02 * idle and difference < 0.3 * own:
            return
        assert pool.play("deploy.yml").rc == 0
    pytest.fail(f"{difference / MIB:.0f} MiB apart in the last of three attempts")
