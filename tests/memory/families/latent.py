# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Latent attention (MLA): one compressed key per token, or in older files the keys and values it expands to."""

from __future__ import annotations

from tests.memory.parts import Shape, Tensors, dimensions, experts, gated, model, norms

SHAPES: list[Shape] = []
ROPE = 64
NOPE = VALUE = 128
LATENT = 512


def latent_attention(embd: int, heads: int, q_rank: int, split: bool) -> Tensors:
    """split: k_b and v_b as tensors of their own, which is how llama.cpp knows that the cache may stay compressed."""
    tensors: Tensors = {
        "attn_kv_a_norm": (LATENT,),
        "attn_kv_a_mqa": (embd, LATENT + ROPE),
        "attn_output": (heads * VALUE, embd),
    }
    if q_rank:
        tensors["attn_q_a_norm"] = (q_rank,)
        tensors["attn_q_a"] = (embd, q_rank)
        tensors["attn_q_b"] = (q_rank, heads * (NOPE + ROPE))
    else:
        tensors["attn_q"] = (embd, heads * (NOPE + ROPE))
    if split:
        tensors["attn_k_b"] = (NOPE, LATENT, heads)
        tensors["attn_v_b"] = (LATENT, VALUE, heads)
    else:
        tensors["attn_kv_b"] = (LATENT, heads * (NOPE + VALUE))
    return tensors


def _deepseek2(
    name: str, layers: int, embd: int, ff: int, heads: int, q_rank: int, count: int, used: int, inner: int, shared: int,
    dense: int, vocab: int, mla: bool, bias: bool, context: int = 163840, nextn: bool = False,
) -> None:  # fmt: skip
    keys = dimensions(
        layers + nextn, embd, ff, heads, 1 if mla else heads, context,
        attention__key_length=LATENT + ROPE if mla else NOPE + ROPE, attention__value_length=LATENT if mla else VALUE,
        attention__key_length_mla=NOPE + ROPE if mla else None, attention__value_length_mla=VALUE if mla else None,
        attention__q_lora_rank=q_rank or None, attention__kv_lora_rank=LATENT, rope__dimension_count=ROPE,
        leading_dense_block_count=dense, expert_count=count, expert_used_count=used, expert_feed_forward_length=inner,
        expert_shared_count=shared, expert_weights_scale=2.5 if bias else 1.0, expert_weights_norm=bias,
        expert_gating_func=2 if bias else 1, expert_group_count=8 if bias else None,
        expert_group_used_count=4 if bias else None, nextn_predict_layers=1 if nextn else None,
    )  # fmt: skip

    def block(layer: int) -> Tensors:
        tensors = {**norms(embd, "attn_norm", "ffn_norm"), **latent_attention(embd, heads, q_rank, mla)}
        tensors.update(gated(embd, ff) if layer < dense else experts(embd, inner, count, shared=shared * inner))
        if layer >= dense and bias:
            tensors["exp_probs_b.bias"] = (count,)
        if layer == layers:
            tensors.update(norms(embd, "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm"))
            tensors["nextn.eh_proj"] = (2 * embd, embd)
        return tensors

    SHAPES.append(Shape(name, "deepseek2", vocab, keys, model(layers + nextn, embd, vocab, block)))


_deepseek2("DeepSeek-V2-Lite", 27, 2048, 10944, 16, 0, 64, 6, 1408, 2, 1, 102400, mla=True, bias=False)
_deepseek2("DeepSeek-V2-Lite-old", 27, 2048, 10944, 16, 0, 64, 6, 1408, 2, 1, 102400, mla=False, bias=False)
_deepseek2("DeepSeek-V3", 61, 7168, 18432, 128, 1536, 256, 8, 2048, 1, 3, 129280, mla=True, bias=True)
_deepseek2("DeepSeek-V3-old", 61, 7168, 18432, 128, 1536, 256, 8, 2048, 1, 3, 129280, mla=False, bias=True)
_deepseek2("DeepSeek-V3-NextN", 61, 7168, 18432, 128, 1536, 256, 8, 2048, 1, 3, 129280, mla=True, bias=True, nextn=True)


def _minicpm3() -> None:
    layers, embd, ff, heads, q_rank, rank, nope, rope, vocab = 62, 2560, 6400, 40, 768, 256, 64, 32, 73448
    keys = dimensions(
        layers, embd, ff, heads, heads, 32768, attention__key_length=nope + rope, attention__q_lora_rank=q_rank,
        attention__kv_lora_rank=rank, rope__dimension_count=rope, rope__scaling__original_context_length=32768,
    )  # fmt: skip
    block: Tensors = {
        **norms(embd, "attn_norm", "ffn_norm"),
        "attn_q_a_norm": (q_rank,),
        "attn_kv_a_norm": (rank,),
        "attn_q_a": (embd, q_rank),
        "attn_q_b": (q_rank, heads * (nope + rope)),
        "attn_kv_a_mqa": (embd, rank + rope),
        "attn_kv_b": (rank, heads * (nope + 64)),
        "attn_output": (heads * 64, embd),
        **gated(embd, ff),
    }
    extra = {"rope_factors_long": (rope // 2,), "rope_factors_short": (rope // 2,)}
    tensors = model(layers, embd, vocab, lambda layer: block, extra=extra)
    SHAPES.append(Shape("MiniCPM3-4B", "minicpm3", vocab, keys, tensors))


_minicpm3()
