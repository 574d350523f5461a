# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is looked at between the plan and the launch, when the machines or the build are not as was planned."""

from __future__ import annotations

import time
import urllib.error

import pytest

pytestmark = pytest.mark.pool

HOST, WORKER1, WORKER2 = "relay-demo-host", "relay-demo-worker1", "relay-demo-worker2"
MIB = 1024 * 1024
# As in the inventory of the demo.
FREE = {HOST: 680, WORKER1: 440, WORKER2: 440}
BIN = "/opt/relay-pool/llama.cpp/current/bin"
# Twice what the real one says, whatever that is.
TWICE = f"""#!/bin/sh
{BIN}/llama-fit-params.real "$@" | awk 'NF == 4 {{ print $1, 2 * $2, 2 * $3, 2 * $4 }}'
"""


def overrides(cores: int = 1, **free: int) -> dict[str, dict]:
    """relay_overrides by machine, with so many MiB free there."""
    sizes = {**FREE, **{f"relay-demo-{name}": size for name, size in free.items()}}
    return {
        name: {"memory": {"available_bytes": size * MIB}, "cpu": {"physical_cores": cores}}
        for name, size in sizes.items()
    }


def while_planning_and_then(before: dict, after: dict) -> str:
    """relay_overrides that says one thing until there is a plan, and another from then on."""
    return f"{{{{ ({before!r} if relay_plan is not defined else {after!r})[inventory_hostname] }}}}"


def here(values: dict) -> str:
    """The value of each machine."""
    return f"{{{{ {values!r}[inventory_hostname] }}}}"


def state(pool) -> tuple:
    """What must not change: the processes, the unit of the server, and the plan that was applied."""
    return pool.processes(), pool.on(HOST, "cat", "/etc/systemd/system/relay-llama.service"), pool.plan()


def layers(plan: dict) -> list[tuple]:
    return [(stage["host"], stage["device"], stage["first_layer"], stage["n_layers"]) for stage in plan["stages"]]


def answers(pool) -> str:
    """An answer, however long the server takes to load."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return pool.ask("The sea is", 4)["content"]
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def test_memory_that_went_before_the_launch_stops_it_and_nothing_else(pool, tmp_path):
    before = state(pool)
    gone = while_planning_and_then(overrides(), overrides(worker2=100))
    # another context, so that the server would restart
    output = str(tmp_path / "plan.json")
    played = pool.play("deploy.yml", relay_ctx_size=1792, relay_overrides=gone, relay_plan_output=output)
    assert played.rc != 0
    (sentence,) = played.errors
    assert "relay-demo-worker2 CPU needs " in sentence
    assert (
        "MiB for the plan, and 100 MiB are free now. Nothing was started or restarted: free memory there, or "
        in sentence
    )
    assert state(pool) == before
    assert pool.ask("The sea is", 4)["content"]


def test_a_pool_that_runs_is_not_looked_at_again(pool):
    gone = while_planning_and_then(overrides(), overrides(host=1, worker1=1, worker2=1))
    before = state(pool)
    played = pool.play("deploy.yml", relay_overrides=gone)
    assert (played.rc, played.changed) == (0, 0), played.text[-4000:]
    assert played.text.count("TASK [relay.pool.relay : Gather what the host has]") == 1
    assert state(pool) == before


def test_the_draft_goes_when_its_room_went_and_the_layers_stay(pool):
    pool.settled = False
    planned = pool.plan()
    gone = while_planning_and_then(overrides(), overrides(host=300))
    played = pool.play("deploy.yml", relay_overrides=gone, relay_host_port=8385)
    assert played.rc == 0, played.text[-4000:]
    assert "no draft (no_room): just before the launch, relay-demo-host CPU needs " in played.text
    plan = pool.plan()
    assert (planned["draft"]["enabled"], plan["draft"]["enabled"], plan["draft"]["reason"]) == (True, False, "no_room")
    assert plan["draft"]["message"].endswith(f"free the memory and remove /etc/relay-pool/plan.json on {HOST}")
    assert layers(plan) == layers(planned)
    assert "--spec-draft-model" not in pool.on(HOST, "systemctl", "cat", "relay-llama")
    # and it stays so
    again = pool.play("deploy.yml", relay_overrides=here(overrides(host=300)), relay_host_port=8385)
    assert (again.rc, again.changed) == (0, 0), again.text[-4000:]


@pytest.fixture
def doubled(pool):
    """A llama-fit-params on the host that says twice as much, until `mended` or the end of the test."""
    pool.on(HOST, "mv", f"{BIN}/llama-fit-params", f"{BIN}/llama-fit-params.real")
    pool.on(HOST, "sh", "-c", f"cat >{BIN}/llama-fit-params <<'EOF'\n{TWICE}EOF\nchmod 755 {BIN}/llama-fit-params")

    def mend():
        pool.on(
            HOST,
            "sh",
            "-c",
            f"cd {BIN} && test ! -e llama-fit-params.real || mv llama-fit-params.real llama-fit-params",
        )

    yield mend
    mend()


def test_a_build_that_needs_more_than_planned_is_not_started(pool, doubled):
    pool.settled = False
    before = state(pool)
    # other arguments of the workers: they restart, and are idle until the server does
    more = here(overrides(cores=2))
    played = pool.play("deploy.yml", relay_overrides=more)
    assert played.rc != 0
    sentence = played.errors[-1]
    for name in FREE:
        assert f"{name} CPU would need " in sentence
    assert "llama-server was not started with this plan" in sentence
    # neither the unit nor the plan, and what ran before runs again, on the workers as they are now
    assert state(pool)[1:] == before[1:]
    assert answers(pool)

    # the same pool with the real program
    doubled()
    played = pool.play("deploy.yml", relay_overrides=more)
    assert played.rc == 0, played.text[-4000:]
    assert "relay-llama" in pool.on(HOST, "systemctl", "cat", "relay-llama")


def test_the_real_program_agrees_with_the_plan(pool):
    pool.settled = False
    cores = here(overrides(cores=2))
    played = pool.play("deploy.yml", relay_overrides=cores)
    assert played.rc == 0, played.text[-4000:]
    agreed = "The installed llama.cpp measures no more than planned for the model and its draft: RPC0, RPC1, Host."
    assert agreed in " ".join(played.text.split())
    # what another client holds is left alone
    played = pool.play("deploy.yml", relay_overrides=cores, relay_ctx_size=1792)
    assert played.rc == 0, played.text[-4000:]
    busy = "10.89.77.11:50052, 10.89.77.12:50052 are busy, with the server that runs for example"
    assert busy in " ".join(played.text.split())
