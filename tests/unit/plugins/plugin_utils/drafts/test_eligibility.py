# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether tokens may be proposed and by what, before any device is chosen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import QUIET, REASONS, eligible, fallback
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import NGRAMS, WORDS, Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import Dialect

TODAY = Dialect("llama-server")
WAYS_OUT = re.compile(r": .*\b(set|use|take|install|lower|get|convert|leave|name|put|draft|do)\b|; lower ")


class Lacking(Dialect):
    """A build that does not know some types."""

    def lacks(self, type):
        return ("--spec-type " + type,)


@pytest.fixture
def judge(ask, files):
    """The verdict and what proposes tokens, for kinds of files by name; ``target`` and ``draft`` are kinds or files."""

    def make(target="llama", draft="draft", dialect=TODAY, **options):
        given = {"model": target, "draft": draft}
        found = {name: files(gguf) if isinstance(gguf, str) else gguf for name, gguf in given.items()}
        request = ask([4000], [4000], **{**found, **options})
        verdict, speculation = eligible(request, dialect)
        assert verdict.reason in REASONS
        assert verdict.enabled is (speculation is not None and speculation.type not in NGRAMS)
        # every no has a way out, which is something to do
        assert verdict.reason in QUIET or WAYS_OUT.search(verdict.message), verdict.message
        return verdict, speculation, fallback(request, dialect)

    return make


@pytest.mark.parametrize(
    ("target", "draft", "options", "expected"),
    [
        ("llama", "draft", {}, Speculation("draft-simple", 16, True)),
        ("llama", "draft", {"draft_max": 3}, Speculation("draft-simple", 3, True)),
        ("llama", "eagle3", {"draft_max": 5}, Speculation("draft-eagle3", 5, True)),
        # 16 tokens in a block, of which the first is known
        ("llama", "dflash", {}, Speculation("draft-dflash", 15, True, beside_output=True)),
        ("llama", "dflash", {"draft_max": 7}, Speculation("draft-dflash", 7, True, beside_output=True)),
        ("llama", "dspark", {"draft_max": 40}, Speculation("draft-dspark", 16, True, beside_output=True)),
        ("llama", "dspark", {"draft_max": 4, "draft_min": 2}, Speculation("draft-dspark", 4, True, beside_output=True)),
        ("glm4moe", "glm4moe-mtp", {}, Speculation("draft-mtp", 16, True)),
        ("gemma4", "gemma4-assistant", {}, Speculation("draft-mtp", 16, True, 0, True, True)),
        # a whole model is a plain draft, unless its layers are asked for
        ("glm4moe", "glm4moe", {}, Speculation("draft-simple", 16, True)),
        ("glm4moe", "glm4moe", {"speculation_type": "draft-mtp"}, Speculation("draft-mtp", 16, True)),
        # MTP of the target, and a target that can step back
        ("glm4moe", None, {"speculation_type": "draft-mtp"}, Speculation("draft-mtp", 16, False)),
        ("qwen35", None, {"speculation_type": "draft-mtp", "draft_max": 2}, Speculation("draft-mtp", 2, False, 2)),
        ("qwen35", "eagle3", {"draft_max": 4}, Speculation("draft-eagle3", 4, True, 4)),
        ("qwen35", "dspark", {"draft_max": 40}, Speculation("draft-dspark", 16, True, 16, True)),
        # named outright: with a copy of the whole state in every round
        ("qwen35", "draft", {"speculation_type": "draft-simple"}, Speculation("draft-simple", 16, True)),
        ("llama", "eagle3", {"speculation_type": "draft-eagle3"}, Speculation("draft-eagle3", 16, True)),
    ],
)
def test_what_proposes_tokens(judge, files, target, draft, options, expected):
    if draft in ("dflash", "dspark", "eagle3"):
        keys = {"target_layers": [2, 5, 7]} if draft == "eagle3" else {"target_layers": [2, 7]}
        draft = files(draft, **keys, tensors={"output_bytes": 0 if expected.beside_output else 1})
    verdict, speculation, _fallback = judge(target, draft, **options)
    assert speculation == expected, verdict.message


def test_several_heads_propose_a_token_each(judge, files):
    target = files("glm4moe", arch="step35", nextn_predict_layers=3)
    _verdict, speculation, _fallback = judge(target, None, speculation_type="draft-mtp")
    assert speculation == Speculation("draft-mtp", 3, False)
    verdict, _speculation, _fallback = judge(target, None, speculation_type="draft-mtp", draft_min=4)
    assert (verdict.reason, verdict.message[-15:]) == ("unsupported_build", ": lower it to 3")


@pytest.mark.parametrize(
    ("tensors", "beside"),
    [
        ({"output_bytes": 1}, False),
        ({"output_bytes": 0, "token_embd_bytes": 1}, False),  # a DFlash draft takes its embedding for both
        ({"output_bytes": 0, "token_embd_bytes": 0}, True),
    ],
)
def test_a_head_that_uses_the_output_of_the_target(judge, files, tensors, beside):
    _verdict, speculation, _fallback = judge("llama", files("dflash", tensors=tensors))
    assert speculation.beside_output is beside
    # an EAGLE-3 draft does not
    eagle3 = files("eagle3", tensors=tensors)
    assert judge("llama", eagle3)[1].beside_output is not bool(tensors["output_bytes"])


@pytest.mark.parametrize(("kind", "n_max"), NGRAMS.items())
def test_ngrams_are_asked_for(judge, kind, n_max):
    verdict, speculation, instead = judge("llama", None, speculation_type=kind, draft_fallback="ngram-mod")
    assert (verdict.reason, speculation, instead) == ("not_configured", Speculation(kind, n_max, False), None)
    assert verdict.message == f"{kind} proposes tokens from the text itself: no draft model is needed"
    verdict, _speculation, _instead = judge("llama", "draft", speculation_type=kind)
    assert verdict.message.endswith("and /models/draft.gguf is not used")


@pytest.mark.parametrize(
    ("target", "draft", "options", "reason", "text"),
    [
        ("llama", None, {}, "not_configured", "no draft model is configured"),
        ("glm4moe", None, {}, "not_configured", "no draft model is configured"),
        ("glm4moe", None, {"speculation_type": "none"}, "not_configured", "relay_speculation_type is none"),
        ("llama", "draft", {"speculation_type": "none"}, "not_configured", "relay_speculation_type is none"),
        ("llama", "draft", {"draft_max": 0}, "not_configured", "relay_draft_max is 0"),
        ("llama", None, {"draft_path": "/models/x.gguf"}, "not_found", "/models/x.gguf is no file"),
        ("llama", None, {"speculation_type": "draft-eagle3"}, "not_found", "relay_draft_model is empty"),
        (
            "llama",
            None,
            {"speculation_type": "draft-mtp", "draft_path": "/models/x.gguf"},
            "not_found",
            "/models/x.gguf is no file",
        ),
        ("llama", None, {"speculation_type": "draft-mtp"}, "unsupported_build", "has no NextN layers"),
        ("llama", "draft", {"speculation_type": "draft-mtp"}, "unsupported_build", "not one for draft-mtp"),
        ("llama", "draft", {"speculation_type": "draft-eagle3"}, "unsupported_build", "is a plain model of archit"),
        ("llama", "eagle3", {"speculation_type": "draft-simple"}, "unsupported_build", "is an EAGLE-3 draft"),
        (
            "glm4moe",
            "draft",
            {"speculation_type": "draft-mtp"},
            "unsupported_build",
            "or relay_draft_model to nothing to draft with the target's own layers",
        ),
        ("llama", "glm4moe-mtp", {}, "unsupported_build", "drafts for targets of architecture glm4moe"),
        ("qwen35", "draft", {}, "hybrid_target", "qwen35 keeps a recurrent state"),
        ("jamba", "draft", {}, "hybrid_target", "do without a draft"),
        ("jamba", "eagle3", {}, "hybrid_target", "or set relay_speculation_type to draft-eagle3"),
        (
            "llama",
            "draft",
            {"measured": {"tokens_per_second": 7.9, "with_draft_tokens_per_second": 3.5}},
            "measured_slower",
            "measured 3.5 tokens/s with the draft, 7.9 without: 1.05 times is wanted",
        ),
        (
            "llama",
            "draft",
            {"comparison": {"compatible": False, "reason": "bos"}},
            "tokenizer_mismatch",
            "the vocabularies differ (bos): use a draft of the same family",
        ),
        # llama.cpp does not compare these for heads: one token more in use, and the server aborts
        ("llama", "eagle3", {"draft_tokens": 32001}, "tokenizer_mismatch", "32000 tokens and the draft 32001"),
        ("llama", "eagle3", {"draft_tokens": 31999}, "tokenizer_mismatch", "of the target from 31999 on are in use"),
    ],
)
def test_dropped(judge, files, target, draft, options, reason, text):
    options = dict(options)
    if "draft_tokens" in options:
        draft = files(draft, tokenizer={"n_tokens": options.pop("draft_tokens")})
    verdict, speculation, _fallback = judge(target, draft, **options)
    assert (verdict.reason, speculation) == (reason, None), verdict.message
    assert text in verdict.message


def test_how_a_text_begins_is_not_the_business_of_a_head(judge, files):
    begins = {"add_bos_token": True, "bos_token_id": 1}
    assert judge("llama", files("eagle3", tokenizer=begins))[0].enabled
    assert judge("llama", files("draft", tokenizer=begins))[0].reason == "tokenizer_mismatch"


def test_a_measurement_that_pays(judge):
    measured = {"tokens_per_second": 7.9, "with_draft_tokens_per_second": 20}
    assert judge(measured=measured)[0].enabled


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"role": "adapter"}, "is a GGUF of role adapter, not a model"),
        ({"role": "mmproj"}, "role mmproj"),
        ({"missing": ["d-00002-of-00002.gguf"]}, "lacks its parts d-00002-of-00002.gguf"),
        ({"metadata": {}}, "/models/draft.gguf"),
    ],
)
def test_what_is_no_draft(judge, files, change, text):
    for kind in ("auto", "draft-simple", "draft-eagle3"):
        verdict, _speculation, _fallback = judge("llama", {**files("draft"), **change}, speculation_type=kind)
        if kind != "draft-eagle3" or "metadata" not in change:
            assert verdict.reason == "unsized"
            assert text in verdict.message


def test_every_reason_has_its_row_in_the_docs():
    """The table of reasons, their ways out, and the types."""
    text = (Path(__file__).parents[5] / "docs" / "speculation.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+)` \| .+ \| (?:.+ )?\|$", text, re.M)
    assert [name for name in rows if name in REASONS] == list(REASONS)
    types = re.split(r"\n## ", text)[2]
    assert types.startswith("Types")
    assert not [word for word in WORDS[2:] if f"`{word}`" not in types]


def test_a_word_that_is_none_stops_the_plan(judge):
    with pytest.raises(PoolError, match="speculation_type is 'eagle3': today's name is draft-eagle3"):
        judge(speculation_type="eagle3")
    with pytest.raises(PoolError, match="draft_fallback is 'yes'"):
        judge(draft_fallback="yes")


@pytest.mark.parametrize("kind", ["auto", "draft-simple"])
def test_the_state_of_a_hybrid_target_is_counted(judge, kind):
    """Six of eight layers keep 3 * (2048 + 2 * 8 * 128) + 128 * 2048 floats: 6 * 274432 * 4 bytes are 6.28 MiB."""
    for parallel, per in ((1, ""), (2, " for each of 2 slots")):
        verdict, _speculation, _fallback = judge("qwen35", "draft", speculation_type=kind, parallel=parallel)
        assert f"7 MiB{per}" in verdict.message
    verdict, speculation, _fallback = judge("qwen35", None, speculation_type="ngram-mod")
    assert "saves the target's recurrent state, 7 MiB" in verdict.message
    assert speculation == Speculation("ngram-mod", 64, False)
    assert "state" not in judge("qwen35", None, speculation_type="draft-mtp")[0].message


def test_a_hybrid_target_is_told_of_its_own_layers(judge, files):
    assert "relay_speculation_type draft-mtp, no relay_draft_model" in judge("qwen35", "draft")[0].message
    without = files("qwen35", nextn_predict_layers=0, n_layer=8)
    assert "do without a draft" in judge(without, "draft")[0].message


@pytest.mark.parametrize(
    ("draft", "text"),
    [
        # "failed to remove sequence", abort
        ({"arch": "mamba"}, "keeps a recurrent state (mamba), and for a target without one llama-server aborts"),
        ({"arch": "lfm2"}, "keeps a recurrent state (lfm2)"),
        # exit 1
        ({"arch": "tomorrow"}, "llama.cpp b11434 has no architecture tomorrow"),
        # abort
        ({"arch": "llada"}, "keeps no cache for architecture llada"),
    ],
)
def test_a_model_that_cannot_draft(judge, world, draft, text):
    verdict, _speculation, _fallback = judge("llama", world.gguf("/models/draft.gguf", ssm__state_size=16, **draft))
    assert verdict.reason == "unsupported_build"
    assert text in verdict.message


@pytest.mark.parametrize("kind", ["draft", "eagle3"])
def test_a_pre_tokenizer_that_the_build_does_not_know(judge, files, kind):
    """Exit 1 ("unknown pre-tokenizer type") with BPE only, the one type that has any."""

    def verdict(pre, target="qwen2", other="BPE", **options):
        given = {"pre": pre, "type": other}
        return judge(files("llama", tokenizer={"pre": target, "type": other}), files(kind, tokenizer=given), **options)[
            0
        ]

    found = verdict("tomorrow")
    assert found.reason == "unsupported_build"
    assert found.message.endswith(
        ".gguf has the pre-tokenizer 'tomorrow', which llama.cpp b11434 does not know, and llama-server ends while it "
        "loads it: use another draft"
    )
    assert verdict("tomorrow", llama={"build": 11434}).reason == "unsupported_build"
    # a newer build may have learned it, and one that loads the target knows the target's
    assert verdict("tomorrow", llama={"build": 11435}).enabled
    assert verdict("tomorrow", target="tomorrow").enabled
    for pre in ("llama-bpe", "default", "", None):
        assert verdict(pre).enabled
    assert verdict("tomorrow", other="SPM").enabled


@pytest.mark.parametrize("kind", ["draft", "eagle3"])
def test_a_vocabulary_that_llama_cpp_does_not_load(judge, files, kind):
    """GGML_ASSERT(id_to_token.size() == token_to_id.size()), whatever it is to draft as."""
    twice = files(kind, tokenizer={"fault": "has a text that occurs twice among its tokens"})
    for comparison in (None, {"compatible": True}):
        verdict = judge("llama", twice, comparison=comparison)[0]
        assert verdict.reason == "unsupported_build"
        assert "gguf has a text that occurs twice among its tokens, and llama-server ends" in verdict.message


def test_a_hybrid_draft_for_a_hybrid_target(judge, files):
    """llama-server puts the states of both back."""
    assert judge("qwen35", files("qwen35", path="/models/small.gguf"), speculation_type="draft-simple")[0].enabled


def test_a_target_without_a_cache(judge, world):
    for options in ({}, {"speculation_type": "ngram-mod"}, {"draft_fallback": "ngram-mod"}):
        verdict, _speculation, instead = judge(world.gguf(arch="bert"), "draft", **options)
        assert (verdict.reason, instead) == ("unsupported_build", None)
        assert "keeps no cache for architecture bert" in verdict.message
    assert judge("llama", world.gguf("/models/draft.gguf", arch="bert"))[0].reason == "unsupported_build"


def test_a_draft_that_was_trained_on_less(judge, files, world):
    """llama-server only warns, and the draft guesses on; one with a table of positions aborts at the first beyond."""
    short = files("draft", context_length=2048)
    assert "trained on 2048 tokens and a slot has 4096" in judge("llama", short)[0].message
    assert "trained" not in judge("llama", short, ctx_size=4096, parallel=2)[0].message
    # llama-server gives no slot more than what the target was trained on
    assert "trained" not in judge(files("llama", context_length=2048), short)[0].message
    table = files("draft", arch="gpt2", context_length=1024, tensors={"telling": ["position_embd.weight"]})
    verdict, _speculation, _fallback = judge("llama", table)
    assert verdict.reason == "unsupported_build"
    assert verdict.message.endswith(
        "has 1024 positions and a slot 4096, and llama-server aborts at the first beyond: "
        "set relay_ctx_size to at most 1024, or use a draft with more"
    )
    assert judge("llama", table, ctx_size=1024)[0].enabled
    assert judge("llama", table, ctx_size=2048, parallel=2)[0].enabled
    tiny = files("draft", arch="gpt2", context_length=100, tensors={"telling": ["position_embd.weight"]})
    assert judge("llama", tiny)[0].message.endswith("beyond: use a draft with more")


def test_a_build_that_cannot(judge):
    lacking = Lacking("llama-server 0.1 (build 5000)")
    for options in ({}, {"draft": "eagle3"}, {"draft": None, "speculation_type": "ngram-mod"}):
        verdict, speculation, instead = judge(dialect=lacking, draft_fallback="ngram-mod", **options)
        assert (verdict.reason, speculation, instead) == ("unsupported_build", None, None)
        assert re.match(r"llama-server 0\.1 \(build 5000\) does not know --spec-type \S+, so", verdict.message)
    few = Dialect("old", draft_optional_missing=("--spec-draft-n-min", "--spec-draft-p-min"))
    assert judge(dialect=few)[0].enabled
    verdict, _speculation, _fallback = judge(dialect=few, draft_p_min=0.5)
    assert verdict.message == "old does not know --spec-draft-p-min: set relay_draft_min, relay_draft_p_min to 0"


def test_a_newer_build_may_have_learned_an_architecture(judge, world):
    target = world.gguf(arch="qwen2")
    assert judge(target, "eagle3")[0].reason == "unsupported_build"
    assert judge(target, "eagle3", llama={"build": 11435})[0].enabled


@pytest.mark.parametrize(
    ("target", "draft", "options", "falls"),
    [
        ("llama", "draft", {"draft_fallback": "ngram-mod"}, True),
        ("llama", None, {"draft_fallback": "ngram-mod", "draft_path": "/models/x.gguf"}, True),
        ("llama", None, {"draft_fallback": "ngram-mod", "speculation_type": "draft-mtp"}, True),
        ("llama", "draft", {}, False),
        # nothing was to draft in the first place
        ("llama", None, {"draft_fallback": "ngram-mod"}, False),
        ("llama", "draft", {"draft_fallback": "ngram-mod", "draft_max": 0}, False),
        ("llama", "draft", {"draft_fallback": "ngram-mod", "speculation_type": "none"}, False),
        # it would copy the state as well
        ("qwen35", "draft", {"draft_fallback": "ngram-mod"}, False),
    ],
)
def test_fallback(judge, target, draft, options, falls):
    _verdict, _speculation, instead = judge(target, draft, **options)
    assert instead == (Speculation("ngram-mod", 64, False) if falls else None)
