# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every type of speculation of the build drafts on a real llama-server and does not change the greedy text.

Once with the target on the server's CPU, and once sharded over two workers.
"""

from __future__ import annotations

import re
import signal
import string
import subprocess

import pytest

from tests.integration.conftest import free_port
from tests.tiny import heads

PROMPT = "the cat sat on the mat and the cat sat"
# What ``spelling`` goes on with. ngram-cache forgets nearly all of its own text: only n-grams of the prompt are found.
LETTERS = 3 * string.ascii_lowercase
N_TOKENS = 160
# (name, target, head or None, type, --spec-draft-n-max or None)
HEADS = (
    ("mtp", "glm4moe", None, "draft-mtp", 4),
    ("mtp_hybrid", "qwen35", None, "draft-mtp", 3),
    ("mtp_file", "glm4moe_trunk", "glm4moe_head", "draft-mtp", 3),
    ("mtp_assistant", "gemma4", "gemma4_assistant", "draft-mtp", 3),
    ("eagle3", "llama", "eagle3", "draft-eagle3", 4),
    ("eagle3_targets_ends", "llama", "eagle3_shared", "draft-eagle3", 3),
    ("eagle3_draft_vocabulary", "llama", "eagle3_d2t", "draft-eagle3", 3),
    ("dflash", "llama", "dflash_own", "draft-dflash", 7),
    ("dflash_targets_ends", "llama", "dflash", "draft-dflash", 5),
    ("dspark", "llama", "dspark_own", "draft-dspark", 8),
    ("dspark_targets_ends", "llama", "dspark", "draft-dspark", 4),
)
# Heads that compute with tensors of their target: its output, or its caches.
SHARING = ("eagle3_shared", "dflash", "dspark", "gemma4_assistant")
NGRAMS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
FILES = {
    "llama": heads.llama,
    "spelling": heads.spelling,
    "glm4moe": heads.glm4moe,
    "glm4moe_trunk": lambda path: heads.glm4moe(path, head=False),
    "glm4moe_head": lambda path: heads.glm4moe(path, trunk=False),
    "qwen35": heads.qwen35,
    "gemma4": heads.gemma4,
    "gemma4_assistant": heads.gemma4_assistant,
    "eagle3": heads.eagle3,
    "eagle3_shared": lambda path: heads.eagle3(path, own_ends=False),
    "eagle3_d2t": lambda path: heads.eagle3(path, draft_vocab=200),
    "dflash": heads.dflash,
    "dflash_own": lambda path: heads.dflash(path, own_ends=True),
    "dspark": heads.dspark,
    "dspark_own": lambda path: heads.dspark(path, own_ends=True),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The path of a file of FILES, written once."""
    pytest.importorskip("gguf")
    folder = tmp_path_factory.mktemp("heads")

    def path(name: str):
        file = folder / f"{name}.gguf"
        return file if file.exists() else FILES[name](file)

    return path


@pytest.fixture(params=["alone", "sharded"])
def where(request, workers):
    """The flags that put the target somewhere."""
    if request.param == "alone":
        return ["-ngl", 0]
    return sharded(workers)


def sharded(workers) -> list:
    """Three layers on each of two workers, the output on the second."""
    endpoints = [worker.endpoint for worker in workers(2)]
    return ["--rpc", ",".join(endpoints), "--device", "RPC0,RPC1", "--tensor-split", "3,4", "-ngl", "all"]


def answers(server, args, prompt) -> tuple[bool, list[int], int, int]:
    """(speculative, the tokens, drafted, accepted) of a server with these arguments."""
    common = ["--ctx-size", 1024, "--parallel", 1, "--threads", 1, "--fit", "off", "--no-warmup", "-lv", 4]
    with server([*args, *common]) as running:
        slots = running.request("/slots")
        answer = running.complete(prompt, N_TOKENS, return_tokens=True, ignore_eos=True)
    timings = answer["timings"]
    live = all(slot["speculative"] for slot in slots)
    return live, answer["tokens"], timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)


@pytest.fixture(scope="module")
def plain():
    """What the targets say without speculation, by target and place."""
    return {}


def check(server, plain, key, target, where, flags, prompt=PROMPT):
    """Live, the same text, and some of what was drafted was taken."""
    if key not in plain:
        plain[key] = answers(server, ["--model", target, *where], prompt)
    live, expected, drafted, _accepted = plain[key]
    assert (live, drafted, len(expected)) == (False, 0, N_TOKENS)
    live, tokens, drafted, accepted = answers(server, ["--model", target, *where, *flags], prompt)
    assert live
    assert drafted > 0
    assert 0 < accepted <= drafted
    assert tokens == expected


@pytest.mark.parametrize(("target", "head", "kind", "n_max"), [case[1:] for case in HEADS], ids=[c[0] for c in HEADS])
def test_head(server, tiny, plain, where, request, target, head, kind, n_max):
    flags = ["--spec-type", kind, "--spec-draft-n-max", n_max]
    if head:
        # a head that computes with tensors of the target runs on the device that has them
        device = "RPC1" if head in SHARING and "--rpc" in where else "none"
        flags += ["--spec-draft-model", tiny(head), "--spec-draft-ngl", 99, "--spec-draft-device", device]
    check(server, plain, (target, where[0]), tiny(target), where, flags)


@pytest.mark.parametrize(
    ("target", "head", "kind", "tensor"),
    [
        ("llama", "eagle3_shared", "draft-eagle3", "output.weight"),
        ("llama", "dflash", "draft-dflash", "output.weight"),
        ("llama", "dspark", "draft-dspark", "output.weight"),
        ("gemma4", "gemma4_assistant", "draft-mtp", r"cache_k_l\d+"),
    ],
)
@pytest.mark.parametrize("where", ["sharded"], indirect=True)
def test_a_head_cannot_run_away_from_what_it_shares(llama_bin, llama_env, tiny, where, target, head, kind, tensor):
    """llama-server ends with SIGABRT at its start, and would in a pool."""
    args = ["--model", tiny(target), *where, "--spec-draft-model", tiny(head), "--spec-draft-device", "none"]
    args += ["--spec-type", kind, "--port", free_port(), "--ctx-size", 1024, "--parallel", 1, "--fit", "off"]
    result = subprocess.run(
        [str(llama_bin / "llama-server"), *map(str, args)],
        env=llama_env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60,
        check=False,
    )  # fmt: skip
    assert result.returncode == -signal.SIGABRT
    assert re.search(rf"pre-allocated tensor \({tensor}\) in a buffer \(RPC0\S+\) that cannot run", result.stderr)


def test_a_head_without_its_own_output_runs_anywhere_when_the_host_has_it(server, tiny, plain, workers):
    where = [*sharded(workers), "--override-tensor", "^output=CPU"]
    flags = ["--spec-type", "draft-eagle3", "--spec-draft-model", tiny("eagle3_shared"), "--spec-draft-device"]
    for device in ("none", "RPC0"):
        check(server, plain, ("llama", "output on host"), tiny("llama"), where, [*flags, device])


@pytest.mark.parametrize("kind", NGRAMS)
def test_ngram(server, tiny, plain, where, kind):
    check(server, plain, ("spelling", where[0]), tiny("spelling"), where, ["--spec-type", kind], LETTERS)
