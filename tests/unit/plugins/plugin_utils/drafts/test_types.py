# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which type of speculation a file is for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import (
    WORDS,
    Speculation,
    asked_fallback,
    asked_type,
    own_type,
)
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError

HELP = Path(__file__).parents[2] / "module_utils" / "fixtures" / "llama_server_help.txt"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("llama", "draft-simple"),
        ("draft", "draft-simple"),
        ("eagle3", "draft-eagle3"),
        ("dflash", "draft-dflash"),
        ("dspark", "draft-dspark"),
        ("glm4moe-mtp", "draft-mtp"),
        ("gemma4-assistant", "draft-mtp"),
        # llama.cpp itself takes these two for MTP files, as their last block is a NextN layer
        ("glm4moe", "draft-simple"),
        ("qwen35", "draft-simple"),
    ],
)
def test_what_a_file_is_for(files, kind, expected):
    assert own_type(files(kind)) == expected


def test_a_markov_head_makes_it_dspark(files):
    assert own_type(files("dflash", tensors={"telling": ["markov_w1.weight"]})) == "draft-dspark"
    # of a file that an older gguf_info read, it is not known
    assert own_type(files("dspark", tensors={"telling": None})) == "draft-dflash"


def test_the_words_are_those_of_the_server():
    """Its own help lists them."""
    listed = re.search(r"--spec-type +([a-z0-9,-]+)", HELP.read_text()).group(1).split(",")
    assert sorted(WORDS) == sorted([*listed, "auto"])


@pytest.mark.parametrize(
    ("word", "way_out"),
    [
        ("eagle3", "today's name is draft-eagle3"),
        ("draft", "today's name is draft-simple"),
        ("mtp", "today's name is draft-mtp"),
        ("ngram_mod", "today's name is ngram-mod"),
        ("medusa", "draft-simple, draft-eagle3, draft-mtp, draft-dflash, draft-dspark, ngram-simple"),
        ("ngram-mod,draft-simple", "it must be one of auto, none"),
        ("", "it must be one of"),
    ],
)
def test_a_word_that_is_none(word, way_out):
    with pytest.raises(PoolError, match=re.escape(way_out)) as error:
        asked_type(word)
    assert repr(word) in str(error.value)


def test_a_fallback_that_is_none():
    assert asked_fallback("ngram-mod") == "ngram-mod"
    with pytest.raises(PoolError, match="draft_fallback is 'ngram-cache': it must be one of none, ngram-mod"):
        asked_fallback("ngram-cache")


def test_mtp_of_the_target():
    assert Speculation("draft-mtp", 3, own_file=False).mtp_of_target
    assert not Speculation("draft-mtp", 3, own_file=True).mtp_of_target
    assert not Speculation("ngram-mod", 64, own_file=False).mtp_of_target
