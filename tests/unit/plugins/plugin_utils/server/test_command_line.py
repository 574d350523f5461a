# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's own arguments; the renderers themselves are tested through their filters."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.server.command_line import check_extra_args


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
