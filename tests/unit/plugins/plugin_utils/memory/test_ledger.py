# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of weights, KV cache and recurrent state per layer."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory import kv
from ansible_collections.relay.pool.plugins.plugin_utils.memory.compute import Batch, device_bytes, host_bytes
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import (
    ContextSpec,
    memory_estimate,
    model_ledger,
    whole_model,
)
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import model_shape
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan

MIB = 1024 * 1024
MLA = {"attention__key_length_mla": 192, "attention__value_length_mla": 128}


def spec(ctx=4096, parallel=1, k="f16", v="f16", ubatch=512):
    return ContextSpec(ctx, parallel, k, v, ubatch, parallel)


@pytest.mark.parametrize(
    ("ctx", "parallel", "expected"),
    [
        (4096, 3, (4608, 1536)),
        (2048, 4, (2048, 512)),
        (16384, 2, (16384, 8192)),
        (100, 1, (256, 256)),
        (1000, 2, (1024, 512)),
    ],
)
def test_context_is_padded_per_slot(ctx, parallel, expected):
    assert kv.context(ctx, parallel) == expected
    # what the plan writes as --ctx-size must not grow once more
    assert kv.context(expected[0], parallel) == expected


@pytest.mark.parametrize(
    ("cache", "bytes_per_256"),
    [
        ("f32", 1024),
        ("f16", 512),
        ("bf16", 512),
        ("q8_0", 272),
        ("q5_1", 192),
        ("q5_0", 176),
        ("q4_1", 160),
        ("q4_0", 144),
        ("iq4_nl", 144),
    ],
)
def test_kv_per_layer_by_type(world, cache, bytes_per_256):
    # 2 heads of 128 values: 256 each for K and V
    assert model_ledger(world.gguf(), spec(k=cache, v=cache)).kv == (4096 * 2 * bytes_per_256,) * 10


def test_kv_with_different_heads_per_layer(world):
    ledger = model_ledger(world.gguf(n_layer=3, attention__head_count_kv=[2, 0, 4]), spec())
    assert ledger.kv == (4096 * 1024, 0, 4096 * 2048)


def test_kv_of_multi_head_latent_attention_has_no_v(world):
    keys = {"attention__head_count_kv": 1, "attention__key_length": 576, "attention__value_length": 512}
    assert model_ledger(world.gguf(arch="deepseek2", **keys, **MLA), spec()).kv[0] == 4096 * 576 * 2
    assert model_ledger(world.gguf(arch="deepseek2", **keys), spec()).kv[0] == 4096 * (576 + 512) * 2


LFM2 = {
    "arch": "lfm2",
    "n_layer": 16,
    "embedding_length": 2048,
    "attention__head_count": 32,
    "attention__head_count_kv": [8 if layer in (2, 5, 8, 10, 12, 14) else 0 for layer in range(16)],
    "shortconv__l_cache": 3,
}
QWEN36_27B = {
    "arch": "qwen35",
    "n_layer": 64,
    "embedding_length": 5120,
    "attention__head_count": 24,
    "attention__head_count_kv": 4,
    "attention__key_length": 256,
    "attention__value_length": 256,
    "full_attention_interval": 4,
    "ssm__conv_kernel": 4,
    "ssm__inner_size": 6144,
    "ssm__state_size": 128,
    "ssm__group_count": 16,
}
QWEN36_35B = {
    "arch": "qwen35moe",
    "n_layer": 40,
    "embedding_length": 2048,
    "attention__head_count": 16,
    "attention__head_count_kv": 2,
    "attention__key_length": 256,
    "attention__value_length": 256,
    "full_attention_interval": 4,
}
DEEPSEEK_V3 = {
    "arch": "deepseek2",
    "n_layer": 61,
    "embedding_length": 7168,
    "attention__head_count": 128,
    "attention__head_count_kv": 1,
    "attention__key_length": 576,
    "attention__value_length": 512,
    **MLA,
}
DEEPSEEK_V3_OLD = {
    "arch": "deepseek2",
    "n_layer": 61,
    "embedding_length": 7168,
    "attention__head_count": 128,
    "attention__head_count_kv": 128,
    "attention__key_length": 192,
    "attention__value_length": 128,
}
GPT_OSS = {
    "arch": "gpt-oss",
    "n_layer": 24,
    "embedding_length": 2880,
    "attention__head_count": 64,
    "attention__head_count_kv": 8,
    "attention__key_length": 64,
    "attention__value_length": 64,
    "attention__sliding_window": 128,
}


@pytest.mark.parametrize(
    ("keys", "ctx", "cache", "expected"),
    [
        # the list of heads begins with 0: six layers of sixteen attend
        (LFM2, 4096, "f16", 50331648),
        (LFM2, 32768, "f16", 402653184),
        # every fourth layer attends
        (QWEN36_27B, 262144, "f16", 17179869184),
        (QWEN36_35B, 4096, "f16", 4096 * 20480),
        # one latent row, and the same model in an older file without the keys for it
        (DEEPSEEK_V3, 32768, "f16", 2302672896),
        (DEEPSEEK_V3, 32768, "q8_0", 1223294976),
        (DEEPSEEK_V3_OLD, 32768, "f16", 163745628160),
        # twelve layers in full, twelve with 768 cells
        (GPT_OSS, 131072, "f16", 3221225472 + 18874368),
    ],
)
def test_kv_of_models_that_others_got_wrong(world, keys, ctx, cache, expected):
    ledger = model_ledger(world.gguf(**keys), spec(ctx=ctx, k=cache, v=cache))
    assert sum(ledger.kv) == expected
    assert not ledger.assumptions


def test_recurrent_state_grows_with_the_slots_and_not_with_the_context(world):
    four = model_ledger(world.gguf(**QWEN36_27B), spec(ctx=4096, parallel=4))
    assert sum(four.recurrent) == pytest.approx(598.5 * MIB, rel=1e-3)
    assert four.recurrent == model_ledger(world.gguf(**QWEN36_27B), spec(ctx=131072, parallel=4)).recurrent
    one = model_ledger(world.gguf(**QWEN36_27B), spec(ctx=4096, parallel=1))
    assert sum(one.recurrent) * 4 == sum(four.recurrent)


def test_windowed_layers_come_first_in_each_pair(world):
    ledger = model_ledger(world.gguf(**GPT_OSS), spec(ctx=131072))
    assert ledger.kv[0] < ledger.kv[1]


def test_a_window_of_an_unknown_architecture_is_charged_in_full(world):
    model = world.gguf(arch="newarch", attention__sliding_window=128)
    ledger = model_ledger(model, spec())
    assert ledger.kv == (4096 * 1024,) * 10
    assert "the window of 128 tokens is not believed for architecture newarch" in ledger.assumptions[1]
    assert memory_estimate(model, spec())["assumptions"] == list(ledger.assumptions)


def test_the_plan_says_what_is_charged_in_full(ask, world):
    advice = make_plan(ask([9000], model=world.gguf(arch="newarch", attention__sliding_window=128)))["advice"]
    assert [line for line in advice if "newarch" in line][1].startswith("the window of 128 tokens is not believed")
    assert not [line for line in make_plan(ask([9000]))["advice"] if "charged in full" in line]


def test_interval_layers_hold_a_state_instead_of_a_cache(world):
    model = world.gguf(
        arch="qwen35",
        n_layer=9,
        nextn_predict_layers=1,
        full_attention_interval=4,
        ssm__conv_kernel=4,
        ssm__inner_size=1024,
        ssm__state_size=128,
        ssm__group_count=2,
    )
    ledger = model_ledger(model, spec(parallel=2))
    assert [bool(size) for size in ledger.kv] == [False, False, False, True] * 2 + [False]
    state = (3 * (1024 + 2 * 2 * 128) + 128 * 1024) * 4 * 2
    assert ledger.recurrent == ((state,) * 3 + (0,)) * 2 + (0,)
    assert ledger.weights[8] == 0


@pytest.mark.parametrize(
    ("arch", "kv_layers", "state_layers"),
    [
        ("jamba", [False, True], [True, False]),
        ("falcon-h1", [False, True], [True, True]),
        ("mamba", [False, False], [True, True]),
    ],
)
def test_hybrid_layers(world, arch, kv_layers, state_layers):
    shape = model_shape(
        world.gguf(arch=arch, n_layer=2, attention__head_count_kv=[0, 2], ssm__inner_size=8, ssm__state_size=4)
    )
    assert shape.hybrid
    assert [attends and heads > 0 for attends, heads in zip(shape.attention, shape.head_kv)] == kv_layers
    assert list(shape.recurrent) == state_layers


def test_tied_output_is_copied_to_a_gpu_but_not_on_the_cpu(world):
    ledger = model_ledger(world.gguf(output_mib=0), spec())
    gpu, ram = whole_model(ledger, on_gpu=True)
    assert gpu.weights == 1050 * MIB + 4096
    assert ram.weights == 50 * MIB
    none, everything = whole_model(ledger, on_gpu=False)
    assert none.total == 0
    assert everything.weights == 1050 * MIB + 4096
    assert everything.kv == 10 * 4096 * 1024


@pytest.mark.parametrize(
    ("arch", "token_embd", "copied"),
    [
        ("llama", 131072, False),
        # they ask for the output first
        ("gemma3n", 131072, True),
        ("gemma4", 131072, True),
        # Q4_0, Q4_K or IQ4_NL; MXFP4; Q6_K and Q8_0; F16 (a matrix of 64 times 1024 weights)
        ("llama", 64 * 1024 * 18 // 32, True),
        ("llama", 64 * 1024 * 17 // 32, True),
        ("llama", 64 * 1024 * 210 // 256, False),
        ("llama", 64 * 1024 * 34 // 32, False),
    ],
)
def test_a_tied_output_on_the_cpu_is_a_copy_where_the_cpu_has_its_own_order(world, arch, token_embd, copied):
    model = world.gguf(arch=arch, n_layer=2, layer_mib=0, output_mib=0, embedding_length=64)
    model["tensors"].update(token_embd_bytes=token_embd, input_bytes=token_embd, output_norm_bytes=256)
    model["tokenizer"]["n_tokens"] = 1024
    ledger = model_ledger(model, spec())
    _none, ram = whole_model(ledger, on_gpu=False)
    assert ram.weights == token_embd + 256 + (token_embd if copied else 0)
    # the output's device always gets one
    gpu, _ram = whole_model(ledger, on_gpu=True)
    assert gpu.weights == token_embd + 256
    # an odd number of rows has no order of its own
    model["tokenizer"]["n_tokens"] = 1023
    model["tensors"]["token_embd_bytes"] = odd = token_embd // 1024 * 1023
    assert model_ledger(model, spec()).output_tied_on_cpu == (odd if arch != "llama" else 0)


def test_bitnet_multiplies_with_the_token_embedding_itself(world):
    gpu, ram = whole_model(model_ledger(world.gguf(arch="bitnet", output_mib=0), spec()), on_gpu=True)
    assert gpu.weights == 1000 * MIB + 4096
    assert ram.weights == 50 * MIB


def test_layers_that_llama_cpp_adds_have_a_cache_and_no_weights(world):
    looped = model_ledger(world.gguf(arch="nanbeige", n_layer=4, num_loops=3), spec())
    assert looped.weights == (100 * MIB,) * 4 + (0,) * 8
    assert looped.kv == (4096 * 1024,) * 12
    picking = model_ledger(world.gguf(arch="graniteswitch", n_layer=4), spec())
    assert picking.weights == (100 * MIB,) * 4 + (0,)
    assert picking.kv == (4096 * 1024,) * 4 + (4096 * 512,)


@pytest.mark.parametrize("arch", ["deepseek4", "dots3note", "glm5-next", "mistral4", "nemotron_h", "qwen4exp"])
def test_next_token_layers_are_not_loaded(world, arch):
    keys = {"attention__compress_ratios": [0] * 10, "attention__sliding_window": 128, "nextn_predict_layers": 2}
    ledger = model_ledger(world.gguf(arch=arch, **keys), spec())
    assert ledger.weights == (100 * MIB,) * 8 + (0, 0)


@pytest.mark.parametrize(
    ("n_layer", "parallel", "k", "v", "head", "text"),
    [
        # as counted: 40 layers of phi3 start with one slot or one quantised half of the cache, and not with both
        (40, 1, "q8_0", "q8_0", 128, None),
        (40, 4, "f16", "f16", 128, None),
        (40, 2, "q8_0", "f16", 128, None),
        (40, 2, "q8_0", "q8_0", 96, None),
        (39, 2, "q8_0", "q8_0", 128, None),
        (43, 2, "q8_0", "q8_0", 128, None),
        (40, 2, "q8_0", "q8_0", 128, "a q8_0 cache and 2 slots makes a graph of 2063 .* use an f16 cache or one slot$"),
        (40, 3, "q4_0", "q4_0", 64, "use an f16 cache or one slot$"),
        (42, 1, "q8_0", "q8_0", 128, "use an f16 cache$"),
    ],
)
def test_a_graph_that_does_not_fit_is_refused(world, n_layer, parallel, k, v, head, text):
    heads = {"attention__key_length": head, "attention__value_length": head}
    model = world.gguf(arch="phi3", n_layer=n_layer, **heads)
    model["tensors"]["count"] = 6 * n_layer + 3
    if text is None:
        assert model_ledger(model, spec(parallel=parallel, k=k, v=v))
        return
    with pytest.raises(PoolError, match=text):
        model_ledger(model, spec(parallel=parallel, k=k, v=v))
    # of other architectures nothing is known
    other = world.gguf(n_layer=n_layer, **heads)
    other["tensors"]["count"] = 6 * n_layer + 3
    assert model_ledger(other, spec(parallel=parallel, k=k, v=v))


@pytest.mark.parametrize(
    ("parallel", "ubatch", "starts"), [(4, 512, True), (3, 512, False), (3, 384, True), (5, 500, True)]
)
def test_slots_that_do_not_divide_a_micro_batch_are_refused_where_they_must(world, parallel, ubatch, starts):
    keys = {"kda__head_dim": 128, "ssm__conv_kernel": 4, "attention__head_count_kv": [0, 1] * 5, **MLA}
    wanted = spec(ctx=8192, parallel=parallel, ubatch=ubatch)
    if starts:
        assert model_ledger(world.gguf(arch="kimi-linear", **keys), wanted)
    else:
        with pytest.raises(PoolError, match="512 tokens does not divide by 3, choose slots"):
            model_ledger(world.gguf(arch="kimi-linear", **keys), wanted)
    assert model_ledger(world.gguf(arch="bailingmoe3", **keys), wanted)


def test_the_last_layers_of_a_draft_go_to_its_gpu(world):
    gpu, ram = whole_model(model_ledger(world.gguf(), spec()), on_gpu=True, n_gpu_layers=4)
    assert gpu.weights == 3 * 100 * MIB + 60 * MIB + 4096
    assert ram.weights == 7 * 100 * MIB + 50 * MIB
    assert gpu.kv * 7 == ram.kv * 3


def test_rows_are_padded_on_gpus_only(world):
    model = world.gguf()
    model["tensors"]["row_padding"] = {"512": [7] * 10, "512_output": 5}
    ledger = model_ledger(model, spec())
    assert ledger.layer_weights(0, 2, True) - ledger.layer_weights(0, 2, False) == 14
    assert ledger.output_weights(True) - ledger.output_weights(False) == 5


def test_compute_grows_with_what_it_depends_on(world):
    shape = model_shape(world.gguf())
    small, large = Batch(4096, 0, 512, 1), Batch(8192, 0, 512, 1)
    assert (
        device_bytes(shape, large, True, False, False) - device_bytes(shape, small, True, False, False) == 4096 * 1024
    )
    assert device_bytes(shape, small, True, True, False) > device_bytes(shape, small, False, True, False)
    assert device_bytes(shape, Batch(4096, 0, 512, 512), False, False, True) > 512 * 32000 * 4
    assert host_bytes(shape, small, True, False) > host_bytes(shape, small, False, False)


def test_compute_bounds_what_llama_cpp_reported(world):
    """SmolLM2-135M, context 4096 in two slots, as llama-server b11434 printed it (MiB)."""
    keys = {"attention__head_count": 9, "attention__head_count_kv": 3}
    model = world.gguf(n_layer=30, embedding_length=576, feed_forward_length=1536, **keys)
    model["tokenizer"]["n_tokens"] = 49152
    shape = model_shape(model)
    two, rows = Batch(2048, 0, 512, 2), Batch(2048, 0, 512, 512)
    for bound, reported in (
        (device_bytes(shape, two, True, True, False), 35),
        (device_bytes(shape, rows, False, True, True), 115),
        (device_bytes(shape, rows, True, False, True), 102),
        (device_bytes(shape, two, False, False, False), 13.26),
        (host_bytes(shape, two, True, False), 16.64 + 0.38),
        (host_bytes(shape, two, False, True), 19 + 0.38),
    ):
        assert reported * MIB <= bound <= 1.5 * reported * MIB


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"role": "adapter"}, "role adapter"),
        ({"missing": ["m-00002-of-00002.gguf"]}, "m-00002-of-00002"),
        ({"byte_order": "big"}, "big endian"),
        ({"architecture": None}, "no architecture"),
    ],
)
def test_what_cannot_be_sized_is_refused(world, change, text):
    with pytest.raises(PoolError, match=text):
        model_ledger({**world.gguf(), **change}, spec())


def test_missing_keys_and_odd_sizes_are_named(world):
    with pytest.raises(PoolError, match=r"no llama\.block_count"):
        model_ledger(world.gguf(block_count=None), spec())
    model = copy.deepcopy(world.gguf())
    model["tensors"]["blocks"].pop()
    with pytest.raises(PoolError, match="9 blocks but has 10 layers"):
        model_ledger(model, spec())
    model["tensors"]["unknown_types"] = [43]
    with pytest.raises(PoolError, match="unknown types 43"):
        model_ledger(model, spec())


@pytest.mark.parametrize(
    ("keys", "k", "v", "text"),
    [
        ({}, "q9", "f16", "cache type q9"),
        ({"attention__key_length": 80, "attention__value_length": 80}, "q8_0", "f16", "no multiple of 32"),
        ({"arch": "deepseek2", **MLA}, "f16", "q8_0", "one cache type"),
    ],
)
def test_cache_types_that_llama_cpp_refuses(world, keys, k, v, text):
    with pytest.raises(PoolError, match=text):
        model_ledger(world.gguf(**keys), spec(k=k, v=v))


def test_estimate_adds_up(world):
    estimate = memory_estimate(world.gguf(), spec(ctx=4000, parallel=2))
    assert estimate["ctx_size"] == 4096
    assert estimate["weights_bytes"] == 1110 * MIB + 4096
    parts = ("weights_bytes", "kv_bytes", "recurrent_bytes", "compute_bytes", "host_compute_bytes")
    assert estimate["total_bytes"] == sum(estimate[part] for part in parts)
