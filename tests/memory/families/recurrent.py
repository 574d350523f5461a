# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models that carry a state instead of a cache, in all layers or in some."""

from __future__ import annotations

from typing import Any

from tests.memory.families.latent import LATENT, NOPE, ROPE, VALUE, latent_attention
from tests.memory.parts import Shape, Tensors, attention, dimensions, experts, gated, model, norms, plain

SHAPES: list[Shape] = []


def ssm_keys(inner: int, state: int, rank: int, groups: int | None, conv: int = 4) -> dict[str, Any]:
    keys = {
        "ssm.conv_kernel": conv,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": rank,
        "ssm.group_count": groups,
    }
    return {name: value for name, value in keys.items() if value is not None}


def mamba1(embd: int, inner: int, state: int, rank: int, conv: int = 4) -> Tensors:
    """The mixer of Mamba."""
    return {
        "ssm_in": (embd, 2 * inner),
        "ssm_conv1d": (conv, inner),
        "ssm_conv1d.bias": (inner,),
        "ssm_x": (inner, rank + 2 * state),
        "ssm_dt": (rank, inner),
        "ssm_dt.bias": (inner,),
        "ssm_a!": (state, inner),
        "ssm_d!": (inner,),
        "ssm_out": (inner, embd),
    }


def mamba2(embd: int, inner: int, state: int, heads: int, groups: int, conv: int = 4) -> Tensors:
    """The mixer of Mamba 2."""
    width = inner + 2 * groups * state
    return {
        "ssm_in": (embd, inner + width + heads),
        "ssm_conv1d": (conv, width),
        "ssm_conv1d.bias": (width,),
        "ssm_dt.bias": (heads,),
        "ssm_a!": (1, heads),
        "ssm_d!": (1, heads),
        "ssm_norm": (inner // groups, groups),
        "ssm_out": (inner, embd),
    }


def _mamba(
    name: str, architecture: str, layers: int, embd: int, vocab: int, mixer: Tensors, keys: dict, tied: bool
) -> None:
    keys = {**dimensions(layers, embd, 0, 0, None, 1048576), **keys}
    block = {**norms(embd, "attn_norm"), **mixer}
    SHAPES.append(Shape(name, architecture, vocab, keys, model(layers, embd, vocab, lambda layer: block, tied)))


_mamba(
    "Falcon-Mamba-7B", "mamba", 64, 4096, 65024, mamba1(4096, 8192, 16, 256), ssm_keys(8192, 16, 256, None), tied=False
)
_mamba(
    "Codestral-Mamba-7B", "mamba2", 64, 4096, 32768, mamba2(4096, 8192, 128, 128, 8), ssm_keys(8192, 128, 128, 8),
    tied=False,
)  # fmt: skip
_mamba("Mamba2-2.7B", "mamba2", 64, 2560, 50288, mamba2(2560, 5120, 128, 80, 1), ssm_keys(5120, 128, 80, 1), tied=True)


def _rwkv7() -> None:
    layers, embd, ff, vocab, decay, iclr, mix, gate = 32, 2560, 10240, 65536, 96, 96, 64, 320
    keys = dimensions(
        layers, embd, ff, 0, None, 1048576, wkv__head_size=64, attention__decay_lora_rank=decay,
        attention__iclr_lora_rank=iclr, attention__value_residual_mix_lora_rank=mix, attention__gate_lora_rank=gate,
    )  # fmt: skip
    keys["attention.layer_norm_epsilon"] = keys.pop("attention.layer_norm_rms_epsilon")

    def block(layer: int) -> Tensors:
        value = iclr if layer == 0 else mix
        vectors = (
            "attn_norm", "attn_norm.bias", "attn_norm_2", "attn_norm_2.bias", "time_mix_w0", "time_mix_a0",
            "time_mix_v0", "time_mix_k_k", "time_mix_k_a", "time_mix_r_k", "time_mix_ln", "time_mix_ln.bias",
        )  # fmt: skip
        square = ("time_mix_key", "time_mix_value", "time_mix_receptance", "time_mix_output")
        return {
            **norms(embd, *vectors),
            **dict.fromkeys(square, (embd, embd)),
            "time_mix_w1": (embd, decay),
            "time_mix_w2": (decay, embd),
            "time_mix_a1": (embd, iclr),
            "time_mix_a2": (iclr, embd),
            "time_mix_v1": (embd, value),
            "time_mix_v2": (value, embd),
            "time_mix_g1": (embd, gate),
            "time_mix_g2": (gate, embd),
            "time_mix_lerp_fused": (embd, 1, 1, 6),
            "channel_mix_lerp_k": (embd, 1, 1),
            "channel_mix_key": (embd, ff),
            "channel_mix_value": (ff, embd),
        }

    extra = norms(embd, "token_embd_norm", "token_embd_norm.bias", "output_norm.bias")
    SHAPES.append(Shape("RWKV7-G1-2.9B", "rwkv7", vocab, keys, model(layers, embd, vocab, block, extra=extra)))


_rwkv7()


def _rwkv6() -> None:
    layers, embd, ff, vocab, head = 32, 4096, 14336, 65536, 64
    keys = dimensions(
        layers, embd, ff, 0, None, 1048576, wkv__head_size=head, time_mix_extra_dim=64, time_decay_extra_dim=128
    )
    keys["attention.layer_norm_epsilon"] = keys.pop("attention.layer_norm_rms_epsilon")
    vectors = ("attn_norm", "attn_norm.bias", "attn_norm_2", "attn_norm_2.bias", "time_mix_decay", "time_mix_ln")
    square = ("key", "value", "receptance", "gate", "output")
    block: Tensors = {
        **norms(embd, *vectors, "time_mix_ln.bias"),
        **{f"time_mix_{name}": (embd, embd) for name in square},
        "channel_mix_receptance": (embd, embd),
        "time_mix_w1": (embd, 320),
        "time_mix_w2": (64, embd, 5),
        "time_mix_lerp_x": (embd, 1, 1),
        "time_mix_lerp_fused": (embd, 1, 1, 5),
        "time_mix_first": (head, embd // head),
        "time_mix_decay_w1": (embd, 128),
        "time_mix_decay_w2": (128, embd),
        "channel_mix_lerp_k": (embd, 1, 1),
        "channel_mix_lerp_r": (embd, 1, 1),
        "channel_mix_key": (embd, ff),
        "channel_mix_value": (ff, embd),
    }
    extra = norms(embd, "token_embd_norm", "token_embd_norm.bias", "output_norm.bias")
    tensors = model(layers, embd, vocab, lambda layer: block, extra=extra)
    SHAPES.append(Shape("RWKV6-Finch-7B", "rwkv6", vocab, keys, tensors))


_rwkv6()


def _jamba(
    name: str, layers: int, embd: int, ff: int, heads: int, kv: int, period: int, offset: int, count: int, tied: bool
) -> None:
    inner, state, rank, vocab = 2 * embd, 16, embd // 16, 65536
    attends = [layer % period == offset for layer in range(layers)]
    keys = {
        **dimensions(layers, embd, ff, heads, [kv if flag else 0 for flag in attends], 262144),
        **ssm_keys(inner, state, rank, None),
    }
    if count:
        keys.update({"expert_count": count, "expert_used_count": 2})

    def block(layer: int) -> Tensors:
        tensors = norms(embd, "attn_norm", "ffn_norm")
        if attends[layer]:
            tensors.update(attention(embd, heads, kv, embd // heads))
        else:
            tensors.update(mamba1(embd, inner, state, rank))
            tensors.update({"ssm_dt_norm": (rank,), "ssm_b_norm": (state,), "ssm_c_norm": (state,)})
        return {**tensors, **(experts(embd, ff, count) if count and layer % 2 else gated(embd, ff))}

    SHAPES.append(Shape(name, "jamba", vocab, keys, model(layers, embd, vocab, block, tied)))


_jamba("Jamba-Mini-52B", 32, 4096, 14336, 32, 8, 8, 4, 16, tied=False)
_jamba("Jamba-Reasoning-3B", 28, 2560, 8192, 20, 1, 14, 7, 0, tied=True)


def _granite_hybrid(name: str, embd: int, ff: int, heads: int, kv: int, count: int, used: int, shared: int) -> None:
    layers, vocab, inner, state = 40, 100352, 2 * embd, 128
    attends = [layer in (5, 15, 25, 35) for layer in range(layers)]
    keys = dimensions(
        layers, embd, ff, heads, [kv if flag else 0 for flag in attends], 131072, attention__scale=0.0078125,
        embedding_scale=12.0, residual_scale=0.22, logit_scale=6.0, rope__dimension_count=embd // heads,
        expert_count=count or None, expert_used_count=used or None,
        expert_shared_feed_forward_length=shared or None, **ssm_keys(inner, state, inner // 64, 1),
    )  # fmt: skip

    def block(layer: int) -> Tensors:
        mixer = (
            attention(embd, heads, kv, embd // heads) if attends[layer] else mamba2(embd, inner, state, inner // 64, 1)
        )
        forward = experts(embd, ff, count, shared=shared) if count else gated(embd, ff)
        return {**norms(embd, "attn_norm", "ffn_norm"), **mixer, **forward}

    SHAPES.append(Shape(name, "granitehybrid", vocab, keys, model(layers, embd, vocab, block, tied=True)))


_granite_hybrid("Granite-4.0-H-Tiny", 1536, 512, 12, 4, 64, 6, 1024)
_granite_hybrid("Granite-4.0-H-Small", 4096, 768, 32, 8, 72, 10, 1536)
_granite_hybrid("Granite-4.0-H-Micro", 2048, 8192, 32, 8, 0, 0, 0)


def _lfm2(name: str, embd: int, ff: int, kv: int, attends: tuple[int, ...], layers: int, routed: bool) -> None:
    heads, vocab, count, inner, dense = 32, 65536, 32, 1792, 2
    head = embd // heads
    keys = dimensions(
        layers, embd, ff, heads, [kv if layer in attends else 0 for layer in range(layers)], 128000,
        shortconv__l_cache=3, expert_count=count if routed else None, expert_used_count=4 if routed else None,
        expert_feed_forward_length=inner if routed else None, leading_dense_block_count=dense if routed else None,
        expert_gating_func=2 if routed else None,
    )  # fmt: skip

    def block(layer: int) -> Tensors:
        tensors = norms(embd, "attn_norm", "ffn_norm")
        if layer in attends:
            tensors.update(attention(embd, heads, kv, head, qk_norm=True))
        else:
            tensors.update({"shortconv.conv": (3, embd), "shortconv.in_proj": (embd, 3 * embd)})
            tensors["shortconv.out_proj"] = (embd, embd)
        if routed and layer >= dense:
            return {**tensors, **experts(embd, inner, count), "exp_probs_b.bias": (count,)}
        return {**tensors, **gated(embd, ff)}

    tensors = model(layers, embd, vocab, block, tied=True, extra={"token_embd_norm": (embd,)})
    # this family has its output norm under that other name
    del tensors["output_norm.weight"]
    SHAPES.append(Shape(name, "lfm2moe" if routed else "lfm2", vocab, keys, tensors))


_lfm2("LFM2-1.2B", 2048, 8192, 8, (2, 5, 8, 10, 12, 14), 16, routed=False)
_lfm2("LFM2-8B-A1B", 2048, 7168, 8, (2, 6, 10, 14, 18, 21), 24, routed=True)


def _falcon_h1(
    name: str, layers: int, embd: int, ff: int, heads: int, kv: int, inner: int, state: int, vocab: int
) -> None:
    ssm_heads, groups, head = inner // 128, 1, 128
    keys = dimensions(
        layers, embd, ff, heads, kv, 262144, attention__key_length=head, attention__value_length=head,
        rope__dimension_count=head, **ssm_keys(inner, state, ssm_heads, groups),
    )  # fmt: skip
    block = {
        **norms(embd, "attn_norm", "ffn_norm!"),
        **attention(embd, heads, kv, head),
        **gated(embd, ff),
        **mamba2(embd, inner, state, ssm_heads, groups),
    }
    SHAPES.append(Shape(name, "falcon-h1", vocab, keys, model(layers, embd, vocab, lambda layer: block)))


_falcon_h1("Falcon-H1-7B", 44, 3072, 12288, 12, 2, 3072, 256, 130048)


def _nemotron_h(
    name: str, pattern: str, embd: int, ff: int, heads: int, kv: int, inner: int, ssm_heads: int, moe: bool
):
    """pattern: M for Mamba 2, * for attention, - for a feed forward, E for experts; one of them per layer."""
    layers, head, state, groups, vocab, count, shared = len(pattern), 128, 128, 8, 131072, 128, 3712
    keys = dimensions(
        layers, embd, [ff if kind in "-E" else 0 for kind in pattern], heads,
        [kv if kind == "*" else 0 for kind in pattern], 1048576, attention__key_length=head,
        attention__value_length=head, attention__layer_norm_epsilon=1e-5, rope__dimension_count=head,
        expert_count=count if moe else None, expert_used_count=6 if moe else None,
        expert_feed_forward_length=ff if moe else None, expert_shared_count=1 if moe else None,
        expert_shared_feed_forward_length=shared if moe else None, expert_weights_norm=True if moe else None,
        expert_weights_scale=2.5 if moe else None, **ssm_keys(inner, state, ssm_heads, groups),
    )  # fmt: skip

    def block(layer: int) -> Tensors:
        kind = pattern[layer]
        parts = {
            "M": lambda: mamba2(embd, inner, state, ssm_heads, groups),
            "*": lambda: attention(embd, heads, kv, head),
            "-": lambda: plain(embd, ff),
            "E": lambda: {**experts(embd, ff, count, shared, gated_experts=False), "exp_probs_b.bias": (count,)},
        }
        return {**norms(embd, "attn_norm"), **parts[kind]()}

    SHAPES.append(
        Shape(name, "nemotron_h_moe" if moe else "nemotron_h", vocab, keys, model(layers, embd, vocab, block))
    )


_nemotron_h(
    "Nemotron-Nano-9B-v2", "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", 4480, 15680, 40, 8, 10240, 128,
    moe=False,
)  # fmt: skip
_nemotron_h(
    "Nemotron-3-Nano-30B-A3B", "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", 2688, 1856, 32, 2, 4096, 64,
    moe=True,
)  # fmt: skip


def delta_net(embd: int, state: int, key_heads: int, value_heads: int, split: bool, conv: int = 4) -> Tensors:
    """A gated delta net of the Qwen family."""
    keys, values = state * key_heads, state * value_heads
    tensors: Tensors = {
        "attn_qkv": (embd, 2 * keys + values),
        "attn_gate": (embd, values),
        "ssm_conv1d": (conv, 2 * keys + values),
        "ssm_dt.bias": (value_heads,),
        "ssm_a!": (value_heads,),
        "ssm_norm": (state,),
        "ssm_out": (values, embd),
    }
    if split:
        return {**tensors, "ssm_beta": (embd, value_heads), "ssm_alpha": (embd, value_heads)}
    return {**tensors, "ssm_ba": (embd, 2 * value_heads)}


def _qwen_hybrid(
    name: str, architecture: str, layers: int, embd: int, ff: int, heads: int, kv: int, value_heads: int, vocab: int,
    routed: tuple[int, int, int, int] | None = None, nextn: bool = False, tied: bool = False,
) -> None:  # fmt: skip
    """routed: experts, used ones, their width, the width of the shared expert; every fourth layer attends."""
    head, state, key_heads = 256, 128, 16
    keys = dimensions(
        layers + nextn, embd, ff, heads, kv, 262144, attention__key_length=head, attention__value_length=head,
        rope__dimension_count=64, full_attention_interval=4, nextn_predict_layers=1 if nextn else None,
        rope__dimension_sections=None if architecture == "qwen3next" else [11, 11, 10, 0],
        **ssm_keys(state * value_heads, state, value_heads, key_heads),
    )  # fmt: skip
    if routed:
        keys["expert_count"], keys["expert_used_count"], keys["expert_feed_forward_length"] = routed[:3]
        keys["expert_shared_feed_forward_length"] = routed[3]

    def block(layer: int) -> Tensors:
        tensors = norms(embd, "attn_norm", "post_attention_norm")
        if layer == layers or (layer + 1) % 4 == 0:
            tensors.update(attention(embd, heads, kv, head, qk_norm=True))
            # queries and their gates
            tensors["attn_q"] = (embd, 2 * heads * head)
        else:
            tensors.update(delta_net(embd, state, key_heads, value_heads, architecture != "qwen3next"))
        if routed:
            count, _used, inner, shared = routed
            tensors.update({**experts(embd, inner, count, shared=shared), "ffn_gate_inp_shexp": (embd,)})
        else:
            tensors.update(gated(embd, ff))
        if layer == layers:
            tensors.update(norms(embd, "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm"))
            tensors["nextn.eh_proj"] = (2 * embd, embd)
        return tensors

    SHAPES.append(Shape(name, architecture, vocab, keys, model(layers + nextn, embd, vocab, block, tied)))


_qwen_hybrid("Qwen3-Next-80B-A3B", "qwen3next", 48, 2048, 5120, 16, 2, 32, 151936, routed=(512, 10, 512, 512))
_qwen_hybrid("Qwen3.5-27B", "qwen35", 64, 5120, 17408, 24, 4, 48, 248320)
_qwen_hybrid("Qwen3.5-27B-NextN", "qwen35", 64, 5120, 17408, 24, 4, 48, 248320, nextn=True)
_qwen_hybrid("Qwen3.5-0.8B", "qwen35", 24, 1024, 3584, 8, 2, 16, 248320, tied=True)
_qwen_hybrid("Qwen3.5-35B-A3B", "qwen35moe", 40, 2048, 512, 16, 2, 32, 248320, routed=(256, 8, 512, 512))


def _kimi_linear() -> None:
    layers, embd, ff, heads, count, inner, vocab, head = 27, 2304, 9216, 32, 256, 1024, 163840, 128
    attends = [layer in (3, 7, 11, 15, 19, 23, 26) for layer in range(layers)]
    keys = dimensions(
        layers, embd, ff, heads, [1 if flag else 0 for flag in attends], 1048576,
        attention__key_length=LATENT + ROPE, attention__value_length=LATENT, attention__key_length_mla=NOPE + ROPE,
        attention__value_length_mla=VALUE, attention__kv_lora_rank=LATENT, rope__dimension_count=ROPE,
        ssm__conv_kernel=4, kda__head_dim=head, expert_count=count, expert_used_count=8,
        expert_feed_forward_length=inner, expert_shared_count=1, leading_dense_block_count=1,
        expert_weights_scale=2.446, expert_gating_func=2,
    )  # fmt: skip

    def block(layer: int) -> Tensors:
        width = head * heads
        tensors = norms(embd, "attn_norm", "ffn_norm")
        if attends[layer]:
            tensors.update(latent_attention(embd, heads, 0, split=True))
        else:
            tensors.update(attention(embd, heads, heads, head))
            tensors.update({f"ssm_conv1d_{part}": (4, 1, width) for part in "qkv"})
            tensors.update({f"ssm_{part}_a": (embd, head) for part in "fg"})
            tensors.update({f"ssm_{part}_b": (head, width) for part in "fg"})
            tensors.update({"ssm_beta": (embd, heads), "ssm_a!": (1, heads), "ssm_dt.bias": (width,)})
            tensors["ssm_norm"] = (head,)
        if layer == 0:
            return {**tensors, **gated(embd, ff)}
        return {**tensors, **experts(embd, inner, count, shared=inner), "exp_probs_b.bias": (count,)}

    SHAPES.append(Shape("Kimi-Linear-48B-A3B", "kimi-linear", vocab, keys, model(layers, embd, vocab, block)))


_kimi_linear()
