# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tasks of the look back before a launch, run by Ansible, with this machine in the place of every member."""

from __future__ import annotations

import base64
import json
import re
import sys

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.planner.output_rows import output_rows
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

from tests.playing import ROOT, played
from tests.unit.plugins.plugin_utils.conftest import World

MIB = 1024 * 1024
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
CHECK = {"ansible.builtin.include_role": {"name": "relay.pool.relay", "tasks_from": "check", "public": True}}


@pytest.fixture
def play(tmp_path):
    """Runs tasks over a, the host, and b, a worker; returns (worked, output)."""

    def run(tasks, *options, hosts="relay_pool", **variables):
        groups = {"relay_host": {"hosts": {"a": {}}}, "relay_workers": {"hosts": {"b": {}}}}
        pool = {"children": groups, "vars": {**HERE, "relay_model": "/m.gguf"}}
        (tmp_path / "inventory.json").write_text(json.dumps({"relay_pool": pool}))
        playbook = [{"hosts": hosts, "gather_facts": False, "any_errors_fatal": True, "tasks": tasks}]
        (tmp_path / "playbook.yml").write_text(json.dumps(playbook))
        (tmp_path / "variables.json").write_text(json.dumps(variables))
        return played("-i", "inventory.json", "playbook.yml", "-e", "@variables.json", *options, cwd=tmp_path)

    return run


def say(expression):
    return {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} says {{ " + expression + " }}."}}


# ---- whether something would start


@pytest.mark.parametrize("role", ["rpc_worker", "llama_host"])
def test_whether_a_role_would_start_its_service(play, tmp_path, role):
    options = {
        "manage_service": False, "unit_dir": str(tmp_path), "program": "/opt/x", "args": ["--a", "100% $HOME"],
        "environment": {"HF_TOKEN": "the secret"}, "uses_gpu": True,
    }  # fmt: skip
    if role == "llama_host":
        options.update(config_dir=str(tmp_path), workers=["10.0.0.2:50052"], api_key="the other secret")

    def tasks(tasks_from, **changed):
        values = {f"{role}_{name}": value for name, value in {**options, **changed}.items()}
        included = {"name": f"relay.pool.{role}", "tasks_from": tasks_from}
        return [{"ansible.builtin.include_role": included, "vars": values}]

    def compared(**changed):
        return [*tasks("compare", **changed), say(f"{role}_starts")]

    differences = [{"args": ["--a"]}, {"environment": {}}, {"stale": True}]
    if role == "llama_host":
        differences.append({"api_key": "another secret"})
    tmp_path.chmod(0o755)
    changes = [task for changed in differences for task in compared(**changed)]
    worked, output = play([*compared(), *tasks("main"), *compared(), *changes], "-vvv", hosts="b")
    assert worked, output
    assert re.findall(r"b says (\w+)\.", output) == ["True", "False", *["True" for _change in differences]]
    # neither as it is nor as a module returns the content of a file
    assert "the other secret" not in output
    service = "relay-rpc" if role == "rpc_worker" else "relay-llama"
    assert base64.b64encode((tmp_path / f"{service}.service").read_bytes()).decode()[:60] not in output
    # all of them but the unit and the key file, which the role itself wrote
    assert re.search(r"changed=(\d)", output).group(1) == ("1" if role == "rpc_worker" else "2")


# ---- room


def machine(number, ram):
    return World.node(number, [], ram=ram, cpu={"physical_cores": 1})


@pytest.fixture
def plan():
    """A plan over the CPUs of a and b, of which each takes about half of the model."""
    request = Request(
        model=World.gguf(), host="a", workers=("b",), nodes={"a": machine(1, 1000), "b": machine(2, 1000)},
        ctx_size=4096, parallel=1, allow_cpu=True,
    )  # fmt: skip
    made = make_plan(request)
    assert [stage["host"] for stage in made["stages"]] == ["a", "b"]
    return made


def room(plan, free, launch=True):
    """Tasks: the facts say what is free by machine, the plan is there, and it is looked back at."""
    overrides = {name: {"memory": {"total_bytes": 2**40, "available_bytes": size}} for name, size in free.items()}
    facts = {"relay_plan": plan, "relay_overrides": "{{ overrides[inventory_hostname] }}"}
    imported = {"ansible.builtin.import_tasks": str(ROOT / "playbooks" / "tasks" / "guard_room.yml")}
    return [
        CHECK,
        {"ansible.builtin.set_fact": facts, "vars": {"overrides": overrides}},
        {**imported, "vars": {"__relay_launch": launch}},
        say("'yes: ' ~ (ansible_facts.relay_node.gathered_at | default('no facts'))"),
    ]


def needs(plan):
    return {s["host"]: s["memory"]["total_bytes"] - s["memory"]["reserve_bytes"] for s in plan["stages"]}


def test_room_for_the_plan_and_no_look_while_nothing_starts(play, plan):
    worked, output = play([*room(plan, {"a": 1, "b": 1}, launch=False), *room(plan, needs(plan))])
    assert worked, output
    assert re.findall(r"a says yes: (\w\w)", output) == ["no", "20"]
    assert "changed=0" in output


def test_no_room_for_the_plan(play, plan):
    free = needs(plan)
    free["b"] -= 100 * MIB
    worked, output = play(room(plan, free))
    assert not worked
    need, have = (f"{-(-size // MIB)}" for size in (needs(plan)["b"], free["b"] // MIB * MIB))
    assert (
        f"b CPU needs {need} MiB for the plan, and {have} MiB are free now. Nothing was started or restarted: "
        "free memory there, or run deploy.yml again, which plans with what is free."
    ) in output
    assert "a says" not in output


def test_a_saved_plan_is_not_applied_without_its_draft(play, plan):
    stage = plan["stages"][0]["memory"]
    stage["draft_bytes"] = 50 * MIB
    stage["total_bytes"] += 50 * MIB
    free = needs(plan)
    free["a"] -= MIB
    worked, output = play(room(plan, free), __relay_plan_file="/plan.json")
    assert not worked
    assert "a CPU needs " in output
    assert "MiB for the plan with its draft, and " in output
    assert "free memory there, or make another plan with plan.yml." in output


# ---- the bytes of the build


@pytest.fixture
def measured(plan, tmp_path):
    """Tasks that compare the plan with a llama-fit-params that prints this much more, in percent, or is this script."""
    model = World.gguf()
    rows = output_rows(plan, model, None)["target"]
    lines = []
    for stage in reversed(plan["stages"]):
        name, memory = stage["rpc_device"] or "Host", stage["memory"]
        compute = max(memory["compute_bytes"] + rows[name], 0)
        lines.append((name, memory["weights_bytes"] // MIB, memory["kv_bytes"] // MIB, compute // MIB))

    def tasks(name, percent=0, script=None, busy=False, launch=True, installed=True):
        program = tmp_path / name
        table = [
            " ".join([device, *(str(part * (100 + percent) // 100) for part in parts)]) for device, *parts in lines
        ]
        said = "".join(f"echo '{line} '\n" for line in table) if script is None else script
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked-{name}\n{said}\n")
        program.chmod(0o755)
        variables = {
            "relay_llama_info": {"llama": {"fit_params": str(program) if installed else None}},
            "llama_host_user": "",
            "relay_environment": {"HF_TOKEN": "the secret", "CUDA_VISIBLE_DEVICES": "0"},
            # a replica, which needs no worker and is left alone
            "__relay_units": {"relay-llama.service": {"active": True, "argv": ["/bin/llama-server", "--model", "x"]}},
            "__relay_busy": plan["rpc_backends"] if busy else [],
            "__relay_launch": launch,
        }
        imported = {"ansible.builtin.import_tasks": str(ROOT / "playbooks" / "tasks" / "guard_bytes.yml")}
        return [{**imported, "vars": variables}, {"ansible.builtin.debug": {"msg": f"After {name} the server starts."}}]

    facts = {"ansible.builtin.set_fact": {"relay_plan": plan, "relay_model_info": {"gguf": model}}}
    return lambda *cases: [CHECK, facts, *(task for case in cases for task in tasks(**case))]


def test_what_a_build_says_or_does_not_say(play, measured, tmp_path):
    cases = measured(
        {"name": "agrees"},
        {"name": "nonsense", "script": "echo nonsense"},
        {"name": "crash", "script": "kill -SEGV $$"},
        {"name": "other", "script": "echo 'Host 1 2 3'"},
        {"name": "none", "installed": False},
        {"name": "busy", "busy": True, "percent": 100},
        {"name": "runs", "launch": False, "percent": 100},
    )
    worked, output = play(cases, "-vvv", hosts="a")
    assert worked, output
    assert len(re.findall(r"After \w+ the server starts\.", output)) == 7
    assert sorted(path.name for path in tmp_path.glob("asked-*")) == [
        f"asked-{name}" for name in ("agrees", "crash", "nonsense", "other")
    ]
    assert "The installed llama.cpp measures no more than planned for the model: RPC0, Host." in output
    unknown = "/models/target.gguf were not compared with those that the installed llama.cpp measures: "
    for why in (
        "nonsense printed no table of devices, but 'nonsense'",
        "crash was ended by signal 11",
        "it names the devices Host, and the plan has RPC0, Host",
        "the build has no llama-fit-params",
    ):
        assert unknown + why in output.replace("''", "'")
    assert "10.0.0.2:50052 is busy, with the server that runs for example, so the installed llama.cpp was not" in output
    assert "changed=0" in output
    assert "the secret" not in output


def test_a_build_that_needs_twice_as_much(play, measured):
    worked, output = play(measured({"name": "twice", "percent": 100}), hosts="a")
    assert not worked
    assert "b CPU would need " in output
    assert "a CPU would need " in output
    assert "llama-server was not started with this plan: report the model and these numbers, or set relay_c" in output
    assert "the server starts" not in output


def test_what_the_guard_sees_is_what_the_roles_get():
    text = (ROOT / "playbooks" / "tasks" / "apply.yml").read_text()
    for anchor in ("worker", "server"):
        assert text.count(f"vars: &{anchor}\n") == 1
        assert text.count(f"vars: *{anchor}\n") == 1
    # room first, then what stops or starts anything
    steps = [
        "guard_room.yml",
        "Stop a server that runs elsewhere",
        "Run the workers",
        "guard_bytes.yml",
        "Run the server",
    ]
    assert [text.index(step) for step in steps] == sorted(text.index(step) for step in steps)
