# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.relay.pool.plugins.module_utils import llama_binary
from ansible_collections.relay.pool.plugins.plugin_utils.server.command_line import llama_server_args
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import SPELLINGS
from ansible_collections.relay.pool.plugins.plugin_utils.server.speculation_flags import (
    is_of_speculation,
    without_speculation,
)

HELP = (Path(__file__).parents[2] / "module_utils" / "fixtures" / "llama_server_help.txt").read_text()
PLAIN = {
    "model": "/m/-odd name.gguf", "rpc_backends": ["10.0.0.2:50052"], "devices": ["RPC0"], "tensor_split": [20, 29],
    "host": "127.0.0.1", "port": 8384, "parallel": 2, "n_gpu_layers": "all", "ctx_size": 16384, "alias": "m",
    "cache_type_k": "q8_0", "cache_type_v": "q8_0", "flash_attn": "on", "extra": ["--fit", "off", "--metrics"],
}  # fmt: skip
DRAFT = {"model": "/m/d.gguf", "n_max": 16, "n_min": 2, "gpu_layers": 99, "p_min": 0.5, "device": "none",
         "type": "draft-simple"}  # fmt: skip


@pytest.mark.parametrize("spelling", [0, 1, -1])
def test_the_group_of_the_draft_goes_in_every_spelling_and_nothing_else_does(spelling):
    names = {today: names[max(min(spelling, len(names) - 1), -len(names))] for today, names in SPELLINGS.items()}
    with_draft = llama_server_args({**PLAIN, "draft": DRAFT, "spelling": names})
    plain = llama_server_args({**PLAIN, "spelling": names})
    assert len(with_draft) == len(plain) + 14
    assert without_speculation(with_draft) == plain
    assert without_speculation(plain) == plain


@pytest.mark.parametrize(
    "group",
    [
        ["--spec-type", "ngram-mod"],
        ["--spec-type", "ngram-mod", "--spec-ngram-mod-n-min", "4", "--spec-default"],
        ["--spec-type", "draft-mtp", "--spec-draft-n-max", "3"],
        ["--draft-max", "16", "-md", "/m/d.gguf", "-ngld", "-1", "-devd", "RPC1", "-cmoed"],
        ["--no-spec-draft-backend-sampling", "--lookup-cache-static", "/c"],
    ],
)
def test_it_may_stand_anywhere(group):
    rest = ["--model", "/m.gguf", "--temp", "-1", "--jinja"]
    for at in (0, 2, 4, 5):
        assert without_speculation([*rest[:at], *group, *rest[at:]]) == rest


@pytest.mark.parametrize("name", ["--spec-type", "-md", "--draft-7b", "-m", "--model"])
def test_a_name_that_looks_like_a_flag_is_a_name(name):
    rest = ["--model", name, "--alias", name, "--jinja"]
    assert without_speculation(rest) == rest
    group = ["--spec-draft-model", name, "--spec-type", "draft-simple"]
    assert without_speculation([*group, *rest, *group]) == rest


def test_what_the_help_of_a_build_has_about_drafts_is_known():
    """Removed ones and those for a build's own benchmarks, too."""
    for flags, _value, description in llama_binary.parse_help(HELP):
        about = re.search(r"draft|speculative|ngram|lookup cache", " ".join([*flags, description]).lower())
        if not about or ("--spec-" not in " ".join(flags) and "draft" not in " ".join(flags)):
            continue
        assert [flag for flag in flags if not is_of_speculation(flag)] == [], description
    # nothing of the target is taken for it
    taken = {flag for flags, _value, text in llama_binary.parse_help(HELP) for flag in flags if is_of_speculation(flag)}
    assert not taken & {
        "-m",
        "--model",
        "-dev",
        "--device",
        "-ngl",
        "-c",
        "-ctk",
        "-b",
        "-ub",
        "-t",
        "-tb",
        "-C",
        "-ot",
    }
