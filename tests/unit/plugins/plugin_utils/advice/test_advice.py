# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each line of advice stands where it applies, and nowhere else."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import Planner, make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib

GB = 10**9


def line(plan, words):
    """The one line with these words, or None."""
    found = [text for text in plan["advice"] if words in text]
    assert len(found) <= 1, found
    return found[0] if found else None


def linked(world, free, links, **fields):
    """A host that measured these round trips in milliseconds."""
    entries = [{"name": name, "rtt_seconds": ms / 1000, "speed_mbps": speed} for name, ms, speed in links]
    return world.node(1, free, links=entries, **fields)


# -- links -----------------------------------------------------------------------------------------------------


def test_a_link_that_is_slow_among_the_others(ask, world):
    host = linked(world, [900], [("b", 0.2, 10000), ("c", 4.9, 100), ("d", 0.3, 10000)])
    plan = make_plan(ask(host, [900], [900], [900]))
    assert len(plan["workers"]) == 3
    # 8 192 bytes at 100 Mbit/s are 0.66 ms, at 10 Gbit/s nothing to speak of
    assert line(plan, "look at the link") == (
        "a token takes 5.6 ms to c and back (round trip 4.9 ms at 100 Mbit/s), and 0.3 ms to the others: look at the "
        "link of c, every token waits for it"
    )


@pytest.mark.parametrize(
    "links",
    [
        [("b", 4.9, 1000), ("c", 4.9, 1000)],
        # three times as slow, and quick all the same
        [("b", 0.1, 10000), ("c", 0.9, 10000)],
        # one alone has nothing to be compared with
        [("c", 4.9, 100)],
        [],
    ],
)
def test_links_that_are_alike_or_unknown(ask, world, links):
    plan = make_plan(ask(linked(world, [1000], links), [1000], [1000]))
    assert len(plan["workers"]) == 2
    assert line(plan, "look at the link") is None


def test_of_wifi_is_said_once_that_it_is_slow(ask, world):
    host = linked(world, [1000], [("b", 0.2, 10000), ("c", 9.0, 300)])
    host["links"][1]["wireless"] = True
    plan = make_plan(ask(host, [1000], [1000]))
    assert line(plan, "Wi-Fi")
    assert line(plan, "look at the link") is None


def test_logits_that_cross_the_network(ask, world):
    host = linked(world, [], [("b", 0.2, 1000), ("c", 0.2, 1000)])
    plan = make_plan(ask(host, [1300], [1300]))
    # 32 000 tokens, a float each
    assert line(plan, "logits") == (
        "a has no usable GPU, so the output lies on c CUDA0 and the logits of every token, 125 KiB, cross the network "
        "in 1.0 ms: a machine with a GPU in the group relay_host would keep them"
    )
    assert line(make_plan(ask([1300], [1300])), "logits") is None
    cpus = [world.node(number, ram=900) for number in (1, 2, 3)]
    assert line(make_plan(ask(*cpus, allow_cpu=True)), "logits") is None


# -- balance ---------------------------------------------------------------------------------------------------


def test_a_cpu_among_gpus(ask, world):
    plan = make_plan(ask([1100], world.node(2, ram=1100), allow_cpu=True))
    stage = next(s for s in plan["stages"] if s["host"] == "b")
    content = sum(stage["memory"][part] for part in ("weights_bytes", "kv_bytes", "recurrent_bytes"))
    assert line(plan, "RAM mostly") == (
        f"b CPU holds {stage['n_layers']} of 10 layers ({-(-content // 2**20)} MiB) beside GPUs: RAM mostly is read "
        "more slowly than the memory of a GPU, and every token waits for it"
    )
    cpus = [world.node(number, ram=900) for number in (1, 2, 3)]
    assert line(make_plan(ask(*cpus, allow_cpu=True)), "RAM mostly") is None
    assert line(make_plan(ask([1300], [1300])), "RAM mostly") is None


def test_a_device_that_is_left_almost_empty(ask, world):
    # the worker's RAM cannot hold the embedding, so that the whole model may not go there
    host, worker = world.node(1, [1550]), world.node(2, [60000], ram=300)
    host["gpus"][0]["bandwidth_bytes_per_second"] = 900 * GB
    worker["gpus"][0]["bandwidth_bytes_per_second"] = 300 * GB
    plan = make_plan(ask(host, worker))
    stage = next(s for s in plan["stages"] if s["host"] == "b")
    left = stage["memory"]["left_bytes"] // 2**20
    assert line(plan, "stay free") == (
        f"b CUDA0 holds {stage['n_layers']} of 10 layers, and {mib(left * 2**20)} of its 60 000 MiB stay free: a "
        "longer context or a larger quantisation would use them"
    )
    assert line(make_plan(ask([1300], [1300])), "stay free") is None
    assert line(make_plan(ask([60000])), "stay free") is None


# -- the better host -------------------------------------------------------------------------------------------


def uneven(world, measured=True, bandwidth=(300, 900, 300), free=800):
    """A small host, a worker with much more memory and a small one."""
    links = [("b", 0.5, 1000), ("c", 0.5, 1000)] if measured else []
    machines = [linked(world, [free], links), world.node(2, [1250, 800]), world.node(3, [900])]
    for node, value in zip(machines, bandwidth):
        for gpu in node["gpus"]:
            gpu["bandwidth_bytes_per_second"] = value and value * GB
    return machines


def test_a_machine_with_much_more_memory_is_the_better_host(ask, world):
    request = ask(*uneven(world))
    plan = make_plan(request)
    text = line(plan, "relay_host")
    assert text.startswith(
        "b has 1 026 MiB of GPU memory for layers and a has 288 MiB: with b in the group relay_host "
    )
    # what it says is what a plan with that host has
    links = [{"name": name, "rtt_seconds": 0.0005, "speed_mbps": 1000} for name in "ac"]
    nodes = {**request.nodes, "b": {**request.nodes["b"], "links": links}}
    moved = dataclasses.replace(request, host="b", workers=("a", "c"), nodes=nodes)
    before, after = (Planner(r).choose().layout.key[0] for r in (request, moved))
    percent = (before - after) * 100 // before
    assert percent >= 10
    assert f"a token would take about {percent} percent less time" in text


def test_the_way_to_the_old_host_is_the_one_that_was_measured(ask, world):
    """Each of two machines is needed, whichever serves: one hop then instead of two."""
    text = line(make_plan(ask(*uneven(world, free=950)[:2])), "relay_host")
    assert "a token would take about " in text
    assert "machines and not" not in text
    assert line(make_plan(ask(*uneven(world, measured=False, free=950)[:2])), "relay_host") is None


def test_no_percentage_of_what_is_not_known(ask, world):
    for machines in (uneven(world, measured=False), uneven(world, bandwidth=(300, None, 300))):
        text = line(make_plan(ask(*machines)), "relay_host")
        assert text is None or "percent" not in text


def test_fewer_machines_with_another_host(ask, world):
    """RAM that is too small for the embedding keeps the larger machine from serving all of it alone."""
    plan = make_plan(ask([], [1300], [1300]))
    assert line(plan, "relay_host would keep them")
    assert line(plan, "b has ") == (
        "b has 788 MiB of GPU memory for layers and a has 0 MiB: with b in the group relay_host the plan would need 2 "
        "machines and not 3"
    )


@pytest.mark.parametrize("machines", [([1300], [1300]), ([1300], [1500]), ([3000], [9000])])
def test_a_host_that_is_as_good_or_serves_alone(ask, machines):
    assert line(make_plan(ask(*machines)), "in the group relay_host") is None


# -- ports -----------------------------------------------------------------------------------------------------

RANGE = {"range": [32768, 60999], "reserved": []}


def test_a_port_in_the_range_of_outgoing_connections(ask, world):
    workers = [world.node(2, [1000], ports=RANGE), world.node(3, [1000], ports=RANGE)]
    plan = make_plan(ask([1000], *workers))
    assert line(plan, "outgoing") == (
        "port 50052 on b, c lies in the range of outgoing connections (32768-60999), one of which may hold it when "
        "ggml-rpc-server starts: reserve it there with the sysctl net.ipv4.ip_local_reserved_ports, or choose a "
        "relay_rpc_port outside of the range"
    )


@pytest.mark.parametrize(
    ("ports", "port"),
    [
        ({**RANGE, "reserved": [[50052, 50052]]}, 50052),
        ({**RANGE, "reserved": [[8080, 8080], [50000, 50100]]}, 50052),
        (RANGE, 20052),
        ({"range": None, "reserved": []}, 50052),
        (None, 50052),
    ],
)
def test_a_port_that_no_connection_takes(ask, world, ports, port):
    plan = make_plan(ask([1300], world.node(2, [1300], ports=ports), rpc_port=port))
    assert plan["kind"] == "sharded"
    assert line(plan, "outgoing") is None


@pytest.mark.parametrize("machine", [[3000], [1300]])
def test_the_port_of_the_server_in_that_range(ask, world, machine):
    host = world.node(1, machine, ports=RANGE)
    assert line(make_plan(ask(host, [1300], server_port=40000)), "outgoing") == (
        "port 40000 on a lies in the range of outgoing connections (32768-60999), one of which may hold it when "
        "llama-server starts: reserve it there with the sysctl net.ipv4.ip_local_reserved_ports, or choose a "
        "relay_host_port outside of the range"
    )
    assert line(make_plan(ask(host, [1300])), "outgoing") is None


def test_the_port_of_a_worker_that_is_not_needed_does_not_matter(ask, world):
    assert line(make_plan(ask([3000], world.node(2, [1300], ports=RANGE))), "outgoing") is None
