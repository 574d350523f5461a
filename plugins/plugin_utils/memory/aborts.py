# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slots and caches with which llama-server ends at its start, because its own graph of the model is impossible.

llama_context::graph_max_nodes reckons with eight nodes per weight tensor, and ggml_backend_sched_new makes a hash
table for so many and not for the weights and caches themselves. A model of few large tensors comes to its limit when a
quantised cache, whose K and V are rotated, and several slots add nodes to every layer ("ggml-impl.h: fatal error").
Known for architectures whose nodes were counted, b11434; nothing is said of any other.

kimi-linear.cpp builds no graph whose tokens do not divide into slots ("ggml.c: GGML_ASSERT(ggml_can_repeat(b, a))").
"""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory.kv import is_quantised
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import ModelShape

# Architecture: nodes per layer, and those before and after, with one slot and a cache that is not quantised.
NODES = {"phi3": (29, 9)}
ROTATION = 6  # nodes per layer that rotate K, or V, when it is quantised and its heads are a multiple of 64 values
STREAMS = 2  # nodes per layer for slots with caches of their own
INPUTS = 9
# Architectures that want a micro batch of a multiple of the slots.
EVEN_SLOTS = frozenset(("kimi-linear",))
NODES_PER_TENSOR = 8
SMALLEST = 1024
# ggml_hash_size: the primes after powers of two.
SIZES = (1031, 2053, 4099, 8209, 16411)


def check_graph(
    shape: ModelShape, path: str, n_tensors: int, parallel: int, cache_type_k: str, cache_type_v: str
) -> None:
    """Raise when llama-server would end at its start with these caches and slots. n_tensors: those of the file."""
    if shape.architecture not in NODES or not n_tensors:
        return
    wanted = max(SMALLEST, NODES_PER_TENSOR * n_tensors)
    places = next((size for size in SIZES if size >= wanted), None)
    one_slot = _tensors(shape, n_tensors, 1, cache_type_k, cache_type_v)
    needed = _tensors(shape, n_tensors, parallel, cache_type_k, cache_type_v)
    if places is None or needed <= places:
        return
    raise PoolError(
        f"{path} with a {cache_type_k} cache and {parallel} slots makes a graph of {needed} tensors, for which "
        f"llama.cpp has {places} places, and llama-server ends at its start: use an f16 cache"
        + (" or one slot" if one_slot <= places else "")
    )


def check_slots(shape: ModelShape, path: str, n_ctx: int, parallel: int, ubatch_size: int) -> None:
    """Raise when llama-server would end at its start with these slots; n_ctx: tokens of all slots together."""
    tokens = min(n_ctx, ubatch_size)
    if shape.architecture in EVEN_SLOTS and tokens % parallel:
        raise PoolError(
            f"{path} with {parallel} slots ends llama-server at its start: a micro batch of {tokens} tokens does not "
            f"divide by {parallel}, choose slots by which it does"
        )


def _tensors(shape: ModelShape, n_tensors: int, parallel: int, cache_type_k: str, cache_type_v: str) -> int:
    """Nodes, weights, caches and inputs of the graph."""
    per_layer, rest = NODES[shape.architecture]
    rotations = sum(
        is_quantised(cache_type) and head % 64 == 0
        for cache_type, head in ((cache_type_k, shape.head_dim_k), (cache_type_v, shape.head_dim_v))
    )
    per_layer += ROTATION * rotations + (STREAMS if parallel > 1 else 0)
    return shape.n_layer * (per_layer + 2) + rest + n_tensors + INPUTS + rotations
