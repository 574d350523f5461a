# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Targets with what drafts for them, in the widths of real models: their buffers do not depend on the number of layers.

A target has as few layers as the head needs, so that a real llama-server can load and run it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tests.memory.parts import Shape, Tensors, attention, dimensions, experts, gated, model, norms

# Whose inputs a head reads.
READ = (1, 2, 3)


@dataclass(frozen=True)
class Pair:
    """What is run together: head is None where the target's own NextN layer drafts.

    sharing: the head has no output and no embedding of its own and goes to the device of the target's output.
    """

    name: str
    target: Shape
    head: Shape | None
    kind: str
    n_max: int
    sharing: bool = False


def _llama(name: str, embd: int, ff: int, heads: int, kv: int, vocab: int, head: int = 128, layers: int = 4) -> Shape:
    keys = dimensions(
        layers, embd, ff, heads, kv, 131072, rope__dimension_count=head, attention__key_length=head,
        attention__value_length=head,
    )  # fmt: skip
    block = {**norms(embd, "attn_norm", "ffn_norm"), **attention(embd, heads, kv, head), **gated(embd, ff)}
    return Shape(name, "llama", vocab, keys, model(layers, embd, vocab, lambda layer: block))


def _eagle3(
    target: Shape, embd: int, ff: int, heads: int, kv: int, draft_vocab: int = 0, own: bool = True, head: int = 128
) -> Shape:
    wide = target.keys["embedding_length"]
    keys = dimensions(
        1, embd, ff, heads, kv, 131072, rope__dimension_count=head, attention__key_length=head,
        attention__value_length=head, target_layers=READ, target_hidden_size=wide,
    )  # fmt: skip
    tensors: Tensors = {"fc.weight": (len(READ) * wide, embd), "output_norm.weight": (embd,)}
    if own:
        tensors["token_embd.weight"] = (embd, target.vocab)
    if own or draft_vocab:
        tensors["output.weight"] = (embd, draft_vocab or target.vocab)
    if draft_vocab:
        tensors["d2t"] = (draft_vocab,)
    doubled = {
        name: (2 * rows[0], rows[1]) for name, rows in attention(embd, heads, kv, head).items() if "output" not in name
    }
    vectors = norms(embd, "attn_norm", "attn_norm_2", "ffn_norm")
    block = {**attention(embd, heads, kv, head), **doubled, **gated(embd, ff), **vectors}
    tensors.update({f"blk.0.{name}.weight": rows for name, rows in block.items()})
    name = f"{target.name}-EAGLE3{'-vocab' if draft_vocab else ''}{'' if own else '-sharing'}"
    return Shape(name, "eagle3", target.vocab, keys, tensors)


def _dflash(
    target: Shape, layers: int, ff: int, heads: int, kv: int, block_size: int, rank: int = 0, own: bool = False,
    head: int = 128,
) -> Shape:  # fmt: skip
    embd = target.keys["embedding_length"]
    keys = dimensions(
        layers, embd, ff, heads, kv, 131072, rope__dimension_count=head, attention__key_length=head,
        attention__value_length=head, target_layers=READ, block_size=block_size,
    )  # fmt: skip
    tensors: Tensors = {
        "fc.weight": (len(READ) * embd, embd),
        "enc.output_norm.weight": (embd,),
        "output_norm.weight": (embd,),
    }
    if rank:
        keys["has_confidence_head"] = False
        tensors["markov_w1.weight"] = tensors["markov_w2.weight"] = (rank, target.vocab)
    if own:
        tensors["token_embd.weight"] = tensors["output.weight"] = (embd, target.vocab)
    block = {
        **attention(embd, heads, kv, head, qk_norm=True), **gated(embd, ff), **norms(embd, "attn_norm", "ffn_norm")
    }  # fmt: skip
    for layer in range(layers):
        tensors.update({f"blk.{layer}.{name}.weight": rows for name, rows in block.items()})
    name = f"{target.name}-{'DSpark' if rank else 'DFlash'}{'' if own else '-sharing'}"
    return Shape(name, "dflash", target.vocab, keys, tensors)


_NEXTN = ("nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm")


def _glm4moe(
    name: str, embd: int, ff: int, heads: int, count: int, inner: int, qk_norm: bool, layers: int = 2
) -> Shape:
    vocab = 151552
    keys = dimensions(
        layers + 1, embd, ff, heads, 8, 131072, attention__key_length=128, attention__value_length=128,
        rope__dimension_count=64, expert_count=count, expert_used_count=8, expert_shared_count=1,
        expert_feed_forward_length=inner, leading_dense_block_count=1, expert_weights_norm=True,
        expert_weights_scale=1.0, nextn_predict_layers=1,
    )  # fmt: skip

    def block(layer: int) -> Tensors:
        tensors = {
            **norms(embd, "attn_norm", "post_attention_norm"),
            **attention(embd, heads, 8, 128, bias=True, qk_norm=qk_norm),
            **(gated(embd, ff) if layer == 0 else {**experts(embd, inner, count, inner), "exp_probs_b.bias": (count,)}),
        }
        if layer == layers:
            tensors.update({"nextn.eh_proj": (2 * embd, embd), **norms(embd, *_NEXTN)})
        return tensors

    return Shape(name, "glm4moe", vocab, keys, model(layers + 1, embd, vocab, block))


def _qwen35(name: str, embd: int, ff: int, heads: int, kv: int, value_heads: int, layers: int = 4) -> Shape:
    head, groups, state, vocab = 256, 16, 128, 248320
    keys = dimensions(
        layers + 1, embd, ff, heads, kv, 262144, attention__key_length=head, attention__value_length=head,
        rope__dimension_count=64, rope__dimension_sections=[11, 11, 10, 0], full_attention_interval=4,
        ssm__conv_kernel=4, ssm__inner_size=value_heads * state, ssm__state_size=state, ssm__group_count=groups,
        ssm__time_step_rank=value_heads, nextn_predict_layers=1,
    )  # fmt: skip
    keyed, valued = state * groups, state * value_heads
    recurrent: dict[str, Any] = {
        "attn_qkv": (embd, 2 * keyed + valued), "attn_gate": (embd, valued), "ssm_conv1d": (4, 2 * keyed + valued),
        "ssm_dt.bias": (value_heads,), "ssm_a!": (value_heads,), "ssm_beta": (embd, value_heads),
        "ssm_alpha": (embd, value_heads), "ssm_norm": (state,), "ssm_out": (valued, embd),
    }  # fmt: skip
    attending = attention(embd, heads, kv, head, qk_norm=True)
    attending["attn_q"] = (embd, 2 * heads * head)

    def block(layer: int) -> Tensors:
        mixes = attending if layer == layers or (layer + 1) % 4 == 0 else recurrent
        tensors = {**mixes, **norms(embd, "attn_norm", "post_attention_norm"), **gated(embd, ff)}
        if layer == layers:
            tensors.update({"nextn.eh_proj": (2 * embd, embd), **norms(embd, *_NEXTN)})
        return tensors

    return Shape(name, "qwen35", vocab, keys, model(layers + 1, embd, vocab, block))


def only(shape: Shape, trunk: bool) -> Shape:
    """The same without its NextN layer, or nothing but that layer: two files of one model."""
    last = f"blk.{shape.n_layer - 1}."
    tensors = {
        name: rows
        for name, rows in shape.tensors.items()
        if not name.startswith("blk.") or name.startswith(last) is not trunk
    }
    return replace(shape, name=f"{shape.name}-{'trunk' if trunk else 'head'}", tensors=tensors)


_SMALL = _llama("Llama-small", 1024, 3072, 16, 8, 32000, head=64)
_LLAMA8 = _llama("Llama-3.1-8B", 4096, 14336, 32, 8, 128256)
_LLAMA70 = _llama("Llama-3.3-70B", 8192, 28672, 64, 8, 128256)
_QWEN8 = _llama("Qwen3-8B", 4096, 12288, 32, 8, 151936)
_GLM = _glm4moe("GLM-4.5-Air", 4096, 10944, 96, 16, 1408, qk_norm=False)
_GLM_SMALL = _glm4moe("GLM-small", 1024, 3072, 16, 8, 512, qk_norm=True)
_QWEN35 = _qwen35("Qwen3.5-27B", 5120, 17408, 24, 4, 48)
_QWEN35_SMALL = _qwen35("Qwen3.5-0.8B", 1024, 3584, 8, 2, 16)

PAIRS = (
    Pair("small-eagle3", _SMALL, _eagle3(_SMALL, 1024, 3072, 16, 8, head=64), "draft-eagle3", 4),
    Pair("small-eagle3-vocab", _SMALL, _eagle3(_SMALL, 1024, 3072, 16, 8, 8000, head=64), "draft-eagle3", 4),
    Pair(
        "small-eagle3-sharing", _SMALL, _eagle3(_SMALL, 1024, 3072, 16, 8, own=False, head=64), "draft-eagle3", 4, True
    ),
    Pair("small-dflash", _SMALL, _dflash(_SMALL, 2, 3072, 16, 8, 16, own=True, head=64), "draft-dflash", 8),
    Pair("small-dflash-sharing", _SMALL, _dflash(_SMALL, 2, 3072, 16, 8, 16, head=64), "draft-dflash", 15, True),
    Pair("small-dspark", _SMALL, _dflash(_SMALL, 2, 3072, 16, 8, 8, 64, own=True, head=64), "draft-dspark", 8),
    Pair("small-mtp", _GLM_SMALL, None, "draft-mtp", 3),
    Pair("small-mtp-file", only(_GLM_SMALL, True), only(_GLM_SMALL, False), "draft-mtp", 3),
    Pair("small-mtp-hybrid", _QWEN35_SMALL, None, "draft-mtp", 3),
    Pair("llama-8b-eagle3", _LLAMA8, _eagle3(_LLAMA8, 4096, 14336, 32, 8, 32000, own=False), "draft-eagle3", 8),
    Pair("llama-70b-eagle3", _LLAMA70, _eagle3(_LLAMA70, 6144, 16384, 48, 8, 32000), "draft-eagle3", 8),
    Pair("qwen3-8b-dflash", _QWEN8, _dflash(_QWEN8, 5, 12288, 32, 8, 16), "draft-dflash", 15, True),
    Pair("qwen3-8b-dspark", _QWEN8, _dflash(_QWEN8, 5, 12288, 32, 8, 8, 256), "draft-dspark", 8, True),
    Pair("glm-4.5-air-mtp", _GLM, None, "draft-mtp", 3),
    Pair("qwen3.5-27b-mtp", _QWEN35, None, "draft-mtp", 3),
)
