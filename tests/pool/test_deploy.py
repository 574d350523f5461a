# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""deploy.yml and verify.yml on three machines with systemd, real llama.cpp and a live draft."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.pool

PROMPTS = (
    "Once upon a time, a small computer",
    "The capital of France is",
    "def fibonacci(n):\n",
    "Three things that every gardener should know:\n1.",
    "Water boils at a lower temperature on a mountain because",
    "user: What is a relay race?\nassistant:",
)
DEMO = Path(__file__).resolve().parents[2] / "inventories" / "demo"
HOST, WORKER1, WORKER2 = "relay-demo-host", "relay-demo-worker1", "relay-demo-worker2"


def test_a_second_deploy_changes_nothing_while_the_pool_runs(pool):
    before = pool.processes()
    played = pool.play("deploy.yml")
    assert played.rc == 0
    assert {name: row["changed"] for name, row in played.recap.items()} == {HOST: 0, WORKER1: 0, WORKER2: 0}
    assert pool.processes() == before


def test_the_plan_is_the_one_that_the_demo_is_made_for(pool):
    plan = pool.plan()
    assert plan["kind"] == "sharded"
    assert [(stage["host"], stage["device"], stage["transport"]) for stage in plan["stages"]] == [
        (HOST, "CPU", "local"),
        (WORKER1, "CPU", "rpc"),
        (WORKER2, "CPU", "rpc"),
    ]
    assert all(stage["n_layers"] > 0 for stage in plan["stages"])
    assert sum(stage["n_layers"] for stage in plan["stages"]) == 120
    assert (plan["draft"]["enabled"], plan["draft"]["reason"], plan["draft"]["device"]) == (True, "enabled", "none")
    assert "--spec-type" in plan["server_args"]


def test_a_worker_lets_only_the_host_in(pool):
    connect = "import socket; socket.create_connection(('10.89.77.11', 50052), 2)"
    assert pool.on(HOST, "python3", "-c", connect) == ""
    refused = pool.podman("exec", WORKER2, "sh", "-c", f'python3 -c "{connect}" 2>&1 || true')
    assert "Error" in refused or "timed out" in refused


# The planner's own refusals are in the unit tests; here is one of each place that can refuse.
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"relay_draft_max": -1}, "relay_draft_max is -1, but must be a whole number from 0 to 2147483647"),
        ({"relay_draft_p_min": 1.5}, "relay_draft_p_min is 1.5, but must be a number from 0 to 1"),
        ({"relay_draft_max": "1e3"}, "relay_draft_max is 1e3, but must be a whole number from 0 to 2147483647"),
        (
            {"relay_speculation_type": "mtp"},
            "relay_speculation_type is mtp, but must be one of auto, none, draft-simple",
        ),
        ({"relay_draft_device": "CUDA9"}, "CUDA9"),
        ({"relay_host_port": 70000}, "relay_host_port is 70000, but must be a port from 1 to 65535"),
        ({"relay_kv_cache_type": "q3_k"}, "relay_kv_cache_type"),
        ({"relay_model": "/srv/models/none.gguf"}, "relay-demo-host has no such file: correct the path"),
        ({"relay_host_port": 22}, "port 22 on relay-demo-host is taken by pid"),
        ({"relay_extra_args": ["--no-such-flag"]}, "--no-such-flag is unknown to the installed llama-server"),
        ({"relay_allow_cpu": False}, "relay_allow_cpu"),
    ],
)
def test_a_bad_input_is_one_sentence_and_touches_nothing(pool, variables, words):
    before = pool.processes()
    played = pool.play("deploy.yml", **variables)
    assert played.rc != 0
    assert len(played.errors) == 1, played.errors
    assert words in played.errors[0]
    assert played.changed == 0
    assert pool.processes() == before
    assert pool.ask("The sea is", 4)["content"]


def test_a_machine_that_is_off_is_named_and_touches_nothing(pool):
    before = pool.processes()
    pool.podman("pause", WORKER2)
    try:
        played = pool.play("deploy.yml", "--timeout", "5")
    finally:
        pool.podman("unpause", WORKER2)
    assert played.rc != 0
    assert "relay-demo-worker2 of the pool does not answer over SSH" in played.errors[-1]
    assert played.changed == 0
    assert pool.processes() == before


def test_a_limited_run_is_refused(pool):
    played = pool.play("deploy.yml", "--limit", f"{HOST},{WORKER1}")
    assert played.rc != 0
    assert "relay-demo-worker2 of the pool is left out by --limit" in played.errors[-1]


def test_workers_of_another_pool_are_refused(pool, tmp_path):
    """The two workers as a pool of their own, while they work for the demo's host."""
    groups = {"relay_host": WORKER2, "relay_workers": WORKER1}
    addresses = {WORKER1: "10.89.77.11", WORKER2: "10.89.77.12"}
    children = {group: {"hosts": {name: {"ansible_host": addresses[name]}}} for group, name in groups.items()}
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps({"relay_pool": {"children": children}}))
    models = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "relay-pool" / "demo" / "models"
    before = pool.processes()
    played = pool.play(
        "plan.yml",
        "--extra-vars",
        f"@{DEMO / 'group_vars' / 'relay_pool.yml'}",
        inventory=inventory,
        relay_model_source=str(models / "smollm2-135m-120l.gguf"),
        relay_draft_model="",
        relay_plan_output=str(tmp_path / "plan.json"),
    )
    assert played.rc != 0
    assert (
        "relay-demo-worker2 works for 10.89.77.10, which is connected to its relay-rpc.service and is no machine of "
        "this pool, and a worker serves one server"
    ) in played.errors[-1]
    assert pool.processes() == before


def test_a_worker_whose_service_is_stopped_is_found_and_repaired(pool):
    pool.settled = False
    pool.on(WORKER1, "systemctl", "stop", "relay-rpc")
    verified = pool.play("verify.yml")
    assert verified.rc != 0
    assert "relay-rpc.service on relay-demo-worker1 does not run" in verified.text
    assert pool.play("deploy.yml").rc == 0
    pool.settled = True
    assert pool.play("verify.yml").rc == 0


def test_a_worker_that_restarted_behind_the_servers_back_is_repaired(pool):
    pool.settled = False
    # /health stays 200, and the next request would end the server
    pool.on(WORKER2, "systemctl", "restart", "relay-rpc")
    assert pool.play("verify.yml").rc != 0
    assert pool.play("deploy.yml").rc == 0
    pool.settled = True
    assert pool.ask("The sea is", 4)["content"]


def test_settings_of_the_machine_do_not_change_the_plan(pool):
    # llama-server reads this file, and takes options from these variables: the first would shrink the context, the
    # second stop the start
    pool.settled = False
    pool.on(HOST, "sh", "-c", "mkdir -p /etc/llama.cpp && echo 'ctx-size = 512' >/etc/llama.cpp/config.ini")
    pool.on(HOST, "systemctl", "set-environment", "LLAMA_ARG_DRAFT_MAX=4")
    try:
        pool.on(HOST, "systemctl", "restart", "relay-llama")
        played = pool.play("deploy.yml")
        assert played.rc == 0, played.text[-4000:]
        assert "LLAMA_ARG" not in pool.on(
            HOST, "sh", "-c", "tr '\\0' '\\n' </proc/$(systemctl show -p MainPID --value relay-llama)/environ"
        )
    finally:
        pool.on(HOST, "systemctl", "unset-environment", "LLAMA_ARG_DRAFT_MAX")
        pool.on(HOST, "rm", "-r", "/etc/llama.cpp")
    pool.settled = True


def test_an_interrupted_deploy_is_finished_by_the_next(pool):
    pool.settled = False
    # what an interruption between writing the unit and restarting the service leaves behind
    before = pool.processes()[HOST]
    pool.on(HOST, "touch", "/etc/systemd/system/relay-llama.service")
    assert pool.play("deploy.yml").rc == 0
    pool.settled = True
    assert pool.processes()[HOST] != before


def test_a_draft_that_points_nowhere_is_a_warning_and_the_text_is_the_same_without(pool):
    pool.settled = False
    with_draft = [pool.ask(prompt) for prompt in PROMPTS]
    assert all(answer["timings"]["draft_n"] > 0 for answer in with_draft)

    played = pool.play("deploy.yml", relay_draft_model="/srv/models/none.gguf")
    assert played.rc == 0
    assert "no draft (not_found)" in played.text
    assert "--spec-draft-model" not in pool.on(HOST, "systemctl", "cat", "relay-llama")

    without = [pool.ask(prompt) for prompt in PROMPTS]
    assert not any(answer["timings"].get("draft_n") for answer in without)
    assert [answer["content"] for answer in without] == [answer["content"] for answer in with_draft]
