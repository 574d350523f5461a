# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tokenizer of a GGUF model as facts, and llama.cpp's rule whether a draft model fits a target.

The tokens themselves never become facts. They are hashed while the header is read, so that two models can be compared
by their facts alone, also when they lie on different machines:

``digest``
    SHA-256 over the tokens from number 5 on, each with its length before it (llama.cpp does not compare 0 to 4).
``tail_digests``
    The first 16 hex digits that ``digest`` had when the vocabulary was 128, 127, ... 1 tokens shorter: llama.cpp
    allows sizes that differ by up to 128, and then the common part must be the same.
``chunk_digests``
    One short digest per 4096 tokens; they tell where two vocabularies begin to differ.
``padding_from``
    The number from which on all tokens are padding, null when the last token is a real one.
``unreachable_from``
    The number from which on all tokens are padding that no text in a prompt becomes, null when the last one is not.
``fault``
    Why llama.cpp does not load the vocabulary, see ``tokenizer_faults.py``; null when nothing is known to be wrong.

What counts as padding: llama.cpp accepts a difference in size, and then aborts the whole server as soon as a token
beyond the smaller vocabulary is drafted or generated. So the tokens that only one side has must be ones that no model
emits. That is said of a token by its type UNUSED, which the converter gives to rows of the embedding matrix that no
tokenizer entry belongs to, and by the names that only converters write, ``[PAD<number>]`` and ``<dummy<5 digits>>``
(older converters typed these as user-defined). Names that a tokenizer itself reserves, such as ``<unused7>``,
``<|extra_7|>``, ``<|reserved_special_token_7|>`` or ``[unused7]``, are real entries which fine-tuned models do take
into use, so they count only when the file says UNUSED or has no token types at all. A bare ``[PAD]`` is what
fine-tuning adds and is no padding, nor is any token that the file names as a special one (end of text, of turn, ...).

That is enough where the draft has the padding. Where the target has it, a prompt is cut into the target's tokens, and
one that becomes padding aborts the server, too. llama.cpp looks for the texts of control, user-defined and unknown
tokens in every prompt, and the tokenizers of RWKV, T5 (UGM) and PLaMo-2 for those of all tokens. The others put words
together from pieces, which leads to any text in theory, and not to one with brackets that only a converter writes. So
there it takes such a name, the type UNUSED or NORMAL, and one of the other tokenizers.
"""

from __future__ import annotations

import hashlib
import re
import struct
from array import array

from ansible_collections.relay.pool.plugins.module_utils.gguf import INT32, STRING, ArrayListener, Header
from ansible_collections.relay.pool.plugins.module_utils.tokenizer_faults import BYTE_CHARACTERS, Repeats, byte_fault

MAX_SIZE_DIFFERENCE = 128  # SPEC_VOCAB_MAX_SIZE_DIFFERENCE of llama.cpp
FIRST_COMPARED = 5  # SPEC_VOCAB_CHECK_START_TOKEN_ID
CHUNK_TOKENS = 4096
SHORT_DIGITS = 16
NORMAL, UNUSED = 1, 5  # LLAMA_TOKEN_TYPE_*
# Tokenizers that find a token in a prompt only by its pieces, but for special ones.
PIECEWISE = frozenset(("SPM", "BPE", "WPM"))
CONVERTER, RESERVED = 1, 2

CONVERTER_PADDING = re.compile(rb"\[PAD[0-9]+\]|<dummy[0-9]{5}>")
RESERVED_NAME = re.compile(
    rb"(?:<\|?|\[)(?:unused|extra|reserved|reserved_special_token|reserved_token|dummy|placeholder)_?[0-9]+(?:\|?>|\])",
    re.I,
)
# Where none of these begins, there is neither. One pattern for each first character, as that is searched for faster.
PADDING_BEGINNINGS = tuple(
    re.compile(first + rb"\|?(?:pad|dummy|unused|extra|reserved|placeholder)", re.I) for first in (rb"<", rb"\[")
)

SHORT_LENGTHS = range(1, BYTE_CHARACTERS)

# tokenizer.ggml.model -> (type, default bos, default eos, add bos, add eos), as in llama-vocab.cpp
MODELS = {
    "llama": ("SPM", 1, 2, True, False),
    "bert": ("WPM", 101, None, True, False),
    "gpt2": ("BPE", 11, 11, False, False),
    "hybriddna": ("BPE", 11, 11, False, False),
    "whitespace": ("BPE", 11, 11, False, False),
    "gemma4": ("BPE", None, None, False, False),
    "t5": ("UGM", None, 1, False, True),
    "rwkv": ("RWKV", None, None, False, False),
    "plamo2": ("PLAMO2", 1, 2, False, False),
    "no_vocab": ("NONE", None, None, False, False),
    "none": ("NONE", None, None, False, False),
}
MASK_IDS = {"WPM": 103}
# Pre-tokenizers of BPE that change a default.
ADD_BOS_PRE = frozenset(
    ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
     "tekken", "chameleon")
)  # fmt: skip
NO_BOS_PRE = frozenset(("chatglm-bpe", "glm4", "glm5"))
FORCED_BOS_PRE = frozenset(("gemma4", "granite-embed-multi-311m"))
# Special tokens that are expected to appear in text; the padding token is not.
SPOKEN_IDS = ("bos", "eos", "eot", "eom", "seperator", "mask", "fim_pre", "fim_suf", "fim_mid", "fim_rep", "fim_sep",
              "prefix", "suffix", "middle")  # fmt: skip


def token_bytes(raw: bytes, number: int) -> bytes:
    """A token as llama.cpp compares it: a NUL ends it, and an empty one gets a name."""
    return raw.split(b"\0", 1)[0] or b"[EMPTY_%d]" % number


def compared_texts(texts, first: int) -> list:
    """Tokens as llama.cpp compares them; ``first`` is the number of the first one."""
    return [text if text and 0 not in text else token_bytes(text, number) for number, text in enumerate(texts, first)]


class TokenListener(ArrayListener):
    """Hears ``tokenizer.ggml.tokens``: hashes them, and remembers which ones are short or have the name of a padding
    token, and whether one occurs twice."""

    def __init__(self) -> None:
        self.count = 0
        self.number = 0  # of the next token
        self.running = hashlib.sha256()
        self.chunk = hashlib.sha256()
        self.chunk_digests: list = []
        self.tail_digests: list = []
        self.names = bytearray()  # of each token: 0, CONVERTER or RESERVED, by its name
        self.short: list = []  # numbers of those that are too short to spell a byte
        self.repeats = Repeats()

    def begin(self, value_type: int, count: int) -> None:
        if value_type != STRING:
            raise ValueError("is no array of texts: convert the model again")
        self.count = count
        self.names = bytearray(count)

    def text_runs(self, count: int):
        """Cuts where a digest has to be taken: at a chunk's end, and before each of the last 128 tokens."""
        cuts = {0, min(FIRST_COMPARED, count), count}
        cuts.update(range(0, count, CHUNK_TOKENS))
        cuts.update(range(max(count - MAX_SIZE_DIFFERENCE, 0), count))
        ordered = sorted(cuts)
        return [stop - start for start, stop in zip(ordered, ordered[1:])]

    def feed(self, values) -> None:
        first = self.number
        self.number += values.count
        if first >= self.count - MAX_SIZE_DIFFERENCE:
            self.tail_digests.append(self.running.hexdigest()[:SHORT_DIGITS])
        bare = values.is_bare()
        texts = values.bare_texts() if bare and values.count else compared_texts(values.texts(), first)
        self.repeats.feed(texts)
        if not bare or any(length in values.raw for length in SHORT_LENGTHS):  # these bytes are rare in texts
            self.short += [number for number, text in enumerate(texts, first) if len(text) < BYTE_CHARACTERS]
        if first >= FIRST_COMPARED:
            # Bare texts stand in the file just as they are hashed: each with its length before it.
            pack = struct.Struct("<Q").pack
            data = values.raw if bare else b"".join([pack(len(text)) + text for text in texts])
            self.running.update(data)
            self.chunk.update(data)
        if self.number % CHUNK_TOKENS == 0 or self.number == self.count:
            self.chunk_digests.append(self.chunk.hexdigest()[:SHORT_DIGITS])
            self.chunk = hashlib.sha256()
        if any(beginning.search(values.raw) for beginning in PADDING_BEGINNINGS):
            self._note_padding(texts, first)

    def _note_padding(self, texts, first: int) -> None:
        for number, text in enumerate(texts, first):
            if CONVERTER_PADDING.fullmatch(text):
                self.names[number] = CONVERTER
            elif RESERVED_NAME.fullmatch(text):
                self.names[number] = RESERVED


class TypeListener(ArrayListener):
    """Hears ``tokenizer.ggml.token_type``: which tokens are UNUSED."""

    def __init__(self) -> None:
        self.types = None

    def begin(self, value_type: int, count: int) -> None:
        if value_type != INT32:
            raise ValueError("is no array of 32-bit integers: convert the model again")
        self.types = array("i")

    def feed(self, values) -> None:
        self.types.extend(values)


class TokenizerListener:
    """The listeners that :func:`tokenizer_facts` needs; give ``listeners`` to the reader of the header."""

    def __init__(self) -> None:
        self.tokens = TokenListener()
        self.types = TypeListener()

    @property
    def listeners(self) -> dict:
        """Metadata key -> listener."""
        return {"tokenizer.ggml.tokens": self.tokens, "tokenizer.ggml.token_type": self.types}

    def is_padding(self, number: int, spoken: frozenset) -> bool:
        """Whether no model emits this token, see the text at the top of this file."""
        if number in spoken:
            return False
        name = self.tokens.names[number]
        if name == CONVERTER:
            return True
        types = self.types.types
        if types is None:
            return name == RESERVED
        return number < len(types) and types[number] == UNUSED

    def is_unreachable(self, number: int, spoken: frozenset) -> bool:
        """Whether it is padding that no text in a prompt becomes, where the tokenizer is one of PIECEWISE."""
        types = self.types.types
        if not self.tokens.names[number] or not self.is_padding(number, spoken):
            return False
        return types is None or (number < len(types) and types[number] in (NORMAL, UNUSED))

    def _first_of(self, holds, spoken: frozenset):
        """The number from which on something holds for all tokens, or None."""
        number = self.tokens.count
        while number > 0 and holds(number - 1, spoken):
            number -= 1
        return number if number < self.tokens.count else None

    def padding_from(self, spoken: frozenset):
        """The number from which on all tokens are padding, or None."""
        return self._first_of(self.is_padding, spoken)

    def unreachable_from(self, kind, spoken: frozenset):
        """The number from which on all tokens are padding that no text becomes, or None."""
        return self._first_of(self.is_unreachable, spoken) if kind in PIECEWISE else None

    def fault(self, kind):
        """Why llama.cpp does not load the vocabulary, as the end of a sentence, or None."""
        return self.tokens.repeats.fault() or byte_fault(kind, self.types.types, self.tokens.short)


def _special_id(header: Header, name: str, default, n_tokens: int):
    if default is not None and default >= n_tokens:
        default = None
    value = header.integer(f"tokenizer.ggml.{name}_token_id")
    return value if value is not None and 0 <= value < n_tokens else default


def tokenizer_facts(header: Header, heard: TokenizerListener):
    """The fact ``gguf.tokenizer``, or None for a file without a tokenizer (an adapter, an image projector)."""
    model = header.text("tokenizer.ggml.model")
    if model is None:
        return None
    kind, bos, eos, add_bos, add_eos = MODELS.get(model, (None, None, None, False, False))
    pre = "gemma4" if model == "gemma4" else header.text("tokenizer.ggml.pre")
    n_tokens = heard.tokens.count
    if kind == "NONE":
        n_tokens = header.integer(f"{header.text('general.architecture', '')}.vocab_size", 0)
    if kind == "BPE":
        add_bos = add_bos or pre in ADD_BOS_PRE
        bos = None if pre in NO_BOS_PRE else bos
    if kind != "NONE":
        bos = _special_id(header, "bos", bos, n_tokens)
        eos = _special_id(header, "eos", eos, n_tokens)
        add_bos = bool(header.metadata.get("tokenizer.ggml.add_bos_token", add_bos))
        add_eos = bool(header.metadata.get("tokenizer.ggml.add_eos_token", add_eos))
        add_bos = add_bos or (kind == "BPE" and pre in FORCED_BOS_PRE)
    spoken = frozenset(header.integer(f"tokenizer.ggml.{name}_token_id", -1) for name in SPOKEN_IDS) | {bos, eos}
    return {
        "model": model,
        "pre": pre,
        "type": kind,
        "n_tokens": n_tokens,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "mask_token_id": _special_id(header, "mask", MASK_IDS.get(kind), n_tokens),
        "add_bos_token": add_bos,
        "add_eos_token": add_eos,
        "digest": heard.tokens.running.hexdigest(),
        "chunk_digests": heard.tokens.chunk_digests,
        "tail_digests": heard.tokens.tail_digests,
        "padding_from": heard.padding_from(spoken),
        "unreachable_from": heard.unreachable_from(kind, spoken),
        "fault": None if kind == "NONE" else heard.fault(kind),
    }
