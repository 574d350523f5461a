# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every layer keeps of the context: rows of its caches, and its recurrent state.

After llama_model::create_memory (src/llama-model.cpp) and the classes that it makes, b11434. Flash attention is taken
for granted: llama-server leaves it on unless told, and without it the V rows of a model with heads of several sizes
would be as long as the longest. Only grok is forced off, and its rows are all alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.memory.keys import Keys

# The whole state is recurrent (llm_arch_is_recurrent).
RECURRENT = frozenset(("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"))
# Some layers attend, some carry a recurrent state (llm_arch_is_hybrid).
HYBRID = frozenset(
    (
        "jamba", "kimi-linear",
        "falcon-h1", "plamo2", "granitehybrid", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "qwen3next",
        "bailingmoe3", "kimi-k3", "glm5-next", "qwen35", "qwen35moe", "qwen4exp", "deepseek4", "minimax-01",
    )
)  # fmt: skip
# Every n-th layer attends (full_attention_interval); llama.cpp's default of n.
INTERVAL = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "qwen4exp": 4, "minimax-01": 8}
# Encoders, and models that refine all tokens at once: create_memory makes nothing.
NO_CACHE = frozenset(
    (
        "bert", "clef", "dream", "eurobert", "gemma-embedding", "jina-bert-v2", "jina-bert-v3", "llada", "llada-moe",
        "modern-bert", "neo-bert", "nomic-bert", "nomic-bert-moe", "rnd1", "wavtokenizer-dec",
    )
)  # fmt: skip
# It drafts, and reads the caches of its target (llama_kv_cache::layer_share_cb).
TARGETS_CACHE = frozenset(("gemma4-assistant",))
# Those whose load_arch_hparams reads key_length_mla: one compressed row instead of K and V.
LATENT = frozenset(
    (
        "bailingmoe3", "deepseek2", "deepseek32", "dots3note", "glm-dsa", "glm5-next", "hy_v4", "kimi-k3",
        "kimi-linear", "mistral4",
    )
)  # fmt: skip
# mamba.cpp and jamba.cpp do not read ssm.group_count.
NO_GROUPS = frozenset(("mamba", "jamba"))
# GLM_5_2_DEFAULT_INDEXER_TYPES (glm-dsa.cpp): from this training context on, layers of 1 in 4 own an indexer.
GLM_SHARED_INDEXER_CONTEXT = 1048576
# DSV4_CSA_RATIO and DSV4_HCA_RATIO (llama-kv-cache-dsv4.cpp): tokens per compressed cell.
CSA, HCA = 4, 128


@dataclass(frozen=True)
class Rows:
    """A cache of one layer: values of K and V per cell.

    windowed: it has the cells of the window. ratio: otherwise one cell holds so many tokens.
    """

    k: int
    v: int = 0
    windowed: bool = False
    ratio: int = 1


@dataclass(frozen=True)
class Layers:
    """The layers' dimensions as far as caches need them; every sequence has one value per layer.

    head_k, head_v: values of one head. n_trunk: layers before the NextN layers. n_head: heads of the first layer.
    """

    n_trunk: int
    n_embd: int
    n_head: int
    head_kv: Sequence[int]
    head_k: Sequence[int]
    head_v: Sequence[int]
    windowed: Sequence[bool]
    mla: bool

    def __len__(self) -> int:
        """NextN layers included."""
        return len(self.head_kv)


def kept_layers(keys: Keys, layers: Layers) -> tuple[list[bool], list[bool]]:
    """Which layers hold a KV cache and which a recurrent state (the layer filters of create_memory)."""
    architecture, n_layer, n_trunk = keys.architecture, len(layers), layers.n_trunk
    inside = [layer < n_trunk for layer in range(n_layer)]
    nothing, everything = [False] * n_layer, [True] * n_layer
    if architecture in NO_CACHE | TARGETS_CACHE:
        return nothing, nothing
    if architecture in RECURRENT:
        return nothing, inside
    if architecture == "falcon-h1":
        return everything, inside
    if architecture in INTERVAL:
        recurs = keys.flags("attention.recurrent_layers", n_layer)
        if recurs is None:
            interval = max(keys.number("full_attention_interval", INTERVAL[architecture]), 1)
            recurs = [(layer + 1) % interval != 0 for layer in range(n_layer)]
        recurs = [flag and within for flag, within in zip(recurs, inside)]
        return [within and not flag for flag, within in zip(recurs, inside)], recurs
    if architecture.startswith("nemotron_h"):
        alone = [size > 0 for size in keys.per_layer("feed_forward_length", n_layer, 0)]
        recurs = [within and not count and not mlp for within, count, mlp in zip(inside, layers.head_kv, alone)]
        return [not flag and not mlp for flag, mlp in zip(recurs, alone)], recurs
    if architecture in HYBRID and architecture != "deepseek4":
        recurs = [within and not count for within, count in zip(inside, layers.head_kv)]
        # only glm5-next leaves its NextN layers out
        cached = inside if architecture == "glm5-next" else everything
        return [within and not flag for within, flag in zip(cached, recurs)], recurs
    # these attend to what they call NextN layers, or have no filter for them
    unfiltered = architecture in ("deepseek4", "graniteswitch", "hy_v4", "minimax-m3")
    sharing = _sharing_from(keys, n_layer)
    return [(within or unfiltered) and layer < sharing for layer, within in enumerate(inside)], nothing


def _sharing_from(keys: Keys, n_layer: int) -> int:
    """The first layer that has no cache but uses that of an earlier one (n_layer_kv_from_start)."""
    if keys.architecture == "gemma3n":
        return 20  # gemma3n.cpp, whatever the file says
    if keys.architecture == "gemma4":
        return n_layer - min(keys.number("attention.shared_kv_layers", 0), n_layer)
    return n_layer


def cache_rows(keys: Keys, layers: Layers, attends: Sequence[bool]) -> list[tuple[Rows, ...]]:
    """The caches of every layer; a layer may have several, or none."""
    indexed = _indexer_layers(keys, layers)
    ratios = keys.per_layer("attention.compress_ratios", len(layers), 0) if keys.architecture == "deepseek4" else ()
    result = []
    for layer, flag in enumerate(attends):
        caches = []
        if flag:
            k, v = (head[layer] * layers.head_kv[layer] for head in (layers.head_k, layers.head_v))
            only_k = layers.mla or keys.architecture == "deepseek4"
            caches.append(Rows(k, 0 if only_k else v, layers.windowed[layer]))
            if ratios and ratios[layer] in (CSA, HCA):
                caches.append(Rows(k, ratio=ratios[layer]))
            if ratios and ratios[layer] == CSA:
                caches.append(Rows(keys.number("attention.indexer.key_length", 0), ratio=CSA))
        if indexed[layer]:
            caches.append(_indexer_rows(keys, layers, layer))
        result.append(tuple(row for row in caches if row.k or row.v))
    return result


def _indexer_layers(keys: Keys, layers: Layers) -> list[bool]:
    """The layers with a cache of keys for picking what to attend to (llama_kv_cache_dsa, _msa, hybrid_idx)."""
    architecture, n_layer, n_trunk = keys.architecture, len(layers), layers.n_trunk
    inside = [layer < n_trunk for layer in range(n_layer)]
    listed = keys.flags("attention.indexer.types", n_layer)
    if listed is None and isinstance(keys.raw("attention.indexer.types"), int):
        listed = [bool(keys.raw("attention.indexer.types"))] * n_layer
    if architecture == "deepseek32":
        return inside
    if architecture == "minimax-m3":
        dense = keys.number("leading_dense_block_count", 0)
        return [layer >= dense for layer in range(n_layer)]
    if architecture == "glm-dsa" and listed is None:
        shared = keys.number("context_length", 0) >= GLM_SHARED_INDEXER_CONTEXT
        listed = [not shared or layer < 2 or layer % 4 == 2 for layer in range(n_layer)]
    if architecture in ("glm-dsa", "dots3note"):
        return [within and flag for within, flag in zip(inside, listed or [False] * n_layer)]
    if architecture == "hy_v4" and keys.number("attention.indexer.top_k", 0):
        return listed or [False] * n_layer
    if architecture in ("glm5-next", "qwen4exp"):
        attends, _recurs = kept_layers(keys, layers)
        owns = [True] * n_layer if architecture == "qwen4exp" or listed is None else listed
        return [flag and own for flag, own in zip(attends, owns)]
    return [False] * n_layer


def _indexer_rows(keys: Keys, layers: Layers, layer: int) -> Rows:
    """One head of keys; only minimax-m3, which is no MLA model, gets a V beside it."""
    size = keys.number("attention.indexer.key_length", 0)
    if keys.architecture == "glm5-next":
        return Rows(3 * size)  # indexer_kpool_row: key, gate and pooled key
    if keys.architecture == "qwen4exp":
        return Rows(2 * size if any(keys.per_layer("attention.compress_ratios", len(layers), 0)) else size)
    if layers.windowed[layer]:
        size = layers.head_k[layer]  # dots3note: only the size of full layers is changed
    return Rows(size, 0 if layers.mla else layers.head_v[layer])


def state_values(keys: Keys, layers: Layers, recurs: Sequence[bool]) -> list[int]:
    """float32 values of the recurrent state of each layer and sequence (n_embd_r + n_embd_s, llama-hparams.cpp)."""
    if keys.architecture == "deepseek4":
        return _compressor_values(keys, layers)
    size = _recurrent_values(keys, layers.n_embd, layers.n_head)
    states = [size if flag else 0 for flag in recurs]
    if keys.architecture == "qwen4exp":
        listed = keys.raw("ple.layers") or ()
        history = max(keys.number("ple.conv_kernel", 0) - 1, 0) * keys.number("ple.ngram_size", 0)
        history *= keys.number("hyper_connection.count", 0) * layers.n_embd
        states = [size + history if size and layer in listed else size for layer, size in enumerate(states)]
    return states


def _recurrent_values(keys: Keys, n_embd: int, n_head: int) -> int:
    wkv = keys.number("wkv.head_size", 0)
    if wkv:
        return keys.number("token_shift_count", 2) * n_embd + n_embd * wkv
    conv = max(keys.number("ssm.conv_kernel", 0) - 1, 0)
    inner, state = keys.number("ssm.inner_size", 0), keys.number("ssm.state_size", 0)
    shortconv = keys.number("shortconv.l_cache", 0)
    if shortconv:
        return n_embd * (shortconv - 1) + state * inner
    kda = keys.number("kda.head_dim", 0)
    if kda:
        return 3 * (conv or 3) * n_head * kda + kda * kda * n_head
    if keys.architecture == "minimax-01":
        linear = keys.number("attention.key_length", n_embd // n_head if n_head else 0)
        return linear * linear * n_head
    groups = 0 if keys.architecture in NO_GROUPS else keys.number("ssm.group_count", 0)
    return conv * (inner + 2 * groups * state) + state * inner


def _compressor_values(keys: Keys, layers: Layers) -> list[int]:
    """What deepseek4 remembers of the tokens that it has not compressed yet (llama_dsv4_comp_state): kv and score."""
    ratios = keys.per_layer("attention.compress_ratios", len(layers), 0)
    indexer = keys.number("attention.indexer.key_length", 0)
    head = layers.head_k[0]
    values = {CSA: 2 * 2 * CSA * (2 * head + 2 * indexer), HCA: 2 * HCA * head}
    return [values.get(ratio, 0) if layer < layers.n_trunk else 0 for layer, ratio in enumerate(ratios)]
