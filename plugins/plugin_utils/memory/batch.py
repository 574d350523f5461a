# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a context decodes at once, and what of it is the same in the compute buffers of every kind of layer."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.relay.pool.plugins.plugin_utils.memory.activations import FLOAT
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import ModelShape

# Of every input, with two devices or more and everything offloaded (ggml-backend.cpp, GGML_SCHED_MAX_COPIES).
PIPELINE_COPIES = 4
# Bytes per token of the small inputs: token numbers, positions, indices of cells and states (int32 and int64).
SMALL_INPUTS = 64


@dataclass(frozen=True)
class Batch:
    """What a context decodes at once.

    cells, window_cells: per slot of full and windowed layers. kv: bytes of each layer's cache over all slots, needed
    only where layers use the cache of an earlier one. slots: 0 when only n_outputs is known, which is no less.
    half_kv: bytes that the largest layer's cache has as half floats, over all slots, when it is kept in another type.
    snapshots: recurrent states per slot besides the one in use.
    """

    cells: int
    window_cells: int
    ubatch_size: int
    n_outputs: int
    kv: tuple[int, ...] = ()
    slots: int = 0
    half_kv: int = 0
    snapshots: int = 0

    @property
    def sequences(self) -> int:
        """Those that share a micro batch, each with a state of its own."""
        return max(self.slots or self.n_outputs, 1)

    @property
    def tokens(self) -> int:
        """Of the graph that is reserved: as many for every slot (graph_reserve)."""
        return -(-self.ubatch_size // self.sequences) * self.sequences


def logits(shape: ModelShape, batch: Batch) -> int:
    """Bytes of the output rows of a micro batch."""
    return batch.n_outputs * shape.n_vocab * FLOAT
