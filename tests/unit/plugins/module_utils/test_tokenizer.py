# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tokenizer's facts and llama.cpp's rule for draft models."""

from __future__ import annotations

import hashlib
import struct

import pytest
from ansible_collections.relay.pool.plugins.module_utils import tokenizer, tokenizer_faults
from ansible_collections.relay.pool.plugins.module_utils.gguf_files import read_files
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import describe
from ansible_collections.relay.pool.plugins.module_utils.gguf_reader import GgufError
from ansible_collections.relay.pool.plugins.module_utils.tokenizer import TokenizerListener, tokenizer_facts
from ansible_collections.relay.pool.plugins.module_utils.tokenizer_compare import compare_facts

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


@pytest.fixture
def vocabulary(gguf_factory):
    """Writes a model with a vocabulary and returns its path."""

    def write(name="m.gguf", model="llama", tokens=None, types=None, big=False, **keys):
        entries = [("add_string", "tokenizer.ggml.model", model)]
        for key, value in keys.items():
            method = {bool: "add_bool", int: "add_uint32", str: "add_string"}[type(value)]
            entries.append((method, f"tokenizer.ggml.{key}", value))
        tokens = [f"w{number}" for number in range(300)] if tokens is None else tokens
        return str(gguf_factory.model(name=name, keys=entries, tokens=tokens, types=types, big=big))

    return write


def facts_of(path):
    heard = TokenizerListener()
    files = read_files(path, heard.listeners)
    return tokenizer_facts(files.first, heard)


@pytest.mark.parametrize(
    ("model", "keys", "expected"),  # (type, bos, eos, add_bos, add_eos)
    [
        ("llama", {}, ("SPM", 1, 2, True, False)),
        ("llama", {"bos_token_id": 7, "add_bos_token": False}, ("SPM", 7, 2, False, False)),
        ("llama", {"bos_token_id": 300}, ("SPM", 1, 2, True, False)),  # out of range: the default
        ("gpt2", {"pre": "qwen2"}, ("BPE", 11, 11, False, False)),
        ("gpt2", {"pre": "llama-bpe"}, ("BPE", 11, 11, True, False)),
        ("gpt2", {"pre": "llama-bpe", "add_bos_token": False}, ("BPE", 11, 11, False, False)),
        ("gpt2", {"pre": "tekken", "add_eos_token": True}, ("BPE", 11, 11, True, True)),
        ("gpt2", {"pre": "glm4"}, ("BPE", None, 11, False, False)),
        ("gpt2", {"pre": "granite-embed-multi-311m", "add_bos_token": False}, ("BPE", 11, 11, True, False)),
        ("gemma4", {"add_bos_token": False, "bos_token_id": 2}, ("BPE", 2, None, True, False)),
        ("bert", {}, ("WPM", 101, None, True, False)),
        ("t5", {}, ("UGM", None, 1, False, True)),
        ("rwkv", {}, ("RWKV", None, None, False, False)),
        ("plamo2", {}, ("PLAMO2", 1, 2, False, False)),
        ("none", {}, ("NONE", None, None, False, False)),
        ("of-tomorrow", {}, (None, None, None, False, False)),
    ],
)
def test_effective_values(vocabulary, model, keys, expected):
    facts = facts_of(vocabulary(model=model, **keys))
    assert (
        facts["type"],
        facts["bos_token_id"],
        facts["eos_token_id"],
        facts["add_bos_token"],
        facts["add_eos_token"],
    ) == expected
    assert facts["model"] == model


@pytest.mark.parametrize(
    ("model", "keys", "mask"),
    [
        ("gpt2", {}, None),
        ("gpt2", {"mask_token_id": 7}, 7),
        ("gpt2", {"mask_token_id": 3000}, None),
        ("llama", {}, None),
        ("bert", {}, 103),
    ],
)
def test_mask_token(vocabulary, model, keys, mask):
    assert facts_of(vocabulary(model=model, **keys))["mask_token_id"] == mask


def test_a_default_beyond_the_vocabulary_is_none(vocabulary):
    facts = facts_of(vocabulary(model="bert", tokens=[f"w{number}" for number in range(90)]))
    assert (facts["n_tokens"], facts["bos_token_id"]) == (90, None)


def test_no_vocabulary_takes_its_size_from_the_metadata(gguf_factory):
    keys = [("add_string", "tokenizer.ggml.model", "none"), ("add_uint32", "llama.vocab_size", 777)]
    assert facts_of(str(gguf_factory.model(keys=keys)))["n_tokens"] == 777


def test_a_file_without_a_tokenizer(gguf_factory):
    assert facts_of(str(gguf_factory.model())) is None


def plain_digest(tokens):
    compared = [token.split(b"\0")[0] or b"[EMPTY_%d]" % number for number, token in enumerate(tokens)]
    return hashlib.sha256(b"".join(struct.pack("<Q", len(token)) + token for token in compared[5:])).hexdigest()


@pytest.mark.parametrize("size", [0, 3, 5, 6, 128, 133, 4096, 4097, 4300, 9000])
def test_digests_against_a_plain_calculation(vocabulary, size):
    tokens = [f"tök{number}".encode() for number in range(size)]
    for number, odd in ((2, b""), (7, b""), (8, b"a\0b"), (9, b"\0b"), (size - 1, b"")):
        if 0 <= number < size:
            tokens[number] = odd
    facts = facts_of(vocabulary(tokens=tokens))
    assert facts["n_tokens"] == size
    assert facts["digest"] == plain_digest(tokens)
    first = max(size - 128, 0)
    assert len(facts["tail_digests"]) == size - first
    for shorter in {first, (first + size) // 2, size - 1} & set(range(size)):
        assert facts["tail_digests"][shorter - first] == plain_digest(tokens[:shorter])[:16]
    assert len(facts["chunk_digests"]) == -(-size // 4096)


def test_byte_order_does_not_change_a_digest(vocabulary):
    assert facts_of(vocabulary("a.gguf"))["digest"] == facts_of(vocabulary("b.gguf", big=True))["digest"]


def test_one_token_changes_only_its_chunk(vocabulary):
    tokens = [f"w{number}" for number in range(9000)]
    one = facts_of(vocabulary("a.gguf", tokens=tokens))
    tokens[5000] = "other"
    other = facts_of(vocabulary("b.gguf", tokens=tokens))
    assert [a == b for a, b in zip(one["chunk_digests"], other["chunk_digests"])] == [True, False, True]


@pytest.mark.parametrize("model_key", ["tokens", "token_type"])
def test_an_array_of_the_wrong_type_is_refused(gguf_factory, model_key):
    keys = [("add_string", "tokenizer.ggml.model", "llama"), ("add_array", f"tokenizer.ggml.{model_key}", [0.5])]
    with pytest.raises(GgufError, match=rf"'tokenizer\.ggml\.{model_key}' is no array of"):
        facts_of(str(gguf_factory.model(keys=keys)))


@pytest.mark.parametrize(
    ("tail", "types", "keys", "padding"),  # how many of the tail's tokens are padding, counted from the end
    [
        (["x", "y"], None, {}, 0),
        (["x", "y"], [NORMAL, UNUSED], {}, 1),
        (["x", "y"], [UNUSED, UNUSED], {}, 2),
        (["[PAD300]", "[PAD301]"], None, {}, 2),
        (["[PAD1]", "[PAD2]"], [USER_DEFINED, USER_DEFINED], {}, 2),  # older converters
        (["<dummy00001>", "<dummy00002>"], [USER_DEFINED, USER_DEFINED], {}, 2),
        (["[PAD]"], [USER_DEFINED], {}, 0),  # what fine-tuning adds
        (["<|im_start|>", "<|im_end|>"], [CONTROL, CONTROL], {}, 0),
        (["<unused7>", "<|extra_8|>"], [CONTROL, CONTROL], {}, 0),  # real entries, fine-tuning uses them
        (["<unused7>", "<|extra_8|>"], [UNUSED, UNUSED], {}, 2),
        (["<unused7>", "<|extra_8|>", "<|reserved_special_token_9|>", "[unused10]"], None, {}, 4),
        (["<|unused_thing|>"], None, {}, 0),
        (["[PAD300]", "[PAD301]"], [UNUSED, UNUSED], {"eot_token_id": 301}, 0),
        (["[PAD300]", "[PAD301]"], [UNUSED, UNUSED], {"eos_token_id": 300}, 1),
        (["[PAD300]", "[PAD301]"], [UNUSED, UNUSED], {"padding_token_id": 300}, 2),
        (["[PAD300]", "real", "[PAD302]"], [UNUSED, NORMAL, UNUSED], {}, 1),
    ],
)
def test_what_counts_as_padding(vocabulary, tail, types, keys, padding):
    tokens = [f"w{number}" for number in range(300)] + tail
    types = None if types is None else [NORMAL] * 300 + types
    expected = len(tokens) - padding if padding else None
    assert facts_of(vocabulary(tokens=tokens, types=types, **keys))["padding_from"] == expected


@pytest.mark.parametrize(
    ("model", "tail", "types", "unreachable"),  # how many of the tail's tokens are, counted from the end
    [
        ("llama", ["[PAD300]", "[PAD301]"], [UNUSED, UNUSED], 2),
        ("llama", ["[PAD300]", "[PAD301]"], [NORMAL, NORMAL], 2),
        ("llama", ["[PAD300]", "<dummy00301>"], None, 2),
        ("llama", ["<|extra_0|>", "[unused1]"], None, 2),
        ("llama", ["<|extra_0|>", "[unused1]"], [UNUSED, UNUSED], 2),
        ("llama", ["<|extra_0|>", "[unused1]"], [NORMAL, NORMAL], 0),  # the model may say them
        # llama.cpp looks for their texts in every prompt
        *(("llama", ["[PAD300]", "[PAD301]"], [kind, kind], 0) for kind in (UNKNOWN, CONTROL, USER_DEFINED)),
        ("llama", ["[PAD300]", "[PAD301]"], [CONTROL, UNUSED], 1),
        ("llama", ["ab", "[PAD301]"], [UNUSED, UNUSED], 1),  # a and b become ab
        ("gpt2", ["[PAD300]", "[PAD301]"], [UNUSED, UNUSED], 2),
        ("bert", ["[PAD300]", "[PAD301]"], [UNUSED, UNUSED], 2),
        # these look for the texts of all tokens
        *((model, ["[PAD300]", "[PAD301]"], [UNUSED, UNUSED], 0) for model in ("rwkv", "t5", "plamo2", "of-tomorrow")),
    ],
)
def test_which_padding_no_text_becomes(vocabulary, model, tail, types, unreachable):
    tokens = [f"w{number}" for number in range(300)] + tail
    types = None if types is None else [NORMAL] * 300 + types
    expected = len(tokens) - unreachable if unreachable else None
    assert facts_of(vocabulary(model=model, tokens=tokens, types=types))["unreachable_from"] == expected


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize(
    ("changes", "twice"),
    [
        ({}, False),
        ({2: "w4000", 4000: "w2"}, False),
        ({3: "w0"}, True),
        ({8999: "w5"}, True),  # alone in its run
        ({8998: "same", 8999: "same"}, True),
        ({2: "x" * 300, 4000: "x" * 299}, False),
        ({2: "x" * 300, 4000: "x" * 300}, True),
        ({7: "", 4500: ""}, False),  # each is called by its number
        ({7: "", 4500: "[EMPTY_7]"}, True),
        ({7: b"a\0b", 8: b"a\0c"}, True),  # a NUL ends a text
        ({7: b"\0b", 8: b"\0c"}, False),
        ({7: b"w8\0"}, True),
        ({7: "w8 "}, False),
    ],
)
def test_a_text_that_occurs_twice(vocabulary, changes, twice, big):
    tokens = [f"w{number}".encode() for number in range(9000)]
    for number, text in changes.items():
        tokens[number] = text if isinstance(text, bytes) else text.encode()
    fault = facts_of(vocabulary(tokens=tokens, big=big))["fault"]
    assert fault == ("has a text that occurs twice among its tokens" if twice else None)
    assert facts_of(vocabulary(model="none", tokens=tokens, big=big))["fault"] is None


def test_digests_of_64_bits_where_python_has_shorter_hashes(monkeypatch):
    values = {tokenizer_faults._short_digest(b"%d" % number) for number in range(1000)}
    assert len(values) == 1000
    assert -(2**63) <= min(values) < -(2**62) < 2**62 < max(values) < 2**63
    monkeypatch.setattr(tokenizer_faults, "DIGEST", tokenizer_faults._short_digest)
    repeats = tokenizer_faults.Repeats()
    repeats.feed([b"a", b"b"])
    assert repeats.fault() is None
    repeats.feed([b"a"])
    assert "twice" in repeats.fault()


@pytest.mark.parametrize(
    ("model", "text", "fault"),
    [
        ("llama", "<0x0A>", False),
        ("llama", "abc", False),  # is read as a byte of no digits
        ("llama", "ab", True),
        ("llama", "a", True),
        ("llama", "", False),
        ("llama", b"ab\0cdef", True),
        ("gpt2", "ab", True),
        ("t5", "ab", True),
        ("rwkv", "ab", False),
        ("plamo2", "ab", False),
        ("bert", "<0x0A>", True),
    ],
)
def test_a_token_that_is_called_a_byte_and_stands_for_none(vocabulary, model, text, fault):
    tokens = [f"w{number}".encode() for number in range(300)]
    tokens[270] = text if isinstance(text, bytes) else text.encode()
    types = [NORMAL] * 300
    assert facts_of(vocabulary(model=model, tokens=tokens, types=types))["fault"] is None
    types[270] = BYTE
    expected = "has a token of the type byte, number 270, that stands for no byte" if fault else None
    assert facts_of(vocabulary(model=model, tokens=tokens, types=types))["fault"] == expected


WORDS = [f"w{number}" for number in range(300)]


def padded(count, kind=UNUSED):
    """A vocabulary with ``count`` padding tokens behind it, and its types."""
    return {
        "tokens": WORDS + [f"[PAD{number}]" for number in range(300, 300 + count)],
        "types": [NORMAL] * 300 + [kind] * count,
    }


def changed(number, word="other"):
    return {"tokens": [*WORDS[:number], word, *WORDS[number + 1 :]]}


@pytest.mark.parametrize(
    ("target", "draft", "reason", "sentence"),
    [
        ({}, {}, None, None),
        ({}, changed(4), None, None),
        ({}, changed(5), "token", "token 5 is 'w5' in the target and 'other' in the draft"),
        ({}, changed(270, "ZZ"), "token", "token 270 is 'w270' in the target and 'ZZ' in the draft"),
        ({}, {"eos_token_id": 9}, None, None),  # compared only when it is added
        ({"add_eos_token": True}, {"add_eos_token": True, "eos_token_id": 9}, "eos", "eos_token_id is 2 in the"),
        ({"add_eos_token": True}, {}, "eos", "add_eos_token is true in the target and false in the draft"),
        ({}, {"bos_token_id": 9}, "bos", "bos_token_id is 1 in the target and 9 in the draft"),
        ({}, {"add_bos_token": False}, "bos", "add_bos_token is true in the target and false in the draft"),
        ({"add_bos_token": False}, {"add_bos_token": False, "bos_token_id": 9}, None, None),
        ({}, {"model": "gpt2"}, "type", "the target's tokenizer is SPM, the draft's is BPE"),
        ({"model": "of-tomorrow"}, {}, "type", "the target has the unknown tokenizer 'of-tomorrow'"),
        ({"model": "gpt2", "pre": "qwen2"}, {"model": "gpt2", "pre": "deepseek-r1-qwen"}, None, None),
        (padded(128), {}, None, None),  # as Qwen2.5: 152064 and 151936
        ({}, padded(128), None, None),
        (padded(128), padded(0), None, None),
        (padded(128), padded(60), None, None),
        ({}, padded(5, USER_DEFINED), None, None),
        (padded(5, USER_DEFINED), {}, "padding", "the target's tokens from 300 on are padding that a text in a prompt"),
        (changed(290, "w5"), changed(290, "w5"), "fault", "the target has a text that occurs twice among its tokens"),
        (changed(3), changed(3, "w5"), "fault", "the draft has a text that occurs twice"),
        (padded(129), {}, "size", "the target has 429 tokens and the draft 300, 129 more"),
        ({}, padded(129), "size", "at most 128 are allowed"),
        ({"tokens": [*WORDS, "<|im_start|>", "<|im_end|>"]}, {}, "padding", "the target's tokens from 300 on"),
        ({}, {"tokens": [f"w{number}" for number in range(428)]}, "padding", "the draft's tokens from 300 on"),
        # The longer one ends in padding, but not all that the shorter one lacks is padding.
        ({"tokens": [*WORDS, "new", "[PAD301]"]}, {}, "padding", "the target's tokens from 300 on"),
        ({"tokens": [*changed(100)["tokens"], "[PAD300]"]}, {}, "token", "token 100 is 'other' in the target"),
    ],
)
def test_the_rule(vocabulary, target, draft, reason, sentence):
    paths = vocabulary("target.gguf", **target), vocabulary("draft.gguf", **draft)
    result = describe(*paths)["comparison"]
    assert (result["compatible"], result["reason"]) == (reason is None, reason)
    if sentence is None:
        assert result["first_difference"] is None
    else:
        assert sentence in result["first_difference"]
    # The facts alone, from two machines, give the same verdict.
    alone = compare_facts(facts_of(paths[0]), facts_of(paths[1]))
    assert alone["reason"] == reason


def test_a_draft_that_asks_for_its_target(vocabulary):
    target, draft = vocabulary("target.gguf"), vocabulary("draft.gguf", **changed(270, "ZZ"))
    sentence = "token 270 is 'w270' in the target and 'ZZ' in the draft"
    assert describe(target, draft)["comparison"]["first_difference"] == sentence
    turned = describe(draft, target, compare_as="target")
    assert (turned["path"], turned["comparison"]["first_difference"]) == (draft, sentence)


def test_a_target_without_a_tokenizer(gguf_factory, vocabulary):
    result = describe(str(gguf_factory.model(name="bare.gguf")), vocabulary("draft.gguf"))["comparison"]
    assert (result["reason"], result["first_difference"]) == ("type", "the target has no tokenizer")


def test_notes_name_what_is_not_compared(vocabulary):
    paths = vocabulary("t.gguf", "gpt2", pre="qwen2"), vocabulary("d.gguf", "gpt2", pre="llama4", eos_token_id=7)
    notes = describe(*paths)["comparison"]["notes"]
    assert len(notes) == 2
    assert notes[0].startswith("eos_token_id is 11 in the target and 7 in the draft")
    assert notes[1].startswith("the pre-tokenizer is qwen2 in the target and llama4 in the draft")


@pytest.mark.parametrize("number", [4095, 4096, 8191, 8200])
def test_the_first_difference_in_a_long_vocabulary(vocabulary, number):
    tokens = [f"w{place}" for place in range(8210)]
    target = vocabulary("t.gguf", tokens=[*tokens, "[PAD8210]"])
    tokens[number] = "long" * 20
    result = describe(target, vocabulary("d.gguf", tokens=tokens))["comparison"]
    assert (
        result["first_difference"] == f"token {number} is 'w{number}' in the target and '{'long' * 10}'... in the draft"
    )


def test_the_limits_are_those_of_llama_cpp():
    assert (tokenizer.MAX_SIZE_DIFFERENCE, tokenizer.FIRST_COMPARED) == (128, 5)
