# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a GGUF with a vocabulary, float weights and any further keys and tensors.

``write_llama`` makes a llama model; ``write`` any other, from its keys and the dimensions of its tensors, which are in
the order of the file: the row's length first. Weights are drawn at random from the seed, the same on every machine.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

# How far the weights of a matrix lie from 0.
SPREAD = 0.3
Edit = Callable[[str, Any], None]
UNKNOWN, NORMAL, CONTROL, BYTE = 2, 1, 3, 6


@dataclass(frozen=True)
class Vocabulary:
    """What a file says of its tokens; None is left out of it.

    model: "llama" for SPM, "gpt2" for BPE. keys: more of ``tokenizer.ggml.*``, such as ``add_bos_token``.
    """

    tokens: Sequence[str] | Sequence[bytes]
    types: Sequence[int] | None
    model: str = "llama"
    bos: int | None = 1
    eos: int | None = 2
    merges: Sequence[str] | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)


def spm(size: int = 300) -> Vocabulary:
    """A vocabulary for every text: bytes, the letters, and words w285, w286 and so on that fill it up."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *string.ascii_lowercase]
    tokens += [f"\u2581w{number}" for number in range(len(tokens), size)]
    return Vocabulary(tokens, [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 259))


def write_llama(
    path: Path,
    n_layers: int,
    n_embd: int = 64,
    n_ff: int = 128,
    vocabulary: Vocabulary | None = None,
    tied: bool = False,
    seed: int | None = None,
    keys: Mapping[str, Any] | None = None,
    tensors: Mapping[str, tuple[int, ...]] | None = None,
    edit: Edit | None = None,
) -> Path:
    """A llama model of 4 heads and 2 KV heads for 4096 tokens.

    :param seed: of the weights, by default the number of layers. keys: more keys, or others, without "llama.".
    :param tensors: more tensors, or other dimensions for those that a llama model has. edit: as for ``write``.
    """
    vocabulary = vocabulary or spm()
    n_kv = n_embd // 2
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_embd, len(vocabulary.tokens))}
    for block in range(n_layers):
        shapes.update(
            {
                f"blk.{block}.{name}.weight": dims
                for name, dims in (
                    ("attn_norm", (n_embd,)), ("attn_q", (n_embd, n_embd)), ("attn_k", (n_embd, n_kv)),
                    ("attn_v", (n_embd, n_kv)), ("attn_output", (n_embd, n_embd)), ("ffn_norm", (n_embd,)),
                    ("ffn_gate", (n_embd, n_ff)), ("ffn_up", (n_embd, n_ff)), ("ffn_down", (n_ff, n_embd)),
                )
            }
        )  # fmt: skip
    shapes["output_norm.weight"] = (n_embd,)
    if not tied:
        shapes["output.weight"] = (n_embd, len(vocabulary.tokens))
    dimensions = {
        "block_count": n_layers,
        "context_length": 4096,
        "embedding_length": n_embd,
        "feed_forward_length": n_ff,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": n_embd // 4,
        "vocab_size": len(vocabulary.tokens),
    }
    return write(
        path,
        "llama",
        {**dimensions, **(keys or {})},
        {**shapes, **(tensors or {})},
        vocabulary,
        n_layers if seed is None else seed,
        edit,
    )


def write(
    path: Path,
    architecture: str,
    keys: Mapping[str, Any],
    tensors: Mapping[str, Any],
    vocabulary: Vocabulary | None = None,
    seed: int = 0,
    edit: Edit | None = None,
) -> Path:
    """Any model: keys are written as ``<architecture>.<key>``; a tensor is its dimensions or a numpy array.

    :param edit: called with the name and the values of each tensor that was drawn, in rows, to change them in place.
    """
    import gguf
    import numpy

    rng = numpy.random.default_rng(seed)
    vocabulary = vocabulary or spm()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(f"tiny {architecture}")
    for key, value in keys.items():
        put(writer, f"{architecture}.{key}", value)
    put_vocabulary(writer, vocabulary)
    for name, value in tensors.items():
        if isinstance(value, tuple):
            rows = tuple(reversed(value))
            value = numpy.ones(rows) if "norm" in name else rng.normal(0, SPREAD, rows)
            value = value.astype(numpy.float32)
            if edit:
                edit(name, value)
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(path)


def put_vocabulary(writer: Any, vocabulary: Vocabulary) -> None:
    """Add the tokens to a GGUFWriter."""
    writer.add_tokenizer_model(vocabulary.model)
    writer.add_token_list(list(vocabulary.tokens))
    if vocabulary.model == "llama" and "scores" not in vocabulary.keys:
        writer.add_token_scores([-float(number) for number in range(len(vocabulary.tokens))])
    if vocabulary.types is not None:
        writer.add_token_types(list(vocabulary.types))
    if vocabulary.merges is not None:
        writer.add_token_merges(list(vocabulary.merges))
    for end, token in (("bos", vocabulary.bos), ("eos", vocabulary.eos)):
        if token is not None:
            put(writer, f"tokenizer.ggml.{end}_token_id", token)
    for key, value in vocabulary.keys.items():
        put(writer, f"tokenizer.ggml.{key}", value)


def put(writer: Any, key: str, value: Any) -> None:
    """Add a key whose type the value tells."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, list(value))
