# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""KV cache and recurrent state per layer, as llama.cpp allocates them (llama-kv-cache, llama-memory-recurrent).

llama-server shares one cache between its slots only when it is asked to, or when it is not told how many slots to
have; the plan always tells it, so every slot has cells of its own.
"""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory.caches import Rows
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import ModelShape

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
    """(total context, context per slot) that llama-server really allocates for -c ctx_size -np parallel.

    Both in tokens; the constructor of llama_context (llama-context.cpp) pads the whole and then every slot.
    """
    per_slot = pad(pad(ctx_size) // parallel)
    if per_slot == 0:
        raise PoolError(f"a context of {ctx_size} leaves nothing for each of {parallel} slots: raise relay_ctx_size")
    return per_slot * parallel, per_slot


def window_cells(shape: ModelShape, per_slot: int, ubatch_size: int) -> int:
    """Cells per slot of a windowed layer (llama_kv_cache_iswa)."""
    return pad(min(per_slot, shape.window + ubatch_size))


def cells(shape: ModelShape, rows: Rows, per_slot: int, ubatch_size: int) -> int:
    """Cells per slot of one cache of one layer; a cell of several tokens is deepseek4's (llama_kv_cache_dsv4)."""
    if rows.windowed:
        return window_cells(shape, per_slot, ubatch_size)
    return per_slot if rows.ratio == 1 else pad(-(-per_slot // rows.ratio))


def check_cache_types(shape: ModelShape, cache_type_k: str, cache_type_v: str) -> None:
    """Raise when llama.cpp would refuse these cache types for this model (llama_init_from_model)."""
    trunk = shape.n_layer - shape.n_layer_nextn
    for name, cache_type, heads in (("K", cache_type_k, shape.head_k), ("V", cache_type_v, shape.head_v)):
        row_bytes(cache_type, 0)
        per_block = CACHE_TYPES[cache_type][0]
        # of every layer but the NextN layers, even of those that have no cache
        odd = [size for size in heads[:trunk] if size % per_block]
        if odd:
            raise PoolError(
                f"the {name} cache cannot be {cache_type}: heads of {odd[0]} values are no multiple of {per_block}, "
                "use f16"
            )
    if (shape.mla or shape.architecture == "deepseek4") and cache_type_k != cache_type_v:
        raise PoolError(
            f"{shape.architecture} needs one cache type for K and V, given are {cache_type_k} and {cache_type_v}"
        )
    if not shape.wiring.flash_attention and is_quantised(cache_type_v):
        raise PoolError(
            f"the V cache of {shape.architecture} cannot be {cache_type_v}: llama.cpp runs it without flash attention, "
            "use f16"
        )


def kv_bytes(
    shape: ModelShape, ctx_size: int, parallel: int, cache_type_k: str, cache_type_v: str, ubatch_size: int
) -> list[int]:
    """Bytes of the caches of each layer, for all slots together."""
    _total, per_slot = context(ctx_size, parallel)
    return [
        sum(
            cells(shape, rows, per_slot, ubatch_size)
            * parallel
            * (row_bytes(cache_type_k, rows.k) + row_bytes(cache_type_v, rows.v))
            for rows in layer
        )
        for layer in shape.rows
    ]


def recurrent_bytes(shape: ModelShape, parallel: int) -> list[int]:
    """Bytes of the recurrent state of each layer, for all slots together; it does not grow with the context."""
    return [values * 4 * parallel for values in shape.states]
