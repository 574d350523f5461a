# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a GGUF's metadata says about the model's shape, in llama.cpp's own terms (llama-hparams)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory import caches, windows
from ansible_collections.relay.pool.plugins.plugin_utils.memory.keys import Keys
from ansible_collections.relay.pool.plugins.plugin_utils.memory.recurrence import UNKNOWN, Recurrence, recurrence
from ansible_collections.relay.pool.plugins.plugin_utils.memory.wiring import Wiring, wiring

# LLAMA_MAX_LAYERS of llama.cpp (src/llama-hparams.h).
MAX_LAYERS = 512
# Every architecture whose caches are known; of any other nothing is believed that would make them smaller.
KNOWN = windows.FULL | frozenset(windows.PATTERNS) | caches.RECURRENT | caches.HYBRID | caches.LATENT
KNOWN |= caches.NO_CACHE | caches.TARGETS_CACHE
# Architectures whose NextN layers llama.cpp skips at load unless it drafts with them (TENSOR_SKIP).
NEXTN_SKIPPED = frozenset(
    (
        "bailingmoe2", "bailingmoe3", "clef", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "dots3note",
        "exaone-moe", "exaone4", "glm-dsa", "glm4", "glm4moe", "glm5-next", "hy_v3", "mimo2", "mistral4", "nemotron_h",
        "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next", "qwen4exp", "step35",
    )
)  # fmt: skip
# Architectures whose NextN layers have a graph of their own, by which they draft (LLM_GRAPH_TYPE_DECODER_MTP). That of
# glm5-next only says that it is not there yet.
MTP_GRAPHS = frozenset(
    (
        "bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "glm-dsa", "glm4moe", "hy_v3", "mimo2",
        "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next", "qwen4exp", "step35",
    )
)  # fmt: skip
# load_arch_tensors asks for the output before the token embedding, which does not look for a copy: the CPU gets two.
OUTPUT_FIRST = frozenset(("gemma3n", "gemma4"))
# build_arch_graph multiplies with the token embedding itself, so nothing is copied to the output's device.
# eagle3 without an output multiplies with that of its target.
NO_OUTPUT_COPY = frozenset(("bitnet", "eagle3"))


@dataclass(frozen=True)
class ModelShape:
    """The dimensions that decide how much memory a model needs; tuples hold one value per layer.

    n_layer: as llama.cpp counts, which may be more than the n_block blocks of the file. attention: layers with a KV
    cache of their own. head_dim_k, head_dim_v: values of the largest head. rows, states: what a layer keeps, in values.
    window: tokens, 0 without one. assumptions: sentences on what neither the file nor a measurement says.
    """

    architecture: str
    n_layer: int
    n_block: int
    n_layer_nextn: int
    n_embd: int
    n_ff: int
    n_head: int
    head_kv: tuple[int, ...]
    head_k: tuple[int, ...]
    head_v: tuple[int, ...]
    head_dim_k: int
    head_dim_v: int
    mla: bool
    n_vocab: int
    n_expert_used: int
    n_ff_expert: int
    attention: tuple[bool, ...]
    recurrent: tuple[bool, ...]
    windowed: tuple[bool, ...]
    window: int
    rows: tuple[tuple[caches.Rows, ...], ...]
    states: tuple[int, ...]
    assumptions: tuple[str, ...]
    wiring: Wiring
    recurrence: Recurrence

    @property
    def hybrid(self) -> bool:
        """A target that keeps a recurrent state cannot drop rejected tokens cheaply."""
        return self.architecture in caches.RECURRENT or self.architecture in caches.HYBRID


def model_shape(gguf: Mapping[str, Any]) -> ModelShape:
    """The shape of a gguf_info result; raises PoolError when a needed key is missing."""
    architecture = gguf.get("architecture")
    path = str(gguf.get("path") or "the model")
    if not architecture:
        raise PoolError(f"{path} names no architecture: it is not a model llama.cpp can load")
    keys = Keys(architecture, gguf.get("metadata") or {}, path)
    n_block = keys.number("block_count")
    if not n_block:
        raise PoolError(f"{path} has no layers: it is not a model llama.cpp can load")
    _check_layers(path, n_block)
    n_embd = keys.number("embedding_length")
    n_nextn = min(keys.number("nextn_predict_layers", 0), n_block)
    heads = keys.per_layer("attention.head_count", n_block, 0)
    head_kv = _every_layer(keys, heads)
    n_layer = len(head_kv)
    n_trunk = n_layer - n_nextn if n_nextn < n_layer else n_layer
    window = windows.windows(keys, n_layer, n_trunk)
    head_k, head_v = _head_sizes(keys, n_embd, heads, window.layers)
    # llama.cpp's n_head() is that of the first layer; where it is 0, the largest stays on the safe side
    layers = caches.Layers(
        n_trunk, n_embd, heads[0] or max(heads), head_kv, head_k, head_v, window.layers, _is_latent(keys)
    )
    attends, recurs = caches.kept_layers(keys, layers)
    assumptions = [window.assumption] if window.assumption else []
    if architecture not in KNOWN:
        attends = [True] * n_layer
        recurs = [any(caches.state_values(keys, layers, [True]))] * n_layer
        assumptions += _unbelieved(keys, any(recurs))
    dims = recurrence(keys, n_embd, layers.n_head, (gguf.get("tensors") or {}).get("blocks") or ())
    if any(recurs) and dims.kind == UNKNOWN:
        assumptions.append(
            f"the compute buffers of architecture {architecture}, which keeps a recurrent state, are an estimate: "
            "watch the first start"
        )
    states = caches.state_values(keys, layers, recurs)
    return ModelShape(
        architecture=architecture,
        n_layer=n_layer,
        n_block=n_block,
        n_layer_nextn=n_nextn,
        n_embd=n_embd,
        n_ff=keys.number("feed_forward_length", 0),
        n_head=max(heads),
        head_kv=tuple(head_kv),
        head_k=tuple(head_k),
        head_v=tuple(head_v),
        head_dim_k=max(head_k),
        head_dim_v=max(head_v),
        mla=layers.mla,
        n_vocab=int((gguf.get("tokenizer") or {}).get("n_tokens") or keys.number("vocab_size", 0)),
        n_expert_used=keys.number("expert_used_count", 0),
        n_ff_expert=keys.number("expert_feed_forward_length", 0),
        attention=tuple(flag and count > 0 for flag, count in zip(attends, head_kv)),
        recurrent=tuple(recurs),
        windowed=window.layers,
        window=window.tokens,
        rows=tuple(caches.cache_rows(keys, layers, attends)),
        states=tuple(states),
        assumptions=tuple(assumptions),
        wiring=wiring(keys),
        recurrence=dims,
    )


def nextn_shape(gguf: Mapping[str, Any], shape: ModelShape) -> ModelShape:
    """The same model as the context of its NextN layers sees it: they attend, each with a cache, and nothing else is.

    create_memory (llama-model.cpp) filters all but the NextN layers; the caches of indexers stay with the others.
    """
    keys = Keys(shape.architecture, gguf.get("metadata") or {}, str(gguf.get("path") or "the model"))
    attends = [layer >= shape.n_layer - shape.n_layer_nextn for layer in range(shape.n_layer)]
    layers = caches.Layers(
        shape.n_layer, shape.n_embd, shape.n_head, shape.head_kv, shape.head_k, shape.head_v, shape.windowed, shape.mla
    )
    rows = [row if flag else () for row, flag in zip(caches.cache_rows(keys, layers, attends), attends)]
    return replace(
        shape,
        attention=tuple(attends),
        recurrent=(False,) * shape.n_layer,
        rows=tuple(rows),
        states=(0,) * shape.n_layer,
    )


def _check_layers(path: str, n_layer: int) -> None:
    if n_layer > MAX_LAYERS:
        raise PoolError(f"{path} claims {n_layer} layers, and llama.cpp takes at most {MAX_LAYERS}: get the file again")


def _every_layer(keys: Keys, heads: list[int]) -> list[int]:
    """KV heads of every layer that llama.cpp makes of the file's blocks; without the key as many as heads."""
    head_kv = heads
    if keys.raw("attention.head_count_kv") is not None:
        head_kv = keys.per_layer("attention.head_count_kv", len(heads), 0)
    if keys.architecture == "graniteswitch":
        return [*head_kv, 1]  # granite-switch.cpp: a layer of one head picks the adapter
    if keys.architecture == "nanbeige":
        loops = max(keys.number("num_loops", 1), 1)
        _check_layers(keys.path, len(head_kv) * loops)
        return head_kv * loops  # nanbeige.cpp: the blocks are run through several times
    return head_kv


def _head_sizes(keys: Keys, n_embd: int, heads: list[int], windowed: tuple[bool, ...]) -> tuple[list[int], list[int]]:
    """Values of a K and a V head of every layer; windowed layers may have heads of their own size."""
    first = heads[0] or max(heads)
    usual = n_embd // first if first else 0
    result = []
    for name in ("key", "value"):
        full = keys.number(f"attention.{name}_length", usual)
        if name == "value" and keys.architecture in ("glm5-next", "kimi-k3"):
            full = keys.number("attention.kv_lora_rank", full)
        in_window = keys.number(f"attention.{name}_length_swa", full)
        # of a model of unknown architecture the larger one
        if keys.architecture not in KNOWN:
            full = in_window = max(full, in_window)
        result.append([in_window if flag else full for flag in windowed])
    return result[0], result[1]


def _is_latent(keys: Keys) -> bool:
    """Multi-head latent attention: an older file of the same model has no such keys and caches K and V in full."""
    both = ("attention.key_length_mla", "attention.value_length_mla")
    return keys.architecture in caches.LATENT and all(keys.number(key, 0) for key in both)


def _unbelieved(keys: Keys, stateful: bool) -> list[str]:
    """What is charged in full of a model whose architecture is not known."""
    name, window = keys.architecture, keys.number("attention.sliding_window", 0)
    state = " and a recurrent state" if stateful else ""
    sentences = [
        f"the architecture {name} is not known: a cache of the whole context{state} is charged for every layer"
    ]
    if window:
        sentences.append(
            f"the window of {window} tokens is not believed for architecture {name}: every layer is charged in full"
        )
    return sentences
