# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mixtures of experts with plain attention."""

from __future__ import annotations

from typing import Any

from tests.memory.parts import Shape, Tensors, attention, dimensions, experts, gated, model, norms

SHAPES: list[Shape] = []


def _routed(count: int, used: int, ff: int, **more: Any) -> dict[str, Any]:
    keys = {"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": ff}
    keys.update((name.replace("__", "."), value) for name, value in more.items())
    return {name: value for name, value in keys.items() if value is not None}


def _qwen3moe(
    name: str, layers: int, embd: int, ff: int, heads: int, kv: int, count: int, used: int, inner: int
) -> None:
    keys = dimensions(
        layers, embd, ff, heads, kv, 40960, attention__key_length=128, attention__value_length=128,
        **_routed(count, used, inner),
    )  # fmt: skip
    block = {
        **norms(embd, "attn_norm", "ffn_norm"),
        **attention(embd, heads, kv, 128, qk_norm=True),
        **experts(embd, inner, count),
    }
    SHAPES.append(Shape(name, "qwen3moe", 151936, keys, model(layers, embd, 151936, lambda layer: block)))


_qwen3moe("Qwen3-30B-A3B", 48, 2048, 6144, 32, 4, 128, 8, 768)
_qwen3moe("Qwen3-235B-A22B", 94, 4096, 12288, 64, 4, 128, 8, 1536)


def _gpt_oss(name: str, layers: int, count: int) -> None:
    embd, heads, kv, head, vocab = 2880, 64, 8, 64, 201088
    keys = dimensions(
        layers, embd, embd, heads, kv, 131072, attention__key_length=head, attention__value_length=head,
        attention__sliding_window=128, rope__dimension_count=head, rope__freq_base=150000.0,
        **_routed(count, 4, embd),
    )  # fmt: skip
    block = {
        **norms(embd, "attn_norm", "post_attention_norm", "attn_output.bias"),
        **attention(embd, heads, kv, head, bias=True),
        **experts(embd, embd, count),
        "attn_sinks": (heads,),
        "ffn_gate_inp.bias": (count,),
        "ffn_gate_exps.bias": (embd, count),
        "ffn_up_exps.bias": (embd, count),
        "ffn_down_exps.bias": (embd, count),
    }
    tensors = model(layers, embd, vocab, lambda layer: block)
    SHAPES.append(Shape(name, "gpt-oss", vocab, keys, tensors, quantised="MXFP4"))


_gpt_oss("gpt-oss-20B", 24, 32)
_gpt_oss("gpt-oss-120B", 36, 128)


def _glm4moe(
    name: str, layers: int, embd: int, ff: int, heads: int, count: int, inner: int, dense: int, qk_norm: bool
) -> None:
    """layers without the one NextN layer, which is the last of the file."""
    kv, head, vocab = 8, 128, 151552
    keys = dimensions(
        layers + 1, embd, ff, heads, kv, 131072, attention__key_length=head, attention__value_length=head,
        rope__dimension_count=64, nextn_predict_layers=1, leading_dense_block_count=dense,
        **_routed(count, 8, inner, expert_shared_count=1, expert_weights_norm=True),
    )  # fmt: skip

    def block(layer: int) -> Tensors:
        tensors = {
            **norms(embd, "attn_norm", "post_attention_norm"),
            **attention(embd, heads, kv, head, bias=True, qk_norm=qk_norm),
            **(gated(embd, ff) if layer < dense else experts(embd, inner, count, shared=inner)),
        }
        if layer >= dense:
            tensors["exp_probs_b.bias"] = (count,)
        if layer == layers:
            tensors.update(norms(embd, "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm"))
            tensors["nextn.eh_proj"] = (2 * embd, embd)
            tensors["nextn.embed_tokens"] = tensors["nextn.shared_head_head"] = (embd, vocab)
        return tensors

    SHAPES.append(Shape(name, "glm4moe", vocab, keys, model(layers + 1, embd, vocab, block)))


_glm4moe("GLM-4.5-Air", 46, 4096, 10944, 96, 128, 1408, 1, qk_norm=False)
_glm4moe("GLM-4.6", 92, 5120, 12288, 96, 160, 1536, 3, qk_norm=True)


def _olmoe() -> None:
    layers, embd, ff, heads, count, vocab = 16, 2048, 1024, 16, 64, 50304
    keys = dimensions(layers, embd, ff, heads, heads, 4096, expert_count=count, expert_used_count=8)
    block = {
        **norms(embd, "attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm"),
        **attention(embd, heads, heads, embd // heads),
        **experts(embd, ff, count),
    }
    SHAPES.append(Shape("OLMoE-1B-7B", "olmoe", vocab, keys, model(layers, embd, vocab, lambda layer: block)))


_olmoe()


def _llama4(name: str, count: int, step: int) -> None:
    layers, embd, ff, inner, heads, kv, head, vocab = 48, 5120, 16384, 8192, 40, 8, 128, 202048
    keys = dimensions(
        layers, embd, ff, heads, kv, 10485760, attention__key_length=head, attention__value_length=head,
        rope__dimension_count=head, interleave_moe_layer_step=step, **_routed(count, 1, inner),
    )  # fmt: skip

    def block(layer: int) -> Tensors:
        routed = (layer + 1) % step == 0
        return {
            **norms(embd, "attn_norm", "ffn_norm"),
            **attention(embd, heads, kv, head),
            **(experts(embd, inner, count, shared=inner) if routed else gated(embd, ff)),
        }

    tensors = model(layers, embd, vocab, block, extra={"rope_freqs": (head // 2,)})
    SHAPES.append(Shape(name, "llama4", vocab, keys, tensors))


_llama4("Llama-4-Scout", 16, 1)
_llama4("Llama-4-Maverick", 128, 2)


def _mixtral() -> None:
    layers, embd, ff, heads, kv, count, vocab = 32, 4096, 14336, 32, 8, 8, 32000
    keys = dimensions(
        layers, embd, ff, heads, kv, 32768, rope__dimension_count=128, expert_count=count, expert_used_count=2
    )
    block = {
        **norms(embd, "attn_norm", "ffn_norm"),
        **attention(embd, heads, kv, 128),
        **experts(embd, ff, count),
    }
    SHAPES.append(Shape("Mixtral-8x7B", "llama", vocab, keys, model(layers, embd, vocab, lambda layer: block)))


_mixtral()


def _dots1() -> None:
    layers, embd, ff, heads, count, inner, vocab = 62, 4096, 10944, 32, 128, 1408, 152064
    keys = dimensions(
        layers, embd, ff, heads, heads, 32768, attention__key_length=128, attention__value_length=128,
        leading_dense_block_count=1,
        **_routed(count, 6, inner, expert_shared_count=2, expert_weights_norm=True, expert_gating_func=2),
    )  # fmt: skip

    def block(layer: int) -> Tensors:
        tensors = {**norms(embd, "attn_norm", "ffn_norm"), **attention(embd, heads, heads, 128, qk_norm=True)}
        if layer:
            tensors["exp_probs_b.bias"] = (count,)
        return {**tensors, **(experts(embd, inner, count, shared=2 * inner) if layer else gated(embd, ff))}

    SHAPES.append(Shape("dots.llm1-142B", "dots1", vocab, keys, model(layers, embd, vocab, block)))


_dots1()


def _ernie() -> None:
    layers, embd, ff, heads, kv, count, inner, vocab = 28, 2560, 12288, 20, 4, 64, 1536, 103424
    keys = dimensions(
        layers, embd, ff, heads, kv, 131072, attention__key_length=128, attention__value_length=128,
        leading_dense_block_count=1, interleave_moe_layer_step=1,
        **_routed(count, 6, inner, expert_shared_count=2, expert_shared_feed_forward_length=2 * inner),
    )  # fmt: skip

    def block(layer: int) -> Tensors:
        tensors = {**norms(embd, "attn_norm", "ffn_norm"), **attention(embd, heads, kv, 128)}
        if layer:
            tensors["exp_probs_b.bias"] = (count,)
        return {**tensors, **(experts(embd, inner, count, shared=2 * inner) if layer else gated(embd, ff))}

    SHAPES.append(Shape("ERNIE-4.5-21B-A3B", "ernie4_5-moe", vocab, keys, model(layers, embd, vocab, block, tied=True)))


_ernie()


def _hunyuan() -> None:
    layers, embd, ff, heads, kv, count, vocab = 32, 4096, 3072, 32, 8, 64, 128167
    keys = dimensions(
        layers, embd, ff, heads, kv, 262144, attention__key_length=128, attention__value_length=128,
        **_routed(count, 8, ff, expert_shared_feed_forward_length=ff),
    )  # fmt: skip
    block = {
        **norms(embd, "attn_norm", "ffn_norm"),
        **attention(embd, heads, kv, 128, qk_norm=True),
        **experts(embd, ff, count, shared=ff),
    }
    tensors = model(layers, embd, vocab, lambda layer: block, tied=True)
    SHAPES.append(Shape("Hunyuan-A13B", "hunyuan-moe", vocab, keys, tensors))


_hunyuan()


def _minimax() -> None:
    layers, embd, ff, heads, kv, head, count, vocab = 62, 3072, 1536, 48, 8, 128, 256, 200064
    keys = dimensions(
        layers, embd, ff, heads, kv, 196608, attention__key_length=head, attention__value_length=head,
        rope__dimension_count=64, **_routed(count, 8, ff, expert_gating_func=2),
    )  # fmt: skip
    block = {
        **norms(embd, "attn_norm", "ffn_norm"),
        **attention(embd, heads, kv, head),
        **experts(embd, ff, count),
        "attn_q_norm": (heads * head,),
        "attn_k_norm": (kv * head,),
        "exp_probs_b.bias": (count,),
    }
    SHAPES.append(Shape("MiniMax-M2", "minimax-m2", vocab, keys, model(layers, embd, vocab, lambda layer: block)))


_minimax()
