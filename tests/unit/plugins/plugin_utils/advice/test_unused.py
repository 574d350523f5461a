# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every device that a plan does without is named with the reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from ansible_collections.relay.pool.plugins.modules import placement as documentation
from ansible_collections.relay.pool.plugins.plugin_utils.advice import unused
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import REASONS
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import Planner, make_plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MIB = 1024 * 1024


def reasons(plan):
    return [(entry["host"], entry["device"], entry["reason"]) for entry in plan["refused"]]


def message(plan, host, device):
    return next(e["message"] for e in plan["refused"] if (e["host"], e["device"]) == (host, device))


def test_a_replica_needs_nothing_else(ask):
    plan = make_plan(ask([3000, 900], [], [1300]))
    assert reasons(plan) == [("b", None, "no_gpu"), ("a", "CUDA1", "not_needed"), ("c", "CUDA0", "not_needed")]
    assert message(plan, "c", "CUDA0") == "c CUDA0 is not needed: the whole model fits a CUDA0"


def test_a_replica_elsewhere_names_the_host(ask, world):
    plan = make_plan(ask([1000], [1500, 1100]))
    assert reasons(plan) == [("a", "CUDA0", "not_needed")]
    assert message(plan, "a", "CUDA0") == "a CUDA0 is not needed: the whole model fits b CUDA0, CUDA1"
    assert reasons(make_plan(ask(world.node(1, []), [3000]))) == [("a", None, "no_gpu")]


def test_a_replica_on_a_cpu(ask):
    plan = make_plan(ask([], [], allow_cpu=True))
    assert reasons(plan) == [("b", "CPU", "not_needed")]
    assert message(plan, "b", "CPU") == "b CPU is not needed: the whole model fits a CPU"


def test_a_host_that_serves_without_a_gpu_is_not_left_out(ask):
    assert reasons(make_plan(ask([], [1300], [1300]))) == []


def test_a_device_that_makes_no_token_faster_is_left_out_with_its_numbers(ask, world):
    machines = [world.node(number, [1300]) for number in (1, 2, 3)]
    for node, bandwidth in zip(machines, (900, 900, 50)):
        node["gpus"][0]["bandwidth_bytes_per_second"] = bandwidth * 10**9
    machines[0]["links"] = [{"name": "c", "rtt_seconds": 0.0021, "speed_mbps": 10000}]
    plan = make_plan(ask(*machines))
    assert reasons(plan) == [("c", "CUDA0", "slower")]
    # two times 4 096 bytes at 10 Gbit/s are 6.6 microseconds more
    assert message(plan, "c", "CUDA0") == (
        "c CUDA0 is left out: a token would take as long or longer with it (it reads at 50 GB/s, and the way to it and "
        "back takes 2.11 ms)"
    )


def test_what_is_unknown_of_a_device_is_said(ask):
    plan = make_plan(ask([1300], [1300], [1300]))
    assert reasons(plan) == [("c", "CUDA0", "slower")]
    assert message(plan, "c", "CUDA0").endswith(
        "(its bandwidth is unknown, and the way to it and back takes 0.57 ms by assumption, as it was not measured)"
    )


def test_a_device_without_room_for_a_layer_is_not_called_slow(ask):
    plan = make_plan(ask([1300], [1300], [600], [400]))
    assert reasons(plan) == [("d", "CUDA0", "no_room"), ("c", "CUDA0", "no_room")]
    assert message(plan, "c", "CUDA0").startswith("c CUDA0 has no room for a layer: the smallest takes ")
    assert message(plan, "c", "CUDA0").endswith(", and 88 MiB are free beside the reserve")


def test_a_gpu_that_only_drafts_is_used(ask, world):
    draft = world.gguf("/models/draft.gguf", n_layer=4, layer_mib=20, embd_mib=10, output_mib=10)
    request = ask([1300, 700], [1300], draft=draft, draft_path="/models/draft.gguf", draft_device="CUDA1")
    plan = make_plan(request)
    assert plan["draft"]["device"] == "CUDA1"
    assert not [entry for entry in plan["refused"] if entry["host"] == "a"]


def test_beside_fifteen_devices(ask, world):
    plan = make_plan(ask([950], *[[950]] * 19, model=world.gguf(n_layer=15, layer_mib=250)))
    assert len(plan["devices"]) == 15
    assert {reason for _host, _device, reason in reasons(plan)} == {"too_many_devices"}
    assert len(plan["refused"]) == 5
    planner = Planner(ask([950], *[[950]] * 19, model=world.gguf(n_layer=15, layer_mib=250)))
    entries = unused.unused(planner.pool.machines(), planner.choose().layout, [], False)
    assert [entry["reason"] for entry in entries] == ["too_many_devices"] * 5
    assert entries[0]["message"].endswith("is left out: llama.cpp takes 15 devices, and the plan has that many others")


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    machines=st.lists(st.lists(st.sampled_from([None, 400, 700, 900, 1300, 2500]), max_size=3), min_size=1, max_size=5),
    allow_cpu=st.booleans(),
    ram=st.sampled_from([None, 700, 4096]),
)
def test_every_device_is_used_or_named_once(ask, world, machines, allow_cpu, ram):
    from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError

    nodes = [world.node(1, machines[0])] + [world.node(i, gpus, ram=ram) for i, gpus in enumerate(machines[1:], 2)]
    try:
        plan = make_plan(ask(*nodes, allow_cpu=allow_cpu))
    except PoolError:
        return
    used = {(s["host"], s["device"]) for s in plan["stages"] if s["n_layers"] or s["has_output"]}
    named = [(entry["host"], entry["device"]) for entry in plan["refused"]]
    assert len(set(named)) == len(named)
    assert not used & set(named)
    for number, node in enumerate(nodes):
        host = chr(97 + number)
        for gpu in node["gpus"]:
            assert (host, gpu["device"]) in used | set(named)
        assert (
            used & {(host, "CPU")} or plan["host"] == host or node["gpus"] or {(host, "CPU"), (host, None)} & set(named)
        )
    assert json.loads(json.dumps(plan["refused"])) == plan["refused"]


def test_every_reason_is_documented():
    """Every name that stands where a reason does in the source of machines and advice."""
    rooms = Path(unused.__file__).parent.parent
    sources = " ".join(path.read_text() for room in ("machines", "advice") for path in (rooms / room).glob("*.py"))
    given_reasons = set(
        re.findall(r'(?:return|_reason\(|problem = \(|None,|device\.name,|"CPU",)\s*\(?"([a-z_]+)",', sources)
    )
    given_reasons -= set(REASONS)
    assert {"no_facts", "other_pool", "not_placeable", "slower", "no_gpu", "duplicate_machine"} <= given_reasons
    text = yaml.safe_load(documentation.RETURN)["plan"]["contains"]["refused"]["description"]
    assert given_reasons - set(re.findall(r"V\(([a-z_]+)\)", " ".join(text))) == set()
