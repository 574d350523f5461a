# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest
import yaml
from ansible.plugins.filter.core import combine, to_bool
from ansible_collections.relay.pool.plugins.plugin_utils.server import systemd

ROOT = Path(__file__).resolve().parents[2]
ROLES = ROOT / "roles"
MODPROBE = "ExecStartPre=-+/bin/sh -c 'if command -v nvidia-modprobe >/dev/null; then exec nvidia-modprobe -u -c=0; fi'"


def render(role, unit, **options):
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
    environment.filters["comment"] = "# {}".format
    environment.filters["bool"] = to_bool
    environment.filters["ternary"] = lambda value, yes, no: yes if value else no
    environment.filters["relay.pool.systemd_exec"] = systemd.exec_start
    environment.filters["relay.pool.systemd_environment"] = systemd.environment
    values = {"program": "/opt/x", "args": [], "user": "relay-pool", "memory_max_bytes": 0, **options}
    template = environment.from_string((ROLES / role / "templates" / f"{unit}.service.j2").read_text())
    return template.render(ansible_facts={}, **{f"{role}_{key}": value for key, value in values.items()}).splitlines()


UNITS = pytest.mark.parametrize(("role", "unit"), [("rpc_worker", "relay-rpc"), ("llama_host", "relay-llama")])


@UNITS
def test_the_driver_is_woken_as_root_before_a_program_without_privileges(role, unit):
    lines = render(role, unit, uses_gpu=True, workers=["10.0.0.2:50052"])
    assert "NoNewPrivileges=yes" in lines
    starts = [line for line in lines if line.startswith("ExecStart")]
    assert starts[0] == MODPROBE
    assert starts[-1] == "ExecStart=/opt/x"
    assert MODPROBE not in render(role, unit, uses_gpu=False)


@UNITS
@pytest.mark.parametrize(
    ("planned", "users", "lines"),
    [
        ({}, {}, []),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a,MIG-b"}, {}, ["Environment=CUDA_VISIBLE_DEVICES=GPU-a,MIG-b"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a"}, {"CUDA_VISIBLE_DEVICES": "1"}, ["Environment=CUDA_VISIBLE_DEVICES=1"]),
        ({"A": "1"}, {"B": "x y", "A": ""}, ['Environment=A= "B=x y"']),
        ({}, {"ROCR_VISIBLE_DEVICES": 0}, ["Environment=ROCR_VISIBLE_DEVICES=0"]),
    ],
)
def test_the_environment_of_the_plan_under_that_of_the_user(role, unit, planned, users, lines):
    option = f"{role}_environment"
    tasks = yaml.safe_load((ROOT / "playbooks" / "tasks" / "apply.yml").read_text())
    (expression,) = {task["vars"][option] for task in tasks if option in task.get("vars", {})}
    environment = jinja2.Environment()
    environment.filters["combine"] = combine
    merged = environment.compile_expression(expression.strip("{} "))(
        __worker={"environment": planned}, relay_plan={"server_environment": planned}, relay_environment=users
    )
    unit_lines = render(role, unit, uses_gpu=True, workers=[], environment=merged)
    fixed = [line for line in render(role, unit, uses_gpu=True, workers=[]) if line.startswith("Environment=")]
    # Of two lines for one variable systemd takes the last.
    assert [line for line in unit_lines if line.startswith("Environment=")] == fixed + lines


def test_a_worker_ends_before_its_machine_runs_out_of_memory():
    lines = render("rpc_worker", "relay-rpc", memory_max_bytes=8589934592)
    assert [line for line in lines if line.startswith(("Memory", "OOM"))] == [
        "MemoryMax=8589934592",
        "OOMScoreAdjust=500",
    ]
    assert not [line for line in render("rpc_worker", "relay-rpc", memory_max_bytes=0) if "Memory" in line]


@pytest.mark.parametrize(
    ("devices", "free", "limit"),
    [(["CPU"], 4 << 30, 5 << 30), (["CPU"], 3 << 29, 2 << 30), (["CUDA0"], 4 << 30, 0), (["CPU"], None, 0)],
)
def test_what_a_worker_on_the_cpu_may_have_is_what_was_free_and_room_for_the_program(devices, free, limit):
    """Of a GPU worker the plan does not know what it takes in RAM."""
    tasks = yaml.safe_load((ROOT / "playbooks" / "tasks" / "apply.yml").read_text())
    name = "rpc_worker_memory_max_bytes"
    (written,) = {task["vars"]["__ram"]: 0 for task in tasks if name in task.get("vars", {})}
    (expression,) = {task["vars"][name] for task in tasks if name in task.get("vars", {})}
    environment = jinja2.Environment()
    stages = [{"host": "a", "memory": {"free_bytes": 1}}, {"host": "b", "memory": {"free_bytes": free}}]
    known = {"relay_plan": {"stages": stages}, "inventory_hostname": "b", "__worker": {"devices": devices}}
    ram = environment.compile_expression(written.strip("{} "), undefined_to_none=False)(**known)
    assert environment.compile_expression(expression.strip("{} "))(**known, __ram=ram) == limit


@pytest.mark.parametrize(
    ("speeds", "draft", "retries"),
    [
        ([10000, None], None, 200 + 2667),
        ([10000, 100], None, 200 + 26667),
        ([None, None], None, 200 + 2667),
        # a draft on the CPU or a GPU of the host stays there, one on a worker goes the same way
        ([None, None], "none", 200 + 2667),
        ([None, None], "CUDA0", 200 + 2667),
        ([None, None], "RPC1", 200 + 5334),
    ],
)
def test_a_model_has_the_time_that_its_weights_take_over_the_network(speeds, draft, retries):
    """A terabyte takes more than two hours over gigabit Ethernet."""
    written = yaml.safe_load((ROOT / "roles" / "relay" / "vars" / "main.yml").read_text())
    for name in ("apply.yml", "lossless.yml"):
        text = (ROOT / "playbooks" / "tasks" / name).read_text()
        assert text.count('retries: "{{ __relay_ready_retries | int }}"') == {"apply.yml": 1, "lossless.yml": 2}[name]
    parts = [("local", 5 * 10**12), ("rpc", 6 * 10**11), ("rpc", 4 * 10**11)]
    stages = [{"transport": transport, "memory": {"weights_bytes": size}} for transport, size in parts]
    memory = {"weights_bytes": 10**12} if draft else None
    plan = {
        "stages": stages,
        "workers": [{"link": {"speed_mbps": speed}} for speed in speeds],
        "draft": {"enabled": bool(draft), "device": draft, "memory": memory},
    }
    known = {"relay_plan": plan, "relay_ready_timeout": 600}
    environment = jinja2.Environment()
    environment.tests["match"] = lambda value, pattern: re.match(pattern, value) is not None
    for name in ("transfer_bytes", "slowest_mbps", "transfer_seconds", "ready_retries"):
        name = f"__relay_{name}"
        known[name] = environment.compile_expression(written[name].strip("{} "))(**known)
    assert known["__relay_ready_retries"] == retries


@pytest.mark.parametrize(
    ("enabled", "path", "device", "models", "gpu"),
    [
        (False, "/d.gguf", None, ["/m.gguf"], False),
        (True, "/d.gguf", "none", ["/m.gguf", "/d.gguf"], False),
        (True, "/d.gguf", "CUDA1", ["/m.gguf", "/d.gguf"], True),
        (True, "/d.gguf", "RPC0", ["/m.gguf", "/d.gguf"], False),
        (True, None, None, ["/m.gguf"], False),
    ],
)
def test_what_the_server_needs_for_a_draft(enabled, path, device, models, gpu):
    """Of a model on the CPU: the file to read, and GPUs for a draft on one of them."""
    tasks = yaml.safe_load((ROOT / "playbooks" / "tasks" / "apply.yml").read_text())
    plan = {
        "model": {"path": "/m.gguf"},
        "stages": [{"transport": "local", "device": "CPU"}],
        "draft": {"enabled": enabled, "path": path, "device": device},
    }
    environment = jinja2.Environment()
    environment.tests["match"] = lambda value, pattern: re.match(pattern, value) is not None
    for name, wanted in (("llama_host_models", models), ("llama_host_uses_gpu", gpu)):
        (expression,) = {task["vars"][name] for task in tasks if name in task.get("vars", {})}
        assert environment.compile_expression(expression.strip("{} "))(relay_plan=plan) == wanted
