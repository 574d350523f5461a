# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp's compute buffers with flash attention and split mode layer, per place.

A buffer holds, all at its largest moment: the inputs of the device (what crosses to it from another one, and the
masks), the residual, the hole that the attention left below it, and the activations of the widest moment of a layer.
Compared with what llama.cpp b11434 reports; see activations.py for the moments.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import Any, Callable

from ansible_collections.relay.pool.plugins.plugin_utils.memory import scan
from ansible_collections.relay.pool.plugins.plugin_utils.memory.activations import FLOAT, Activations, activations
from ansible_collections.relay.pool.plugins.plugin_utils.memory.batch import (
    PIPELINE_COPIES,
    SMALL_INPUTS,
    Batch,
    logits,
)
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import ModelShape
from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB

# Their last layer picks the rows of the output from its input, too, also where the output itself is elsewhere.
PICKS_TWICE = frozenset(("stablelm",))
# For what lies in steps of an alignment; nothing else is rounded.
MARGIN = MIB // 8


def device_bytes(
    shape: ModelShape,
    batch: Batch,
    first: bool,
    pipelined: bool,
    output: bool,
    layers: tuple[int, int] | None = None,
    gpu: bool = False,
) -> int:
    """Compute buffer of a device that is not the host's CPU.

    first: it holds layer 0. layers: first layer and the one after the last; without them the worst is taken. gpu: the
    flash attention of CUDA, HIP and Metal works on half floats, into which it turns a layer's whole cache
    (ggml_cuda_flash_attn_ext_get_alloc_size, ggml-cuda/fattn.cu).
    """
    if any(shape.recurrent):
        # some of its layers may attend
        return scan.device_bytes(shape, batch, first, pipelined, output, layers) + (batch.half_kv if gpu else 0)
    copies = PIPELINE_COPIES if pipelined else 1
    size = _activations(shape, batch.tokens, batch.cells)
    kept = copies * _shared_inputs(shape, batch, size, layers) + _picked(shape, size, layers)
    if first:
        kept += _first_inputs(shape, size, copies)
    else:
        kept += _later_inputs(shape, batch, size, copies, output, layers)
    hole = _hole(shape, size, first, pipelined)
    body = _layer(shape, size, hole, size.feed_forward if first else size.late, batch.half_kv if gpu else 0)
    if not (first or pipelined or shape.wiring.followed_experts):
        # after the host's CPU: its last layer leaves the sum over the experts to the device, which receives their rows
        body = max(body, size.received)
    if output:
        body = max(body, _beside_logits(shape, size) + logits(shape, batch))
    elif shape.architecture in PICKS_TWICE:
        kept += batch.n_outputs * shape.n_embd * FLOAT
    return kept + body + MARGIN


def host_bytes(shape: ModelShape, batch: Batch, layers: bool, pipelined: bool, output: bool = False) -> int:
    """Compute buffer of the host's CPU, and the buffer of logits that every context keeps there."""
    rows = logits(shape, batch)
    if any(shape.recurrent):
        return scan.host_bytes(shape, batch, layers, pipelined, output) + rows
    copies = PIPELINE_COPIES if pipelined else 1
    size = _activations(shape, batch.tokens, batch.cells)
    inputs = _input(shape, size)
    kept = copies * _shared_inputs(shape, batch, size, None) + size.per_layer_all
    if not layers:
        # embeddings that stay unused for text and those of mixed batches, the tokens' own, and what is added to them
        added = size.embd if shape.wiring.learned_positions or size.per_layer else 0
        return kept + copies * 2 * inputs + inputs + size.embd + added + rows + MARGIN
    kept += (4 if shape.wiring.stacked else 2) * inputs + size.streams + size.per_layer_all
    kept += _picked(shape, size, None)
    body = _layer(shape, size, _hole(shape, size, True, False), size.feed_forward)
    if output:
        body = max(body, _beside_logits(shape, size) + rows)
    return kept + body + rows + MARGIN


def range_kinds(shape: ModelShape, batch: Batch) -> Callable[[int, int], Any] | None:
    """A function of a range of layers, first..last-1: equal results mean compute buffers of one size on a device.

    Everything else that device_bytes() asks for must be equal as well. None: the layers make no difference at all.
    """
    if any(shape.recurrent):
        return scan.range_kinds(shape)
    windows = list(accumulate(shape.windowed, initial=0)) if batch.window_cells else None
    sized, crossing = bool(shape.wiring.sparse), bool(shape.wiring.per_layer)
    if not (windows or sized or crossing):
        return None

    def kind(first: int, last: int) -> Any:
        count = last - first
        windowed = windows[last] - windows[first] if windows else 0
        masks = (windowed > 0, windowed == count, count > 0) if windows else None
        elsewhere = _caches_elsewhere(shape, batch, (first, last)) if crossing else 0
        return masks, count if sized or crossing else None, elsewhere

    return kind


_activations = lru_cache(maxsize=64)(activations)


def _input(shape: ModelShape, size: Activations) -> int:
    """A row of input embeddings, with those for some layers beside it."""
    return size.embd * (1 + shape.wiring.stacked)


def _shared_inputs(shape: ModelShape, batch: Batch, size: Activations, layers: tuple[int, int] | None) -> int:
    """What every device with a layer gets: masks, rotations, positions and indices."""
    windowed = shape.windowed[slice(*layers)] if layers and layers[0] < layers[1] else ()
    cells = batch.cells + batch.window_cells
    if windowed and batch.window_cells:
        cells -= (batch.cells if all(windowed) else 0) + (0 if any(windowed) else batch.window_cells)
    if shape.wiring.sparse:
        # the indexer has a mask of its own
        cells *= 2
    small = size.rotations + batch.tokens * SMALL_INPUTS
    if shape.wiring.flash_attention:
        return cells * batch.tokens * 2 + small
    # masks of floats, and V is stored value by value, each with an index of its own (build_input_v_idxs)
    values = max(count * head for count, head in zip(shape.head_kv, shape.head_v))
    return cells * batch.tokens * FLOAT + values * batch.tokens * 8 + small


def _picked(shape: ModelShape, size: Activations, layers: tuple[int, int] | None) -> int:
    """Zeros for the cells that an indexer picks: one tensor per layer, made before the graph runs (build_attn)."""
    first, last = layers or (0, shape.n_layer)
    return size.picked * (last - first)


def _first_inputs(shape: ModelShape, size: Activations, copies: int) -> int:
    """The embeddings; llama.cpp keeps a path for mixed batches, whose first operations run on the first device."""
    inputs = _input(shape, size)
    if size.per_layer:
        crossing = size.per_layer_all + size.embd + (_streams_crossing(size) if size.streams else 0)
        # they are put in another order, and the hole of the old one stays
        return (copies * crossing if copies > 1 else 0) + 2 * size.per_layer_all + size.streams
    if shape.wiring.learned_positions:
        return copies * 2 * inputs if copies > 1 else 0
    if shape.wiring.stacked:
        # every layer with an image of its own gets its view of the whole input
        return copies * (2 + shape.wiring.stacked) * inputs + (copies * size.embd if copies > 1 else 0) + inputs
    # without copies the inputs are freed, and their holes are as large as the attention's
    return (copies * 3 * inputs if copies > 1 else 0) + inputs


def _streams_crossing(size: Activations) -> int:
    """gemma3n.cpp: the norm of one stream, and all streams in two orders."""
    return size.embd + 2 * (size.streams + size.embd)


def _later_inputs(
    shape: ModelShape, batch: Batch, size: Activations, copies: int, output: bool, layers: tuple[int, int] | None
) -> int:
    """The residual and its norm from the device before, and what a few architectures send along for every layer."""
    crossing = size.embd * (2 if shape.wiring.first_norm else 1)
    if size.streams:
        # the output's device mixes the streams at the start, too
        crossing = _streams_crossing(size) + (size.per_layer_all + size.embd if output else 0)
    first, last = layers or (0, shape.n_layer)
    every = size.per_layer * (last - first) + _caches_elsewhere(shape, batch, layers)
    return (copies * crossing if copies > 1 else 0) + copies * every + size.streams


def _caches_elsewhere(shape: ModelShape, batch: Batch, layers: tuple[int, int] | None) -> int:
    """Caches of earlier devices that layers of this one read: each reader gets a copy (create_memory, llama-model.cpp).

    Only the architectures with embeddings for every layer have such layers.
    """
    if not shape.wiring.per_layer or all(shape.attention) or not batch.kv:
        return 0
    sharing = shape.attention.index(False)
    first, last = layers or (sharing, shape.n_layer)
    readers = shape.windowed[max(first, sharing) : last]
    windowed = sum(readers)
    sources = {max(sharing - 2, 0): windowed, max(sharing - 1, 0): 0}
    sources[max(sharing - 1, 0)] += len(readers) - windowed
    return sum(batch.kv[source] * count for source, count in sources.items() if source < first)


def _hole(shape: ModelShape, size: Activations, first: bool, pipelined: bool) -> int:
    """What the attention left below the residual: its norm and Q. Freed inputs serve for it, copies do not."""
    embd, query = size.embd, size.query
    if shape.mla:
        return 2 * embd + (query if pipelined else 0)
    hole = max(2 * embd, query) if first and not pipelined else embd + max(embd, query)
    return hole + (embd if query < embd else 0)


def _layer(shape: ModelShape, size: Activations, hole: int, feed_forward: int, half_kv: int = 0) -> int:
    """The largest moment of a layer: in its attention or in its feed forward."""
    waiting = size.embd if shape.wiring.parallel else 0
    surcharge = 0 if shape.wiring.measured else 2 * size.embd
    surcharge += 3 * size.embd if size.streams else 0
    fed = size.embd + hole + waiting + feed_forward
    attending = (5 if shape.mla else 2) * size.embd + size.attention
    if half_kv:
        # they lie beside the attention's result, which no longer fits into what was freed
        attending += half_kv + (size.query if shape.mla else size.embd)
    return max(fed, attending) + surcharge


def _beside_logits(shape: ModelShape, size: Activations) -> int:
    """What the last layer left where it was: its result may lie above everything that it has freed."""
    left = 3 * size.embd + max(size.embd, size.query) + (size.embd if size.query < size.embd else 0)
    if shape.wiring.followed_experts:
        left += size.selected
    return left + size.per_layer_all + size.streams + shape.wiring.stacked * size.embd
