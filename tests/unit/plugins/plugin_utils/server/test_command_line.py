# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's own arguments and speculation; the rest of the renderers is tested through their filters."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.server.command_line import check_extra_args, llama_server_args

from tests.builds import MARCH, TODAY, facts_of


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--rpc", "belongs to the plan"),
        ("-ngl", "belongs to the plan"),
        ("--tensor_split", "belongs to the plan"),
        ("--spec-type", "belongs to the plan"),
        ("--draft-max", "belongs to the plan"),
        ("--cache-type-k-draft", "belongs to the plan"),
        ("--fit", "belongs to the plan"),
        ("--api-key", "use api_key_file"),
        ("--api_key=secret", "use api_key_file"),
        ("--seed=1", "two arguments"),
        ("--rpc=10.0.0.9:1", "belongs to the plan"),
        ("-md", "belongs to the plan"),
        ("-Cbd", "belongs to the plan"),
        ("--n-cpu-ffn", "belongs to the plan"),
        ("--docker-repo", "belongs to the plan"),
        ("--models-dir", "belongs to the plan"),
        ("--fim-qwen-7b-spec", "belongs to the plan"),
        ("--gpt-oss-20b-default", "belongs to the plan"),
        ("--hf_token", "every user"),
        ("-v", "hide from the proof"),
        ("--log-file", "hide from the proof"),
        ("--no-slots", "hide from the proof"),
        ("--version", "end at once"),
    ],
)
def test_refused(argument, text):
    with pytest.raises(PoolError, match=text) as caught:
        check_extra_args(["--seed", "1", argument])
    assert "secret" not in str(caught.value)


def test_allowed():
    check_extra_args(["--seed", "-1", "--override-kv", "tokenizer.ggml.add_bos_token=bool:false", "--no-webui"])


@pytest.mark.parametrize(
    ("extra", "unknown"),
    [
        (["--temp", "-1"], None),
        (["--temp", "0.5", "--mirostat", "2"], "--mirostat"),
        (["--tmep", "0.5"], "--tmep"),
        (["-tmp", "0.5"], "-tmp"),
    ],
)
def test_an_extra_flag_that_the_build_lacks_is_refused(extra, unknown):
    if unknown is None:
        check_extra_args(extra, ["--temp"])
        return
    with pytest.raises(PoolError, match=f"{unknown} is unknown to the installed llama-server"):
        check_extra_args(extra, ["--temp"])


RPC = {"rpc_backends": ["10.0.0.2:50052"]}
FILE = {"model": "d.gguf", "gpu_layers": 99, "device": "RPC1", "n_max": 16}


def speculation(draft, **options):
    return " ".join(llama_server_args({**options, "draft": draft})).partition("--jinja")[2].strip()


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        (
            {**FILE, "type": "draft-simple"},
            "--spec-draft-model d.gguf --spec-draft-n-max 16 --spec-draft-ngl 99 --spec-draft-device RPC1 "
            "--spec-type draft-simple",
        ),
        ({**FILE, "type": None, "n_min": 0, "p_min": 0.0}, None),
        # MTP of the target's own layers goes where they are.
        (
            {"type": "draft-mtp", "n_max": 3, "n_min": 1, "p_min": 0.5, "gpu_layers": 99, "device": "none"},
            "--spec-draft-n-max 3 --spec-draft-n-min 1 --spec-draft-p-min 0.5 --spec-type draft-mtp",
        ),
        ({"type": "mtp", "model": None, "n_max": 3}, "--spec-draft-n-max 3 --spec-type mtp"),
        # From a file of its own it is a draft as any other.
        ({"type": "draft-mtp", "model": "mtp.gguf"}, "--spec-draft-model mtp.gguf --spec-type draft-mtp"),
        ({"type": "ngram-mod", "n_max": 64, "n_min": 1}, "--spec-ngram-mod-n-max 64 --spec-type ngram-mod"),
        ({"type": "ngram-map-k", "n_max": 48}, "--spec-ngram-map-k-size-m 48 --spec-type ngram-map-k"),
        ({"type": "ngram-cache", "n_max": 8}, "--spec-type ngram-cache"),
        # Without its file such a draft cannot run.
        ({"type": "draft-simple", "n_max": 16}, ""),
        ({"type": "draft-eagle3", "n_max": 16}, ""),
        ({}, ""),
    ],
)
def test_speculation_by_family(draft, words):
    if words is None:
        words = "--spec-draft-model d.gguf --spec-draft-n-max 16 --spec-draft-ngl 99 --spec-draft-device RPC1"
    assert speculation(draft, **RPC).endswith(words)
    assert speculation(draft, **RPC).count("--spec-") == words.count("--spec-")
    assert speculation({**draft, "scope": "any"}) == words
    # A replica does without, n-grams included.
    assert speculation({**draft, "scope": "sharded"}) == ""


def test_a_flag_without_a_name_is_left_out():
    draft = {"type": "ngram-mod", "n_max": 64, "limits_ngrams": True, "scope": "any"}
    spelling = {"--spec-ngram-mod-n-max": "", "--spec-draft-n-max": "--draft-max"}
    assert speculation(draft, spelling=spelling) == "--draft-max 64 --spec-type ngram-mod"


@pytest.mark.parametrize(
    ("extra", "build", "known"),
    [
        # one option took their place in the summer of 2026
        (["--mlock"], MARCH, True),
        (["--mlock"], TODAY, False),
        (["--no-mmap"], TODAY, False),
        (["--load-mode", "mlock"], TODAY, True),
        (["--load-mode", "mlock"], MARCH, False),
    ],
)
def test_extra_flags_of_real_builds(extra, build, known):
    flags = facts_of(build)["flags"]
    if known:
        check_extra_args(extra, flags)
        return
    with pytest.raises(PoolError, match=f"{extra[0]} is unknown to the installed llama-server"):
        check_extra_args(extra, flags)
