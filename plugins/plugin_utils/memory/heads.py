# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The buffers of contexts that draft by themselves: EAGLE-3, DFlash, DSpark, and NextN layers.

Two things set them apart. llama_context takes eagle3 and dflash for models with an encoder and reserves an output row
for every token of a micro batch (llama_model_has_encoder), so that logits are most of their buffers. And the draft's
tokens are picked in the graph (set_sampler), for which the host keeps four rows of n_vocab values per output: logits,
and what was picked from, as logits, probabilities and tokens (output_reserve, llama-context.cpp). EAGLE-3 encodes what
it reads of the target, and encoding has an output for every token. Compared with llama-server b11434.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.memory import compute
from ansible_collections.relay.pool.plugins.plugin_utils.memory.activations import FLOAT, activations
from ansible_collections.relay.pool.plugins.plugin_utils.memory.batch import (
    PIPELINE_COPIES,
    SMALL_INPUTS,
    Batch,
    logits,
)
from ansible_collections.relay.pool.plugins.plugin_utils.memory.keys import Keys
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import ModelShape

# They read inputs of the target's layers (src/models/eagle3.cpp, dflash.cpp).
READING = frozenset(("eagle3", "dflash"))
# Values of n_vocab per output row that the host keeps where the tokens are picked in the graph.
PICKED_ROWS = 4


@dataclass(frozen=True)
class Drafting:
    """Of a context that only drafts: values per token that its target gives it, and rows that it gives at once."""

    read: int
    outputs: int


@dataclass(frozen=True)
class Given:
    """What a target gives a head beside its logits: the inputs of some layers, and the result of the last one."""

    layers: tuple[int, ...] = ()
    result: bool = False

    def rows(self, layers: tuple[int, int] | None, output: bool) -> int:
        """Rows as long as the embedding that a device keeps of every token until a micro batch is done.

        :param layers: first layer and the one after the last; None for all. output: it has the output.
        """
        # the number after the last layer stands for that layer's result
        held = sum(layers is None or layers[0] <= layer < layers[1] + output for layer in self.layers)
        # without a head the last layer is only computed where there is an output
        return held + (2 if self.result and output else 0)

    @property
    def count(self) -> int:
        """Rows per token of a whole batch that llama-server keeps in RAM."""
        return len(self.layers) + self.result


@dataclass(frozen=True)
class Mtp:
    """The context in which a model's own NextN layers draft: bytes on the device of the last layer, and in RAM.

    weights: those of the layers, which the model's ledger has among its own.
    """

    kv: int
    compute: int
    host: int
    weights: int


def output_rows(shape: ModelShape, outputs: int) -> int:
    """Bytes that the host keeps of so many rows whose tokens are picked in the graph."""
    return outputs * (PICKED_ROWS * shape.n_vocab + 1 + shape.n_embd) * FLOAT


def read_layers(gguf: Mapping[str, Any] | None) -> tuple[int, ...]:
    """The target's layers whose inputs this head reads; none for anything else."""
    gguf = gguf or {}
    if gguf.get("architecture") not in READING:
        return ()
    keys = Keys(str(gguf["architecture"]), gguf.get("metadata") or {}, str(gguf.get("path") or "the draft model"))
    listed = keys.raw("target_layers")
    return tuple(layer for layer in listed if isinstance(layer, int)) if isinstance(listed, list) else ()


def nextn_layers(shape: ModelShape) -> tuple[int, int]:
    """The first NextN layer, and the one after the last."""
    return shape.n_layer - shape.n_layer_nextn, shape.n_layer


def values_read(gguf: Mapping[str, Any], shape: ModelShape) -> int:
    """Values per token that the context is given of its target."""
    if shape.architecture == "eagle3":
        keys = Keys(shape.architecture, gguf.get("metadata") or {}, str(gguf.get("path") or "the draft model"))
        return len(read_layers(gguf)) * keys.number("target_hidden_size", shape.n_embd)
    if shape.architecture == "gemma4-assistant":
        # the embedding and the last result of its target, which is wider
        keys = Keys(shape.architecture, gguf.get("metadata") or {}, str(gguf.get("path") or "the draft model"))
        return 2 * keys.number("embedding_length_out", shape.n_embd)
    return max(len(read_layers(gguf)), 1) * shape.n_embd


def drafting(gguf: Mapping[str, Any], shape: ModelShape, tokens: int, outputs: int) -> Drafting:
    """How this file drafts, tokens being those of a micro batch and outputs the rows of a round."""
    return Drafting(values_read(gguf, shape), tokens if shape.architecture == "eagle3" else outputs)


def device_bytes(shape: ModelShape, batch: Batch, pipelined: bool, read: int, gpu: bool = False) -> int:
    """Compute buffer of the device that drafts.

    :param pipelined: the context is that of the target's own NextN layers, and the target is a pipeline.
    :param read: values that a head reads of each token from its target.
    """
    copies = PIPELINE_COPIES if pipelined else 1
    size = activations(shape, batch.tokens, batch.cells)
    inputs = 2 * size.embd + (batch.cells + batch.window_cells) * batch.tokens * 2 + batch.tokens * SMALL_INPUTS
    inputs += size.rotations
    return copies * inputs + _body(shape, batch, read, batch.half_kv if gpu else 0) + compute.MARGIN


def host_bytes(shape: ModelShape, batch: Batch, layers: bool, pipelined: bool, read: int, outputs: int) -> int:
    """Compute buffer of the host's CPU and the buffer of outputs.

    :param layers: the layers that draft are on the CPU as well. outputs: rows that one call decodes or encodes at most.
    """
    kept = output_rows(shape, outputs)
    if layers:
        return kept + device_bytes(shape, batch, pipelined, read)
    copies = PIPELINE_COPIES if pipelined else 1
    embd = shape.n_embd * batch.tokens * FLOAT
    mask = (batch.cells + batch.window_cells) * batch.tokens * 2
    small = copies * batch.tokens * SMALL_INPUTS
    # the embedding of the tokens crosses to the device, or what is read of the target
    return kept + max(copies * (embd + mask) + embd, read * batch.tokens * FLOAT + mask) + small + compute.MARGIN


def _body(shape: ModelShape, batch: Batch, read: int, half_kv: int) -> int:
    """The largest moment: what is read of the target, a layer, or the output with what is picked from it."""
    size = activations(shape, batch.tokens, batch.cells)
    layer = 5 * size.embd + max(size.attention + 2 * size.query + half_kv, size.feed_forward)
    reading = read * batch.tokens * FLOAT + 3 * size.embd + size.attention
    picking = size.embd + 2 * logits(shape, batch)
    return max(layer, reading, picking)
