# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dense models in which every layer attends to everything."""

from __future__ import annotations

from typing import Any

from tests.memory.parts import Shape, attention, dimensions, gated, model, norms, plain

SHAPES: list[Shape] = []


def _dense(
    name: str, architecture: str, layers: int, embd: int, ff: int, heads: int, kv: int, head: int, vocab: int,
    context: int, tied: bool = False, bias: bool = False, qk_norm: bool = False, rope_freqs: bool = False,
    norm_names: tuple[str, ...] = ("attn_norm", "ffn_norm"), **more: Any,
) -> None:  # fmt: skip
    keys = dimensions(
        layers, embd, ff, heads, kv, context,
        attention__key_length=head, attention__value_length=head, rope__dimension_count=head, **more,
    )  # fmt: skip
    block = {
        **norms(embd, *norm_names),
        **attention(embd, heads, kv, head, bias=bias, qk_norm=qk_norm),
        **gated(embd, ff),
    }
    extra = {"rope_freqs": (head // 2,)} if rope_freqs else None
    SHAPES.append(Shape(name, architecture, vocab, keys, model(layers, embd, vocab, lambda layer: block, tied, extra)))


_dense("Llama-3.1-8B", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, rope_freqs=True)
_dense("Llama-3.3-70B", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, rope_freqs=True)
_dense("Llama-3.2-1B", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, tied=True, rope_freqs=True)
_dense("Mistral-Small-24B", "llama", 40, 5120, 32768, 32, 8, 128, 131072, 131072)
_dense("Ministral-3-14B", "mistral3", 40, 5120, 16384, 32, 8, 128, 131072, 262144)
_dense("Qwen2.5-7B", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 32768, bias=True)
_dense("Qwen2.5-0.5B", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, tied=True, bias=True)
_dense("Qwen3-32B", "qwen3", 64, 5120, 25600, 64, 8, 128, 151936, 40960, qk_norm=True)
_dense("Qwen3-0.6B", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, tied=True, qk_norm=True)
_dense("SmolLM3-3B", "smollm3", 36, 2048, 11008, 16, 4, 128, 128256, 65536, tied=True)
_dense(
    "Seed-OSS-36B", "seed_oss", 64, 5120, 27648, 80, 8, 128, 155136, 524288, bias=True,
    norm_names=("attn_norm", "post_attention_norm"),
)  # fmt: skip
_dense(
    "Granite-3.3-8B", "granite", 40, 4096, 12800, 32, 8, 128, 49159, 131072, tied=True,
    logit_scale=16.0, residual_scale=0.22, embedding_scale=12.0, attention__scale=0.0078125,
)  # fmt: skip


def _olmo2(name: str, layers: int, embd: int, ff: int, heads: int) -> None:
    keys = dimensions(layers, embd, ff, heads, heads, 4096, rope__freq_base=5e5)
    block = {
        **norms(embd, "post_attention_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm"),
        **attention(embd, heads, heads, embd // heads),
        **gated(embd, ff),
    }
    SHAPES.append(Shape(name, "olmo2", 100352, keys, model(layers, embd, 100352, lambda layer: block)))


_olmo2("OLMo-2-13B", 40, 5120, 13824, 40)


def _phi3(
    name: str, layers: int, embd: int, ff: int, heads: int, kv: int, vocab: int, context: int, long: bool
) -> None:
    head = embd // heads
    keys = dimensions(layers, embd, ff, heads, kv, context, rope__dimension_count=head)
    block = {
        **norms(embd, "attn_norm", "ffn_norm"),
        "attn_qkv": (embd, (heads + 2 * kv) * head),
        "attn_output": (embd, embd),
        "ffn_up": (embd, 2 * ff),
        "ffn_down": (ff, embd),
    }
    extra = {}
    if long:
        keys["rope.scaling.original_context_length"] = 4096
        keys["attention.sliding_window"] = 262144
        extra = {"rope_factors_long": (head // 2,), "rope_factors_short": (head // 2,)}
    SHAPES.append(Shape(name, "phi3", vocab, keys, model(layers, embd, vocab, lambda layer: block, extra=extra)))


_phi3("Phi-3.5-mini", 32, 3072, 8192, 32, 32, 32064, 131072, long=True)
_phi3("Phi-4-14B", 40, 5120, 17920, 40, 10, 100352, 16384, long=False)


def _command_r() -> None:
    layers, embd, ff, heads, kv, vocab = 40, 8192, 24576, 64, 8, 256000
    keys = dimensions(layers, embd, ff, heads, kv, 131072, logit_scale=0.0625)
    keys["attention.layer_norm_epsilon"] = keys.pop("attention.layer_norm_rms_epsilon")
    block = {**norms(embd, "attn_norm"), **attention(embd, heads, kv, embd // heads), **gated(embd, ff)}
    SHAPES.append(
        Shape("Command-R-35B", "command-r", vocab, keys, model(layers, embd, vocab, lambda layer: block, tied=True))
    )


_command_r()


def _with_biases(
    name: str, architecture: str, layers: int, embd: int, ff: int, heads: int, kv: int, vocab: int, context: int,
    fused: bool, tied: bool, extra: dict[str, tuple[int, ...]],
) -> None:  # fmt: skip
    """Layer norms and matrices with biases, as before 2023."""
    head = embd // heads
    keys = dimensions(layers, embd, ff, heads, kv, context)
    keys["attention.layer_norm_epsilon"] = keys.pop("attention.layer_norm_rms_epsilon")
    block = {**plain(embd, ff), "ffn_up.bias": (ff,), "ffn_down.bias": (embd,), "attn_output.bias": (embd,)}
    block.update(norms(embd, "attn_norm", "attn_norm.bias", "ffn_norm", "ffn_norm.bias"))
    if fused:
        width = (heads + 2 * kv) * head
        block.update({"attn_qkv": (embd, width), "attn_qkv.bias": (width,), "attn_output": (embd, embd)})
    else:
        block.update(attention(embd, heads, kv, head, bias=True))
    extra = {"output_norm.bias": (embd,), **extra}
    tensors = model(layers, embd, vocab, lambda layer: block, tied, extra)
    SHAPES.append(Shape(name, architecture, vocab, keys, tensors))


_with_biases("StarCoder2-7B", "starcoder2", 32, 4608, 18432, 36, 4, 49152, 16384, False, True, {})
_with_biases(
    "BLOOM-7B1", "bloom", 30, 4096, 16384, 32, 32, 250880, 2048, True, True,
    norms(4096, "token_embd_norm", "token_embd_norm.bias"),
)  # fmt: skip
_with_biases("GPT-2-XL", "gpt2", 48, 1600, 6400, 25, 25, 50257, 1024, True, True, {"position_embd": (1600, 1024)})


def _stablelm() -> None:
    layers, embd, ff, heads, kv, vocab = 40, 5120, 13824, 32, 8, 100352
    head = embd // heads
    keys = dimensions(layers, embd, ff, heads, kv, 4096, rope__dimension_count=head // 4)
    keys["attention.layer_norm_epsilon"] = keys.pop("attention.layer_norm_rms_epsilon")
    block = {**norms(embd, "attn_norm", "attn_norm.bias"), **attention(embd, heads, kv, head), **gated(embd, ff)}
    block.update({"attn_q_norm": (head, heads), "attn_k_norm": (head, kv)})
    tensors = model(layers, embd, vocab, lambda layer: block, extra={"output_norm.bias": (embd,)})
    SHAPES.append(Shape("StableLM-2-12B", "stablelm", vocab, keys, tensors))


_stablelm()


def _falcon() -> None:
    layers, embd, heads, vocab = 32, 4544, 71, 65024
    keys = dimensions(layers, embd, 4 * embd, heads, 1, 2048)
    keys["attention.layer_norm_epsilon"] = keys.pop("attention.layer_norm_rms_epsilon")
    block = {
        **norms(embd, "attn_norm", "attn_norm.bias"),
        **plain(embd, 4 * embd),
        "attn_qkv": (embd, embd + 2 * 64),
        "attn_output": (embd, embd),
    }
    tensors = model(layers, embd, vocab, lambda layer: block, extra={"output_norm.bias": (embd,)})
    SHAPES.append(Shape("Falcon-7B", "falcon", vocab, keys, tensors))


_falcon()
