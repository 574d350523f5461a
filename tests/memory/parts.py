# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A shape: the metadata and the tensors of a model, without its weights; and the parts that many models share.

Dimensions are in the order of the file: the row's length first. A tensor's name gets ``.weight`` unless it ends in
``.bias``, ``.scale`` or ``!``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping

Tensors = dict[str, tuple[int, ...]]
Block = Callable[[int], Tensors]


@dataclass(frozen=True)
class Shape:
    """One model; keys are written as ``<architecture>.<key>``, tensors by their full names."""

    name: str
    architecture: str
    vocab: int
    keys: Mapping[str, Any]
    tensors: Mapping[str, tuple[int, ...]]
    quantised: str = "Q4_K"

    @property
    def n_layer(self) -> int:
        """Repeating layers, NextN layers included."""
        return self.keys["block_count"]


def dimensions(layers: int, embd: int, ff: Any, heads: Any, kv: Any, context: int, **more: Any) -> dict[str, Any]:
    """The keys that nearly every architecture has; more are given with ``__`` for a dot."""
    keys = {
        "block_count": layers,
        "embedding_length": embd,
        "feed_forward_length": ff,
        "attention.head_count": heads,
        "attention.head_count_kv": kv,
        "context_length": context,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }
    keys.update((name.replace("__", "."), value) for name, value in more.items())
    return {name: value for name, value in keys.items() if value is not None}


def model(
    layers: int, embd: int, vocab: int, block: Block, tied: bool = False, extra: Tensors | None = None
) -> Tensors:
    """The tensors of a decoder: embedding, output norm, output unless tied, and the blocks."""
    tensors: Tensors = {"token_embd.weight": (embd, vocab), "output_norm.weight": (embd,)}
    if not tied:
        tensors["output.weight"] = (embd, vocab)
    tensors.update({full(name): dims for name, dims in (extra or {}).items()})
    for layer in range(layers):
        tensors.update({full(f"blk.{layer}.", name): dims for name, dims in block(layer).items()})
    return tensors


def full(prefix: str, name: str | None = None) -> str:
    """The name in the file; one that ends in ! has no suffix."""
    if name is None:
        prefix, name = "", prefix
    if name.endswith("!"):
        return prefix + name[:-1]
    return prefix + name if name.endswith((".weight", ".bias", ".scale")) else f"{prefix}{name}.weight"


def norms(embd: int, *names: str) -> Tensors:
    """Vectors as long as the embedding."""
    return dict.fromkeys(names, (embd,))


def attention(
    embd: int, heads: int, kv: int, head: int, value: int | None = None, bias: bool = False, qk_norm: bool = False
) -> Tensors:
    """Grouped attention with separate matrices."""
    value = value or head
    tensors: Tensors = {
        "attn_q": (embd, heads * head),
        "attn_k": (embd, kv * head),
        "attn_v": (embd, kv * value),
        "attn_output": (heads * value, embd),
    }
    if bias:
        tensors.update({"attn_q.bias": (heads * head,), "attn_k.bias": (kv * head,), "attn_v.bias": (kv * value,)})
    if qk_norm:
        tensors.update({"attn_q_norm": (head,), "attn_k_norm": (head,)})
    return tensors


def gated(embd: int, ff: int) -> Tensors:
    """A feed forward of three matrices."""
    return {"ffn_gate": (embd, ff), "ffn_up": (embd, ff), "ffn_down": (ff, embd)}


def plain(embd: int, ff: int) -> Tensors:
    """A feed forward of two matrices."""
    return {"ffn_up": (embd, ff), "ffn_down": (ff, embd)}


def experts(embd: int, ff: int, count: int, shared: int = 0, gated_experts: bool = True) -> Tensors:
    """Routed experts of width ff, and shared ones of the width ``shared`` together."""
    tensors: Tensors = {
        "ffn_gate_inp": (embd, count),
        "ffn_gate_exps": (embd, ff, count),
        "ffn_up_exps": (embd, ff, count),
        "ffn_down_exps": (ff, embd, count),
    }
    if shared:
        tensors.update(
            {"ffn_gate_shexp": (embd, shared), "ffn_up_shexp": (embd, shared), "ffn_down_shexp": (shared, embd)}
        )
    if not gated_experts:
        tensors = {name: dims for name, dims in tensors.items() if "gate_exps" not in name and "gate_shexp" not in name}
    return tensors
