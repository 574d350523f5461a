# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flags by binary."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import (
    DRAFT_FLAGS,
    OPTIONAL,
    REQUIRED,
    REQUIRED_SHARDED,
    dialect,
)

TODAY = [
    *REQUIRED,
    *REQUIRED_SHARDED,
    *OPTIONAL,
    *DRAFT_FLAGS,
    "--spec-draft-n-min",
    "--spec-draft-p-min",
    "--spec-type",
]


def llama(flags, **fields):
    facts = {
        "version": "1.2",
        "build": 9,
        "backends": ["CPU", "RPC"],
        "spec_types": ["none", "draft-simple"],
        "flags": flags,
    }
    return {**facts, **fields}


def test_no_facts_mean_today():
    assert dialect(None).decisions() == dialect(llama(TODAY)).decisions()


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
        (None, {"spec_types": ["none", "ngram-mod"]}, ("--spec-type draft-simple",)),
    ],
)
def test_a_draft_that_cannot_be_pinned_or_named_is_unsupported(without, fields, missing):
    found = dialect(llama([flag for flag in TODAY if flag != without], **fields))
    assert found.draft_missing == missing


def test_an_old_name_of_the_type():
    assert dialect(llama(TODAY, spec_types=["draft", "mtp"])).spec_type == "draft"


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
