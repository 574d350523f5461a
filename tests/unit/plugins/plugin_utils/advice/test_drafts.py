# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan says about its draft and its cache beside the numbers, and where it says nothing."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan

MIB = 1024 * 1024
GB = 10**9
QWEN3NEXT = {
    "arch": "qwen3next", "full_attention_interval": 4, "ssm__conv_kernel": 4, "ssm__state_size": 128,
    "ssm__group_count": 16, "ssm__time_step_rank": 32, "ssm__inner_size": 4096,
}  # fmt: skip


@pytest.fixture
def advice(ask, world):
    """The advice of a plan over a host of 1600 and a worker of 1600 free MiB, both with 500 GB/s."""

    def make(rtt=0.0003, bandwidth=500, draft_mib=10, free=(1600, 1600), mbps=1000, **options):
        nodes = []
        for number, room in enumerate(free, 1):
            node = world.node(number, [room])
            node["gpus"][0]["bandwidth_bytes_per_second"] = bandwidth and bandwidth * GB
            nodes.append(node)
        nodes[0]["links"] = [{"name": "b", "rtt_seconds": rtt, "speed_mbps": mbps, "reason": "no ping"}]
        if draft_mib:
            options.setdefault("draft_path", "/models/draft.gguf")
            options.setdefault(
                "draft", world.gguf("/models/draft.gguf", n_layer=4, layer_mib=draft_mib, embd_mib=5, output_mib=5)
            )
        options.setdefault("draft_max", 3)
        return make_plan(ask(*nodes, **options))["advice"]

    return make


def mixture(world, used=5):
    """100 MiB per layer, of which 80 experts take 1 MiB each."""
    model = world.gguf(arch="qwen3moe", expert_count=80, expert_used_count=used)
    model["tensors"].update(experts=[80 * MIB] * 10, expert=[MIB] * 10)
    return model


def test_a_good_draft_needs_no_word(advice):
    assert advice() == []


def test_a_mixture_of_experts_gains_little(advice, world):
    (line,) = [line for line in advice(model=mixture(world), rtt=0.00001, draft_max=16) if "mixture" in line]
    # 20 MiB of 10 layers are read by all, 5 MiB by a token, the output of 60 MiB by all
    assert line == (
        "a mixture of experts gains little from a draft: a token reads 311 MiB of weights, a check of 17 tokens, each "
        "with experts of its own, up to 1 061 MiB"
    )


def test_a_mixture_behind_a_slow_link_gains_all_the_same(advice, world):
    assert advice(model=mixture(world), rtt=0.05) == []
    # without a bandwidth there is no estimate that would say so
    assert len(advice(model=mixture(world), rtt=0.05, bandwidth=None)) == 1
    assert advice(model=mixture(world, used=80), free=(2600, 2600)) == []


@pytest.mark.parametrize(("slots", "lines"), [(1, 0), (4, 0), (5, 1)])
def test_many_slots_fill_a_batch_without_a_draft(advice, slots, lines):
    found = [line for line in advice(parallel=slots, ctx_size=256 * slots) if "slots" in line]
    assert len(found) == lines
    if found:
        assert "with 5 slots busy a round checks 20 tokens at once (5 x 4)" in found[0]
    assert not [line for line in advice(parallel=slots, ctx_size=256 * slots, draft_mib=0) if "slots" in line]


def test_shorter_rounds_that_would_pay_more_are_named(advice):
    (line,) = advice(draft_max=16, draft_mib=40, rtt=0.0005)
    best = int(line.split("relay_draft_max ")[1].split()[0])
    assert 1 <= best < 16
    assert line.startswith(
        f"by the estimate relay_draft_max {best} is better than 16 at an acceptance of 70%, which is assumed: "
    )
    # and with it nothing is left to say
    assert advice(draft_max=best, draft_mib=40, rtt=0.0005) == []
    # one more is nearly as good
    assert advice(draft_max=best + 1, draft_mib=40, rtt=0.0005) == []
    # where rounds end early nobody knows how long they are
    assert advice(draft_max=16, draft_mib=40, rtt=0.0005, draft_p_min=0.5) == []
    assert [line for line in advice(draft_max=16, draft_mib=40, draft_min=9) if "relay_draft_max 9 " in line]


def test_a_draft_that_never_pays_is_called_so(advice):
    options = {"free": (3900, 1600), "draft_scope": "any", "draft_mib": 280}
    # 1125 MiB of the draft against 1060 MiB of the target
    assert advice(draft_max=16, **options) == [
        "by the estimate the draft never pays with relay_draft_max 16: a round of 16 drafted tokens takes as long as "
        "19.0 tokens without the draft and gives at most 17",
        "by the estimate the draft does not pay at an acceptance of 70%, which is assumed: at best 245 tokens/s with "
        "relay_draft_max 1, 450 without the draft",
    ]
    assert advice(draft_max=1, **options)[0].endswith(
        ": a round of 1 drafted token takes as long as 3.1 tokens without the draft and gives at most 2"
    )


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({"rtt": 0.05}, ["every token waits 50.1 of about 52.3 ms for the network"]),
        ({"rtt": 0.05, "bandwidth": None}, ["every token waits 50.1 ms for the network"]),
        ({"rtt": 0.0001}, []),
        ({"rtt": 0.005, "bandwidth": None}, []),
        ({"rtt": 0.0001, "mbps": 10}, ["every token waits 6.65 of about 8.88 ms for the network"]),
        ({"rtt": None, "mbps": 10}, ["the round trip from a to b could not be measured: no ping"]),
        ({"rtt": None}, ["the round trip from a to b could not be measured: no ping"]),
        ({"rtt": 0.05, "free": (3000, 1600)}, []),
    ],
)
def test_a_slow_link_is_where_a_draft_pays_most(advice, options, lines):
    found = advice(draft_mib=0, **options)
    assert [line.split(": a draft")[0] for line in found] == lines
    # who has a draft, or cannot have one, need not be told
    assert not [line for line in advice(**options) if "every token waits" in line]


def test_a_draft_that_is_missing_is_asked_for_as_well(advice):
    (line,) = advice(rtt=0.05, draft=None)
    assert line.endswith(
        "a draft model (relay_draft_model) pays most in such a pool, as the several tokens of a round cross it together"
    )


def test_a_recurrent_state_would_be_saved_in_every_round(advice, ask, world):
    model = world.gguf(**QWEN3NEXT)
    line = next(line for line in advice(model=model, parallel=2) if "recurrent state" in line)
    plan = make_plan(ask([1600], [1600], model=model, parallel=1))
    state = sum(stage["memory"]["recurrent_bytes"] for stage in plan["stages"])
    assert line == (
        f"to draft for this model, llama.cpp would save {-(-state // MIB)} MiB of recurrent state in every round, "
        "over the network where a worker holds it"
    )
    assert not [line for line in advice(model=model, draft_mib=0) if "save" in line]


@pytest.mark.parametrize(
    ("k", "v", "name"),
    [("f16", "f16", None), ("bf16", "f32", None), ("q8_0", "q8_0", "q8_0"), ("q8_0", "f16", "q8_0/f16")],
)
def test_a_quantised_cache_has_its_price(advice, k, v, name):
    found = advice(cache_type_k=k, cache_type_v=v)
    assert found == (
        []
        if name is None
        else [
            f"the {name} cache needs flash attention, which on a GPU turns a layer's cache into half floats to process "
            "a batch: up to 4 MiB of each GPU's compute buffer are for that",
            "the draft's KV cache stays f16 (16 MiB): relay_kv_cache_type does not reach it",
        ]
    )
    assert len(advice(cache_type_k=k, cache_type_v=v, draft_mib=0)) == (name is not None)


def test_a_cache_in_ram_is_no_matter_of_gpus(ask):
    assert make_plan(ask([], cache_type_k="q8_0", cache_type_v="q8_0", allow_cpu=True))["advice"] == []


def test_a_model_without_a_cache_has_none_to_quantise(advice, world):
    ssm = {"ssm__conv_kernel": 4, "ssm__state_size": 16, "ssm__time_step_rank": 64, "ssm__inner_size": 2048}
    heads = {"attention__head_count": 0, "attention__head_count_kv": 0}
    model = world.gguf(arch="mamba", **ssm, **heads)
    assert not [line for line in advice(model=model, draft_mib=0, cache_type_k="q8_0") if "q8_0" in line]


@pytest.mark.parametrize(
    ("arch", "options", "told"),
    [
        ("glm4moe", {}, True),
        ("glm4moe", {"draft_path": "/models/gone.gguf"}, True),
        # not wanted, and not possible
        ("glm4moe", {"speculation_type": "none"}, False),
        ("glm4moe", {"draft_max": 0}, False),
        ("llama", {}, False),
    ],
)
def test_a_target_whose_own_layers_draft(advice, world, arch, options, told):
    model = world.gguf(n_layer=11, arch=arch, nextn_predict_layers=1)
    model["tensors"]["nextn_blocks"] = [10]
    lines = advice(draft_mib=0, model=model, free=(1300, 1300), **options)
    line = (
        "the target has a layer that predicts further tokens (MTP): relay_speculation_type draft-mtp drafts without a "
        "second model"
    )
    assert (line in lines) is told


@pytest.fixture
def warned(ask, world):
    """The warnings of a plan with a draft; ``target`` and ``draft`` are facts of their tokenizers."""

    def make(target=None, draft=None, path="/models/draft.gguf", **options):
        files = world.gguf(), world.gguf(path, n_layer=4, layer_mib=20, embd_mib=10, output_mib=10)
        for gguf, facts in zip(files, (target, draft)):
            gguf["tokenizer"].update(facts or {})
        plan = make_plan(ask([1300], [1300], model=files[0], draft=files[1], draft_path=path, **options))
        assert plan["draft"]["enabled"], plan["draft"]["message"]
        return [line for line in plan["warnings"] if "llama.cpp is not installed" not in line]

    return make


PADDED = {"padding_from": 32000, "unreachable_from": 32000, "digest": "x", "tail_digests": ["same"]}


def test_padding_that_only_the_target_has_is_named_by_its_numbers(warned):
    assert warned() == []
    assert warned(draft={**PADDED, "n_tokens": 32005}) == []
    more = {**PADDED, "n_tokens": 32005, "tail_digests": ["same", "b", "c", "d", "e"]}
    for comparison in (None, {"compatible": True, "notes": []}):
        assert warned(more, comparison=comparison) == [
            "only the target has the tokens 32000 to 32004, padding that no text gives: a client that sends such a "
            "number, in prompt or logit_bias, aborts llama-server; let in trusted clients only (relay_api_key), or use "
            "a draft with 32005 tokens"
        ]
    (line,) = warned({**PADDED, "n_tokens": 32001})
    assert line.startswith("only the target has the tokens 32000, padding")


def test_what_llama_cpp_does_not_compare_is_said(warned):
    (line,) = warned({"eos_token_id": 2}, {"eos_token_id": 7})
    assert line == (
        "eos_token_id is 2 in the target and 7 in the draft, which llama.cpp does not compare: the draft may be right "
        "less often, a measurement tells"
    )
    (line,) = warned(
        comparison={"compatible": True, "notes": ["the pre-tokenizer is a in the target and b in the draft"]}
    )
    assert line.startswith("the pre-tokenizer is a in the target and b in the draft: the draft may be right less often")


def test_a_target_with_a_pre_tokenizer_that_the_build_does_not_know(ask, world):
    model = world.gguf()
    model["tokenizer"]["pre"] = "tomorrow"
    for llama, wrong in ((None, True), ({"build": 11434}, True), ({"build": 11435}, False)):
        text = "\n".join(make_plan(ask([3000], model=model, llama=llama))["warnings"])
        assert ("has the pre-tokenizer 'tomorrow', which llama.cpp b11434 does not know: llama-server" in text) is wrong
