# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the tokens of a draft are those of the target, by facts and by files."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import describe
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.vocabulary import (
    compatibility,
    fault,
    lone_padding,
    not_compared,
    same_tokens,
)


def tokenizer(**fields):
    base = {
        "type": "BPE",
        "n_tokens": 1000,
        "digest": "d",
        "add_bos_token": True,
        "bos_token_id": 1,
        "add_eos_token": False,
        "eos_token_id": 2,
        "chunk_digests": ["a", "b", "c"],
        "padding_from": None,
    }
    return {"tokenizer": {**base, **fields}}


@pytest.mark.parametrize(
    ("fields", "compatible", "reason"),
    [
        ({}, True, None),
        ({"type": "SPM"}, False, "type"),
        ({"add_bos_token": False}, False, "bos"),
        ({"bos_token_id": 2}, False, "bos"),
        ({"eos_token_id": 7}, True, None),  # not compared: neither adds it
        ({"n_tokens": 1129}, False, "size"),
        ({"n_tokens": 1128}, False, "padding"),  # a used token beyond the smaller vocabulary aborts the server
        ({"n_tokens": 1128, "padding_from": 990}, True, None),
        ({"n_tokens": 1128, "padding_from": 1001}, False, "padding"),
        ({"n_tokens": 1128, "padding_from": 990, "chunk_digests": ["a", "X", "d"]}, False, "token"),
        ({"n_tokens": 1128, "padding_from": 990, "chunk_digests": ["a", "b", "X"]}, True, None),
        ({"n_tokens": 1002, "padding_from": 1000, "digest": "x", "tail_digests": ["d", "y"]}, True, None),
        ({"n_tokens": 1002, "padding_from": 1000, "digest": "x", "tail_digests": ["z", "y"]}, False, "token"),
        ({"digest": "other"}, False, "token"),
    ],
)
def test_vocabulary_rule(fields, compatible, reason):
    # padding of the target has to be such that no prompt reaches it, which is the next test's
    fields = {**fields, "unreachable_from": fields.get("padding_from")}
    verdict = compatibility(tokenizer(), tokenizer(**fields))
    assert (verdict["compatible"], verdict["reason"]) == (compatible, reason)
    turned = compatibility(tokenizer(**fields), tokenizer())
    assert (turned["compatible"], turned["reason"]) == (compatible, reason)


@pytest.mark.parametrize("unreachable_from", [None, 1001])
@pytest.mark.parametrize("rule", [compatibility, same_tokens])
def test_padding_of_the_target_that_a_prompt_reaches(rule, unreachable_from):
    padded = tokenizer(n_tokens=1005, padding_from=1000, unreachable_from=unreachable_from)
    assert rule(tokenizer(), padded)["compatible"]
    found = rule(padded, tokenizer())
    assert (found["compatible"], found["reason"]) == (False, "padding")
    assert found["message"] == (
        "the target has 1005 tokens and the draft 1000, and those of the target from 1000 on are padding that a text "
        "in a prompt becomes: llama-server would abort at such a prompt"
    )


def test_a_vocabulary_that_llama_cpp_does_not_load():
    twice = "has a text that occurs twice among its tokens"
    assert fault(tokenizer(fault=twice)) == twice
    assert fault(tokenizer()) is fault({}) is fault({"tokenizer": None}) is None
    for side, pair in (("target", ({"fault": twice}, {})), ("draft", ({}, {"fault": twice}))):
        found = compatibility(*(tokenizer(**fields) for fields in pair))
        assert (found["reason"], found["message"].split(" has")[0]) == ("fault", f"the {side}")
    # what llama.cpp compares comes first
    assert compatibility(tokenizer(), tokenizer(fault=twice, digest="x"))["reason"] == "token"


def test_what_only_the_target_has():
    assert lone_padding(tokenizer(n_tokens=1005), tokenizer()) == (1000, 1004)
    for pair in ((tokenizer(), tokenizer()), (tokenizer(), tokenizer(n_tokens=1005)), (tokenizer(), {})):
        assert lone_padding(*pair) is None


def test_what_is_not_compared_is_said_with_and_without_the_files():
    mine, other = tokenizer(pre="qwen2"), tokenizer(pre="llama4", eos_token_id=7)
    said = not_compared(mine, other)
    assert said[0] == "eos_token_id is 2 in the target and 7 in the draft, which llama.cpp does not compare"
    assert said[1].startswith("the pre-tokenizer is qwen2 in the target and llama4 in the draft")
    assert not_compared(mine, mine) == not_compared(mine, {}) == not_compared({}, {}) == []
    assert not_compared(mine, other, {"compatible": True, "notes": ["a note"]}) == ["a note"]
    assert not_compared(mine, other, {"compatible": True}) == []


@pytest.mark.parametrize("nothing", [None, {"type": None, "n_tokens": 1000}, {"type": "NONE", "n_tokens": 1000}])
def test_a_model_without_tokens(nothing):
    for side, pair in (
        ("target", ({"tokenizer": nothing}, tokenizer())),
        ("draft", (tokenizer(), {"tokenizer": nothing})),
    ):
        found = compatibility(*pair)
        assert (found["reason"], found["message"]) == ("type", f"the {side} has no tokenizer that llama.cpp knows")
    assert not compatibility({"tokenizer": nothing}, {"tokenizer": nothing})["compatible"]
    # a fact that was not given says nothing
    assert compatibility({}, tokenizer())["reason"] == "unknown"


@pytest.mark.parametrize(
    ("fields", "compatible", "reason"),
    [
        ({}, True, None),
        # llama.cpp compares nothing here, and how a text begins is not the head's business
        ({"add_bos_token": False}, True, None),
        ({"bos_token_id": 2}, True, None),
        ({"digest": "other"}, False, "token"),
        ({"n_tokens": 1001}, False, "padding"),
        ({"n_tokens": 1200, "padding_from": 1000}, True, None),
        ({"n_tokens": 1200, "padding_from": 1001}, False, "padding"),
    ],
)
def test_the_tokens_of_a_head(fields, compatible, reason):
    fields = {**fields, "unreachable_from": fields.get("padding_from")}
    for pair in ((tokenizer(), tokenizer(**fields)), (tokenizer(**fields), tokenizer())):
        verdict = same_tokens(*pair)
        assert (verdict["compatible"], verdict["reason"]) == (compatible, reason)


def test_the_comparison_of_both_files_decides():
    found = {"compatible": False, "reason": "token", "first_difference": "token 270 is 'a' here and 'b' there"}
    for rule in (compatibility, same_tokens):
        assert rule(tokenizer(), tokenizer(), found)["message"] == "token 270 is 'a' here and 'b' there"
        assert rule(tokenizer(), tokenizer(digest="other"), {"compatible": True})["compatible"]
        assert rule(tokenizer(), {})["reason"] == "unknown"
    # the comparison stops at the first difference, which may be one that a head does not mind
    for reason in ("bos", "eos", "size", "type"):
        assert same_tokens(tokenizer(), tokenizer(), {"compatible": False, "reason": reason})["compatible"]
        assert not same_tokens(tokenizer(), tokenizer(digest="x"), {"compatible": False, "reason": reason})[
            "compatible"
        ]


SPECIALS = ["<unk>", "<s>", "</s>", "<a>", "<b>"]
WORDS = [f"w{number}" for number in range(295)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"tokens": [*SPECIALS, *WORDS, *(f"x{number}" for number in range(128))]}, "padding"),
        ({"tokens": [*SPECIALS, *WORDS, *(f"[PAD{number}]" for number in range(300, 428))]}, None),
        ({"tokens": [*SPECIALS, *WORDS, *(f"[PAD{number}]" for number in range(300, 429))]}, "size"),
        ({"tokens": [*SPECIALS[:4], "<x>", *WORDS]}, None),
        ({"tokens": [*SPECIALS, *WORDS[:265], "other", *WORDS[266:]]}, "token"),
        ({"keys": [("add_uint32", "tokenizer.ggml.bos_token_id", 2)]}, "bos"),
        ({"keys": [("add_bool", "tokenizer.ggml.add_bos_token", False)]}, "bos"),
        ({"keys": [("add_uint32", "tokenizer.ggml.eos_token_id", 7)]}, None),
        ({"model": "gpt2"}, "type"),
    ],
)
def test_pairs_of_files(gguf_factory, change, reason):
    """By their facts alone, as when they lie on two machines, and with both at hand; both ways round.

    What llama-server b11434 did with such pairs: those without a reason drafted. Those with one ran on without a word,
    but for padding, which it does not look at: healthy, then "failed to add token 321", abort.
    """

    def write(name, model="llama", tokens=(*SPECIALS, *WORDS), keys=()):
        keys = [("add_string", "tokenizer.ggml.model", model), *keys]
        return str(gguf_factory.model(name, tokens=list(tokens), keys=keys))

    pair = [write("target.gguf"), write("draft.gguf", **change)]
    for one, other in (pair, pair[::-1]):
        target, draft = describe(one, other), describe(other)
        assert compatibility(target, draft)["reason"] == reason
        assert compatibility(target, draft, target["comparison"])["reason"] == reason


def test_a_family_padded_to_two_sizes():
    """Qwen2.5: 152064 rows in the large models, 151936 in the small ones, 151665 tokens in both."""
    sizes = {"add_bos_token": False, "bos_token_id": 151643, "eos_token_id": 151645, "padding_from": 151665}
    sizes["unreachable_from"] = 151665
    large = tokenizer(**sizes, n_tokens=152064, digest="l", tail_digests=["s" * 16, *["x" * 16] * 127])
    small = tokenizer(**sizes, n_tokens=151936, digest="s" * 64)
    assert compatibility(large, small)["compatible"]
    assert compatibility(small, large)["compatible"]
    used = {**large["tokenizer"], "padding_from": 152000}
    message = compatibility({"tokenizer": used}, small)["message"]
    assert "152064 tokens and the draft 151936, and those of the target from 151936 on are in use" in message
