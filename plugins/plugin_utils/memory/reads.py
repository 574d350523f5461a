# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which weights decoding reads: all of a dense layer, of a mixture of experts only those of the experts in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory.keys import Keys


@dataclass(frozen=True)
class Reads:
    """Bytes per layer.

    always: weights that every token needs, shared experts among them. experts: all routed experts together.
    routed: the experts that one token is routed to.
    """

    always: tuple[int, ...]
    experts: tuple[int, ...]
    routed: tuple[int, ...]

    def batch(self, tokens: int = 1) -> tuple[int, ...]:
        """Bytes that a batch of so many tokens reads of each layer, every token routed to experts of its own."""
        return tuple(
            always + min(experts, routed * tokens)
            for always, experts, routed in zip(self.always, self.experts, self.routed)
        )

    @property
    def mixture(self) -> bool:
        """A token is routed to some of the experts only."""
        return any(routed < experts for experts, routed in zip(self.experts, self.routed))


def token_reads(gguf: Mapping[str, Any], blocks: Sequence[int], n_layer: int) -> Reads:
    """What decoding reads of a gguf_info result.

    blocks: bytes of every block of the file, 0 of one that llama.cpp does not load. n_layer: as llama.cpp counts them.
    A result without the experts' sizes, or a file without the number of experts in use, counts in full.
    """
    tensors, path = gguf.get("tensors") or {}, str(gguf.get("path") or "the model")
    keys = Keys(str(gguf.get("architecture")), gguf.get("metadata") or {}, path)
    used = keys.per_layer("expert_used_count", len(blocks), 0)
    stacked = tensors.get("experts") or [0] * len(blocks)
    single = tensors.get("expert") or [0] * len(blocks)
    if not len(stacked) == len(single) == len(blocks):
        raise PoolError(f"{path} lists no experts for some of its blocks: read it again with gguf_info")
    # nanbeige.cpp runs through the blocks several times, on the device that holds them
    loops = max(n_layer // len(blocks), 1) if len(blocks) > 1 else 1
    experts = [min(size, block) * loops for size, block in zip(stacked, blocks)]
    routed = [min(one * count * loops, size) if count else size for one, count, size in zip(single, used, experts)]
    added = [0] * (n_layer - len(blocks))
    return Reads(
        always=tuple([block * loops - size for block, size in zip(blocks, experts)] + added),
        experts=tuple(experts + added),
        routed=tuple(routed + added),
    )
