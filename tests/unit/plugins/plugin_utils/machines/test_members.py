# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines a plan may count on: builds, workers of another pool, machines that are listed twice."""

from __future__ import annotations

import dataclasses
import json

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.machines.builds import build_problem
from ansible_collections.relay.pool.plugins.plugin_utils.machines.sharing import member_addresses, sharing_problem
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan

BUILD = {"version": "0.6.0-dev", "build": 11434, "commit": "8363ca84", "rpc_protocol": "7.0"}
OLD = {"version": "0.5.1", "build": 9002, "commit": "457e2288c", "rpc_protocol": "6.0"}


def worker_unit(**fields):
    unit = {"name": "relay-rpc.service", "active": True, "allowed_addresses": ["127.0.0.0/8", "::1"], "established": []}
    return {**unit, **fields}


@pytest.fixture
def pool(ask, world):
    """Three machines that need two, the second one with these facts; returns the request."""

    def make(second=None, host=None, **options):
        machines = [world.node(1, [1300], **host or {}), world.node(2, [1300], **second or {}), world.node(3, [1300])]
        return ask(*machines, **options)

    return make


def left_out(request):
    """The refusals when workers may be left out; the plan must do without the second machine then."""
    plan = make_plan(dataclasses.replace(request, allow_partial=True))
    assert [worker["host"] for worker in plan["workers"]] == ["c"]
    return [(entry["host"], entry["reason"], entry["message"]) for entry in plan["refused"] if entry["host"] == "b"]


# -- builds ----------------------------------------------------------------------------------------------------


def test_a_worker_of_another_build_is_named_with_both(pool):
    request = pool({"llama": OLD}, llama=BUILD)
    message = (
        "b has llama.cpp 0.5.1 (build 9002, commit 457e2288c, RPC 6.0), a has 0.6.0-dev (build 11434, commit 8363ca84, "
        "RPC 7.0), and a server may only talk to workers of its own build: deploy one build to all"
    )
    with pytest.raises(PoolError) as caught:
        make_plan(request)
    # Where it is set already, this is no way out.
    assert str(caught.value) == f"{message}, or set relay_allow_partial to plan without b"
    assert left_out(request) == [("b", "other_build", message)]


@pytest.mark.parametrize(
    ("own", "same"),
    [
        (BUILD, True),
        (None, True),
        (dict.fromkeys(BUILD), True),
        ({**BUILD, "commit": "8363ca84d1f0"}, True),
        ({**BUILD, "build": 0}, True),
        ({**BUILD, "commit": "1111111"}, False),
        ({**BUILD, "build": 11433}, False),
        ({**BUILD, "version": "0.6.1"}, False),
        # the protocol alone is what a header beside the binaries says
        ({**BUILD, "rpc_protocol": None}, True),
    ],
)
def test_what_is_another_build(own, same):
    assert (build_problem("b", {"llama": own}, "a", BUILD) is None) is same
    assert (build_problem("b", {"llama": BUILD}, "a", own) is None) is same


def test_the_protocol_is_shown_only_where_it_differs():
    assert "RPC" not in build_problem("b", {"llama": {**BUILD, "build": 2}}, "a", BUILD)


def test_the_first_deployment_has_no_other_build(pool):
    assert make_plan(pool({"llama": dict.fromkeys(BUILD)}))["kind"] == "sharded"
    assert make_plan(pool({"llama": BUILD}))["kind"] == "sharded"


# -- a worker of another pool ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "how"),
    [
        ({"allowed_addresses": ["10.0.9.9", "127.0.0.0/8"]}, "is let in by"),
        ({"established": ["10.0.9.9:41210"]}, "is connected to"),
        ({"established": ["10.0.9.9:41210"], "allowed_addresses": ["10.0.9.9"]}, "is connected to"),
    ],
)
def test_a_worker_of_another_pool_is_refused(pool, fields, how):
    request = pool({"units": [worker_unit(**fields)]})
    message = (
        f"b works for 10.0.9.9, which {how} its relay-rpc.service and is no machine of this pool, and a worker serves "
        "one server: take b out of one of the pools, or run remove.yml of the other pool first; if that one is gone, "
        "stop relay-rpc.service on b"
    )
    with pytest.raises(PoolError) as caught:
        make_plan(request)
    # Where it is set already, this is no way out.
    assert str(caught.value) == f"{message}, or set relay_allow_partial to plan without b"
    assert left_out(request) == [("b", "other_pool", message)]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        # the host is known to its workers by any of its addresses
        {"allowed_addresses": ["10.0.0.1"], "established": ["192.168.7.1:5000"]},
        # the server was on another member before
        {"allowed_addresses": ["10.0.0.3"], "established": ["10.0.0.3:5000"]},
        {"allowed_addresses": ["10.0.0.0/24", "2001:db8::/32"]},
        {"allowed_addresses": [], "established": ["127.0.0.1:5000", "::1:5000"]},
        # what is stopped keeps nobody waiting
        {"active": False, "allowed_addresses": ["10.0.9.9"]},
        {"name": "relay-llama.service", "established": ["10.0.9.9:50052"]},
    ],
)
def test_a_worker_of_this_pool_is_not(pool, fields):
    host = {
        "addresses": [{"interface": "eth0", "address": "10.0.0.1"}, {"interface": "eth1", "address": "192.168.7.1"}]
    }
    assert make_plan(pool({"units": [worker_unit(**fields)]}, host))["workers"][0]["host"] == "b"


def test_a_network_without_a_member_is_another_pools(pool):
    with pytest.raises(PoolError, match=r"b works for 10\.9\.0\.0/16"):
        make_plan(pool({"units": [worker_unit(allowed_addresses=["10.9.0.0/16"])]}))


def test_a_host_that_works_for_another_pool_stops_every_plan(pool):
    request = pool(host={"units": [worker_unit(allowed_addresses=["10.0.9.9"])]}, allow_partial=True)
    with pytest.raises(PoolError, match=r"a works for 10\.0\.9\.9"):
        make_plan(request)


def test_an_address_may_be_that_of_a_member_without_facts(pool):
    """The server moved because its machine does not answer."""
    request = pool({"units": [worker_unit(allowed_addresses=["10.0.0.3"])]}, allow_partial=True)
    nodes = {**request.nodes, "c": None}
    assert [w["host"] for w in make_plan(dataclasses.replace(request, nodes=nodes))["workers"]] == ["b"]
    assert member_addresses(nodes, "abc") is None
    assert sharing_problem("b", nodes["b"], member_addresses(request.nodes, "ab"))


def test_facts_of_an_older_version_say_nothing_of_it(pool):
    unit = worker_unit()
    del unit["allowed_addresses"]
    assert make_plan(pool({"units": [unit]}))["workers"][0]["host"] == "b"


def test_a_kept_plan_says_why_a_machine_is_left_out_today(pool):
    request = pool(allow_partial=True)
    absent = dataclasses.replace(request, nodes={**request.nodes, "b": None})
    first = json.loads(json.dumps(make_plan(absent)))
    assert [(entry["host"], entry["reason"]) for entry in first["refused"]] == [("b", "no_facts")]
    again = make_plan(dataclasses.replace(absent, previous=first))
    assert (again["kept"], again["refused"]) == (True, first["refused"])
    shared = pool({"units": [worker_unit(established=["10.0.9.9:1"])]}, allow_partial=True, previous=first)
    plan = make_plan(shared)
    # else its service would be taken for one of this pool that is not needed any more, and be removed
    assert (plan["kept"], [(entry["host"], entry["reason"]) for entry in plan["refused"]]) == (
        True,
        [("b", "other_pool")],
    )


# -- listed twice ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "third", "text"),
    [
        # facts without a machine_id and GPUs, as they may be given by hand
        ({"machine_id": None}, {"machine_id": None, "address": "10.0.0.2"}, r"address 10\.0\.0\.2"),
        ({"address": "box1.example"}, {}, "b has the RPC address box1.example: .* a dotted IPv4 address"),
    ],
)
def test_two_workers_of_one_endpoint(ask, world, second, third, text):
    machines = [world.node(1, [1300]), world.node(2, [1300], **second), world.node(3, [1300], **third)]
    for number, node in enumerate(machines):
        for gpu in node["gpus"]:
            gpu["uuid"] = None if number else "GPU-1"
    with pytest.raises(PoolError, match=text):
        make_plan(ask(*machines))


def test_a_machine_with_ipv6_only_says_the_way_out(pool):
    reason = "the machine has no IPv4 address, and llama.cpp's RPC speaks no IPv6"
    with pytest.raises(PoolError) as caught:
        make_plan(pool({"address": None, "address_reason": reason}))
    assert str(caught.value) == (
        f"b has no IPv4 address for RPC ({reason}): give it one, or set relay_rpc_address to one that it has, or set "
        "relay_allow_partial to plan without b"
    )
