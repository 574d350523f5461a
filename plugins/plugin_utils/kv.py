# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""KV cache and recurrent state per layer, as llama.cpp allocates them (llama-kv-cache, llama-memory-recurrent)."""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.shape import ModelShape

# type -> (values per block, bytes per block); what --cache-type-k and --cache-type-v take
CACHE_TYPES = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "iq4_nl": (32, 18),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
}
PAD = 256


def pad(value: int, step: int = PAD) -> int:
    """value rounded up to a multiple of step."""
    return -(-value // step) * step


def is_quantised(cache_type: str) -> bool:
    """True for a cache type with blocks: its V needs flash attention."""
    return CACHE_TYPES.get(cache_type, (1, 0))[0] > 1


def row_bytes(cache_type: str, values: int) -> int:
    """Bytes of one cache row of that many values."""
    if cache_type not in CACHE_TYPES:
        raise PoolError(f"cache type {cache_type} is unknown: use one of {', '.join(sorted(CACHE_TYPES))}")
    per_block, block_bytes = CACHE_TYPES[cache_type]
    if values % per_block:
        raise PoolError(
            f"a cache row of {values} values does not divide into {cache_type} blocks of {per_block}: use f16"
        )
    return values // per_block * block_bytes


def context(ctx_size: int, parallel: int) -> tuple[int, int]:
    """(total context, context per slot) that llama-server really allocates for -c ctx_size -np parallel."""
    per_slot = pad(pad(ctx_size) // parallel)
    if per_slot == 0:
        raise PoolError(f"a context of {ctx_size} leaves nothing for each of {parallel} slots: raise relay_ctx_size")
    return per_slot * parallel, per_slot


def window_cells(shape: ModelShape, per_slot: int, ubatch_size: int) -> int:
    """Cells per slot of a windowed layer."""
    return pad(min(per_slot, shape.window + ubatch_size))


def check_cache_types(shape: ModelShape, cache_type_k: str, cache_type_v: str) -> None:
    """Raise when llama.cpp would refuse these cache types for this model."""
    for name, cache_type, head_dim in (("K", cache_type_k, shape.head_dim_k), ("V", cache_type_v, shape.head_dim_v)):
        row_bytes(cache_type, 0)
        if is_quantised(cache_type) and head_dim % 32:
            raise PoolError(
                f"the {name} cache cannot be {cache_type}: heads of {head_dim} values are no multiple of 32, use f16"
            )
    if shape.mla and cache_type_k != cache_type_v:
        raise PoolError(
            f"{shape.architecture} needs one cache type for K and V, given are {cache_type_k} and {cache_type_v}"
        )


def kv_bytes(
    shape: ModelShape, ctx_size: int, parallel: int, cache_type_k: str, cache_type_v: str, ubatch_size: int
) -> list[int]:
    """Bytes of the KV cache of each layer, for all slots together."""
    _total, per_slot = context(ctx_size, parallel)
    windowed = window_cells(shape, per_slot, ubatch_size) if shape.window else per_slot
    layers = []
    for layer in range(shape.n_layer):
        if not shape.attention[layer]:
            layers.append(0)
            continue
        cells = (windowed if shape.windowed[layer] else per_slot) * parallel
        row = row_bytes(cache_type_k, shape.head_dim_k * shape.head_kv[layer])
        if not shape.mla:
            row += row_bytes(cache_type_v, shape.head_dim_v * shape.head_kv[layer])
        # The indexer of sparse attention keeps a key of its own; which layers own one differs, so all are charged.
        row += 4 * shape.indexer_key_length
        layers.append(cells * row)
    return layers


def recurrent_bytes(shape: ModelShape, parallel: int) -> list[int]:
    """Bytes of the recurrent state of each layer, for all slots together."""
    size = shape.state_values * 4 * parallel
    return [size if recurrent else 0 for recurrent in shape.recurrent]
