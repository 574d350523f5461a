# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The compute buffers of models whose layers carry a recurrent state, all of them or some.

As for other models a buffer holds the inputs of the device and the widest moment of a layer, with a few rows as long
as the embedding beside it: the residual, its norm, and what the graph allocator (ggml-alloc.c) cannot use again. A scan
adds a moment of its own (recurrence.py), in which the states of all slots live, and something that crosses from one
device of a pipeline to the next: build_rs (llama-graph.cpp) puts a layer's first operations into the graph before the
last ones of the layer before, so the scheduler gives those to the next device, and their result comes back.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, Callable

from ansible_collections.relay.pool.plugins.plugin_utils.memory.activations import FLOAT, activations
from ansible_collections.relay.pool.plugins.plugin_utils.memory.batch import (
    PIPELINE_COPIES,
    SMALL_INPUTS,
    Batch,
    logits,
)
from ansible_collections.relay.pool.plugins.plugin_utils.memory.recurrence import (
    DELTA,
    KDA,
    LIGHTNING,
    MAMBA,
    MAMBA2,
    PLAMO2,
    RWKV6,
    RWKV7,
    SHORT_CONV,
    UNKNOWN,
    widest,
)
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import ModelShape

HALF = 2
# Rows as long as the embedding beside the widest moment: on a device that holds all layers, on one that comes after
# the host's CPU, on the first and on a later one of a pipeline, and on the host's CPU. Compared with llama.cpp b11434.
ONLY, AFTER_HOST, FIRST, LATER, HOST = range(5)
ROWS = {
    MAMBA: (2.1, 4.1, 3.3, 2.3, 5.2),
    MAMBA2: (4.1, 5.0, 4.2, 3.2, 5.1),
    RWKV6: (3.1, 3.1, 3.1, 2.1, 4.1),
    RWKV7: (5.1, 4.1, 5.1, 2.2, 6.1),
}
# The same where other layers attend.
HYBRID_ROWS = {
    MAMBA: (5.0, 4.1, 3.3, 2.3, 5.2),
    MAMBA2: (5.0, 5.8, 5.8, 4.8, 6.1),
    DELTA: (4.2, 3.1, 4.2, 3.1, 5.2),
    KDA: (4.0, 3.0, 4.6, 3.0, 5.0),
    SHORT_CONV: (4.1, 5.1, 3.1, 2.1, 5.1),
    LIGHTNING: (4.1, 3.1, 4.1, 3.1, 5.1),
}
# Of what has not been compared, or only in part.
MOST_ROWS = (6.1, 6.1, 6.1, 5.1, 7.1)
# Beside the logits.
LOGITS_ROWS = 6.1
# Rows that a stage of a pipeline receives and gives back beside the residual and its norm.
HANDED_ROWS = {"rwkv6": (2, 1), "rwkv7": (3, 1), "arwkv7": (5, 1), "plamo2": (1, 1)}
UNKNOWN_HANDED = (5, 1)
# Their mixers are those of rwkv6 and rwkv7, their feed forward is not.
BORROWED = frozenset(("rwkv6qwen2", "arwkv7"))
# Two matrices per feed forward and per expert, and an activation that works in place.
UNGATED = frozenset(("nemotron_h", "nemotron_h_moe", "rwkv6", "rwkv7"))


def device_bytes(
    shape: ModelShape,
    batch: Batch,
    first: bool,
    pipelined: bool,
    output: bool,
    layers: tuple[int, int] | None = None,
) -> int:
    """Compute buffer of a device that is not the host's CPU.

    first: it holds layer 0. layers: first layer and the one after the last; without them the worst is taken.
    """
    place = (FIRST if first else LATER) if pipelined else (ONLY if first else AFTER_HOST)
    copies = PIPELINE_COPIES if pipelined else 1
    kept = copies * _inputs(shape, batch, layers)
    if pipelined:
        received, returned = _handed(shape, batch, layers)
        kept += copies * ((3 if first else 2) * _row(shape, batch) + (0 if first else received))
        kept += 0 if output else copies * returned
    return kept + _body(shape, batch, place, output, layers)


def host_bytes(shape: ModelShape, batch: Batch, layers: bool, pipelined: bool, output: bool = False) -> int:
    """Compute buffer of the host's CPU, without the logits that every context keeps there."""
    copies = PIPELINE_COPIES if pipelined else 1
    kept = copies * _inputs(shape, batch, None)
    if layers:
        return kept + _body(shape, batch, HOST, output, None)
    # two rows of embeddings that stay unused for text, the tokens' own, and those of mixed batches
    return kept + 2 * (copies + 1) * _row(shape, batch)


def range_kinds(shape: ModelShape) -> Callable[[int, int], Any]:
    """As compute.range_kinds()."""
    attends, recurs = (list(accumulate(flags, initial=0)) for flags in (shape.attention, shape.recurrent))
    ends = _open_ends(shape)

    def kind(first: int, last: int) -> Any:
        return attends[last] > attends[first], recurs[last] > recurs[first], first in ends, last in ends

    return kind


def _row(shape: ModelShape, batch: Batch) -> int:
    return shape.n_embd * batch.tokens * FLOAT


def _inputs(shape: ModelShape, batch: Batch, layers: tuple[int, int] | None) -> int:
    """Masks and rotations where a layer attends, the decay of lightning attention, and small ones."""
    inputs = batch.tokens * SMALL_INPUTS + _decay(shape, batch)
    if any(_those(shape.attention, layers)):
        inputs += (batch.cells + batch.window_cells) * batch.tokens * HALF
        inputs += activations(shape, batch.tokens, batch.cells).rotations
    return inputs


def _those(flags: tuple[bool, ...], layers: tuple[int, int] | None) -> tuple[bool, ...]:
    return flags[layers[0] : layers[1]] if layers else flags


def _decay(shape: ModelShape, batch: Batch) -> int:
    """minimax-01.cpp, inp_diag_decay: a matrix over all pairs of tokens for every head.

    It is smaller for several slots, but sched_reserve (llama-context.cpp) reserves for one sequence as well.
    """
    if shape.recurrence.kind != LIGHTNING:
        return 0
    return (batch.tokens + 2) * batch.tokens * shape.recurrence.n_head * FLOAT


def _body(shape: ModelShape, batch: Batch, place: int, output: bool, layers: tuple[int, int] | None) -> int:
    """The widest moment of a layer, and the rows beside it."""
    row = _row(shape, batch)
    moment = max(_fed(shape, batch, place), _attending(shape, batch, place, output))
    if any(_those(shape.recurrent, layers)):
        scan = widest(shape.recurrence, batch.tokens, batch.sequences) * FLOAT + _snapshots(shape, batch)
        moment = max(moment, scan + 2 * _decay(shape, batch))
    body = moment + int(_rows(shape, batch, place) * row)
    if output:
        beside = int(LOGITS_ROWS * row)
        if shape.recurrence.kind == MAMBA and place == ONLY:
            # the last layer's feed forward leaves holes that are too small for the logits
            beside += _inner(shape, batch) * 5 // 2
        body = max(body, beside + logits(shape, batch))
    return body


def _snapshots(shape: ModelShape, batch: Batch) -> int:
    """The states after each of the last tokens, which a scan gives beside the last one (delta-net-base.cpp).

    Compared for DELTA; of any other kind they are counted twice.
    """
    dims = shape.recurrence
    values = (dims.state + dims.channels * dims.taps) * batch.sequences * batch.snapshots
    return values * FLOAT * (1 if dims.kind == DELTA else 2)


def _rows(shape: ModelShape, batch: Batch, place: int) -> float:
    kind = shape.recurrence.kind
    if shape.architecture in BORROWED:
        return MOST_ROWS[place]
    rows = (HYBRID_ROWS if any(shape.attention) else ROWS).get(kind, MOST_ROWS)[place]
    states = shape.recurrence.state * batch.sequences
    if kind == MAMBA and place == ONLY and 2 * states > shape.n_embd * batch.tokens:
        # what the scan returns does not fit where the convolution's input was
        rows = max(rows, ROWS[MAMBA][AFTER_HOST])
    return rows


def _inner(shape: ModelShape, batch: Batch) -> int:
    """The inner activation of a feed forward, or those of all chosen experts."""
    experts = (shape.n_ff_expert or shape.n_ff) * shape.n_expert_used
    return max(shape.n_ff, experts) * batch.tokens * FLOAT


def _fed(shape: ModelShape, batch: Batch, place: int) -> int:
    """The feed forward's widest moment: gate, up and their product, or a row per chosen expert beside the product."""
    dims, row, states = shape.recurrence, batch.tokens * FLOAT, shape.recurrence.state * batch.sequences * FLOAT
    matrices = 1 if shape.architecture in UNGATED else 3
    dense = matrices * shape.n_ff * row
    if shape.architecture in BORROWED:
        dense += states  # the next layer's, which are read before
    if shape.architecture == "arwkv7":
        dense += states + shape.n_ff * row  # a hole that is too small for one of the three
    if dims.kind == MAMBA2 and place in (ONLY, HOST) and 4 * states <= _row(shape, batch):
        # of a long micro batch the holes that the scan leaves are too small for the feed forward
        hole = (dims.projected + dims.channels) * row
        dense += _row(shape, batch) + (hole if hole < shape.n_ff * row else _row(shape, batch) // 2)
    if not shape.n_expert_used:
        return dense
    inner = (shape.n_ff_expert or shape.n_ff) * shape.n_expert_used * row
    selected = shape.n_embd * shape.n_expert_used * row
    routed = matrices * inner
    if matrices == 1 or selected > 2 * inner:
        routed += selected
    # the router's scores and their order stay beside them
    return max(dense, routed) + 2 * shape.wiring.n_expert * row


def _attending(shape: ModelShape, batch: Batch, place: int, output: bool) -> int:
    """The attention's widest moment.

    plamo2.cpp puts the attention beside a boundary into the graph late, so that it lands on the other device; then
    resolve_fused_ops (llama-context.cpp) turns flash attention off unless it was asked for.
    """
    if not any(shape.attention):
        return 0
    if shape.recurrence.kind == PLAMO2 and (place == AFTER_HOST or (place == HOST and not output)):
        scores = batch.cells * batch.tokens * (shape.n_head * FLOAT + 4 * HALF)
        values = max(count * (k + v) for count, k, v in zip(shape.head_kv, shape.head_k, shape.head_v))
        return scores + values * batch.cells * batch.sequences * HALF + 3 * shape.n_ff * batch.tokens * FLOAT
    return activations(shape, batch.tokens, batch.cells).attention


def _handed(shape: ModelShape, batch: Batch, layers: tuple[int, int] | None) -> tuple[int, int]:
    """Bytes that cross to a stage before its first layer, and that come back to it after its last.

    Of Mamba all that its first matrix made crosses, as z is a view of it, and z comes back (mamba-base.cpp).
    """
    dims, row = shape.recurrence, batch.tokens * FLOAT
    if dims.kind in (MAMBA, MAMBA2):
        received, returned = dims.projected * row, dims.inner * row
    elif shape.architecture in HANDED_ROWS or dims.kind == UNKNOWN:
        counts = HANDED_ROWS.get(shape.architecture, UNKNOWN_HANDED)
        received, returned = (count * shape.n_embd * row for count in counts)
    else:
        return 0, 0
    ends = _open_ends(shape)
    before, after = (layers[0] in ends, layers[1] in ends) if layers else (bool(ends), bool(ends))
    return received if before else 0, returned if after else 0


def _open_ends(shape: ModelShape) -> set[int]:
    """The layers before which a stage may begin while the scan before it is not complete.

    Attention and routed experts have all that they need put into the graph (ggml_build_forward_expand in build_attn
    and build_moe_ffn), so nothing is left over after them.
    """
    dims = shape.recurrence
    if dims.kind not in (MAMBA, MAMBA2):
        return set(range(1, shape.n_layer))
    ends: set[int] = set()
    scanned = None
    for layer, (attends, recurs) in enumerate(zip(shape.attention, shape.recurrent)):
        if recurs and not attends:
            if scanned is not None:
                ends.update(range(scanned + 1, layer + 1))
            scanned = layer
        if attends or (layer < len(dims.routed) and dims.routed[layer]):
            scanned = None
    return ends
