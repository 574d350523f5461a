# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a draft may be used, before any device is chosen."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import REASONS, compatibility, eligibility
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import Dialect

TODAY = Dialect("llama-server")


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
        ({"digest": "other"}, False, "token"),
    ],
)
def test_vocabulary_rule(fields, compatible, reason):
    verdict = compatibility(tokenizer(), tokenizer(**fields))
    assert (verdict["compatible"], verdict["reason"]) == (compatible, reason)


def test_the_comparison_of_both_files_decides():
    found = {"compatible": False, "reason": "token", "first_difference": "token 270 is 'a' here and 'b' there"}
    assert compatibility(tokenizer(), tokenizer(), found)["message"] == "token 270 is 'a' here and 'b' there"
    assert compatibility(tokenizer(), tokenizer(digest="other"), {"compatible": True})["compatible"]


@pytest.mark.parametrize(
    ("change", "reason", "text"),
    [
        ({}, "enabled", "drafts"),
        ({"draft": None, "path": None}, "not_configured", "no draft model"),
        ({"draft": None}, "not_found", "/models/draft.gguf is no file"),
        ({"target": {"arch": "qwen35"}}, "hybrid_target", "qwen35 keeps a recurrent state"),
        ({"draft": {"embedding_length": None}}, "unsized", "embedding_length"),
        ({"role": "draft_head"}, "unsized", "draft_head"),
        ({"comparison": {"compatible": False, "reason": "bos"}}, "tokenizer_mismatch", "bos"),
        (
            {"dialect": Dialect("old", draft_missing=("--spec-draft-device",))},
            "unsupported_build",
            "--spec-draft-device",
        ),
        (
            {"measured": {"tokens_per_second": 7.9, "with_draft_tokens_per_second": 3.5}},
            "measured_slower",
            "3.5 tokens/s",
        ),
        ({"measured": {"tokens_per_second": 7.9, "with_draft_tokens_per_second": 20}}, "enabled", "drafts"),
    ],
)
def test_eligibility(world, change, reason, text):
    draft = change.get("draft", {})
    if draft is not None:
        draft = {**world.gguf("/models/draft.gguf", **draft), "role": change.get("role", "model")}
    verdict = eligibility(
        world.gguf(**change.get("target", {})),
        draft,
        change.get("path", "/models/draft.gguf"),
        change.get("comparison"),
        change.get("dialect", TODAY),
        change.get("measured"),
    )
    assert (verdict.reason, verdict.reason in REASONS) == (reason, True)
    assert text in verdict.message
