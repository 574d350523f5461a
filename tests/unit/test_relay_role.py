# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role relay up to its facts and the roles of the units, with this machine in the place of every member."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gpu import visible

ROOT = Path(__file__).resolve().parents[2]
GATHER = [
    {
        "hosts": "relay_pool",
        "gather_facts": False,
        "any_errors_fatal": True,
        "tasks": [
            {"ansible.builtin.include_role": {"name": "relay.pool.relay", "tasks_from": "check"}},
            {"ansible.builtin.include_role": {"name": "relay.pool.relay", "tasks_from": "gather"}},
            {
                "ansible.builtin.debug": {
                    "msg": "of b is known {{ hostvars['b'].ansible_facts.relay_node.hostname | default('nothing') }}."
                }
            },
        ],
    }
]
TOO_MUCH = {"relay_overrides": {"memory": {"available_bytes": 2**49}}}


@pytest.fixture
def play(tmp_path):
    """Runs a playbook over a, the host, and b, a worker with variables of its own; returns (worked, output)."""

    def run(playbook, worker=None, options=("-vv",), others=(), **variables):
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "relay_model": "/m.gguf"}
        groups = {
            "relay_host": {"hosts": {"a": {}}},
            "relay_workers": {"hosts": {"b": worker or {}, **{name: {} for name in others}}},
        }
        inventory = tmp_path / "inventory.json"
        inventory.write_text(
            json.dumps({"relay_pool": {"children": groups, "vars": {**local, "ansible_become": False, **variables}}})
        )
        if isinstance(playbook, list):
            written = tmp_path / "playbook.yml"
            written.write_text(json.dumps(playbook))
            playbook = written
        settings = {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
            "ANSIBLE_CACHE_PLUGIN": "jsonfile",
            "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "facts"),
            "LC_ALL": "C.UTF-8",
        }
        done = subprocess.run(
            [Path(sys.executable).with_name("ansible-playbook"), *options, "-i", inventory, playbook],
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
        )
        return done.returncode == 0, " ".join(done.stdout.split())

    return run


def test_a_number_where_a_dictionary_belongs(play):
    overrides = {"memory": 8589934592, "cpu": 8, "gpus": []}
    worked, output = play(ROOT / "playbooks" / "plan.yml", {"relay_overrides": overrides}, relay_overrides=5)
    assert not worked
    assert "Nothing was touched: relay_overrides of a is 5, but must be a dictionary with memory" in output
    assert "Nothing was touched: relay_overrides.memory of b is 8589934592, but must be a dictionary such as" in output
    assert "relay_overrides.cpu of b is 8, but must be a dictionary such as {threads: 8}." in output


@pytest.mark.parametrize("name", ["deploy", "plan", "verify"])
def test_every_playbook_looks_at_the_form_first(name):
    before, _form, after = (ROOT / "playbooks" / f"{name}.yml").read_text().partition("tasks_from: form")
    assert before.count("relay.pool.relay") == 1
    assert "relay.pool.relay" in after


def test_an_environment_that_no_unit_can_carry(play):
    worked, output = play(GATHER, {"relay_environment": {"HF_TOKEN": ["the secret"]}})
    assert not worked
    assert "the environment variable HF_TOKEN is no text" in output
    assert "the secret" not in output
    assert "of b is known" not in output


def test_a_member_whose_facts_cannot_be_gathered(play):
    worked, output = play(GATHER)
    assert worked
    assert "of b is known nothing" not in output
    worked, output = play(GATHER, TOO_MUCH)
    assert not worked
    assert "overrides.memory.available_bytes is 562949953421312" in output
    assert "The facts of b could not be gathered, as said above, and nothing was touched" in output
    assert "of b is known" not in output
    # What the cache has of it is not what is true of it.
    _worked, output = play(GATHER, TOO_MUCH, relay_allow_partial=True)
    assert "of b is known nothing." in output


def test_no_pool_goes_on_without_its_host(play):
    """Also where a worker may be missing; what came after would end in an undefined variable."""
    worked, output = play(GATHER, {"relay_overrides": {}}, relay_allow_partial=True, **TOO_MUCH)
    assert not worked
    assert "The facts of a could not be gathered" in output
    assert "or make another machine relay_host, since the pool cannot do without a." in output
    assert "set relay_allow_partial" not in output
    assert "of b is known" not in output


@pytest.mark.parametrize(
    ("limit", "missing"), [("a,c", "b of the pool is"), ("b", "a, c of the pool are"), ("!a", "a of the pool is")]
)
def test_a_limit_names_every_machine_that_it_leaves_out(play, limit, missing):
    worked, output = play(GATHER, options=("--limit", limit), others=("c",))
    assert not worked
    assert f"{missing} left out by --limit, and a plan needs the facts of every machine: run without --limit." in output
    assert "of b is known" not in output


def test_what_hides_gpus_reaches_the_probes_and_a_difference_and_nothing_else_does():
    variables = {name for backend in visible.BACKENDS.values() for hiding in backend.hiding for name in hiding.names}
    assert len(variables) > 3
    for path in ("relay/tasks/gather.yml", "rpc_worker/tasks/present.yml", "llama_host/tasks/present.yml"):
        (pattern,) = re.findall(r"'search', '([^']*)'", (ROOT / "roles" / path).read_text())
        assert [name for name in sorted(variables) if not re.search(pattern, name)] == []
        assert not any(
            re.search(pattern, name) for name in ("HF_TOKEN", "ZE_AFFINITY_MASK_TOKEN", "_VISIBLE_DEVICES_KEY")
        )


@pytest.mark.parametrize(("switch", "hidden"), [("no", "yes"), ("true", "no")])
def test_a_switch_may_be_a_text_from_the_command_line(play, tmp_path, switch, hidden):
    """Which is true as it stands, and no boolean, which a condition must be."""
    options = {
        "manage_service": "false",
        "unit_dir": str(tmp_path),
        "program": "/opt/x",
        "stale": "no",
        "uses_gpu": switch,
    }
    roles = [
        {"role": f"relay.pool.{role}", "vars": {f"{role}_{name}": value for name, value in options.items()}}
        for role in ("rpc_worker", "llama_host")
    ]
    roles[1]["vars"]["llama_host_config_dir"] = str(tmp_path)
    worked, output = play([{"hosts": "b", "gather_facts": False, "roles": roles}])
    assert worked, output
    for unit in ("relay-rpc", "relay-llama"):
        assert f"PrivateDevices={hidden}" in (tmp_path / f"{unit}.service").read_text().splitlines()


@pytest.mark.parametrize("token", ["the secret", None])
def test_a_difference_shows_no_token(play, tmp_path, token):
    environment = {"CUDA_VISIBLE_DEVICES": "1", **({"HF_TOKEN": token} if token else {})}
    options = {"manage_service": False, "unit_dir": str(tmp_path), "program": "/opt/x", "environment": environment}
    roles = [
        {"role": f"relay.pool.{role}", "vars": {f"{role}_{name}": value for name, value in options.items()}}
        for role in ("rpc_worker", "llama_host")
    ]
    roles[1]["vars"]["llama_host_config_dir"] = str(tmp_path)
    worked, output = play([{"hosts": "b", "gather_facts": False, "roles": roles}], options=("--diff", "-vvv"))
    assert worked
    assert "the secret" not in output
    assert output.count("+Environment=CUDA_VISIBLE_DEVICES=1") == (0 if token else 2)
    for unit in ("relay-rpc", "relay-llama"):
        assert ("the secret" in (tmp_path / f"{unit}.service").read_text()) == bool(token)
