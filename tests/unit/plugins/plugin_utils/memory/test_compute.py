# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute buffers, beside what llama.cpp b11434 reports for the same shapes (context of 4096, one slot, f16 cache)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.memory import kv
from ansible_collections.relay.pool.plugins.plugin_utils.memory.batch import Batch
from ansible_collections.relay.pool.plugins.plugin_utils.memory.compute import device_bytes, host_bytes
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import model_shape

MIB = 1024 * 1024
# llama.cpp logs hundredths of a MiB.
ROUNDING = 0.006
PLACES = ("cpu", "bare host", "only", "first", "later", "piped host", "first after host", "last after host")


def dims(arch, layers, embd, ff, heads, head_kv, vocab, head=None, **more):
    """A gguf_info result as far as the shape reads it; two underscores stand for a dot."""
    keys = {
        "block_count": layers,
        "embedding_length": embd,
        "feed_forward_length": ff,
        "attention.head_count": heads,
        "attention.head_count_kv": head_kv,
    }
    if head:
        keys.update({"attention.key_length": head, "attention.value_length": head})
    keys.update({name.replace("__", "."): value for name, value in more.items()})
    return {
        "architecture": arch,
        "path": f"/models/{arch}.gguf",
        "metadata": {f"{arch}.{name}": value for name, value in keys.items()},
        "tokenizer": {"n_tokens": vocab},
    }


def routed(count, used, inner, **more):
    return {"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": inner, **more}


LATENT = {
    "attention__key_length": 576, "attention__value_length": 512, "attention__key_length_mla": 192,
    "attention__value_length_mla": 128, "leading_dense_block_count": 3,
}  # fmt: skip
OWN_LAYERS = {
    "attention__sliding_window": 512, "embedding_length_per_layer_input": 256,
    "attention__key_length": 512, "attention__value_length": 512, "attention__key_length_swa": 256,
    "attention__value_length_swa": 256, "attention__shared_kv_layers": 20,
    "attention__sliding_window_pattern": [(layer + 1) % 5 != 0 for layer in range(35)],
}  # fmt: skip
SHAPES = {
    "gated": dims("llama", 32, 4096, 14336, 32, 8, 128256),
    "narrow query": dims("llama", 40, 5120, 32768, 32, 8, 131072, 128),
    "wide query": dims("qwen3", 64, 5120, 25600, 64, 8, 151936, 128),
    "no gate": dims("starcoder2", 32, 4608, 18432, 36, 4, 49152),
    "learned positions": dims("gpt2", 48, 1600, 6400, 25, 25, 50257),
    "no first norm": dims("olmo2", 40, 5120, 13824, 40, 40, 100352),
    "parallel": dims("command-r", 40, 8192, 24576, 64, 8, 256000),
    "window": dims("gemma3", 48, 3840, 15360, 16, 8, 262144, 256, attention__sliding_window=1024),
    "routed": dims("qwen3moe", 48, 2048, 6144, 32, 4, 151936, 128, **routed(128, 8, 768)),
    "dense lead": dims(
        "ernie4_5-moe", 28, 2560, 12288, 20, 4, 103424, 128, leading_dense_block_count=1,
        interleave_moe_layer_step=1, **routed(64, 6, 1536, expert_shared_feed_forward_length=3072),
    ),
    "weighted input": dims("llama4", 48, 5120, 16384, 40, 8, 202048, 128, interleave_moe_layer_step=1,
                           **routed(16, 1, 8192)),
    "latent": dims("deepseek2", 61, 7168, 18432, 128, 1, 129280, **LATENT,
                   **routed(256, 8, 2048, expert_shared_count=1)),
    "small latent": dims("deepseek2", 27, 2048, 10944, 16, 1, 102400, **{**LATENT, "leading_dense_block_count": 1},
                         **routed(64, 6, 1408, expert_shared_count=2)),
    "image rows": dims("qwen3vl", 36, 4096, 12288, 32, 8, 151936, 128, n_deepstack_layers=3),
    "own embeddings": dims("gemma4", 35, 1536, [6144] * 15 + [12288] * 20, 8, 1, 262144, **OWN_LAYERS),
    "streams": dims("gemma3n", 30, 2048, 8192, 8, 2, 262144, 256, attention__sliding_window=512),
}  # fmt: skip
# MiB in the order of PLACES; two devices share the layers evenly, after the host a quarter of them is on its CPU.
MEASURED = {
    "gated": (128.02, 36.02, 120.01, 228.05, 188.04, 96.07, 104.01, 104.01),
    "narrow query": (246.02, 44.02, 236.01, 366.05, 316.04, 116.07, 216.01, 216.01),
    "wide query": (204.02, 44.02, 194.01, 332.05, 282.04, 116.07, 174.01, 174.01),
    "no gate": (85.02, 40.02, 76.01, 196.05, 151.04, 106.07, 58.01, 58.01),
    "learned positions": (32.14, 19.64, 25.88, 62.91, 62.91, 50.45, 25.88, 25.88),
    "no first norm": (135.02, 44.02, 125.01, 257.05, 167.04, 116.07, 115.01, 115.01),
    "parallel": (228.02, 68.02, 212.01, 416.05, 336.04, 176.07, 196.01, 196.01),
    "window": (133.03, 35.53, 125.52, 232.59, 195.07, 97.11, 110.52, 110.52),
    "routed": (92.02, 20.02, 88.01, 152.05, 132.04, 56.07, 96.03, 80.51),
    "dense lead": (101.02, 24.02, 96.01, 163.05, 120.41, 66.07, 73.01, 68.38),
    "weighted input": (116.03, 48.03, 106.02, 250.19, 200.17, 132.11, 96.02, 96.11),
    "latent": (410.01, 60.01, 396.01, 592.04, 506.02, 156.05, 382.01, 382.01),
    "small latent": (88.14, 20.01, 84.13, 153.04, 133.02, 56.05, 65.51, 61.77),
    "image rows": (196.02, 108.02, 235.83, 799.33, 176.06, 312.09, 92.02, 92.02),
    "own embeddings": (109.53, 37.53, 118.52, 212.57, 350.01, 70.62, 86.52, 125.0),
    "streams": (119.03, 40.03, 104.02, 331.57, 334.1, 79.12, 94.52, 79.02),
}
MOST = 0.25


def batch(shape, ctx=4096, slots=1, outputs=None, cache="f16"):
    _total, per_slot = kv.context(ctx, slots)
    window = kv.window_cells(shape, per_slot, 512) if shape.window else 0
    caches = tuple(kv.kv_bytes(shape, ctx, slots, cache, cache, 512))
    half = max(kv.kv_bytes(shape, ctx, slots, "f16", "f16", 512)) if cache != "f16" else 0
    return Batch(per_slot, window, 512, outputs or slots, caches, slots, half)


def predicted(shape, place, used):
    """MiB of the place, without the buffer of logits that the host's figure holds."""
    n_layer = shape.n_layer
    middle, on_host = n_layer // 2, n_layer // 4
    later = on_host + (n_layer - on_host) // 2
    logits = used.n_outputs * shape.n_vocab * 4
    size = {
        "cpu": lambda: host_bytes(shape, used, True, False, True) - logits,
        "bare host": lambda: host_bytes(shape, used, False, False) - logits,
        "piped host": lambda: host_bytes(shape, used, False, True) - logits,
        "only": lambda: device_bytes(shape, used, True, False, True, (0, n_layer)),
        "first": lambda: device_bytes(shape, used, True, True, False, (0, middle)),
        "later": lambda: device_bytes(shape, used, False, True, True, (middle, n_layer)),
        "first after host": lambda: device_bytes(shape, used, False, False, False, (on_host, later)),
        "last after host": lambda: device_bytes(shape, used, False, False, True, (later, n_layer)),
    }[place]
    return size() / MIB


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", SHAPES)
def test_never_below_llama_cpp_and_not_far_above(name, place):
    shape = model_shape(SHAPES[name])
    measured = MEASURED[name][PLACES.index(place)]
    found = predicted(shape, place, batch(shape))
    assert measured - ROUNDING <= found <= measured * (1 + MOST)


def test_the_mean_excess_is_small():
    excess = [
        predicted(shape, place, batch(shape)) / measured - 1
        for name, row in MEASURED.items()
        for shape in [model_shape(SHAPES[name])]
        for place, measured in zip(PLACES, row)
    ]
    assert sum(excess) / len(excess) < 0.06


@pytest.mark.parametrize(
    ("name", "place", "ctx", "slots", "outputs", "cache", "measured"),
    [
        ("gated", "only", 4096, 1, 512, "f16", 286.52),
        ("gated", "later", 4096, 1, 512, "f16", 338.55),
        ("gated", "cpu", 4096, 1, 512, "f16", 294.52),
        ("narrow query", "only", 4096, 1, 1, "q8_0", 246.09),
        ("gated", "first", 5000, 3, 3, "q8_0", 211.78),
        ("gated", "piped host", 5000, 3, 3, "q8_0", 87.55),
    ],
)
def test_many_outputs_other_slots_and_caches(name, place, ctx, slots, outputs, cache, measured):
    shape = model_shape(SHAPES[name])
    found = predicted(shape, place, batch(shape, ctx, slots, outputs, cache))
    assert measured - ROUNDING <= found <= measured * (1 + MOST)


@pytest.mark.parametrize(
    ("name", "ctx", "pipelined", "reserved"),
    [
        ("gated", 4096, False, 120.1),
        ("gated", 32768, False, 200.1),
        ("gated", 131072, False, 680.1),
        ("gated", 131072, True, 1160.4),
        ("window", 131072, False, 1200.0),
    ],
)
def test_a_gpu_turns_a_quantised_cache_into_half_floats(name, ctx, pipelined, reserved):
    # reserved: by llama.cpp's allocator when the remote device asks for what ggml-cuda asks for
    shape = model_shape(SHAPES[name])
    used = batch(shape, ctx, cache="q8_0")
    found = device_bytes(shape, used, True, pipelined, not pipelined, gpu=True) / MIB
    assert reserved <= found <= reserved * 1.1
    assert device_bytes(shape, used, True, pipelined, False) <= found * MIB
    assert replace(used, half_kv=0) != used


@pytest.mark.parametrize(
    ("place", "measured"),
    [("cpu", 468.01), ("only", 456.01), ("first", 636.04), ("later", 576.02), ("bare host", 60.01)],
)
def test_without_flash_attention_the_scores_are_a_matrix_per_head(place, measured):
    shape = model_shape(dims("grok", 24, 6144, 32768, 48, 8, 131072, **routed(8, 2, 16384)))
    assert measured - ROUNDING <= predicted(shape, place, batch(shape)) <= measured * 1.1


@pytest.mark.parametrize(
    ("place", "measured"),
    [("cpu", 658.08), ("only", 644.08), ("first", 728.3), ("later", 646.29), ("bare host", 64.08)],
)
def test_an_indexer_has_a_mask_and_zeros_for_what_it_picks(place, measured):
    keys = {**LATENT, "attention__indexer__key_length": 128, "attention__indexer__top_k": 2048}
    shape = model_shape(
        dims("deepseek32", 61, 7168, 18432, 128, 1, 129280, **keys, **routed(256, 8, 2048, expert_shared_count=1))
    )
    assert measured - ROUNDING <= predicted(shape, place, batch(shape)) <= measured * 1.12


def test_layers_that_read_the_cache_of_another_device_get_a_copy():
    # 35 layers, of which the last 20 read the caches of layers 13 and 14
    shape = model_shape(SHAPES["own embeddings"])
    used = batch(shape)
    ends = {(9, 18): 144.07, (18, 26): 240.01, (26, 35): 240.01}
    for layers, measured in ends.items():
        found = device_bytes(shape, used, False, True, layers[1] == 35, layers) / MIB
        assert measured - ROUNDING <= found <= measured * 1.2
    # nothing is known of the layers: the worst, which is all of them without their sources
    worst = device_bytes(shape, used, False, True, False)
    assert worst >= device_bytes(shape, used, False, True, False, (15, 35))
    # the sources are on the same device
    at_home = device_bytes(shape, used, False, True, False, (13, 35))
    assert worst - at_home > 4 * 20 * min(used.kv[13], used.kv[14])


def test_only_the_masks_of_the_layers_that_are_there():
    shape = model_shape(SHAPES["window"])
    used = batch(shape, 131072)
    both = device_bytes(shape, used, False, False, False, (0, 6))
    assert both == device_bytes(shape, used, False, False, False)
    assert both - device_bytes(shape, used, False, False, False, (0, 5)) == used.cells * 512 * 2
    assert both - device_bytes(shape, used, False, False, False, (5, 6)) == used.window_cells * 512 * 2
    # a device with the output alone
    assert both == device_bytes(shape, used, False, False, False, (48, 48))


def test_an_unknown_architecture_is_charged_like_the_kind_that_needs_most():
    known, unknown = (
        model_shape(dims(arch, 24, 2048, 4096, 16, 4, 32000, **routed(32, 4, 512))) for arch in ("qwen3moe", "novel")
    )
    for place in PLACES:
        least = 0 if "host" in place and "after" not in place else MIB
        assert predicted(unknown, place, batch(unknown)) * MIB >= predicted(known, place, batch(known)) * MIB + least


@pytest.mark.parametrize(("slots", "outputs", "tokens"), [(1, 1, 512), (3, 3, 513), (0, 3, 513), (4, 4 * 17, 512)])
def test_every_slot_gets_as_many_tokens(slots, outputs, tokens):
    assert Batch(4096, 0, 512, outputs, slots=slots).tokens == tokens
