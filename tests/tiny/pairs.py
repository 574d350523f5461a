# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pairs of target and draft that differ in one thing of their vocabularies, and load in llama-server.

Random weights emit any token. So that padding behaves like padding, its rows of the output matrix are 0 (``silent``):
the logit 0 is never the greatest of some hundred random ones, nor among the 40 greatest that sampling looks at. The
rows of tokens in use may be made long instead (``loud``), so that one of them comes up within a few dozen tokens.
"""

from __future__ import annotations

import dataclasses
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from .writer import BYTE, CONTROL, NORMAL, UNKNOWN, Vocabulary, spm, write, write_llama

N_EMBD, N_FF, N_KV = 64, 128, 32
USER_DEFINED, UNUSED = 4, 5
SIZE = 300
LOUD = 8
PADDING_SCORE = -1000.0  # what convert_hf_to_gguf.py gives to tokens that it adds


@dataclass(frozen=True)
class Tiny:
    """A tiny model; two with equal fields are the same file.

    silent, loud: the rows of the output matrix from this one on are 0, or LOUD times as long as others.
    keys: without "llama.". omit: whole keys that llama.cpp is not to find. keep: the share of the file that is left.
    kind: "model", "vocab" for a file without weights, or "adapter".
    """

    vocabulary: Vocabulary = field(default_factory=lambda: spm(SIZE))
    n_layers: int = 1
    n_embd: int = N_EMBD
    seed: int = 1
    tied: bool = False
    architecture: str = "llama"
    silent: int | None = None
    loud: int | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)
    omit: tuple[str, ...] = ()
    keep: float = 1.0
    kind: str = "model"

    def but(self, **changes: Any) -> Tiny:
        """The same model with other fields."""
        return dataclasses.replace(self, **changes)

    def words(self, change: Callable[..., Vocabulary], *args: Any) -> Tiny:
        """The same model with ``change(vocabulary, *args)``."""
        return self.but(vocabulary=change(self.vocabulary, *args))

    @property
    def n_vocab(self) -> int:
        return len(self.vocabulary.tokens)


# Vocabularies of other types than SPM


def bpe(size: int = SIZE) -> Vocabulary:
    """Byte-level BPE: the 256 bytes as GPT-2 spells them, then two special tokens and words."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = {byte: chr(byte) for byte in printed}
    spelled.update({byte: chr(256 + i) for i, byte in enumerate(byte for byte in range(256) if byte not in spelled)})
    tokens = [spelled[byte] for byte in range(256)] + ["<|eot|>", "<|bos|>"]
    tokens += [f"w{number}" for number in range(len(tokens), size)]
    types = [NORMAL] * 256 + [CONTROL] * 2 + [NORMAL] * (size - 258)
    return Vocabulary(tokens, types, "gpt2", bos=257, eos=256, merges=["w 1"], keys={"pre": "default"})


def gemma4(size: int = SIZE) -> Vocabulary:
    """BPE with the bytes and spaces of SPM."""
    words = spm(size)
    return Vocabulary(words.tokens, words.types, "gemma4", merges=["a b"])


def wpm(size: int = SIZE) -> Vocabulary:
    """WordPiece as BERT has it, whose numbers of special tokens are fixed by default."""
    tokens = ["[PAD]", *(f"[unused{number}]" for number in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens += [f"\u2581{chr(97 + number)}" for number in range(26)]
    tokens += [f"w{number}" for number in range(len(tokens), size)]
    return Vocabulary(tokens, [NORMAL] * len(tokens), "bert", bos=None, eos=None)


def ugm(size: int = SIZE) -> Vocabulary:
    """Unigram as T5 has it."""
    tokens = ["<pad>", "</s>", "<unk>", *(f"\u2581{chr(97 + number)}" for number in range(26)), "\u2581"]
    tokens += [f"w{number}" for number in range(len(tokens), size)]
    types = [CONTROL, CONTROL, UNKNOWN] + [NORMAL] * (size - 3)
    scores = [0.0, 0.0, 0.0] + [-float(number) for number in range(3, size)]
    return Vocabulary(tokens, types, "t5", bos=None, eos=None, keys={"scores": scores})


def rwkv(size: int = SIZE) -> Vocabulary:
    """The bytes in RWKV's spelling, then words."""
    tokens = ["<s>", *(f"\\x{byte:02x}" for byte in range(1, 256))]
    tokens += [f"w{number}" for number in range(len(tokens), size)]
    return Vocabulary(tokens, [NORMAL] * len(tokens), "rwkv", bos=None, eos=0)


def plamo2(size: int = SIZE) -> Vocabulary:
    """PLaMo-2's, which has SPM's bytes."""
    tokens = ["<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>", "<|plamo:pad|>"]
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    types = [UNKNOWN, CONTROL, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (size - 260)
    tokens += [f"w{number}" for number in range(len(tokens), size)]
    return Vocabulary(tokens, types, "plamo2", keys={"scores": [-float(number) for number in range(size)]})


# Changes of a vocabulary


def renamed(words: Vocabulary, changes: Mapping[int, str | bytes]) -> Vocabulary:
    """Other texts for some tokens; bytes make bytes of all of them."""
    tokens: list[Any] = list(words.tokens)
    for number, text in changes.items():
        tokens[number] = text
    if any(isinstance(text, bytes) for text in tokens):
        tokens = [text if isinstance(text, bytes) else text.encode() for text in tokens]
    return dataclasses.replace(words, tokens=tokens)


def retyped(words: Vocabulary, changes: Mapping[int, int]) -> Vocabulary:
    """Other types for some tokens."""
    types = list(words.types or ())
    for number, kind in changes.items():
        types[number] = kind
    return dataclasses.replace(words, types=types)


def untyped(words: Vocabulary) -> Vocabulary:
    """A file without token types."""
    return dataclasses.replace(words, types=None)


def called(words: Vocabulary, model: str) -> Vocabulary:
    """The same tokens under another ``tokenizer.ggml.model``."""
    return dataclasses.replace(words, model=model)


def keyed(words: Vocabulary, changes: Mapping[str, Any]) -> Vocabulary:
    """More keys of ``tokenizer.ggml.*``; ``bos`` and ``eos`` are the numbers of these tokens."""
    ends = {end: changes[end] for end in ("bos", "eos") if end in changes}
    keys = {key: value for key, value in changes.items() if key not in ends}
    return dataclasses.replace(words, keys={**words.keys, **keys}, **ends)


def longer(words: Vocabulary, count: int, text: str = "w{}", kind: int = NORMAL) -> Vocabulary:
    """``count`` tokens more, of this type; {} in the text is the number."""
    first = len(words.tokens)
    more = [text.format(number) for number in range(first, first + count)]
    keys = dict(words.keys)
    if "scores" in keys:
        keys["scores"] = [*keys["scores"], *[PADDING_SCORE] * count]
    types = [*(words.types or ()), *[kind] * count]
    return dataclasses.replace(words, tokens=[*words.tokens, *more], types=types, keys=keys)


def padded(model: Tiny, count: int, text: str = "[PAD{}]", kind: int = UNUSED) -> Tiny:
    """``count`` tokens more that the model never emits."""
    silent = model.n_vocab if model.silent is None else model.silent
    return model.but(vocabulary=longer(model.vocabulary, count, text, kind), silent=silent)


def extended(model: Tiny, count: int, text: str = "<|tool{}|>", kind: int = CONTROL) -> Tiny:
    """``count`` tokens more that the model often emits."""
    loud = model.n_vocab if model.loud is None else model.loud
    return model.but(vocabulary=longer(model.vocabulary, count, text, kind), loud=loud)


# Files


def write_tiny(model: Tiny, path: Path) -> Path:
    """Writes the model as a GGUF file of less than a megabyte or two."""
    import numpy

    if model.kind == "adapter":
        return _write_adapter(path)
    if model.kind == "vocab":
        keys = {"block_count": model.n_layers, "context_length": 4096, "embedding_length": model.n_embd}
        return write(path, model.architecture, keys, {}, model.vocabulary)
    scale = numpy.ones((model.n_vocab, 1))
    if model.loud is not None:
        scale[model.loud :] = LOUD
    if model.silent is not None:
        scale[model.silent :] = 0
    rows = numpy.random.default_rng(model.seed + 1000).normal(0, 0.3, (model.n_vocab, model.n_embd))
    matrix = (rows * scale).astype(numpy.float32)
    write_it = _WRITERS.get(model.architecture, _decoder)
    write_it(path, model, {"token_embd.weight" if model.tied else "output.weight": matrix})
    data = path.read_bytes()
    for key in model.omit:
        assert data.count(key.encode()) == 1
        data = data.replace(key.encode(), key[:-1].encode() + b"_")
    path.write_bytes(data[: int(len(data) * model.keep)])
    return path


def _write_llama(path: Path, model: Tiny, matrices: Mapping[str, Any]) -> None:
    write_llama(
        path, model.n_layers, model.n_embd, N_FF, model.vocabulary, model.tied, model.seed, model.keys, matrices
    )


def _blocks(names: Mapping[str, Sequence[int]], n_layers: int) -> dict[str, tuple[int, ...]]:
    return {f"blk.{block}.{name}": tuple(dims) for block in range(n_layers) for name, dims in names.items()}


def _decoder(path: Path, model: Tiny, matrices: Mapping[str, Any]) -> None:
    """The architectures whose tensors are llama's, or llama's and some more."""
    n_embd = model.n_embd
    names = {
        "attn_norm.weight": (n_embd,), "attn_q.weight": (n_embd, n_embd), "attn_k.weight": (n_embd, N_KV),
        "attn_v.weight": (n_embd, N_KV), "attn_output.weight": (n_embd, n_embd), "ffn_norm.weight": (n_embd,),
        "ffn_gate.weight": (n_embd, N_FF), "ffn_up.weight": (n_embd, N_FF), "ffn_down.weight": (N_FF, n_embd),
    }  # fmt: skip
    names.update(_MORE.get(model.architecture, {}))
    keys = {
        "block_count": model.n_layers, "context_length": 4096, "embedding_length": n_embd,
        "feed_forward_length": N_FF, "attention.head_count": 4, "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-6, "attention.key_length": 16, "attention.value_length": 16,
    }  # fmt: skip
    tensors = {
        "token_embd.weight": (n_embd, model.n_vocab),
        **_blocks(names, model.n_layers),
        "output_norm.weight": (n_embd,),
    }
    write(path, model.architecture, {**keys, **model.keys}, {**tensors, **matrices}, model.vocabulary, model.seed)


def _bert(path: Path, model: Tiny, matrices: Mapping[str, Any]) -> None:
    """An encoder: it embeds texts and proposes nothing."""
    n_embd = model.n_embd
    square = ("attn_q", "attn_k", "attn_v", "attn_output")
    names: dict[str, Sequence[int]] = {f"{name}.weight": (n_embd, n_embd) for name in square}
    names.update({f"{name}.bias": (n_embd,) for name in square})
    for norm in ("attn_output_norm", "layer_output_norm"):
        names.update({f"{norm}.weight": (n_embd,), f"{norm}.bias": (n_embd,)})
    names.update({"ffn_up.weight": (n_embd, N_FF), "ffn_down.weight": (N_FF, n_embd)})
    keys = {
        "block_count": model.n_layers, "context_length": 4096, "embedding_length": n_embd,
        "feed_forward_length": N_FF, "attention.head_count": 4, "attention.layer_norm_epsilon": 1e-6,
        "attention.causal": False, "pooling_type": 1,
    }  # fmt: skip
    tensors = {
        "token_embd.weight": (n_embd, model.n_vocab),
        "position_embd.weight": (n_embd, 4096),
        "token_embd_norm.weight": (n_embd,),
        "token_embd_norm.bias": (n_embd,),
        **_blocks(names, model.n_layers),
    }
    words = keyed(model.vocabulary, {"token_type_count": 2})
    write(path, "bert", {**keys, **model.keys}, tensors, words, model.seed)


def _mamba(path: Path, model: Tiny, matrices: Mapping[str, Any]) -> None:
    """Keeps a state instead of a cache."""
    n_embd, inner, state, rank = model.n_embd, 2 * model.n_embd, 16, 4
    names = {
        "attn_norm.weight": (n_embd,), "ssm_in.weight": (n_embd, 2 * inner), "ssm_conv1d.weight": (4, inner),
        "ssm_conv1d.bias": (inner,), "ssm_x.weight": (inner, rank + 2 * state), "ssm_dt.weight": (rank, inner),
        "ssm_dt.bias": (inner,), "ssm_a": (state, inner), "ssm_d": (inner,), "ssm_out.weight": (inner, n_embd),
    }  # fmt: skip
    keys = {
        "block_count": model.n_layers, "context_length": 4096, "embedding_length": n_embd,
        "feed_forward_length": 0, "attention.head_count": 0, "attention.layer_norm_rms_epsilon": 1e-6,
        "ssm.conv_kernel": 4, "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": rank,
    }  # fmt: skip
    tensors = {
        "token_embd.weight": (n_embd, model.n_vocab),
        **_blocks(names, model.n_layers),
        "output_norm.weight": (n_embd,),
    }
    write(path, "mamba", {**keys, **model.keys}, {**tensors, **matrices}, model.vocabulary, model.seed)


# What blocks have besides; architectures that are not here have llama's tensors.
_MORE: Mapping[str, Mapping[str, Sequence[int]]] = {
    "qwen2": {"attn_q.bias": (N_EMBD,), "attn_k.bias": (N_KV,), "attn_v.bias": (N_KV,)},
    "gemma3": {
        "attn_q_norm.weight": (16,), "attn_k_norm.weight": (16,), "post_attention_norm.weight": (N_EMBD,),
        "post_ffw_norm.weight": (N_EMBD,),
    },
}  # fmt: skip
_WRITERS: Mapping[str, Callable[[Path, Tiny, Mapping[str, Any]], None]] = {
    "llama": _write_llama,
    "bert": _bert,
    "mamba": _mamba,
}


def _write_adapter(path: Path) -> Path:
    """A LoRA adapter, as convert_lora_to_gguf.py writes one: no tokenizer, and no keys of a model."""
    import gguf
    import numpy

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 16.0)
    for half, shape in (("a", (8, N_EMBD)), ("b", (N_EMBD, 8))):
        writer.add_tensor(f"blk.0.attn_q.weight.lora_{half}", numpy.zeros(shape, numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def file_name(model: Tiny) -> str:
    """A name of its own for each model."""
    return f"{model.architecture}-{model.n_vocab}-{zlib.crc32(repr(model).encode()):08x}.gguf"
