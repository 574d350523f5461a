# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of the activations of one micro batch in the moments of a layer at which most of them live at once.

Activations are float32. llama.cpp's graph allocator (ggml-alloc.c) frees a tensor after its last use and lets some
operations (ggml_op_can_inplace) write over their input; SwiGLU and its like, matrix products and concatenations need
room of their own. What was freed is a hole that a larger tensor does not fit into, so the moments count the holes too.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import ModelShape

FLOAT = 4
# Rotations of K and V, which keep a quantised cache exact, are multiples of this size (llama-kv-cache.cpp).
ROTATION = 64


@dataclass(frozen=True)
class Activations:
    """Bytes; everything but ``rotations`` grows with the micro batch.

    embd: the residual. query: Q of a layer, in the latent space with MLA. attention, feed_forward, routed: the largest
    moments of the attention, the feed forward and the routed experts, beside the residual and its norm. late: the
    feed forward on a device that does not hold layer 0. selected: one row per chosen expert. received: the experts'
    moment together with the rows of another device's experts. per_layer: the embedding of one layer of its own;
    per_layer_all: those of all layers. streams: the other residuals. rotations: matrices that are an input.
    picked: what an indexer picks for one layer.
    """

    embd: int
    query: int
    attention: int
    feed_forward: int
    routed: int
    late: int
    selected: int
    received: int
    per_layer: int
    per_layer_all: int
    streams: int
    rotations: int
    picked: int


def activations(shape: ModelShape, ubatch_size: int, cells: int) -> Activations:
    """Of a micro batch of that many tokens; cells are those of one slot."""
    wiring, row = shape.wiring, ubatch_size * FLOAT
    embd = shape.n_embd * row
    selected = shape.n_expert_used * embd
    inner = (shape.n_ff_expert or shape.n_ff) * shape.n_expert_used * row
    routed = _routed(shape, row, inner, selected) if selected else 0
    # with a gate: it, the other matrix' result, and their product
    dense = (3 if wiring.gated else 1) * shape.n_ff * row
    if routed and wiring.dense_lead == 0:
        dense = 0
    return Activations(
        embd=embd,
        query=shape.n_head * shape.head_dim_k * row,
        attention=_attention(shape, row, cells),
        feed_forward=max(dense, routed),
        routed=routed,
        late=routed if routed and wiring.dense_lead == 1 else max(dense, routed),
        selected=selected,
        received=selected + embd + max(3 * inner, 2 * inner + selected) if routed else 0,
        per_layer=wiring.per_layer * row,
        per_layer_all=wiring.per_layer * shape.n_layer * row,
        streams=(wiring.streams - 1) * embd,
        rotations=_rotations(shape),
        picked=wiring.sparse * row,
    )


def _attention(shape: ModelShape, row: int, cells: int) -> int:
    """Q, K and V, and each once more where it is rotated, normed or put together of parts (build_attn)."""
    query = shape.n_head * shape.head_dim_k * row
    # an indexer's scores, and the mask that is made of those it picks
    scores = (cells * row + cells * row // 2) if shape.wiring.sparse else 0
    if shape.mla:
        # deepseek2.cpp: the query, multiplied into the latent space and beside its part with positions, then both
        # concatenated
        return 2 * query + shape.n_head * shape.wiring.head_mla * row + scores
    widest = max(count * (k + v) for count, k, v in zip(shape.head_kv, shape.head_k, shape.head_v))
    if not shape.wiring.flash_attention:
        scores = shape.n_head * cells * row
    return 2 * query + 2 * widest * row + scores


def _routed(shape: ModelShape, row: int, inner: int, selected: int) -> int:
    """build_moe_ffn: gate, up and their product; then the product and what comes of it, one row per expert."""
    moment = 3 * inner
    if selected > 2 * inner or shape.wiring.weighted_input:
        # the result does not fit where gate and up were
        moment += selected
    if shape.mla:
        # the gate fits into the hole that the attention left, so it leaves none
        moment = max(moment, 2 * inner + selected)
    shared = 3 * shape.wiring.n_ff_shared * row + 2 * shape.n_embd * row
    # the router's scores and their order stay beside them
    return max(moment, shared) + 2 * shape.wiring.n_expert * row


def _rotations(shape: ModelShape) -> int:
    """Input matrices of llama_kv_cache (build_input_k_rot, build_input_v_rot), one pair per kind of cache."""
    size = ROTATION
    while shape.head_dim_k % (2 * size) == 0 and size < shape.head_dim_k:
        size *= 2
    return (size * size + ROTATION * ROTATION) * FLOAT * (2 if shape.window else 1)
