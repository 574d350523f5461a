# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.server.lossless import differences


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
    found = differences(prompts, [with_it, "1"], [without, "1"])
    if words is None:
        assert found == []
    else:
        (sentence,) = found
        assert sentence.startswith("After the prompt 'Once Once ")
        assert sentence.endswith(words)


def test_as_many_texts_as_prompts():
    with pytest.raises(ValueError, match="2 prompts have 2 and 1 completions"):
        differences(["a", "b"], ["a", "b"], ["a"])
