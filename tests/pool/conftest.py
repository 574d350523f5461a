# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The embedded pool as an operator sees it: playbooks are run, and what they say and leave running is looked at.

Needs root, like the pool itself. ``RELAY_REQUIRE_BINARIES=1`` (what make sets) turns a pool that cannot be had into a
failure; otherwise the tests are skipped with the reason.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "inventories" / "demo"
BIN = ROOT / ".venv" / "bin"
MACHINES = ("relay-demo-host", "relay-demo-worker1", "relay-demo-worker2")
URL = "http://10.89.77.10:8384"


class Played:
    """One run of a playbook."""

    def __init__(self, done: subprocess.CompletedProcess):
        self.rc = done.returncode
        self.text = done.stdout + done.stderr

    @property
    def recap(self) -> dict[str, dict[str, int]]:
        """Counters of the recap by machine."""
        rows = re.findall(r"^(relay-demo-\w+)\s+:\s+(.*)$", self.text, re.MULTILINE)
        return {name: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", row)} for name, row in rows}

    @property
    def changed(self) -> int:
        """Changes on all machines."""
        return sum(row["changed"] for row in self.recap.values())

    @property
    def errors(self) -> list[str]:
        """What each failure says, without the place in the code."""
        found = re.findall(r"^\[ERROR\]: (.*?)(?=^Origin:|^fatal:|\Z)", self.text, re.MULTILINE | re.DOTALL)
        return [" ".join(text.split()) for text in found]


class Pool:
    """What an operator does with the pool, and what can be seen of it.

    A test that leaves something else running than the demo's plan sets ``settled`` to False.
    """

    settled = False

    def play(self, playbook: str, *args: str, inventory: Path = DEMO / "inventory.yml", **variables: object) -> Played:
        command = [
            str(BIN / "ansible-playbook"),
            "-i",
            str(inventory),
            str(ROOT / "playbooks" / playbook),
            *args,
        ]
        if variables:
            command += ["--extra-vars", json.dumps(variables)]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
            "ANSIBLE_NOCOLOR": "1",
            "COLUMNS": "400",
            "LC_ALL": "C.UTF-8",
        }
        return Played(
            subprocess.run(
                command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False
            )
        )

    def podman(self, *args: str) -> str:
        """Run podman where the machines are."""
        return subprocess.run(
            [str(DEMO / "bin" / "podman"), *args], capture_output=True, text=True, timeout=120, check=True
        ).stdout

    def on(self, machine: str, *argv: str) -> str:
        """Run a command on a machine."""
        return self.podman("exec", machine, *argv)

    def machines(self, command: str) -> str:
        """What `machines up`, `down` or `status` says."""
        done = subprocess.run(
            [str(DEMO / "bin" / "machines"), command], capture_output=True, text=True, timeout=120, check=True
        )
        return done.stdout

    def states(self) -> dict[str, str]:
        """What each machine is found to be, by name."""
        rows = [line.split() for line in self.machines("status").splitlines()]
        return {row[0]: row[2] for row in rows}

    def processes(self) -> dict[str, str]:
        """PID and start of what the units run, by machine and unit: equal before and after means untouched."""
        units = {MACHINES[0]: "relay-llama", MACHINES[1]: "relay-rpc", MACHINES[2]: "relay-rpc"}
        return {
            machine: self.on(
                machine, "systemctl", "show", "-p", "MainPID,ExecMainStartTimestampMonotonic,NRestarts", unit
            )
            for machine, unit in units.items()
        }

    def ask(self, prompt: str, tokens: int = 40) -> dict:
        """A greedy completion, with its timings."""
        body = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "cache_prompt": False}
        request = urllib.request.Request(
            f"{URL}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def plan(self) -> dict:
        """The plan that was applied, from the host."""
        return json.loads(self.on(MACHINES[0], "cat", "/etc/relay-pool/plan.json"))


@pytest.fixture(scope="session")
def machines() -> Pool:
    """The three machines, up. They are left up: `make demo-down` removes them."""
    required = os.environ.get("RELAY_REQUIRE_BINARIES") == "1"
    if not (BIN / "ansible-playbook").exists() or (os.geteuid() != 0 and not required):
        pytest.skip("the embedded pool needs root and .venv: sudo make test")
    up = subprocess.run(
        ["make", "--no-print-directory", "demo-machines"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    if up.returncode and not required:
        pytest.skip(f"the embedded pool does not start: {up.stderr.strip()}")
    assert up.returncode == 0, up.stderr
    return Pool()


@pytest.fixture
def pool(machines: Pool) -> Pool:
    """The pool as the demo deploys it."""
    if not machines.settled:
        played = machines.play("deploy.yml")
        assert played.rc == 0, played.text[-4000:]
        machines.settled = True
    return machines
