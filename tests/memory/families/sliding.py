# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models in which some layers attend to a window only, or share the cache of another layer."""

from __future__ import annotations

from tests.memory.parts import Shape, Tensors, attention, dimensions, gated, model, norms

SHAPES: list[Shape] = []


def _gemma(
    name: str, architecture: str, layers: int, embd: int, ff: int, heads: int, kv: int, head: int, window: int,
    vocab: int, context: int,
) -> None:  # fmt: skip
    keys = dimensions(
        layers, embd, ff, heads, kv, context,
        attention__key_length=head, attention__value_length=head, attention__sliding_window=window,
    )  # fmt: skip
    block = {
        **norms(embd, "attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"),
        **attention(embd, heads, kv, head, qk_norm=architecture == "gemma3"),
        **gated(embd, ff),
    }
    tensors = model(layers, embd, vocab, lambda layer: block, tied=True)
    SHAPES.append(Shape(name, architecture, vocab, keys, tensors))


_gemma("Gemma-2-9B", "gemma2", 42, 3584, 14336, 16, 8, 256, 4096, 256000, 8192)
_gemma("Gemma-2-27B", "gemma2", 46, 4608, 36864, 32, 16, 128, 4096, 256000, 8192)
_gemma("Gemma-3-1B", "gemma3", 26, 1152, 6912, 4, 1, 256, 512, 262144, 32768)
_gemma("Gemma-3-12B", "gemma3", 48, 3840, 15360, 16, 8, 256, 1024, 262144, 131072)
_gemma("Gemma-3-27B", "gemma3", 62, 5376, 21504, 32, 16, 128, 1024, 262144, 131072)


def _gemma3n(name: str, layers: int, ff: int) -> None:
    embd, heads, kv, head, vocab, small, inputs, rank = 2048, 8, 2, 256, 262144, 256, 4, 64
    keys = dimensions(
        layers, embd, ff, heads, kv, 32768,
        attention__key_length=head, attention__value_length=head, attention__sliding_window=512,
        attention__sliding_window_pattern=[(layer + 1) % 5 != 0 for layer in range(layers)],
        attention__shared_kv_layers=layers - 20, embedding_length_per_layer_input=small,
        altup__active_idx=0, altup__num_inputs=inputs,
    )  # fmt: skip
    block = {
        **norms(embd, "attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm", "post_norm"),
        **norms(embd, "altup_correct_scale", "altup_router_norm", "laurel_post_norm"),
        **attention(embd, heads, kv, head, qk_norm=True),
        **gated(embd, ff),
        "inp_gate": (embd, small),
        "proj": (small, embd),
        "altup_correct_coef": (inputs, inputs),
        "altup_predict_coef": (inputs, inputs * inputs),
        "altup_router": (embd, inputs),
        "laurel_l": (embd, rank),
        "laurel_r": (rank, embd),
    }
    extra = {
        "altup_proj": (embd, embd, inputs - 1),
        "altup_unembd_proj": (embd, embd, inputs - 1),
        "per_layer_token_embd": (small * layers, vocab),
        "per_layer_model_proj": (embd, small * layers),
        "per_layer_proj_norm": (small,),
    }
    tensors = model(layers, embd, vocab, lambda layer: block, tied=True, extra=extra)
    SHAPES.append(Shape(name, "gemma3n", vocab, keys, tensors))


_gemma3n("Gemma-3n-E4B", 35, 16384)
_gemma3n("Gemma-3n-E2B", 30, 8192)


def _gemma4(
    name: str, layers: int, embd: int, ff: int | list[int], heads: int, kv: int, kv_full: int, window: int,
    period: int = 6, small: int = 0, shared: int = 0, experts: tuple[int, int, int] | None = None,
) -> None:  # fmt: skip
    """Full layers have heads of 512 values, windowed ones of 256; without small tensors a full layer has V = K."""
    full = [(layer + 1) % period == 0 for layer in range(layers)]
    keys = dimensions(
        layers, embd, ff, heads, [kv_full if flag else kv for flag in full], 262144 if not small else 131072,
        attention__key_length=512, attention__value_length=512, attention__key_length_swa=256,
        attention__value_length_swa=256, attention__sliding_window=window,
        attention__sliding_window_pattern=[not flag for flag in full], attention__shared_kv_layers=shared,
        embedding_length_per_layer_input=small, rope__dimension_count=512, rope__dimension_count_swa=256,
        final_logit_softcapping=30.0,
    )  # fmt: skip
    if experts:
        keys.update(
            {"expert_count": experts[0], "expert_used_count": experts[1], "expert_feed_forward_length": experts[2]}
        )

    def block(layer: int) -> Tensors:
        head, count = (512, kv_full) if full[layer] else (256, kv)
        width = ff[layer] if isinstance(ff, list) else ff
        tensors = {
            **norms(embd, "attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"),
            **attention(embd, heads, count, head, qk_norm=True),
            **gated(embd, width),
            "layer_output_scale": (1,),
        }
        if full[layer] and not small:
            del tensors["attn_v"]
        if small:
            tensors.update({"inp_gate": (embd, small), "proj": (small, embd), "post_norm": (embd,)})
        if experts:
            many, _used, inner = experts
            tensors.update(norms(embd, "ffn_gate_inp.scale!", "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"))
            tensors["ffn_gate_inp"] = (embd, many)
            tensors["ffn_gate_up_exps"] = (embd, 2 * inner, many)
            tensors["ffn_down_exps"] = (inner, embd, many)
        return tensors

    extra: Tensors = {"rope_freqs": (256,)}
    if small:
        extra["per_layer_token_embd"] = (small * layers, 262144)
        extra["per_layer_model_proj"] = (embd, small * layers)
        extra["per_layer_proj_norm"] = (small,)
    SHAPES.append(Shape(name, "gemma4", 262144, keys, model(layers, embd, 262144, block, tied=True, extra=extra)))


_gemma4("Gemma-4-31B", 60, 5376, 21504, 32, 16, 4, 1024)
_gemma4("Gemma-4-12B", 48, 3840, 15360, 16, 8, 1, 1024)
_gemma4("Gemma-4-26B-A4B", 30, 2816, 2112, 16, 8, 2, 1024, experts=(128, 8, 704))
_gemma4("Gemma-4-E4B", 42, 2560, 10240, 8, 2, 2, 512, small=256, shared=18)
_gemma4("Gemma-4-E2B", 35, 1536, [6144] * 15 + [12288] * 20, 8, 1, 1, 512, period=5, small=256, shared=20)


def _cohere2() -> None:
    layers, embd, ff, heads, kv, vocab = 32, 4096, 14336, 32, 8, 256000
    keys = dimensions(
        layers, embd, ff, heads, kv, 8192, logit_scale=0.25, attention__sliding_window=4096, rope__dimension_count=128
    )
    keys["attention.layer_norm_epsilon"] = keys.pop("attention.layer_norm_rms_epsilon")
    block = {**norms(embd, "attn_norm"), **attention(embd, heads, kv, 128), **gated(embd, ff)}
    tensors = model(layers, embd, vocab, lambda layer: block, tied=True)
    SHAPES.append(Shape("Command-R7B", "cohere2", vocab, keys, tensors))


_cohere2()


def _olmo3() -> None:
    layers, embd, ff, heads, vocab = 32, 4096, 11008, 32, 100278
    keys = dimensions(
        layers, embd, ff, heads, heads, 65536, attention__sliding_window=4096,
        attention__sliding_window_pattern=[(layer + 1) % 4 != 0 for layer in range(layers)],
    )  # fmt: skip
    block = {
        **norms(embd, "post_attention_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm"),
        **attention(embd, heads, heads, embd // heads),
        **gated(embd, ff),
    }
    SHAPES.append(Shape("Olmo-3-7B", "olmo2", vocab, keys, model(layers, embd, vocab, lambda layer: block)))


_olmo3()


def _exaone4(
    name: str, layers: int, embd: int, ff: int, heads: int, kv: int, head: int, window: int | None, tied: bool
) -> None:
    keys = dimensions(
        layers, embd, ff, heads, kv, 131072 if window else 65536,
        attention__key_length=head, attention__value_length=head, attention__sliding_window=window,
        attention__sliding_window_pattern=[(layer + 1) % 4 != 0 for layer in range(layers)] if window else None,
        rope__dimension_count=head,
    )  # fmt: skip
    block = {
        **norms(embd, "post_attention_norm", "post_ffw_norm"),
        **attention(embd, heads, kv, head, qk_norm=True),
        **gated(embd, ff),
    }
    tensors = model(layers, embd, 102400, lambda layer: block, tied, {"rope_freqs": (head // 2,)})
    SHAPES.append(Shape(name, "exaone4", 102400, keys, tensors))


_exaone4("EXAONE-4.0-32B", 64, 5120, 27392, 40, 8, 128, 4096, tied=False)
_exaone4("EXAONE-4.0-1.2B", 30, 2048, 4096, 32, 8, 64, None, tied=True)
