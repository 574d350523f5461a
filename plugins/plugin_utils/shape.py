# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a GGUF's metadata says about the model's shape, in llama.cpp's own terms (llama-hparams)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError

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
# Architectures whose pattern of windowed layers is built into llama.cpp (load_swa_pattern): every n-th layer is full.
# For any other architecture a window in the file is not believed and every layer is charged in full.
WINDOW_PERIOD = {"gpt-oss": 2, "gemma2": 2, "gemma3": 6, "cohere2": 4, "olmo2": 4}
WINDOW_DEFAULT = {"gemma2": 4096}
# Every count in a GGUF is a uint32.
LARGEST = 2**32
# Architectures whose NextN layers llama.cpp skips at load unless it drafts with them (TENSOR_SKIP).
NEXTN_SKIPPED = frozenset(
    (
        "bailingmoe2", "bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "exaone-moe", "exaone4", "glm-dsa",
        "glm4", "glm4moe", "hy_v3", "mimo2", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next", "step35",
    )
)  # fmt: skip


@dataclass(frozen=True)
class ModelShape:
    """The dimensions that decide how much memory a model needs; tuples hold one value per layer."""

    architecture: str
    n_layer: int
    n_layer_nextn: int
    n_embd: int
    n_ff: int
    n_head: int
    head_kv: tuple[int, ...]
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
    indexer_key_length: int
    state_values: int

    @property
    def hybrid(self) -> bool:
        """A target that keeps a recurrent state cannot drop rejected tokens cheaply."""
        return self.architecture in RECURRENT or self.architecture in HYBRID


class _Keys:
    """Typed reading of ``<architecture>.<key>``."""

    def __init__(self, architecture: str, metadata: Mapping[str, Any], path: str) -> None:
        self.architecture, self.metadata, self.path = architecture, metadata, path

    def raw(self, key: str) -> Any:
        return self.metadata.get(f"{self.architecture}.{key}")

    def number(self, key: str, default: int | None = None) -> int:
        """A scalar, or the largest of a per-layer array."""
        value = self.raw(key)
        if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (list, tuple)):
            value = max(self.whole(key, item) for item in value)
        if value is None or isinstance(value, (list, tuple, str)):
            if default is None:
                raise PoolError(
                    f"{self.path} has no {self.architecture}.{key}: its memory cannot be computed, use a complete GGUF"
                )
            return default
        return self.whole(key, value)

    def whole(self, key: str, value: Any) -> int:
        """A count; a damaged file may hold anything in its place."""
        if not isinstance(value, (int, float)) or not 0 <= value < LARGEST:
            raise PoolError(f"{self.path} has {self.architecture}.{key} = {value}, no count: get the file again")
        return int(value)

    def per_layer(self, key: str, n_layer: int, default: int) -> list[int]:
        value = self.raw(key)
        if isinstance(value, (list, tuple)):
            if len(value) < n_layer:
                raise PoolError(f"{self.path}: {self.architecture}.{key} has {len(value)} values for {n_layer} layers")
            return [self.whole(key, item) for item in value[:n_layer]]
        return [default if value is None else self.whole(key, value)] * n_layer


def model_shape(gguf: Mapping[str, Any]) -> ModelShape:
    """The shape of a gguf_info result; raises PoolError when a needed key is missing."""
    architecture = gguf.get("architecture")
    path = str(gguf.get("path") or "the model")
    if not architecture:
        raise PoolError(f"{path} names no architecture: it is not a model llama.cpp can load")
    keys = _Keys(architecture, gguf.get("metadata") or {}, path)
    n_layer = keys.number("block_count")
    if not n_layer:
        raise PoolError(f"{path} has no layers: it is not a model llama.cpp can load")
    n_embd = keys.number("embedding_length")
    n_nextn = min(keys.number("nextn_predict_layers", 0), n_layer)
    n_head = keys.number("attention.head_count", 0)
    head_kv = keys.per_layer("attention.head_count_kv", n_layer, n_head)
    head_dim = n_embd // n_head if n_head else 0
    mla = bool(keys.number("attention.key_length_mla", 0)) and bool(keys.number("attention.value_length_mla", 0))
    attends, recurs = _layers(keys, architecture, n_layer, n_nextn, head_kv)
    window, windowed = _window(keys, architecture, n_layer, n_nextn)
    return ModelShape(
        architecture=architecture,
        n_layer=n_layer,
        n_layer_nextn=n_nextn,
        n_embd=n_embd,
        n_ff=keys.number("feed_forward_length", 0),
        n_head=n_head,
        head_kv=tuple(head_kv),
        head_dim_k=max(keys.number("attention.key_length", head_dim), keys.number("attention.key_length_swa", 0)),
        head_dim_v=max(keys.number("attention.value_length", head_dim), keys.number("attention.value_length_swa", 0)),
        mla=mla,
        n_vocab=int((gguf.get("tokenizer") or {}).get("n_tokens") or keys.number("vocab_size", 0)),
        n_expert_used=keys.number("expert_used_count", 0),
        n_ff_expert=keys.number("expert_feed_forward_length", 0),
        attention=tuple(attends),
        recurrent=tuple(recurs),
        windowed=tuple(windowed),
        window=window,
        indexer_key_length=keys.number("attention.indexer.key_length", 0),
        state_values=_state_values(keys, n_embd, n_head),
    )


def _layers(
    keys: _Keys, architecture: str, n_layer: int, n_nextn: int, head_kv: list[int]
) -> tuple[list[bool], list[bool]]:
    """Which layers hold a KV cache and which a recurrent state (the filters of llama_model::create_memory)."""
    trunk = n_layer - n_nextn if n_nextn < n_layer else n_layer
    inside = [layer < trunk for layer in range(n_layer)]
    if architecture in RECURRENT:
        return [False] * n_layer, inside
    if architecture == "falcon-h1":
        return [True] * n_layer, [True] * n_layer
    if architecture in INTERVAL:
        listed = keys.raw("attention.recurrent_layers")
        interval = max(keys.number("full_attention_interval", INTERVAL[architecture]), 1)
        if isinstance(listed, (list, tuple)) and len(listed) >= n_layer:
            recurs = [bool(value) for value in listed[:n_layer]]
        else:
            recurs = [(layer + 1) % interval != 0 for layer in range(n_layer)]
        recurs = [flag and within for flag, within in zip(recurs, inside)]
        return [within and not flag for flag, within in zip(recurs, inside)], recurs
    if architecture in HYBRID and architecture != "deepseek4":
        feed_forward = keys.per_layer("feed_forward_length", n_layer, 0)
        alone = [architecture.startswith("nemotron_h") and size > 0 for size in feed_forward]
        recurs = [within and count == 0 and not mlp for within, count, mlp in zip(inside, head_kv, alone)]
        attends = [within and count > 0 and not mlp for within, count, mlp in zip(inside, head_kv, alone)]
        return attends, recurs
    return [within and count > 0 for within, count in zip(inside, head_kv)], [False] * n_layer


def _window(keys: _Keys, architecture: str, n_layer: int, n_nextn: int) -> tuple[int, list[bool]]:
    """Window in tokens and the layers that surely keep no more than it."""
    none = [False] * n_layer
    period = WINDOW_PERIOD.get(architecture)
    window = keys.number("attention.sliding_window", WINDOW_DEFAULT.get(architecture, 0))
    if not period or not window:
        return 0, none
    pattern = keys.raw("attention.sliding_window_pattern")
    if isinstance(pattern, (list, tuple)):
        if len(pattern) < n_layer:
            return 0, none
        return window, [bool(value) for value in pattern[:n_layer]]
    period = keys.number("attention.sliding_window_pattern", period) or period
    return window, [layer % period < period - 1 and layer < n_layer - n_nextn for layer in range(n_layer)]


def _state_values(keys: _Keys, n_embd: int, n_head: int) -> int:
    """float32 values of the recurrent state per layer and sequence (n_embd_r + n_embd_s)."""
    wkv = keys.number("wkv.head_size", 0)
    if wkv:
        return keys.number("token_shift_count", 2) * n_embd + n_embd * wkv
    shortconv = keys.number("shortconv.l_cache", 0)
    conv = max(keys.number("ssm.conv_kernel", 0) - 1, 0)
    inner, state = keys.number("ssm.inner_size", 0), keys.number("ssm.state_size", 0)
    if shortconv:
        return n_embd * (shortconv - 1) + state * inner
    kda = keys.number("kda.head_dim", 0)
    if kda:
        return 3 * (conv or 3) * n_head * kda + kda * kda * n_head
    if keys.architecture == "minimax-01":
        linear = keys.number("attention.key_length", n_embd // n_head if n_head else 0)
        return linear * linear * n_head
    return conv * (inner + 2 * keys.number("ssm.group_count", 0) * state) + state * inner
