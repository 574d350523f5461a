# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Caches and recurrent states of small models of nearly every architecture, beside what llama.cpp allocated for them.

The figures are the sums of what b11434 logged ("llama_kv_cache: size = ...", "llama_memory_recurrent: size = ...") for
a model with exactly these keys: MiB of 8192 tokens in one slot of f16 with micro batches of 512, and of 20000 tokens in
three slots of q8_0 with micro batches of 256.
"""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory import caches, kv, windows
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import KNOWN, model_shape
from ansible_collections.relay.pool.plugins.plugin_utils.server.command_line import OWNED, llama_server_args

MIB = 1024 * 1024


def all_but(layers, period):
    """The list of windowed layers when every so many layers one is full."""
    return [int((layer + 1) % period != 0) for layer in range(layers)]


WINDOW = {"attention__sliding_window": 512}
LATENT = {
    "attention__head_count": 2,
    "attention__head_count_kv": 1,
    "attention__key_length": 576,
    "attention__value_length": 512,
    "attention__key_length_mla": 192,
    "attention__value_length_mla": 128,
}
LATENT_SWA = {"attention__key_length_swa": 320, "attention__value_length_swa": 256}
INDEXER = {"attention__indexer__key_length": 128, "attention__indexer__top_k": 2048}
SSM = {"ssm__conv_kernel": 4, "ssm__inner_size": 2048, "ssm__state_size": 128, "ssm__group_count": 2}
KDA = {"ssm__conv_kernel": 4, "kda__head_dim": 128}

# architecture, layers, keys, MiB with one slot, MiB with three; None where llama.cpp refuses the cache type
MODELS = [
    ("llama", 8, WINDOW, 64.0, 86.06),
    ("phi3", 8, WINDOW, 64.0, 86.06),
    ("qwen2", 8, WINDOW, 64.0, 86.06),
    ("deci", 6, {"attention__head_count_kv": [2, 0, 1, 2, 0, 1]}, 24.0, 32.27),
    (
        "openelm",
        4,
        {
            "attention__head_count": [4, 6, 8, 8],
            "attention__head_count_kv": [1, 2, 2, 4],
            "attention__key_length": 64,
            "attention__value_length": 64,
        },
        18.0,
        24.21,
    ),
    ("t5", 6, {}, 48.0, 64.55),
    ("graniteswitch", 5, {}, 44.0, 59.17),
    ("nanbeige", 4, {"num_loops": 3}, 96.0, 129.09),
    ("grok", 4, {}, 32.0, None),
    ("afmoe", 9, WINDOW, 23.0, 29.89),
    ("cohere2", 9, WINDOW, 23.0, 29.89),
    ("cohere2moe", 9, WINDOW, 30.0, 39.44),
    ("exaone4", 64, {}, 344.0, 497.24),
    ("exaone4", 32, WINDOW, 256.0, 344.25),
    ("exaone-moe", 9, WINDOW, 23.0, 29.89),
    ("gemma2", 9, {}, 54.5, 76.9),
    ("gemma3", 13, {**WINDOW, "nextn_predict_layers": 1}, 26.0, 33.47),
    ("gemma3", 13, {**WINDOW, "attention__sliding_window_pattern": 3}, 41.0, 53.79),
    ("gemma3", 13, {**WINDOW, "attention__sliding_window_pattern": 0}, 13.0, 15.54),
    ("gemma3", 13, {}, 104.0, 139.85),
    ("gemma3n", 25, WINDOW, 48.0, 62.15),
    (
        "gemma4",
        15,
        {
            **WINDOW,
            "attention__sliding_window_pattern": all_but(15, 4),
            "attention__shared_kv_layers": 3,
            "attention__key_length": 64,
            "attention__value_length": 64,
            "attention__key_length_swa": 32,
            "attention__value_length_swa": 32,
        },
        14.25,
        18.83,
    ),
    ("gpt-oss", 9, WINDOW, 37.0, 49.01),
    ("granite_swa", 9, {**WINDOW, "attention__sliding_window_pattern": all_but(9, 3)}, 30.0, 39.44),
    ("laguna", 9, WINDOW, 30.0, 39.44),
    ("lfm2", 6, {**WINDOW, "attention__head_count_kv": [2, 0, 0, 2, 0, 0], "shortconv__l_cache": 3}, 2.03, 2.48),
    ("lfm2", 6, {"attention__head_count_kv": [2, 0, 0, 2, 0, 0], "shortconv__l_cache": 3}, 16.03, 21.61),
    ("lfm2moe", 6, {**WINDOW, "attention__head_count_kv": [2, 0, 0, 2, 0, 0], "shortconv__l_cache": 3}, 16.03, 21.61),
    ("llama4", 8, {}, 64.0, 86.07),
    ("llama4", 8, {"attention__sliding_window": 0}, 64.0, 86.06),
    ("llama4", 8, WINDOW, 64.0, 86.07),
    ("maple", 9, {**WINDOW, "attention__sliding_window_pattern": all_but(9, 3)}, 30.0, 39.44),
    ("mellum", 9, WINDOW, 23.0, 29.89),
    (
        "mimo2",
        10,
        {
            **WINDOW,
            "attention__sliding_window_pattern": all_but(10, 4),
            "nextn_predict_layers": 2,
            "attention__key_length": 192,
            "attention__value_length": 128,
            "attention__key_length_swa": 128,
            "attention__value_length_swa": 96,
        },
        25.25,
        33.17,
    ),
    ("muse-glimmer", 9, WINDOW, 23.0, 29.89),
    ("olmo2", 9, WINDOW, 23.0, 29.89),
    ("olmo2", 9, {**WINDOW, "attention__sliding_window_pattern": all_but(6, 2)}, 51.0, 68.14),
    ("plamo3", 17, WINDOW, 31.0, 39.45),
    ("smallthinker", 9, WINDOW, 51.0, 72.91),
    ("spark2_5", 9, {**WINDOW, "attention__sliding_window_pattern": all_but(9, 3)}, 30.0, 39.44),
    ("step35", 9, {**WINDOW, "attention__sliding_window_pattern": all_but(9, 3)}, 30.0, 39.44),
    ("deepseek2", 6, LATENT, 54.0, 72.62),
    (
        "deepseek2",
        6,
        {
            "attention__head_count": 2,
            "attention__head_count_kv": 2,
            "attention__key_length": 192,
            "attention__value_length": 128,
        },
        60.0,
        80.68,
    ),
    ("deepseek2", 7, {**LATENT, "nextn_predict_layers": 1}, 54.0, 72.62),
    ("deepseek32", 7, {**LATENT, **INDEXER, "nextn_predict_layers": 1}, 66.0, 88.76),
    ("glm-dsa", 12, {**LATENT, **INDEXER}, 132.0, 177.5),
    ("glm-dsa", 12, {**LATENT, **INDEXER, "context_length": 1048576}, 118.0, 158.68),
    (
        "glm-dsa",
        9,
        {**LATENT, **INDEXER, "nextn_predict_layers": 1, "attention__indexer__types": [1, 0, 1, 0, 1, 0, 0, 1]},
        80.0,
        107.58,
    ),
    ("hy_v4", 6, {**LATENT, **INDEXER, "attention__indexer__types": [1, 0, 1, 0, 1, 0]}, 60.0, 80.69),
    ("hy_v4", 6, LATENT, 54.0, 72.62),
    (
        "dots3note",
        6,
        {
            **LATENT,
            **INDEXER,
            **LATENT_SWA,
            **WINDOW,
            "attention__sliding_window_pattern": [0, 1] * 3,
            "attention__indexer__types": [1, 0] * 3,
        },
        34.88,
        46.62,
    ),
    ("minimax-m3", 7, {**INDEXER, "leading_dense_block_count": 2, "nextn_predict_layers": 1}, 76.0, 102.19),
    (
        "deepseek4",
        7,
        {
            **WINDOW,
            **INDEXER,
            "attention__head_count_kv": 1,
            "attention__key_length": 64,
            "attention__value_length": 64,
            "attention__compress_ratios": [0, 0, 4, 128, 4, 128, 0],
            "nextn_predict_layers": 1,
        },
        2.61,
        3.76,
    ),
    ("qwen35", 9, {**SSM, "nextn_predict_layers": 1}, 22.18, 40.05),
    ("qwen35moe", 8, {**SSM, "attention__recurrent_layers": [1, 0] * 4}, 36.12, 55.38),
    ("qwen3next", 8, {**SSM, "full_attention_interval": 2}, 36.12, 55.38),
    ("qwen4exp", 8, {**SSM, **INDEXER, "hyper_connection__count": 4}, 26.18, 45.43),
    (
        "qwen4exp",
        9,
        {
            **SSM,
            **INDEXER,
            "hyper_connection__count": 4,
            "attention__compress_ratios": [4] * 9,
            "nextn_predict_layers": 1,
            "ple__layers": [0],
            "ple__ngram_size": 3,
            "ple__conv_kernel": 4,
        },
        30.32,
        51.23,
    ),
    ("minimax-01", 9, {}, 12.0, 22.76),
    ("jamba", 6, {**SSM, "attention__head_count_kv": [2, 0, 0, 2, 0, 0]}, 20.09, 33.8),
    ("granitehybrid", 6, {**SSM, "attention__head_count_kv": [2, 0, 0, 2, 0, 0]}, 20.12, 33.87),
    (
        "plamo2",
        6,
        {
            **SSM,
            "attention__head_count": [0, 0, 8] * 2,
            "attention__head_count_kv": [0, 0, 2] * 2,
            "attention__key_length": 128,
            "attention__value_length": 128,
        },
        20.12,
        33.87,
    ),
    ("falcon-h1", 4, SSM, 36.12, 55.38),
    ("mamba", 4, {**SSM, "attention__head_count": 0, "attention__head_count_kv": 0}, 4.09, 12.28),
    ("mamba2", 4, {**SSM, "attention__head_count": 0, "attention__head_count_kv": 0}, 4.12, 12.35),
    (
        "nemotron_h",
        6,
        {**SSM, "attention__head_count_kv": [0, 2, 0, 0, 2, 0], "feed_forward_length": [0, 0, 2048, 0, 0, 2048]},
        18.06,
        27.7,
    ),
    (
        "nemotron_h_moe",
        7,
        {
            **SSM,
            "attention__head_count_kv": [0, 2, 0, 0, 2, 0, 2],
            "feed_forward_length": [0, 0, 2048, 0, 0, 2048, 0],
            "nextn_predict_layers": 1,
        },
        26.06,
        38.45,
    ),
    ("kimi-linear", 6, {**LATENT, **KDA, "attention__head_count_kv": [1, 0, 0] * 2}, 18.54, 25.82),
    ("kimi-k3", 6, {**LATENT, **KDA, "attention__head_count_kv": [1, 0, 0] * 2}, 18.54, 25.82),
    (
        "bailingmoe3",
        7,
        {**LATENT, **KDA, "attention__head_count_kv": [1, 0, 0, 1, 0, 0, 1], "nextn_predict_layers": 1},
        27.54,
        37.92,
    ),
    (
        "glm5-next",
        7,
        {
            **LATENT,
            **KDA,
            **INDEXER,
            "attention__key_length": 512,
            "attention__head_count_kv": [1, 0, 0, 1, 0, 0, 1],
            "attention__indexer__types": [1, 0, 0, 0, 0, 0],
            "nextn_predict_layers": 1,
        },
        22.54,
        31.2,
    ),
    ("rwkv6", 4, {"attention__head_count": 0, "attention__head_count_kv": None, "wkv__head_size": 64}, 1.03, 3.09),
    (
        "arwkv7",
        4,
        {"attention__head_count": 0, "attention__head_count_kv": None, "wkv__head_size": 64, "token_shift_count": 1},
        1.02,
        3.05,
    ),
    ("dream", 4, WINDOW, 0.0, 0.0),
    ("modern-bert", 4, WINDOW, 0.0, 0.0),
]


def layer_bytes(shape, ctx_size, parallel, cache_k, cache_v, ubatch):
    """As the ledger asks for them; raises PoolError for cache types that llama.cpp refuses."""
    kv.check_cache_types(shape, cache_k, cache_v)
    return kv.kv_bytes(shape, ctx_size, parallel, cache_k, cache_v, ubatch)


def context_mib(shape, ctx_size, parallel, cache, ubatch):
    layers = layer_bytes(shape, ctx_size, parallel, cache, cache, ubatch)
    return (sum(layers) + sum(kv.recurrent_bytes(shape, parallel))) / MIB


@pytest.mark.parametrize(("architecture", "n_layer", "keys", "one", "three"), MODELS)
def test_context_is_what_llama_cpp_allocates(world, architecture, n_layer, keys, one, three):
    shape = model_shape(world.gguf(arch=architecture, n_layer=n_layer, **keys))
    assert not [line for line in shape.assumptions if "charged" in line]
    assert context_mib(shape, 8192, 1, "f16", 512) == pytest.approx(one, abs=0.02)
    if three is None:
        with pytest.raises(PoolError, match="without flash attention"):
            context_mib(shape, 20000, 3, "q8_0", 256)
    else:
        assert context_mib(shape, 20000, 3, "q8_0", 256) == pytest.approx(three, abs=0.02)


def test_the_tables_do_not_contradict_each_other():
    divided, kept = frozenset(windows.PATTERNS), windows.FULL
    assert not divided & kept
    assert not (caches.RECURRENT | caches.NO_CACHE) & (divided | kept | caches.HYBRID)
    assert kept.isdisjoint(caches.HYBRID)
    assert frozenset(caches.INTERVAL) <= caches.HYBRID
    assert divided | kept | caches.HYBRID >= caches.LATENT
    # all of llama.cpp's, without clip and gptj
    assert len(KNOWN) == 152


@pytest.mark.parametrize("pattern", windows.PATTERNS.values())
def test_every_pattern_names_its_source(pattern):
    assert pattern.source.endswith(".cpp")


@pytest.mark.parametrize(
    ("arch", "n_layer", "keys", "windowed"),
    [
        # the last of each period is full, or the first
        ("gemma2", 5, {}, "w.w.w"),
        ("cohere2moe", 6, WINDOW, ".www.w"),
        ("gpt-oss", 4, WINDOW, "w.w."),
        ("gemma3n", 6, WINDOW, "wwww.w"),
        # the file's own period and its own list, which may be short
        ("gemma3", 6, {**WINDOW, "attention__sliding_window_pattern": 3}, "ww.ww."),
        ("gemma3", 6, {**WINDOW, "attention__sliding_window_pattern": 0}, "wwwwww"),
        ("gemma3", 6, {**WINDOW, "attention__sliding_window_pattern": 1}, "......"),
        ("gemma3", 6, {**WINDOW, "attention__sliding_window_pattern": [True, False, True]}, "w.w..."),
        # NextN layers are full
        ("gemma3", 6, {**WINDOW, "nextn_predict_layers": 2}, "wwww.."),
        # a window that is not there, that is 0, that is not for this size, or that llama.cpp does not follow
        ("gemma3", 6, {}, "......"),
        ("llama4", 4, {"attention__sliding_window": 0}, "...."),
        ("exaone4", 30, WINDOW, "." * 30),
        ("phi3", 4, WINDOW, "...."),
    ],
)
def test_layers_with_a_window(world, arch, n_layer, keys, windowed):
    shape = model_shape(world.gguf(arch=arch, n_layer=n_layer, **keys))
    assert "".join("w" if flag else "." for flag in shape.windowed) == windowed
    assert shape.window == 0 or shape.window in (512, 4096)


@pytest.mark.parametrize(
    ("arch", "given", "tokens"),
    [("llama4", None, 8192), ("llama4", 512, 8192), ("smallthinker", 512, 4096), ("gemma2", None, 4096)],
)
def test_windows_that_llama_cpp_sets(world, arch, given, tokens):
    assert model_shape(world.gguf(arch=arch, attention__sliding_window=given)).window == tokens


def test_shared_layers_use_the_cache_of_another_one(world):
    keys = {**WINDOW, "attention__sliding_window_pattern": all_but(10, 5), "attention__shared_kv_layers": 4}
    shape = model_shape(world.gguf(arch="gemma4", **keys))
    assert [bool(layer) for layer in shape.rows] == [True] * 6 + [False] * 4
    # of gemma3n the first 20 layers, whatever the file says
    shape = model_shape(world.gguf(arch="gemma3n", n_layer=30, attention__shared_kv_layers=2, **WINDOW))
    assert [bool(layer) for layer in shape.rows] == [True] * 20 + [False] * 10


def test_what_is_not_known_is_charged_in_full_and_said(world):
    shape = model_shape(
        world.gguf(
            arch="newarch", n_layer=4, attention__head_count_kv=2, attention__key_length_swa=256, **WINDOW, **SSM
        )
    )
    assert shape.rows == ((caches.Rows(512, 256),),) * 4
    assert shape.recurrent == (True,) * 4
    assert min(shape.states) > 0
    assert shape.assumptions == (
        "the architecture newarch is not known: a cache of the whole context and a recurrent state is charged for "
        "every layer",
        "the window of 512 tokens is not believed for architecture newarch: every layer is charged in full",
        "the compute buffers of architecture newarch, which keeps a recurrent state, are an estimate: watch the first "
        "start",
    )
    # latent attention is not believed either
    assert model_shape(world.gguf(arch="newarch", n_layer=1, **LATENT)).rows == ((caches.Rows(576, 512),),)


def test_a_window_without_its_layers_is_charged_in_full_and_said(world):
    shape = model_shape(world.gguf(arch="gemma4", **WINDOW))
    assert not any(shape.windowed)
    assert shape.assumptions == (
        "the file does not say which layers of architecture gemma4 keep its window of 512 tokens: every layer is "
        "charged in full",
    )


@pytest.mark.parametrize(
    ("arch", "keys", "k", "v", "text"),
    [
        # the heads of windowed layers count as well, those of NextN layers do not
        ("mimo2", {"attention__key_length_swa": 80}, "q8_0", "f16", "K cache cannot be q8_0: heads of 80"),
        ("mimo2", {"attention__value_length_swa": 80}, "f16", "q4_0", "V cache cannot be q4_0: heads of 80"),
        ("gemma4", {"attention__key_length": 48, "nextn_predict_layers": 0}, "q8_0", "f16", "heads of 48"),
        ("grok", {}, "f16", "q8_0", "without flash attention"),
        ("deepseek4", {"attention__compress_ratios": [0] * 10}, "f16", "q8_0", "one cache type for K and V"),
        ("minimax-m3", {"attention__indexer__key_length": 72}, "q8_0", "q8_0", "row of 72 values does not divide"),
    ],
)
def test_caches_that_llama_cpp_refuses(world, arch, keys, k, v, text):
    model = world.gguf(arch=arch, **WINDOW, **{"attention__sliding_window_pattern": all_but(10, 3), **keys})
    shape = model_shape(model)
    with pytest.raises(PoolError, match=text):
        layer_bytes(shape, 4096, 1, k, v, 512)


def test_heads_of_layers_that_are_not_cached_do_not_matter(world):
    keys = {"attention__sliding_window_pattern": [0] * 8 + [1] * 2, "nextn_predict_layers": 2}
    shape = model_shape(world.gguf(arch="mimo2", attention__key_length_swa=80, **keys, **WINDOW))
    kv.check_cache_types(shape, "q8_0", "q8_0")


def test_the_command_line_gives_every_slot_its_own_cells():
    # without --parallel llama-server shares one cache between four slots
    argv = llama_server_args({"model": "m.gguf", "parallel": 1, "ctx_size": 4096, "cache_type_k": "f16"})
    assert argv[argv.index("--parallel") + 1] == "1"
    sharing = {"-kvu", "--kv-unified", "--kv-unified-per-slot", "--swa-full"}
    assert not sharing & set(argv)
    assert sharing <= OWNED
