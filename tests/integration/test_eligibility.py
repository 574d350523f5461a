# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A draft is called eligible exactly when llama-server drafts with it and lives.

One table of pairs that differ in one thing each. One test asks llama-server what it does with a pair, another what the
plan says of it, with the comparison of both files and by the facts of both alone, as when the files lie on different
machines. The tokens that only one side has are padding that no model emits, or ``loud``: in use.
"""

from __future__ import annotations

import http.client
import signal
import urllib.error
from dataclasses import dataclass

import pytest
from ansible_collections.relay.pool.plugins.filter.draft_compatibility import draft_compatibility
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import describe
from ansible_collections.relay.pool.plugins.module_utils.gguf_source import GgufError
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

from tests.tiny.pairs import (
    BYTE,
    CONTROL,
    NORMAL,
    SIZE,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Tiny,
    bpe,
    called,
    extended,
    file_name,
    gemma4,
    keyed,
    longer,
    padded,
    plamo2,
    renamed,
    retyped,
    rwkv,
    ugm,
    untyped,
    wpm,
    write_tiny,
)
from tests.unit.plugins.plugin_utils.conftest import MIB, World

# What llama-server does with a pair.
DRAFTS, PLAIN = "drafts, and lives", "runs without the draft"
ABORTS, FAILS = "aborts while it drafts", "does not start"
ANY = "any"
WAYS = ("files", "facts")
# Greedy, but for the last one: prompt in tokens that every vocabulary has, further options.
REQUESTS = (([270, 271], {}), ([280, 281, 282], {}), ([290, 261], {}), ([265], {"temperature": 1, "seed": 7}))
TOKENS_EACH = 500


@dataclass(frozen=True)
class Pair:
    """reason: of the refusal, None for a draft that is eligible, ANY for any."""

    target: Tiny
    draft: Tiny
    server: str
    reason: str | None


def key(model, **changes):
    return model.words(keyed, changes)


def text(model, changes):
    return model.words(renamed, changes)


def of(words):
    """A target and a draft with this vocabulary."""
    return T.but(vocabulary=words), D.but(vocabulary=words)


T, D = Tiny(seed=2), Tiny(seed=1)
BPE_T, BPE_D = of(bpe())
WPM_T, WPM_D = of(wpm())
UGM_T, UGM_D = of(ugm())
RWKV_T, RWKV_D = of(rwkv())
LONG_T, LONG_D = of(longer(T.vocabulary, 4000))
WORD = "\u2581w{}"
BOS, EOS, NO_BOS = {"add_bos_token": True}, {"add_eos_token": True}, {"add_bos_token": False}
LAST = {SIZE - 1: "other"}
LOW = {number: f"<other{number}>" for number in range(5)}
TYPES = {290: CONTROL, 291: USER_DEFINED, 292: UNUSED}
WINDOW = {"attention.sliding_window": 32}

PAIRS = {
    # Differences that do not matter
    "same file": Pair(T, T, DRAFTS, None),
    "other scores": Pair(T, key(D, scores=[0.5] * SIZE), DRAFTS, None),
    "other token types": Pair(T, D.words(retyped, TYPES), DRAFTS, None),
    "draft tied": Pair(T, D.but(tied=True), DRAFTS, None),
    "target tied": Pair(T.but(tied=True), D, DRAFTS, None),
    "draft wider and deeper": Pair(T, D.but(n_embd=128, n_layers=5), DRAFTS, None),
    "draft trained on 64 tokens": Pair(T, D.but(keys={"context_length": 64}), DRAFTS, None),
    "draft is a qwen2": Pair(T, D.but(architecture="qwen2"), DRAFTS, None),
    "draft is a gemma": Pair(T, D.but(architecture="gemma", tied=True), DRAFTS, None),
    "draft is a gemma3 with windows": Pair(T, D.but(architecture="gemma3", tied=True, keys=WINDOW), DRAFTS, None),
    # Types of vocabularies
    "BPE": Pair(BPE_T, BPE_D, DRAFTS, None),
    "WPM, 101 is the default bos": Pair(WPM_T, key(WPM_D, bos=101), DRAFTS, None),
    "UGM": Pair(UGM_T, UGM_D, DRAFTS, None),
    "RWKV": Pair(RWKV_T, RWKV_D, DRAFTS, None),
    "PLAMO2": Pair(*of(plamo2()), DRAFTS, None),
    "BPE of gemma4": Pair(*of(gemma4()), DRAFTS, None),
    "SPM, draft BPE": Pair(T, key(BPE_D, bos=1, eos=2), PLAIN, "type"),
    "SPM, draft UGM": Pair(T, UGM_D, PLAIN, "type"),
    "SPM, draft WPM": Pair(T, WPM_D, PLAIN, "type"),
    "SPM, draft none": Pair(T, D.words(called, "none"), PLAIN, "type"),
    "none": Pair(T.words(called, "none"), D.words(called, "none"), FAILS, "type"),
    "none, draft no_vocab": Pair(
        T.words(called, "none"), D.words(called, "no_vocab"), FAILS, "type"
    ),
    "unknown tokenizer": Pair(T, D.words(called, "tomorrow"), FAILS, "type"),
    "no tokenizer": Pair(T, D.but(omit=("tokenizer.ggml.model",)), FAILS, "type"),
    # Sizes: what is more is padding
    "draft +1 padding": Pair(T, padded(D, 1), DRAFTS, None),
    "draft +5 padding": Pair(T, padded(D, 5), DRAFTS, None),
    "draft +127 padding": Pair(T, padded(D, 127), DRAFTS, None),
    "draft +128 padding": Pair(T, padded(D, 128), DRAFTS, None),
    "draft +129 padding": Pair(T, padded(D, 129), PLAIN, "size"),
    "target +1 padding": Pair(padded(T, 1), D, DRAFTS, None),
    "target +5 padding": Pair(padded(T, 5), D, DRAFTS, None),
    "target +127 padding": Pair(padded(T, 127), D, DRAFTS, None),
    "target +128 padding": Pair(padded(T, 128), D, DRAFTS, None),
    "target +129 padding": Pair(padded(T, 129), D, PLAIN, "size"),
    "target +128 padding, BPE as in Qwen2.5": Pair(padded(BPE_T, 128), BPE_D, DRAFTS, None),
    "target +40, draft +100 padding": Pair(padded(T, 40), padded(D, 100), DRAFTS, None),
    "draft +1 padding of 4300": Pair(LONG_T, padded(LONG_D, 1), DRAFTS, None),
    "tied draft +100 padding": Pair(T, padded(D.but(tied=True), 100), DRAFTS, None),
    "draft +5 unused of any name": Pair(T, padded(D, 5, "x{}"), DRAFTS, None),
    "draft +5 dummies typed user-defined": Pair(T, padded(D, 5, "<dummy{:05}>", USER_DEFINED), DRAFTS, None),
    "draft +5 reserved without types": Pair(
        BPE_T.words(untyped), padded(BPE_D, 5, "<|extra_{}|>").words(untyped), DRAFTS, None
    ),
    "target +5 dummies typed user-defined": Pair(padded(T, 5, "<dummy{:05}>", USER_DEFINED), D, ABORTS, "padding"),
    "target +5 dummies typed normal": Pair(padded(T, 5, "<dummy{:05}>", NORMAL), D, DRAFTS, None),
    "target +5 padding without types, BPE": Pair(padded(BPE_T, 5).words(untyped), BPE_D.words(untyped), DRAFTS, None),
    "target +5 padding typed unknown": Pair(padded(T, 5, kind=UNKNOWN), D, ABORTS, "padding"),
    "target +1 unused with a name in letters": Pair(text(padded(T, 1), {SIZE: "ab"}), D, ABORTS, "padding"),
    "draft +1 unused with a name in letters": Pair(T, text(padded(D, 1), {SIZE: "ab"}), DRAFTS, None),
    "target +5 padding, WPM": Pair(padded(WPM_T, 5), WPM_D, DRAFTS, None),
    "target +5 padding, UGM": Pair(padded(UGM_T, 5), UGM_D, ABORTS, "padding"),
    "draft +5 padding, UGM": Pair(UGM_T, padded(UGM_D, 5), DRAFTS, None),
    "target +5 padding, PLAMO2": Pair(padded(of(plamo2())[0], 5), of(plamo2())[1], ABORTS, "padding"),
    "draft +5 padding, PLAMO2": Pair(of(plamo2())[0], padded(of(plamo2())[1], 5), DRAFTS, None),
    "target +5 padding typed control": Pair(padded(T, 5, kind=CONTROL), D, ABORTS, "padding"),
    "target +5 padding, RWKV": Pair(padded(RWKV_T, 5), RWKV_D, ABORTS, "padding"),
    # Sizes: what is more is in use
    "draft +1 in use": Pair(T, extended(D, 1), ABORTS, "padding"),
    "draft +2 in use": Pair(T, extended(D, 2), ABORTS, "padding"),
    "draft +127 in use": Pair(T, extended(D, 127), ABORTS, "padding"),
    "draft +128 in use": Pair(T, extended(D, 128, WORD, NORMAL), ABORTS, "padding"),
    "draft +129 in use": Pair(T, extended(D, 129, WORD, NORMAL), PLAIN, "size"),
    "target +1 in use": Pair(extended(T, 1), D, ABORTS, "padding"),
    "target +2 in use": Pair(extended(T, 2), D, ABORTS, "padding"),
    "target +127 in use": Pair(extended(T, 127), D, ABORTS, "padding"),
    "target +128 in use": Pair(extended(T, 128), D, ABORTS, "padding"),
    "target +129 in use": Pair(extended(T, 129), D, PLAIN, "size"),
    "draft +1 in use, BPE": Pair(BPE_T, extended(BPE_D, 1), ABORTS, "padding"),
    "draft +5 reserved, taken into use": Pair(T, extended(D, 5, "<|reserved_special_token_{}|>"), ABORTS, "padding"),
    "draft +1 bare [PAD]": Pair(T, extended(D, 1, "[PAD]"), ABORTS, "padding"),
    "draft +3 in use, +5 padding": Pair(T, padded(extended(D, 3), 5), ABORTS, "padding"),
    "target +5, the eos among them": Pair(key(extended(T, 5, "[PAD{}]", UNUSED), eos=302), D, ABORTS, "padding"),
    # Tokens
    "token 4 differs": Pair(T, text(D, {4: "<0xZZ>"}), DRAFTS, None),
    "tokens 0 to 4 differ": Pair(T, text(D, LOW), DRAFTS, None),
    "token 5 differs": Pair(T, text(D, {5: "<0xZZ>"}), PLAIN, "token"),
    "token 270 differs": Pair(T, text(D, {270: "ZZ"}), PLAIN, "token"),
    "last token differs": Pair(T, text(D, LAST), PLAIN, "token"),
    "last token differs, draft +5": Pair(T, text(padded(D, 5), LAST), PLAIN, "token"),
    "last token differs, target +128": Pair(padded(T, 128), text(D, LAST), PLAIN, "token"),
    "token 4095 of 4300 differs, draft +1": Pair(LONG_T, text(padded(LONG_D, 1), {4095: "other"}), PLAIN, "token"),
    "token 4200 of 4300 differs": Pair(LONG_T, text(LONG_D, {4200: "other"}), PLAIN, "token"),
    "token 4200 of 4300 differs, draft +1": Pair(
        LONG_T, text(padded(LONG_D, 1), {4200: "other"}), PLAIN, "token"
    ),
    "an empty token": Pair(T, text(D, {290: ""}), PLAIN, "token"),
    "an empty token and its name": Pair(text(T, {290: ""}), text(D, {290: "[EMPTY_290]"}), DRAFTS, None),
    "tokens with a NUL": Pair(text(T, {290: b"zz\0a"}), text(D, {290: b"zz\0b"}), DRAFTS, None),
    "a NUL alone and an empty token": Pair(text(T, {290: b"\0a"}), text(D, {290: ""}), DRAFTS, None),
    "same bytes that are no UTF-8": Pair(text(T, {290: b"\xff\xfe"}), text(D, {290: b"\xff\xfe"}), DRAFTS, None),
    "other bytes that are no UTF-8": Pair(text(T, {290: b"\xff\xfe"}), text(D, {290: b"\xff\xfd"}), PLAIN, "token"),
    "a text twice, once below 5": Pair(T, text(D, {3: "b"}), FAILS, ANY),
    "a text twice in the padding": Pair(T, padded(D, 2, "<pad>"), FAILS, ANY),
    "a text twice above 5": Pair(T, text(D, {291: "\u2581w290"}), FAILS, "token"),
    "an empty token twice": Pair(text(T, {290: "", 291: ""}), text(D, {290: "", 291: ""}), DRAFTS, None),
    "a text twice after its NUL": Pair(
        text(T, {290: b"zz", 291: b"zy"}), text(D, {290: b"zz", 291: b"zz\0b"}), FAILS, "token"
    ),
    "a short byte": Pair(T, text(D, {3: "b0"}), FAILS, ANY),
    "a byte of three characters": Pair(T, text(D, {3: "<0x"}), DRAFTS, None),
    "a byte, WPM": Pair(WPM_T, WPM_D.words(retyped, {290: BYTE}), FAILS, "fault"),
    # What begins a prompt
    "bos differs": Pair(T, key(D, bos=2), PLAIN, "bos"),
    "bos differs, neither added": Pair(key(T, **NO_BOS), key(D, **NO_BOS, bos=7), DRAFTS, None),
    "bos of the draft by default": Pair(T, key(D, bos=None), DRAFTS, None),
    "bos of the draft beyond its tokens": Pair(T, key(D, bos=9999), DRAFTS, None),
    "SPM, draft adds bos outright": Pair(T, key(D, **BOS), DRAFTS, None),
    "SPM, draft adds no bos": Pair(T, key(D, **NO_BOS), PLAIN, "bos"),
    "BPE, bos differs": Pair(BPE_T, key(BPE_D, bos=256), DRAFTS, None),
    "BPE, bos differs, both added": Pair(key(BPE_T, **BOS), key(BPE_D, **BOS, bos=256), PLAIN, "bos"),
    "BPE, draft adds bos": Pair(BPE_T, key(BPE_D, **BOS), PLAIN, "bos"),
    "BPE, draft adds no bos outright": Pair(BPE_T, key(BPE_D, **NO_BOS), DRAFTS, None),
    "BPE, 11 is the default bos": Pair(key(BPE_T, **BOS, bos=11), key(BPE_D, **BOS, bos=None), DRAFTS, None),
    "WPM, bos differs": Pair(WPM_T, key(WPM_D, bos=102), PLAIN, "bos"),
    "RWKV, draft adds bos": Pair(RWKV_T, key(RWKV_D, **BOS), PLAIN, "bos"),
    # Pre-tokenizers
    "pre gpt-2": Pair(BPE_T, key(BPE_D, pre="gpt-2"), DRAFTS, None),
    "pre llama-bpe adds bos": Pair(BPE_T, key(BPE_D, pre="llama-bpe"), PLAIN, "bos"),
    "pre tekken adds bos": Pair(BPE_T, key(BPE_D, pre="tekken"), PLAIN, "bos"),
    "pre llama-bpe, both add bos": Pair(key(BPE_T, **BOS), key(BPE_D, pre="llama-bpe"), DRAFTS, None),
    "pre llama-bpe, told not to": Pair(BPE_T, key(BPE_D, pre="llama-bpe", **NO_BOS), DRAFTS, None),
    "pre of Granite adds bos even so": Pair(
        key(BPE_T, **BOS), key(BPE_D, pre="granite-embed-multi-311m", **NO_BOS), DRAFTS, None
    ),
    "pre glm4 has no default bos": Pair(
        key(BPE_T, **BOS, bos=None), key(BPE_D, **BOS, bos=None, pre="glm4"), PLAIN, "bos"
    ),
    "pre unknown": Pair(BPE_T, key(BPE_D, pre="tomorrow"), FAILS, ANY),
    "pre empty": Pair(BPE_T, key(BPE_D, pre=""), DRAFTS, None),
    "pre unknown, SPM": Pair(T, key(D, pre="tomorrow"), DRAFTS, None),
    # What ends a prompt
    "eos differs": Pair(T, key(D, eos=260), DRAFTS, None),
    "eos added by both": Pair(key(T, **EOS), key(D, **EOS), DRAFTS, None),
    "eos added by the draft": Pair(T, key(D, **EOS), PLAIN, "eos"),
    "eos differs, both added": Pair(key(T, **EOS), key(D, **EOS, eos=7), PLAIN, "eos"),
    "UGM, 1 is the default eos": Pair(UGM_T, key(UGM_D, eos=1), DRAFTS, None),
    "UGM, eos differs": Pair(UGM_T, key(UGM_D, eos=5), PLAIN, "eos"),
    "UGM, draft adds no eos": Pair(UGM_T, key(UGM_D, add_eos_token=False), PLAIN, "eos"),
    # Files that are no draft
    "draft is a bert": Pair(WPM_T, WPM_D.but(architecture="bert"), ABORTS, ANY),
    "draft is a llada": Pair(T, D.but(architecture="llada"), ABORTS, ANY),
    "draft is a mamba": Pair(T, D.but(architecture="mamba"), ABORTS, ANY),
    "draft of an unknown architecture": Pair(T, D.but(architecture="tomorrow"), FAILS, ANY),
    "draft is an image projector": Pair(T, D.but(architecture="clip"), FAILS, ANY),
    "draft is an adapter": Pair(T, D.but(kind="adapter"), FAILS, ANY),
    "draft is a vocabulary": Pair(T, D.but(kind="vocab"), FAILS, ANY),
    "draft cut in its weights": Pair(T, D.but(keep=0.5), FAILS, ANY),
    "draft cut in its header": Pair(T, D.but(keep=0.02), FAILS, ANY),
}  # fmt: skip


@pytest.fixture(scope="module")
def file_of(tmp_path_factory):
    """The file of a model, written once."""
    pytest.importorskip("gguf")
    folder = tmp_path_factory.mktemp("pairs")

    def find(model):
        path = folder / file_name(model)
        return path if path.exists() else write_tiny(model, path)

    return find


@pytest.fixture
def drafting(server, file_of):
    """``with drafting(pair) as running``: a server that was given both files."""

    def run(pair):
        return server(
            [
                "--model", file_of(pair.target), "--spec-draft-model", file_of(pair.draft),
                "--spec-type", "draft-simple", "--spec-draft-n-max", 1, "--spec-draft-device", "none",
                "--ctx-size", 512, "--parallel", 1, "--threads", 1, "--fit", "off", "--cache-ram", 0, "--no-warmup",
            ]
        )  # fmt: skip

    return run


def lone_texts(pair):
    """The texts of some tokens that only one side has."""
    larger, smaller = sorted((pair.target, pair.draft), key=lambda model: -model.n_vocab)
    return "".join(map(str, larger.vocabulary.tokens[smaller.n_vocab :][:3]))


def seen(running, pair):
    """What the server does with the pair, which it has started with."""
    live = running.request("/slots")[0]["speculative"]
    timings = []
    try:
        for prompt, options in REQUESTS if live else REQUESTS[:1]:
            answer = running.complete(prompt, TOKENS_EACH if live else 20, ignore_eos=True, **options)
            timings.append(answer["timings"])
        running.complete(f"a{lone_texts(pair)} b", 8)
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError):
        assert running.process.wait(timeout=30) == -signal.SIGABRT, running.log[-2000:]
        assert live
        return ABORTS
    assert running.request("/health")["status"] == "ok"
    if live:
        assert sum(timing["predicted_n"] for timing in timings) == TOKENS_EACH * len(REQUESTS)
        assert all(timing["draft_n"] > 0 for timing in timings)
        return DRAFTS
    assert "failed to initialize speculative decoding context" in running.log
    assert "draft_n" not in timings[0]
    return PLAIN


@pytest.mark.parametrize("name", PAIRS)
def test_what_llama_server_does(drafting, name):
    pair = PAIRS[name]
    if pair.server == FAILS:
        with pytest.raises(RuntimeError, match=r"did not become ready \(exit code (1|-6)\)"), drafting(pair):
            pass
        return
    with drafting(pair) as running:
        assert seen(running, pair) == pair.server


def verdict(target, draft, way):
    """The reason of the refusal, or None: that of the comparison, else that of the plan."""
    try:
        mine, other = describe(str(target), str(draft)), describe(str(draft))
    except GgufError:
        return "unreadable"
    comparison = mine["comparison"] if way == "files" else None
    found = draft_compatibility(mine, other, comparison)
    if not found["compatible"]:
        return found["reason"]
    plan = make_plan(
        Request(
            model=mine, draft=other, draft_path=str(draft), comparison=comparison, host="node1", workers=(),
            nodes={"node1": World.node(1, ram=700)}, allow_cpu=True, draft_scope="any", draft_device="none",
            ctx_size=512, parallel=1, reserve_bytes=MIB,
        )
    )  # fmt: skip
    return None if plan["draft"]["enabled"] else plan["draft"]["reason"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PAIRS)
def test_the_verdict_is_what_llama_server_does(file_of, name, way):
    pair = PAIRS[name]
    reason = verdict(file_of(pair.target), file_of(pair.draft), way)
    said = "eligible" if reason is None else f"not eligible ({reason})"
    assert (reason is None) == (pair.server == DRAFTS), f"{name}: called {said}, but llama-server {pair.server}"
    assert pair.reason == ANY or reason == pair.reason


@pytest.mark.parametrize(
    "body",
    [{"prompt": [270, SIZE + 2]}, {"prompt": [270], "logit_bias": [[SIZE + 2, 1000]]}],
    ids=["in the prompt", "in logit_bias"],
)
def test_a_client_that_gives_the_number_of_a_padding_token_aborts_the_server(drafting, body):
    """No verdict can tell: such a pair is fit for clients that are trusted, or that send texts. The plan says so."""
    with drafting(PAIRS["target +5 padding"]) as running:
        with pytest.raises((urllib.error.URLError, http.client.HTTPException, ConnectionError)):
            running.request("/completion", {"n_predict": 8, "temperature": 0, **body})
        assert running.process.wait(timeout=30) == -signal.SIGABRT


def test_a_client_that_gives_the_number_of_a_token_that_only_the_draft_has_aborts_nothing(drafting):
    with drafting(PAIRS["draft +5 padding"]) as running:
        with pytest.raises(urllib.error.HTTPError, match="400"):
            running.request("/completion", {"n_predict": 8, "temperature": 0, "prompt": [270, SIZE + 2]})
        assert running.complete([270], 8, logit_bias=[[SIZE + 2, 1000]])["timings"]["predicted_n"] > 0
        assert running.complete([270, 271], 8)["timings"]["draft_n"] > 0
