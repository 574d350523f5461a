# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.server.lossless import differences


def said(text, tokens=None, unsent=0):
    return {"text": text, "tokens": tokens, "tokens_unsent": unsent}


@pytest.mark.parametrize(
    ("with_it", "without", "words"),
    [
        ("same", "same", None),
        ("", "", None),
        ("a cat sat", "a cow sat", "part at character 4: 'at sat' with speculation, 'ow sat' without."),
        ("a cat", "a cat sat", "part at character 6: the end with speculation, ' sat' without."),
        ("ä" + "x" * 50, "ä" + "y" * 50, f"character 2: '{'x' * 40}...' with speculation, '{'y' * 40}...' without."),
        ("\n", "", "character 1: '\\n' with speculation, the end without."),
        (None, "x", "there is no text with speculation to compare."),
        ("x", None, "there is no text without speculation to compare."),
        (None, None, "there is no text with speculation to compare."),
    ],
)
def test_where_two_texts_part(with_it, without, words):
    prompts = ["Once " * 30, "same"]
    found = differences(prompts, [said(with_it), said("1")], [said(without), said("1")], 16)
    if words is None:
        assert found == []
    else:
        (sentence,) = found
        assert sentence.startswith("After the prompt 'Once Once ")
        assert sentence.endswith(words)


def test_as_many_texts_as_prompts():
    with pytest.raises(ValueError, match="2 prompts have 2 and 1 completions"):
        differences(["a", "b"], [said("a"), said("b")], [said("a")])


# Of a build of spring 2026: a draft of 8 tokens at most, 32 asked for.
EARLY, WHOLE = said("a place where the", 29, 3), said("a place where the boundaries of what", 32, 0)


@pytest.mark.parametrize(
    ("one", "other", "draft_max", "same"),
    [
        (EARLY, WHOLE, 8, True),
        (EARLY, WHOLE, 3, True),
        # the text without may have come to its own end before the limit
        (EARLY, {**WHOLE, "tokens": 30}, 8, True),
        # more is gone than a round has
        (EARLY, WHOLE, 2, False),
        (EARLY, WHOLE, 0, False),
        # than the server says
        ({**EARLY, "tokens_unsent": 2}, WHOLE, 8, False),
        ({**EARLY, "tokens_unsent": 0}, WHOLE, 8, False),
        ({"text": EARLY["text"]}, WHOLE, 8, False),
        ({**EARLY, "tokens": 1}, WHOLE, 8, False),
        # other words, and none
        ({**EARLY, "text": "a place where a"}, WHOLE, 8, False),
        ({**EARLY, "text": ""}, WHOLE, 8, False),
        ({**EARLY, "text": None}, WHOLE, 8, False),
        # as many tokens, so that nothing is missing, or more
        ({**EARLY, "tokens": 32}, WHOLE, 8, False),
        (WHOLE, EARLY, 8, False),
    ],
)
def test_a_text_may_end_as_early_as_its_server_says(one, other, draft_max, same):
    assert (differences(["p"], [one], [other], draft_max) == []) == same
