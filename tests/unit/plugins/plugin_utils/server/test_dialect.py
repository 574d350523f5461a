# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flags by binary."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.server.command_line import llama_server_args
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import (
    DRAFT_FLAGS,
    NGRAM_LENGTHS,
    OPTIONAL,
    REQUIRED,
    REQUIRED_SHARDED,
    TYPES,
    Dialect,
    dialect,
)

from tests.builds import BUILDS, MARCH, MAY, facts_of
from tests.builds import TODAY as B11434

TODAY = [
    *REQUIRED,
    *REQUIRED_SHARDED,
    *OPTIONAL,
    *DRAFT_FLAGS,
    "--spec-draft-n-min",
    "--spec-draft-p-min",
    "--spec-type",
    *NGRAM_LENGTHS.values(),
]


def llama(flags, **fields):
    facts = {
        "version": "1.2",
        "build": 9,
        "backends": ["CPU", "RPC"],
        "spec_types": ["none", *TYPES],
        "flags": flags,
    }
    return {**facts, **fields}


def test_no_facts_mean_today():
    assert dialect(None).decisions(*TYPES) == dialect(llama(TODAY)).decisions(*TYPES)


def test_old_spelling():
    old = [flag for flag in TODAY if not flag.startswith("--spec")]
    old += ["-md", "--draft-max", "--draft-min", "-ngld", "--draft-p-min", "-devd"]
    found = dialect(llama(old, spec_types=[]))
    assert found.draft_missing == ()
    assert found.spec_type is None
    assert found.spelling["--spec-draft-n-max"] == "--draft-max"
    assert found.spelling["--spec-draft-device"] == "-devd"


@pytest.mark.parametrize(
    ("without", "fields", "missing"),
    [
        ("--spec-draft-device", {}, ("--spec-draft-device",)),
        # values that could not be read, or name other drafts only
        (None, {"spec_types": []}, ("--spec-type draft-simple",)),
        (None, {"spec_types": ["none", "draft-mtp"]}, ("--spec-type draft-simple",)),
    ],
)
def test_a_draft_that_cannot_be_pinned_or_named_is_unsupported(without, fields, missing):
    found = dialect(llama([flag for flag in TODAY if flag != without], **fields))
    assert found.draft_missing == found.lacks("draft-simple") == missing


def test_a_draft_runs_by_its_model_alone_where_all_types_are_n_grams():
    found = dialect(llama(TODAY, spec_types=["none", "ngram-mod"]))
    assert (found.lacks("draft-simple"), found.type_name("draft-simple")) == ((), None)
    assert found.lacks("draft-mtp") == ("--spec-type draft-mtp",)
    assert (found.lacks("ngram-mod"), found.lacks("ngram-cache")) == ((), ("--spec-type ngram-cache",))


def test_n_grams_need_no_flag_of_a_draft():
    found = dialect(llama([flag for flag in TODAY if flag != "--spec-draft-device"]))
    assert (found.lacks("ngram-mod"), found.lacks("draft-mtp")) == ((), ("--spec-draft-device",))


@pytest.mark.parametrize("type", sorted(TYPES))
def test_without_facts_every_type_is_there(type):
    assert (Dialect("today").lacks(type), dialect(None).type_name(type)) == ((), type)


def test_an_old_name_of_the_type():
    found = dialect(llama(TODAY, spec_types=["draft", "mtp"]))
    assert (found.spec_type, found.type_name("draft-mtp")) == ("draft", "mtp")
    assert llama_server_args(found.worded({"draft": {"type": "mtp", "n_max": 3, "scope": "any"}}, 10))[-4:] == [
        "--spec-draft-n-max", "3", "--spec-type", "mtp",
    ]  # fmt: skip


def test_unknown_optional_flags_are_not_written():
    assert not dialect(llama([flag for flag in TODAY if flag != "--fit"])).knows("--fit")


@pytest.mark.parametrize(
    ("facts", "sharded", "text"),
    [
        (llama([flag for flag in TODAY if flag != "--jinja"]), False, r"1\.2 \(build 9\) does not know --jinja"),
        (llama([flag for flag in TODAY if flag != "--tensor-split"]), True, "does not know --tensor-split"),
        (llama(TODAY, backends=["CPU", "CUDA"]), True, "without RPC"),
        (llama(TODAY, backends=[]), True, "without RPC"),
    ],
)
def test_a_binary_that_cannot_run_the_plan(facts, sharded, text):
    with pytest.raises(PoolError, match=text):
        dialect(facts).check(sharded)


def test_what_the_user_asks_for_must_be_known():
    facts = llama([flag for flag in TODAY if flag != "--api-key-file"])
    dialect(facts).check(False)
    with pytest.raises(PoolError, match="does not know --api-key-file"):
        dialect(facts).check(False, ["--threads", "--api-key-file"])


def test_a_build_without_rpc_is_called_that():
    with pytest.raises(PoolError, match="without RPC"):
        dialect(llama([flag for flag in TODAY if flag != "--rpc"], backends=["CPU"])).check(True)


@pytest.mark.parametrize("facts", [None, {}, {"build": 0, "flags": None}, llama([])])
def test_flags_that_could_not_be_read_are_assumed(facts):
    assert dialect(facts).assumed
    assert not dialect(llama(TODAY)).assumed


def test_a_replica_needs_no_rpc():
    dialect(llama(TODAY, backends=["CPU"])).check(False)
    dialect(llama(TODAY, backends=[], rpc_protocol="7.0")).check(True)


def test_only_the_speculation_that_is_asked_for_decides():
    today = dialect(llama(TODAY))
    older = dialect(llama([flag for flag in TODAY if "ngram" not in flag], spec_types=["none", "draft-simple"]))
    assert older.decisions() == today.decisions()
    assert older.decisions("draft-simple") == today.decisions("draft-simple")
    for types in (("ngram-mod",), ("draft-mtp",), ("draft-simple", "ngram-mod")):
        assert older.decisions(*types) != today.decisions(*types)
    assert older.decisions("ngram-mod")["draft_missing"] == {"ngram-mod": ["--spec-type ngram-mod"]}


def test_the_words_for_drafts_decide_nothing_without_one():
    """Only what a plan without speculation is made with: builds that differ in more give other plans."""
    facts = facts_of(B11434)
    plain = [flag for flag in facts["flags"] if not flag.startswith(("--spec", "--draft", "-md", "-devd", "-ngld"))]
    today, bare = dialect(facts), dialect({**facts, "flags": plain, "spec_types": [], "rpc_reuses_graphs": True})
    bare = dataclasses.replace(bare, rpc_draft_crash="it ends", p_min=0.75)
    assert today.decisions() == bare.decisions()
    for type in ("draft-simple", "ngram-mod"):
        assert today.decisions(type) != bare.decisions(type)
    crash = dataclasses.replace(today, rpc_draft_crash="it ends", p_min=0.75)
    assert crash.decisions("ngram-mod") == today.decisions("ngram-mod")
    for changed in ({"rpc_draft_crash": "it ends"}, {"p_min": 0.75}):
        assert dataclasses.replace(today, **changed).decisions("draft-mtp") != today.decisions("draft-mtp")


# The draft's part of the command line of each build: all a plan may have, for a draft on the host's CPU.
DRAFT = {"model": "d.gguf", "n_max": 16, "n_min": 2, "gpu_layers": 99, "device": "none"}
BY_BUILD = {
    B11434: (
        "--spec-draft-model d.gguf --spec-draft-n-max 16 --spec-draft-n-min 2 --spec-draft-ngl 99 "
        "--spec-draft-device none --spec-type draft-simple"
    ),
    # what p_min 0.0 means today has to be said: these builds take 0.75
    MAY: (
        "--spec-draft-model d.gguf --spec-draft-n-max 16 --spec-draft-n-min 2 --spec-draft-ngl 99 "
        "--spec-draft-p-min 0.0 --spec-draft-device none"
    ),
    MARCH: (
        "--model-draft d.gguf --draft-max 16 --draft-min 2 --n-gpu-layers-draft 99 --draft-p-min 0.0 "
        "--device-draft none"
    ),
}


def written(build, **options):
    found = dialect(facts_of(build))
    draft = options.pop("draft", None)
    if draft:
        type = draft.pop("type", "draft-simple")
        options["draft"] = {**draft, "type": found.type_name(type), "scope": "any"}
    # --cont-batching and --jinja are always there.
    return llama_server_args(found.worded(options, 48))[2:]


@pytest.mark.parametrize("build", BUILDS)
def test_a_draft_by_build(build):
    assert written(build, draft=dict(DRAFT)) == BY_BUILD[build].split()
    assert dialect(facts_of(build)).lacks("draft-simple") == ()


@pytest.mark.parametrize("build", BUILDS)
def test_a_wish_for_p_min_is_written_in_every_build(build):
    words = written(build, draft={**DRAFT, "p_min": 0.5})
    flag = "--draft-p-min" if build == MARCH else "--spec-draft-p-min"
    assert words[words.index(flag) + 1] == "0.5"


@pytest.mark.parametrize(
    ("build", "type", "n_max", "words"),
    [
        (B11434, "ngram-mod", 64, "--spec-ngram-mod-n-max 64 --spec-type ngram-mod"),
        (MAY, "ngram-mod", 64, "--spec-ngram-mod-n-max 64 --spec-type ngram-mod"),
        (MARCH, "ngram-mod", 64, "--draft-max 64 --spec-type ngram-mod"),
        (B11434, "ngram-simple", 48, "--spec-ngram-simple-size-m 48 --spec-type ngram-simple"),
        (B11434, "ngram-map-k4v", 48, "--spec-ngram-map-k4v-size-m 48 --spec-type ngram-map-k4v"),
        # the number of draft tokens used to limit n-grams, too
        (MARCH, "ngram-map-k", 48, "--spec-ngram-size-m 48 --draft-max 48 --spec-type ngram-map-k"),
        (B11434, "ngram-cache", 8, "--spec-type ngram-cache"),
    ],
)
def test_n_grams_by_build(build, type, n_max, words):
    assert written(build, draft={"type": type, "n_max": n_max}) == words.split()


@pytest.mark.parametrize("build", BUILDS)
def test_every_flag_that_is_written_is_known(build):
    facts = facts_of(build)
    for type in ("draft-simple", "draft-mtp", *NGRAM_LENGTHS):
        if dialect(facts).lacks(type):
            continue
        draft = {"type": type, "n_max": 16} if type != "draft-simple" else dict(DRAFT)
        flags = [word for word in written(build, draft=draft) if word.startswith("-")]
        assert set(flags) <= set(facts["flags"])


@pytest.mark.parametrize("build", BUILDS)
def test_the_level_of_the_log_means_the_same(build):
    found = dialect(facts_of(build))
    flag = found.spelling["--log-verbosity"]
    extra = written(build, extra=[flag, "4", "--metrics"])
    # A build without "trace" logs what is traced today as "info", and each request's text at 4.
    assert extra == [flag, "4" if build == B11434 else "3", "--metrics"]
    assert [found.level(level) for level in range(6)] == ([0, 1, 2, 3, 4, 5] if build == B11434 else [0, 1, 2, 3, 3, 4])


def values(flag, words):
    return {"flag_values": {flag: {"words": words, "default": None}}}


def test_all_layers_are_a_number_where_the_word_is_unknown():
    old = dialect(llama(TODAY, **values("--n-gpu-layers", [])))
    assert old.worded({"n_gpu_layers": "all"}, 48)["n_gpu_layers"] == 49
    assert old.worded({"n_gpu_layers": 12}, 48)["n_gpu_layers"] == 12
    today = dialect(llama(TODAY, **values("--n-gpu-layers", ["auto", "all"])))
    assert today.worded({"n_gpu_layers": "all"}, 48)["n_gpu_layers"] == "all"
    assert old.decisions() != today.decisions()


def test_a_bare_flash_attn_is_too_old():
    with pytest.raises(PoolError, match="does not know --flash-attn on: install a newer"):
        dialect(llama(TODAY, **values("--flash-attn", []))).check(False)


def test_devices_that_are_named_by_address_are_too_old_for_several_machines():
    old = dialect(llama(TODAY, rpc_devices="by_endpoint"))
    old.check(False)
    with pytest.raises(PoolError, match=r"RPC\[10\.0\.0\.2:50052\].*October 2025"):
        old.check(True)
    dialect(llama(TODAY, rpc_devices=None)).check(True)


@pytest.mark.parametrize(
    ("build", "changes", "crashes"),
    [
        (MARCH, {}, True),
        (MAY, {}, True),
        (B11434, {}, False),
        # a build whose number is not known: what came later tells it
        (B11434, {"build": 1}, False),
        # before graphs were used again there was nothing to be mixed up
        (MARCH, {"rpc_reuses_graphs": False}, False),
        (MARCH, {"rpc_reuses_graphs": None}, False),
        (MARCH, {"build": 9246}, True),
        (MARCH, {"build": 9247}, False),
    ],
)
def test_two_contexts_on_one_rpc_device(build, changes, crashes):
    found = dialect(facts_of(build, **changes))
    assert (found.rpc_draft_crash is not None) == crashes == found.decisions("draft-simple")["rpc_draft_crash"]
    if crashes:
        assert found.rpc_draft_crash.startswith(found.name)
        assert "keep the draft on the host" in found.rpc_draft_crash


@pytest.mark.parametrize("build", BUILDS)
def test_a_build_without_rpc_holds_replicas_only(build):
    found = dialect(facts_of(build, backends=["CPU"]))
    found.check(False)
    with pytest.raises(PoolError, match="was built without RPC"):
        found.check(True)


@pytest.mark.parametrize("build", BUILDS)
def test_every_real_build_can_run_a_sharded_plan(build):
    dialect(facts_of(build)).check(True, OPTIONAL)


def test_a_build_that_reserves_all_output_rows_decides_the_ledger():
    assert dialect(facts_of(B11434)).bounds_output_rows
    assert not dialect(facts_of(MAY)).bounds_output_rows
    unknown = dialect(facts_of(B11434, bounds_output_rows=None))
    assert unknown.decisions() == dialect(None).decisions()
