# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Targets and heads for every type of speculation that has a file or layers of its own.

The texts are noise, but for one token that the targets say now and then and the heads propose most of the time: some
of what is drafted is taken and some is not.

Written after load_arch_hparams and load_arch_tensors of src/models/*.cpp in llama.cpp b11434.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tiny.writer import Edit, Vocabulary, spm, write, write_llama

Tensors = dict[str, Any]
N_LAYERS = 6
N_EMBD = 64
N_FF = 128
# A token that stands for one yet to be drafted.
MASK = 0
# Tokens that DFlash and DSpark propose at once: one less, and all of them.
BLOCK_SIZE = 8
# A token that the targets like, which they tell from the first value of every embedding. No block writes to that.
TOKENS = 300
POPULAR = 290
SIGN = 5.0
LIKED, PROPOSED = 36.0, 200.0
# Whose inputs EAGLE-3 and DFlash read.
READ_LAYERS = (1, 3, 5)


def llama(path: Path) -> Path:
    """The target of EAGLE-3, DFlash and DSpark."""
    return write_llama(path, N_LAYERS, N_EMBD, N_FF, edit=_liking(LIKED))


def spelling(path: Path) -> Path:
    """A target that says the letters in their order over and over: n-grams look for what was said before."""
    first = list(spm(TOKENS).tokens).index("a")
    letters = range(first, first + 26)
    embedding: list[Any] = []

    def edit(name: str, values: Any) -> None:
        if name == "token_embd.weight":
            embedding.append(values)
        elif name.endswith(("attn_output.weight", "ffn_down.weight")):
            values[:] = 0
        elif name == "output.weight":
            values[:] = 0
            values[first] = -embedding[0][letters].mean(axis=0)
            for letter in letters:
                values[first + (letter - first + 1) % 26] += 10 * embedding[0][letter]

    return write_llama(path, N_LAYERS, N_EMBD, N_FF, edit=edit)


def glm4moe(path: Path, trunk: bool = True, head: bool = True, n_layers: int = N_LAYERS) -> Path:
    """A mixture of experts of n_layers and one NextN layer.

    trunk and head: what of it is in this file; without the trunk it is the separate file that drafts for the others.
    """
    keys = {
        **_dimensions(n_layers + 1),
        "nextn_predict_layers": 1,
        "expert_count": 4,
        "expert_used_count": 2,
        "expert_shared_count": 1,
        "expert_feed_forward_length": N_FF // 2,
        "leading_dense_block_count": 1,
        "expert_weights_norm": True,
        "expert_weights_scale": 1.0,
    }
    tensors = _ends()
    for layer in range(n_layers + 1):
        if not (head if layer == n_layers else trunk):
            continue
        feed_forward = _gated() if layer == 0 else _experts(4)
        more = _nextn() if layer == n_layers else {}
        tensors.update(
            _block(layer, {**_attention(), **_norms("attn_norm", "post_attention_norm"), **feed_forward, **more})
        )
    return write(path, "glm4moe", keys, tensors, seed=5, edit=_liking(LIKED if trunk else PROPOSED))


def qwen35(path: Path, n_layers: int = 4) -> Path:
    """A hybrid: three layers keep a recurrent state, every fourth attends, and one NextN layer drafts."""
    heads, groups, state = 4, 2, 16
    keys = {
        **_dimensions(n_layers + 1),
        "attention.key_length": 16,
        "attention.value_length": 16,
        "nextn_predict_layers": 1,
        "rope.dimension_sections": [2, 2, 4, 0],
        "full_attention_interval": 4,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": heads * state,
        "ssm.state_size": state,
        "ssm.time_step_rank": heads,
        "ssm.group_count": groups,
    }
    keyed, valued = state * groups, state * heads
    recurrent: Tensors = {
        "attn_qkv": (N_EMBD, 2 * keyed + valued),
        "attn_gate": (N_EMBD, valued),
        "ssm_conv1d": (4, 2 * keyed + valued),
        "ssm_dt.bias": (heads,),
        "ssm_a!": (heads,),
        "ssm_beta": (N_EMBD, heads),
        "ssm_alpha": (N_EMBD, heads),
        "ssm_norm": (state,),
        "ssm_out": (valued, N_EMBD),
    }
    attending = {**_attention(), "attn_q": (N_EMBD, 2 * N_EMBD), "attn_q_norm": (16,), "attn_k_norm": (16,)}
    tensors = _ends()
    for layer in range(n_layers + 1):
        mixes = attending if layer == n_layers or (layer + 1) % 4 == 0 else recurrent
        more = _nextn() if layer == n_layers else {}
        tensors.update(_block(layer, {**mixes, **_norms("attn_norm", "post_attention_norm"), **_gated(), **more}))
    return write(path, "qwen35", keys, tensors, seed=6, edit=_liking(LIKED))


def gemma4(path: Path) -> Path:
    """Every third layer attends to the whole context, the others to a window."""
    n_layers = 6
    windowed = [(layer + 1) % 3 != 0 for layer in range(n_layers)]
    keys = {**_dimensions(n_layers), **_gemma4_heads(windowed), "embedding_length_per_layer_input": 0}
    tensors = {"rope_freqs.weight": _ones(16), **_ends()}
    for layer, flag in enumerate(windowed):
        tensors.update(_block(layer, _gemma4_block(N_EMBD, 16 if flag else 32, with_kv=True)))
    return write(path, "gemma4", keys, tensors, seed=9, edit=_liking(LIKED / 32))


def gemma4_assistant(path: Path) -> Path:
    """Two narrower layers that read the caches of the last layers of ``gemma4``, and have none of their own."""
    embd = N_EMBD // 2
    keys = {
        **_dimensions(2),
        **_gemma4_heads([True, False]),
        "embedding_length": embd,
        "embedding_length_out": N_EMBD,
        "nextn_predict_layers": 2,
    }
    tensors: Tensors = {
        "rope_freqs.weight": _ones(16),
        "token_embd.weight": (embd, TOKENS),
        "output_norm.weight": (embd,),
        "nextn.pre_projection.weight": (2 * N_EMBD, embd),
        "nextn.post_projection.weight": (embd, N_EMBD),
    }
    for layer, head in enumerate((16, 32)):
        tensors.update(_block(layer, _gemma4_block(embd, head, with_kv=False)))
    return write(path, "gemma4-assistant", keys, tensors, seed=10, edit=_proposing)


def _ones(count: int) -> Any:
    import numpy

    return numpy.ones(count, dtype=numpy.float32)


def _proposing(name: str, values: Any) -> None:
    """The narrow head tells from the first value of its target's rows that POPULAR comes."""
    if name == "nextn.pre_projection.weight":
        values[0] = 0
        values[0, ::N_EMBD] = 1
    elif name == "token_embd.weight":
        values[POPULAR - TOKENS, 0] = PROPOSED


def _gemma4_heads(windowed: list[bool]) -> dict[str, Any]:
    return {
        "attention.key_length": 32,
        "attention.value_length": 32,
        "attention.key_length_swa": 16,
        "attention.value_length_swa": 16,
        "attention.sliding_window": 128,
        "attention.sliding_window_pattern": windowed,
        "rope.dimension_count": 32,
        "rope.dimension_count_swa": 16,
    }


def _gemma4_block(embd: int, head: int, with_kv: bool) -> Tensors:
    kv: Tensors = {"attn_k": (embd, 2 * head), "attn_v": (embd, 2 * head), "attn_k_norm": (head,)} if with_kv else {}
    return {
        **dict.fromkeys(("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"), (embd,)),
        "attn_q": (embd, 4 * head),
        "attn_q_norm": (head,),
        "attn_output": (4 * head, embd),
        "layer_output_scale": _ones(1),
        "ffn_gate": (embd, N_FF),
        "ffn_up": (embd, N_FF),
        "ffn_down": (N_FF, embd),
        **kv,
    }


def eagle3(path: Path, own_ends: bool = True, draft_vocab: int = 0) -> Path:
    """A head for ``llama``; without ends of its own it uses the target's embedding and output.

    draft_vocab: it proposes only the last so many tokens.
    """
    import numpy

    keys = {**_dimensions(1), "target_layers": list(READ_LAYERS), "target_hidden_size": N_EMBD}
    ends = {"fc.weight": (len(READ_LAYERS) * N_EMBD, N_EMBD), "output_norm.weight": (N_EMBD,)}
    vocabulary = spm(TOKENS)
    if own_ends:
        ends["token_embd.weight"] = (N_EMBD, len(vocabulary.tokens))
        ends["output.weight"] = (N_EMBD, draft_vocab or len(vocabulary.tokens))
    if draft_vocab:
        ends["d2t"] = numpy.arange(TOKENS - draft_vocab, TOKENS, dtype=numpy.int64)
    doubled = {"attn_q": (2 * N_EMBD, N_EMBD), "attn_k": (2 * N_EMBD, N_EMBD // 2), "attn_v": (2 * N_EMBD, N_EMBD // 2)}
    block = {**_attention(), **doubled, **_gated(), **_norms("attn_norm", "attn_norm_2", "ffn_norm")}
    return write(path, "eagle3", keys, {**ends, **_block(0, block)}, vocabulary, seed=7, edit=_liking(PROPOSED))


def dflash(path: Path, own_ends: bool = False) -> Path:
    """A block of two layers for ``llama`` that proposes BLOCK_SIZE - 1 tokens in one pass."""
    return _dflash(path, own_ends, {})


def dspark(path: Path, own_ends: bool = False, rank: int = 16) -> Path:
    """``dflash`` with a Markov head that lets each token follow from the one before."""
    size = len(spm(TOKENS).tokens)
    return _dflash(path, own_ends, {"markov_w1.weight": (rank, size), "markov_w2.weight": (rank, size)})


def _dflash(path: Path, own_ends: bool, markov: Tensors) -> Path:
    keys = {
        **_dimensions(2),
        "attention.key_length": 16,
        "attention.value_length": 16,
        "target_layers": list(READ_LAYERS),
        "block_size": BLOCK_SIZE,
        **({"has_confidence_head": False} if markov else {}),
    }
    vocabulary = spm(TOKENS)
    with_mask = Vocabulary(vocabulary.tokens, vocabulary.types, keys={"mask_token_id": MASK})
    tensors: Tensors = {
        "fc.weight": (len(READ_LAYERS) * N_EMBD, N_EMBD),
        "enc.output_norm.weight": (N_EMBD,),
        "output_norm.weight": (N_EMBD,),
        **markov,
    }
    if own_ends:
        tensors["token_embd.weight"] = tensors["output.weight"] = (N_EMBD, len(vocabulary.tokens))
    block = {**_attention(), **_gated(), **_norms("attn_norm", "ffn_norm"), "attn_q_norm": (16,), "attn_k_norm": (16,)}
    for layer in range(2):
        tensors.update(_block(layer, block))
    return write(path, "dflash", keys, tensors, with_mask, seed=8, edit=_liking(PROPOSED))


def _liking(much: float) -> Edit:
    """Lets a model say POPULAR; how often depends on how much."""

    def edit(name: str, values: Any) -> None:
        if name == "token_embd.weight":
            values[:, 0] = SIGN
        elif name == "output.weight":
            values[POPULAR - TOKENS] = 0
            values[POPULAR - TOKENS, 0] = much
        elif any(part in name for part in ("attn_output", "ssm_out", "ffn_down")):
            values[..., 0, :] = 0
        elif name.startswith("blk.") and name.endswith(
            ("attn_norm.weight", "attention_norm.weight", "ffn_norm.weight")
        ):
            # what a block makes of the rest does not depend on it
            values[0] = 0
        elif name == "fc.weight" or "eh_proj" in name:
            # of all that a head is given, its own first value is that of the target's layers or of the token
            values[0] = 0
            values[0, ::N_EMBD] = 1

    return edit


def _dimensions(n_layers: int) -> dict[str, Any]:
    return {
        "block_count": n_layers,
        "context_length": 4096,
        "embedding_length": N_EMBD,
        "feed_forward_length": N_FF,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": 16,
    }


def _ends() -> Tensors:
    size = len(spm(TOKENS).tokens)
    return {"token_embd.weight": (N_EMBD, size), "output_norm.weight": (N_EMBD,), "output.weight": (N_EMBD, size)}


def _attention() -> Tensors:
    kv = N_EMBD // 2
    return {"attn_q": (N_EMBD, N_EMBD), "attn_k": (N_EMBD, kv), "attn_v": (N_EMBD, kv), "attn_output": (N_EMBD, N_EMBD)}


def _gated() -> Tensors:
    return {"ffn_gate": (N_EMBD, N_FF), "ffn_up": (N_EMBD, N_FF), "ffn_down": (N_FF, N_EMBD)}


def _experts(count: int) -> Tensors:
    ff = N_FF // 2
    return {
        "ffn_gate_inp": (N_EMBD, count),
        "exp_probs_b.bias": (count,),
        "ffn_gate_exps": (N_EMBD, ff, count),
        "ffn_up_exps": (N_EMBD, ff, count),
        "ffn_down_exps": (ff, N_EMBD, count),
        "ffn_gate_shexp": (N_EMBD, ff),
        "ffn_up_shexp": (N_EMBD, ff),
        "ffn_down_shexp": (ff, N_EMBD),
    }


def _nextn() -> Tensors:
    return {"nextn.eh_proj": (2 * N_EMBD, N_EMBD), **_norms("nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm")}


def _norms(*names: str) -> Tensors:
    return dict.fromkeys(names, (N_EMBD,))


def _block(layer: int, tensors: Tensors) -> Tensors:
    """Full names; one that ends in ! has no suffix."""
    return {
        f"blk.{layer}."
        + (name[:-1] if name.endswith("!") else name if name.endswith(".bias") else f"{name}.weight"): dims
        for name, dims in tensors.items()
    }
