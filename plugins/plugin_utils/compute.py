# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A safe upper bound on llama.cpp's compute buffers with flash attention and split mode layer.

The graph's largest moment is a few activations of one micro batch: E = n_embd, F = n_ff, Q = heads, all times
ubatch times 4 bytes, plus the mask M. The coefficients bound what llama.cpp b11434 reported for dense and MoE
models of 0.1 to 70 billion parameters; with two devices or more and everything offloaded, pipeline parallelism
keeps four copies.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.relay.pool.plugins.plugin_utils.shape import ModelShape
from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB

PIPELINE_COPIES = 4


@dataclass(frozen=True)
class Batch:
    """What a context decodes at once: cells per slot of full and windowed layers, micro batch, output rows."""

    cells: int
    window_cells: int
    ubatch_size: int
    n_outputs: int


def _units(shape: ModelShape, batch: Batch) -> tuple[int, int, int, int]:
    """(E, core, surplus of Q over E, M) in bytes."""
    scale = batch.ubatch_size * 4
    embd = shape.n_embd * scale
    heads = shape.n_head * shape.head_dim_k * scale
    dense = 3 * shape.n_ff * scale
    experts = 0
    if shape.n_expert_used:
        n_ff_expert = shape.n_ff_expert or shape.n_ff
        experts = max(3 * n_ff_expert * shape.n_expert_used * scale, 2 * shape.n_embd * shape.n_expert_used * scale)
        # the leading dense layers of an MoE model are as wide as n_ff, and one of them may be on any device
    core = max(dense, experts)
    if any(shape.recurrent):
        # Chunked scans keep several copies of the inner activations and of the state; not measured, so generous.
        core += 8 * max(heads, embd) + 8 * shape.state_values * 4
    mask = (batch.cells + batch.window_cells) * batch.ubatch_size * 2
    return embd, core, max(0, heads - embd), mask


def device_bytes(shape: ModelShape, batch: Batch, first: bool, pipelined: bool, output: bool) -> int:
    """Compute buffer of a device that is not the host's CPU."""
    embd, core, surplus, mask = _units(shape, batch)
    factor = (18 if first else 13) if pipelined else 7
    body = core + factor * embd + surplus
    if output:
        # Many output rows of a large vocabulary outgrow the feed forward; the activations beside them stay.
        body = max(body, batch.n_outputs * shape.n_vocab * 4 + factor * embd)
    return body + (PIPELINE_COPIES if pipelined else 1) * mask + MIB // 8


def host_bytes(shape: ModelShape, batch: Batch, layers: bool, pipelined: bool, output: bool = False) -> int:
    """Compute buffer of the host's CPU, and the buffer of logits that every context keeps there."""
    embd, core, surplus, mask = _units(shape, batch)
    body = core + 7 * embd + surplus if layers else (10 if pipelined else 5) * embd
    logits = batch.n_outputs * shape.n_vocab * 4
    if output:
        body = max(body, logits + 5 * embd)
    return body + (PIPELINE_COPIES if pipelined else 1) * mask + MIB + logits
