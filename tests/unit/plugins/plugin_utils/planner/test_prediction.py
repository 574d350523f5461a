# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The predicted rates: each against the arithmetic of docs/predictions.md, written down a second time here."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.rounds import Rounds, draft_rounds, expected_tokens
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import Planner, make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.views import predicted
from ansible_collections.relay.pool.plugins.plugin_utils.views.table import plan_table

MIB = 1024 * 1024
GB = 10**9
FLOAT = 4


UNKNOWN = "the memory bandwidth of {} is unknown, relay_overrides can state it"


def link(name, rtt=0.0003, mbps=1000):
    return {"name": name, "rtt_seconds": rtt, "speed_mbps": mbps}


@pytest.fixture
def pool(world):
    """A host and a worker of so many free MiB and GB/s, with a measured link."""

    def make(host=(1600, 500), worker=(1300, 400), rtt=0.0003, mbps=1000, ram=None, ram_mib=4096):
        nodes = []
        for number, (free, bandwidth) in enumerate((host, worker), 1):
            node = world.node(number, [free] if free else [], ram=ram_mib)
            node["memory"]["bandwidth_bytes_per_second"] = ram
            for gpu in node["gpus"]:
                gpu["bandwidth_bytes_per_second"] = bandwidth and bandwidth * GB
            nodes.append(node)
        nodes[0]["links"] = [link("b", rtt, mbps)]
        return nodes

    return make


@pytest.fixture
def small(world):
    """A draft of 4 layers of 10 MiB with an output of 5 MiB."""
    return {
        "draft": world.gguf("/models/draft.gguf", n_layer=4, layer_mib=10, embd_mib=5, output_mib=5),
        "draft_path": "/models/draft.gguf",
        "parallel": 1,
    }


def layers(plan, host):
    return next(s["n_layers"] for s in plan["stages"] if s["host"] == host and s["device"] != "CPU")


OUTPUT = 60 * MIB + 4096
DRAFT = 4 * 10 * MIB + 5 * MIB + 4096


def reading(plan):
    return (layers(plan, "a") * 100 * MIB + OUTPUT) / (500 * GB) + layers(plan, "b") * 100 * MIB / (400 * GB)


def network(tokens, rtt=0.0003, mbps=1000):
    return rtt + tokens * 2 * 1024 * FLOAT * 8 / (mbps * 1_000_000)


def three(value):
    return float(f"{value:.3g}")


# -- without a draft ---------------------------------------------------------------------------------------------


def test_a_token_reads_every_weight_once_and_crosses_every_link(ask, pool):
    found = make_plan(ask(*pool()))
    assert layers(found, "a") + layers(found, "b") == 10
    assert found["predicted"] == {
        "tokens_per_second": three(1 / (reading(found) + network(1))),
        "network_seconds": three(network(1)),
        "reason": None,
        "with_draft_tokens_per_second": None,
        "break_even_acceptance": None,
        "assumed_acceptance": None,
        "draft_tokens": None,
        "draft_reason": "no draft (not_configured)",
    }


def test_a_replica_has_no_network(ask, pool):
    found = make_plan(ask(*pool(host=(3000, 500))))
    assert found["kind"] == "replica"
    assert found["predicted"]["tokens_per_second"] == three(500 * GB / (1000 * MIB + OUTPUT))
    assert found["predicted"]["network_seconds"] == 0


@pytest.mark.parametrize(("field", "worse"), [("rtt", 0.01), ("mbps", 100)])
def test_a_worse_link_costs_what_it_is_worse(ask, pool, field, worse):
    found = make_plan(ask(*pool(**{field: worse})))
    assert found["predicted"]["tokens_per_second"] == three(1 / (reading(found) + network(1, **{field: worse})))


def test_between_gpus_of_one_worker_only_the_round_trip_is_paid(ask, pool, world):
    host, worker = pool(host=(900, 500), worker=(1100, 400))
    worker["gpus"].append({**worker["gpus"][0], "index": 1, "device": "CUDA1", "uuid": "second"})
    found = make_plan(ask(host, worker))
    used = [(stage["host"], stage["device"]) for stage in found["stages"] if stage["n_layers"] or stage["has_output"]]
    assert used == [("b", "CUDA0"), ("b", "CUDA1"), ("a", "CUDA0")]
    assert found["predicted"]["network_seconds"] == three(network(1) + 0.0003)
    # two workers send everything through the host
    host["links"].append(link("c"))
    apart = [{**world.node(n, [1100]), "gpus": [{**worker["gpus"][0], "uuid": str(n)}]} for n in (2, 3)]
    found = make_plan(ask(host, *apart))
    assert len(found["workers"]) == 2
    assert found["predicted"]["network_seconds"] == three(2 * network(1))


def test_an_output_on_a_worker_sends_its_logits(ask, pool, world):
    found = make_plan(ask(*pool(host=(None, None), worker=(1350, 400), ram=20 * GB, ram_mib=1000), allow_cpu=True))
    assert [stage["host"] for stage in found["stages"] if stage["has_output"]] == ["b"]
    on_cpu = found["stages"][0]["n_layers"]
    back = 32000 * FLOAT * 8 / 1e9 - 1024 * FLOAT * 8 / 1e9
    seconds = on_cpu * 100 * MIB / (20 * GB) + (layers(found, "b") * 100 * MIB + OUTPUT) / (400 * GB)
    assert found["predicted"]["tokens_per_second"] == three(1 / (seconds + network(1) + back))


def test_the_whole_model_in_ram_reads_its_output_there(ask, pool):
    nodes = pool(host=(None, None), ram=50 * GB)[:1]
    for output_mib, read in ((60, 60), (0, 50)):
        model = {**nodes[0], "links": []}
        found = make_plan(ask(model, model=tied(output_mib), allow_cpu=True))
        assert found["predicted"]["tokens_per_second"] == three(50 * GB / ((1000 + read) * MIB + 4096))


def tied(output_mib):
    from tests.unit.plugins.plugin_utils.conftest import World

    return World.gguf(output_mib=output_mib)


def test_a_mixture_of_experts_reads_those_in_use(ask, pool, world):
    found = make_plan(ask(*pool(), model=mixture(world)))
    a, b = (layers(found, name) * 25 * MIB for name in "ab")
    seconds = (a + OUTPUT) / (500 * GB) + b / (400 * GB) + network(1)
    assert found["predicted"]["tokens_per_second"] == three(1 / seconds)


def mixture(world, **keys):
    """100 MiB per layer, of which 80 experts take 1 MiB each; 5 are used."""
    model = world.gguf(arch="qwen3moe", expert_count=80, expert_used_count=5, **keys)
    model["tensors"].update(experts=[80 * MIB] * 10, expert=[MIB] * 10)
    return model


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"host": (1600, None)}, UNKNOWN.format("a CUDA0")),
        ({"worker": (1300, None)}, UNKNOWN.format("b CUDA0")),
        (
            {"host": (1600, None), "worker": (1300, None)},
            UNKNOWN.format("b CUDA0, a CUDA0"),
        ),
        ({"host": (1600, 0)}, UNKNOWN.format("a CUDA0")),
    ],
)
def test_an_unknown_bandwidth_is_named(ask, pool, small, change, reason):
    plan = make_plan(ask(*pool(**change), **small))
    figures = plan["predicted"]
    assert plan["draft"]["enabled"]
    assert (figures["tokens_per_second"], figures["network_seconds"], figures["reason"]) == (None, None, reason)
    assert (figures["with_draft_tokens_per_second"], figures["draft_reason"]) == (None, reason)
    assert f" speed not estimated: {reason} worker " in " ".join(plan_table(plan).split())


def test_a_device_without_layers_need_not_be_known(ask, pool, world):
    nodes = pool(host=(3000, 500))
    nodes[1]["gpus"][0]["bandwidth_bytes_per_second"] = None
    assert make_plan(ask(*nodes))["predicted"]["tokens_per_second"]


def test_no_weights_is_no_rate(ask, pool, world):
    model = world.gguf(layer_mib=0, embd_mib=0, output_mib=0)
    model["tensors"]["output_norm_bytes"] = 0
    figures = make_plan(ask(*pool(), model=model))["predicted"]
    assert (figures["tokens_per_second"], figures["reason"]) == (None, "the file lists no weights that a token reads")


# -- with a draft ------------------------------------------------------------------------------------------------


def drafted_round(plan, n_draft, **way):
    return (n_draft + 1) * DRAFT / (500 * GB) + reading(plan) + network(n_draft + 1, **way)


@pytest.mark.parametrize("n_draft", [1, 4, 16])
def test_a_round_drafts_token_by_token_and_checks_all_at_once(ask, pool, small, n_draft):
    plan = make_plan(ask(*pool(), **small, draft_max=n_draft))
    assert plan["draft"]["enabled"]
    figures = plan["predicted"]
    seconds = drafted_round(plan, n_draft)
    assert figures["with_draft_tokens_per_second"] == three(expected_tokens(0.7, n_draft) / seconds)
    assert (figures["assumed_acceptance"], figures["draft_tokens"]) == (0.7, n_draft)
    cost = seconds / (reading(plan) + network(1))
    even = figures["break_even_acceptance"]
    assert expected_tokens(even, n_draft) > cost >= expected_tokens(even - 0.001, n_draft)
    assert figures["draft_reason"] is None


def test_without_a_network_it_is_the_formula_of_leviathan_and_the_pass_that_llama_cpp_adds(ask, pool, small):
    plan = make_plan(ask(*pool(host=(3000, 500)), **small, draft_scope="any", draft_max=4))
    assert plan["kind"] == "replica"
    figures = plan["predicted"]
    c = DRAFT / (1000 * MIB + OUTPUT)
    gain = (1 - 0.7**5) / ((1 - 0.7) * (4 * c + 1 + c))
    assert figures["with_draft_tokens_per_second"] / figures["tokens_per_second"] == pytest.approx(gain, rel=0.01)


def test_a_slow_link_makes_a_draft_pay_sooner(ask, pool, small):
    near, far = (make_plan(ask(*pool(rtt=rtt), **small))["predicted"] for rtt in (0.0001, 0.02))
    gains = [found["with_draft_tokens_per_second"] / found["tokens_per_second"] for found in (near, far)]
    assert gains[1] > 1.8 * gains[0]
    assert far["break_even_acceptance"] < near["break_even_acceptance"]


def test_a_draft_as_large_as_its_target_never_pays(ask, pool, small, world):
    small["draft"] = world.gguf("/models/draft.gguf", n_layer=4, layer_mib=400)
    figures = make_plan(ask(*pool(host=(3900, 500)), **small, draft_scope="any"))["predicted"]
    assert (figures["break_even_acceptance"], figures["draft_reason"]) == (
        None,
        "a round of 16 drafted tokens takes as long as 27.6 tokens without the draft and gives at most 17",
    )
    assert figures["with_draft_tokens_per_second"] < figures["tokens_per_second"]


def test_a_mixture_is_checked_with_experts_of_its_own_for_every_token(ask, pool, world, small):
    plan = make_plan(ask(*pool(), **small, model=mixture(world), draft_max=4))
    a, b = (layers(plan, name) * (20 + 5 * 5) * MIB for name in "ab")
    seconds = 5 * DRAFT / (500 * GB) + (a + OUTPUT) / (500 * GB) + b / (400 * GB) + network(5)
    assert plan["predicted"]["with_draft_tokens_per_second"] == three(expected_tokens(0.7, 4) / seconds)
    # no more than there are
    plan = make_plan(ask(*pool(), **small, model=mixture(world), draft_max=32))
    a, b = (layers(plan, name) * 100 * MIB for name in "ab")
    seconds = 33 * DRAFT / (500 * GB) + (a + OUTPUT) / (500 * GB) + b / (400 * GB) + network(33)
    assert plan["predicted"]["with_draft_tokens_per_second"] == three(expected_tokens(0.7, 32) / seconds)


@pytest.mark.parametrize(
    ("machines", "options", "reason"),
    [
        (
            {"host": (None, None), "ram": 50 * GB, "ram_mib": 1000},
            {"allow_cpu": True},
            "how long a CPU takes to check several tokens at once is not known",
        ),
        ({}, {"draft_device": "none"}, "how long a CPU takes for several tokens of the draft at once is not known"),
        ({}, {"draft_gpu_layers": 4}, "how long a CPU takes for several tokens of the draft at once is not known"),
        ({}, {"draft_gpu_layers": 5}, None),
    ],
)
def test_a_batch_on_a_cpu_is_not_estimated(ask, pool, small, machines, options, reason):
    plan = make_plan(ask(*pool(**machines), **small, **options))
    assert plan["draft"]["enabled"]
    figures = plan["predicted"]
    assert figures["tokens_per_second"]
    assert figures["draft_reason"] == reason
    assert (figures["with_draft_tokens_per_second"] is None) == (reason is not None)
    if reason:
        assert f"speed with the draft not estimated: {reason} " in " ".join(plan_table(plan).split())


def test_a_dropped_draft_says_so(ask, pool, small):
    figures = make_plan(ask(*pool(), **{**small, "draft": None}))["predicted"]
    assert (figures["draft_reason"], figures["draft_tokens"]) == ("no draft (not_found)", None)


def test_a_gpu_for_the_draft_alone_counts_with_its_own_bandwidth(ask, pool, small):
    host, worker = pool()
    host["gpus"].append({**host["gpus"][0], "index": 1, "device": "CUDA1", "uuid": "second"})
    host["gpus"][1].update(memory_free_bytes=620 * MIB, bandwidth_bytes_per_second=None)
    plan = make_plan(ask(host, worker, **small, draft_device="CUDA1"))
    assert plan["draft"]["device"] == "CUDA1"
    assert plan["stages"][-1]["n_layers"] == 0
    assert plan["predicted"]["tokens_per_second"]
    assert plan["predicted"]["draft_reason"] == UNKNOWN.format("a CUDA1")


# -- a running pool ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"rtt": 0.00031}, {"rtt": 0.08}, {"rtt": None}, {"mbps": 100}])
def test_another_measurement_of_the_links_moves_nothing(ask, pool, small, change):
    first = json.loads(json.dumps(make_plan(ask(*pool(), **small))))
    request = dataclasses.replace(ask(*pool(**change), **small), previous=first)
    again = make_plan(request)
    assert {**again, "kept": False} == first
    assert again["kept"]
    assert make_plan(dataclasses.replace(request, previous=again)) == again
    # and without a pool that runs the figures are those of the day
    assert make_plan(dataclasses.replace(request, previous=None))["predicted"] != first["predicted"]


def test_links_may_decide_whether_the_draft_wins(ask, pool, small, world):
    small.update(draft=world.gguf("/models/draft.gguf", n_layer=4, layer_mib=150), draft_max=1)
    pools = [pool(worker=(1600, 400), rtt=rtt) for rtt in (0.0001, 0.05)]
    never, wins = (json.loads(json.dumps(make_plan(ask(*nodes, **small)))) for nodes in pools)
    assert never["predicted"]["break_even_acceptance"] is None
    assert wins["predicted"]["break_even_acceptance"]
    for nodes, before in ((pools[0], wins), (pools[1], never)):
        again = make_plan(dataclasses.replace(ask(*nodes, **small), previous=before))
        assert (again["kept"], again["predicted"]) == (True, before["predicted"])


@pytest.mark.parametrize(
    "change",
    [
        {"tokens_per_second": None}, {"tokens_per_second": "fast"}, {"tokens_per_second": 0}, {"network_seconds": -1},
        {"tokens_per_second": True}, {"tokens_per_second": float("nan")}, {"with_draft_tokens_per_second": None},
        {"break_even_acceptance": None}, {"draft_reason": "because"}, {"draft_reason": 3}, {"reason": "because"},
        {"draft_tokens": 3}, {"assumed_acceptance": 0.9}, {"more": 1}, {"with_draft_tokens_per_second": "a figure"},
        {"break_even_acceptance": None, "draft_reason": 3}, {"break_even_acceptance": [], "draft_reason": None},
    ],
)  # fmt: skip
def test_figures_that_nobody_computed_are_not_kept(ask, pool, small, change):
    request = ask(*pool(), **small)
    first = make_plan(request)
    previous = {**first, "predicted": {**first["predicted"], **change}}
    assert make_plan(dataclasses.replace(request, previous=first))["kept"]
    assert make_plan(dataclasses.replace(request, previous=previous)) == first


def test_figures_that_are_missing_are_made_again(ask, pool, small):
    request = ask(*pool(), **small)
    first = make_plan(request)
    for name in first["predicted"]:
        previous = {**first, "predicted": {key: value for key, value in first["predicted"].items() if key != name}}
        assert make_plan(dataclasses.replace(request, previous=previous)) == first


# -- the table ---------------------------------------------------------------------------------------------------


def test_the_table_has_a_line_for_each_rate(ask, pool, small):
    plan = make_plan(ask(*pool(), **small))
    figures = plan["predicted"]
    rate = figures["tokens_per_second"]
    assert predicted.lines(plan) == [
        f"estimate: at most about {rate:g} tokens/s without a draft "
        f"({figures['network_seconds'] * 1000:.3g} of {1000 / rate:.3g} ms on the network)",
        f"estimate: about {figures['with_draft_tokens_per_second']:g} tokens/s with 16 drafted per round, each "
        f"accepted with a chance of 70%; it pays above {figures['break_even_acceptance']:.1%}",
    ]
    text = " ".join(plan_table(plan).split())
    assert all(f"speed {line} " in text for line in predicted.lines(plan))
    never = {**figures, "break_even_acceptance": None, "draft_reason": "it is slow"}
    assert predicted.lines({"predicted": never})[1].endswith("; it never pays, as it is slow")
    assert predicted.lines({}) == predicted.lines({"predicted": None}) == []
    assert "speed" not in plan_table({**plan, "predicted": {}})


def test_rounds_do_not_shrink_as_more_is_drafted(ask, pool, small, world):
    request = ask(*pool(), **small, model=mixture(world))
    chosen = Planner(request).choose()
    rounds, reason = draft_rounds(request, chosen.layout, chosen.speculation)
    assert reason is None
    assert isinstance(rounds, Rounds)
    costs = [rounds.relative_cost(n_draft) for n_draft in range(1, 40)]
    assert costs == sorted(costs)
    assert costs[0] > 1


def test_a_draft_on_a_worker_pays_the_link_in_every_step(ask, pool, small):
    asked = ask(*pool(worker=(1400, 400)), draft_max=4, draft_device="b", **small)
    found = make_plan(asked)
    assert (found["draft"]["host"], found["draft"]["device"]) == ("b", "RPC0")
    read = DRAFT / (400 * GB)

    def way(tokens):
        return 0.0003 + (1024 * tokens + 32000) * FLOAT * 8 / (1000 * 1_000_000)

    seconds = 4 * (read + way(1)) + read + way(5) + reading(found) + network(5)
    rate = expected_tokens(0.7, 4) / seconds
    assert found["predicted"]["with_draft_tokens_per_second"] == three(rate)
    near = make_plan(dataclasses.replace(asked, draft_device="auto"))["predicted"]
    assert near["with_draft_tokens_per_second"] > found["predicted"]["with_draft_tokens_per_second"]


def test_no_rate_is_claimed_of_other_kinds(ask, pool, small):
    asked = ask(*pool(), **small)
    chosen = Planner(asked).choose()
    for kind in ("draft-eagle3", "draft-mtp", "ngram-mod"):
        rounds, reason = draft_rounds(asked, chosen.layout, Speculation(kind, 4, False))
        assert rounds is None
        assert reason == f"how many tokens of {kind} are accepted, and how long it takes, is not known"


# -- the documentation -------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[5] / "docs" / "predictions.md"


def test_the_worked_example_of_the_documentation(ask, world):
    heads = {"attention.head_count": 64, "attention.head_count_kv": 8}
    target = world.gguf(
        n_layer=80,
        layer_mib=480,
        embd_mib=800,
        output_mib=800,
        embedding_length=8192,
        feed_forward_length=28672,
        **heads,
    )
    draft = world.gguf("/models/draft.gguf", n_layer=16, layer_mib=45, embd_mib=200, output_mib=200)
    nodes = [world.node(1, [24000]), world.node(2, [24000])]
    for node in nodes:
        node["gpus"][0]["bandwidth_bytes_per_second"] = 936 * GB
    nodes[0]["links"] = [link("b")]
    plans = [
        make_plan(
            ask(*nodes, model=target, draft=draft, draft_path="/models/draft.gguf", draft_max=n_draft, ctx_size=8192)
        )
        for n_draft in (16, 6)
    ]
    long, short = (plan["predicted"] for plan in plans)
    read = (80 * 480 + 800) * MIB / (936 * GB) * 1000
    step = (16 * 45 + 200) * MIB / (936 * GB) * 1000
    hop, batch_hop = (0.3 + tokens * 2 * 8192 * FLOAT * 8 / 1e6 for tokens in (1, 17))
    whole = 17 * step + read + batch_hop
    said = " ".join(PAGE.read_text().split())
    for sentence in (
        f"reading takes {read:.1f} ms, the network {hop:.2f} ms: {long['tokens_per_second']:g} tokens/s.",
        f"a step of the draft takes {step:.2f} ms.",
        f"16 steps {16 * step:.1f} ms, the replay {step:.1f} ms, the check {read:.1f} ms and its way "
        f"{batch_hop:.1f} ms: {whole:.1f} ms.",
        f"E(0.7, 16) = {expected_tokens(0.7, 16):.2f} tokens, so {long['with_draft_tokens_per_second']:g} tokens/s.",
        f"takes as long as {whole / (read + hop):.2f} tokens without the draft, which it gives above an acceptance of "
        f"{long['break_even_acceptance']:.1%}.",
        f"{short['with_draft_tokens_per_second']:g} tokens/s with `relay_draft_max: 6`, which pays above "
        f"{short['break_even_acceptance']:.1%}.",
    ):
        assert sentence in said, sentence
    assert plans[0]["advice"] == [
        "by the estimate relay_draft_max 6 is better than 16 at an acceptance of 70%, which is assumed: 55.5 tokens/s "
        "instead of 47.1"
    ]
    assert plans[1]["advice"] == []
