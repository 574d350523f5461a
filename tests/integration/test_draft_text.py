# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A draft model changes the speed, never the text: greedy completions of a sharded server with and without one."""

from __future__ import annotations

import shutil

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import gguf_facts
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import invert

PROMPTS = (
    "The capital of France is",
    "To boil an egg, first",
    "def fibonacci(n):\n",
    "Once upon a time, in a village by the sea,",
    "1, 2, 3, 4, 5,",
)
MAX_TOKENS = 16


@pytest.fixture(scope="module")
def n_layers(real_model):
    return len(gguf_facts(str(real_model))["tensors"]["blocks"])


@pytest.fixture(scope="module")
def poor_draft(real_model, n_layers, tmp_path_factory):
    """The same model with its last layers silenced: it proposes tokens that the target mostly rejects."""
    gguf = pytest.importorskip("gguf")
    path = tmp_path_factory.mktemp("draft") / "poor.gguf"
    shutil.copyfile(real_model, path)
    for tensor in gguf.GGUFReader(path, "r+").tensors:
        if any(tensor.name.startswith(f"blk.{layer}.") for layer in range(n_layers * 4 // 5, n_layers)):
            tensor.data[:] = 0
    return path


@pytest.fixture
def sharded(real_model, n_layers, workers):
    """Arguments of a server with first layers on the host's CPU and the rest on two workers."""
    pair = workers(2)
    n_gpu_layers, tensor_split = invert([n_layers // 3, n_layers // 3 + 1], n_layers)
    return [
        "--model", real_model, "--rpc", ",".join(worker.endpoint for worker in pair), "--device", "RPC0,RPC1",
        "--tensor-split", ",".join(map(str, tensor_split)), "--n-gpu-layers", n_gpu_layers, "--ctx-size", 512,
        "--parallel", 1, "--threads", 1, "--fit", "off", "--cache-ram", 0, "--no-warmup",
    ]  # fmt: skip


@pytest.fixture
def run_all(server):
    """Completions of all prompts by a server with these arguments."""

    def run(args, speculative):
        with server(args) as running:
            assert running.request("/slots")[0]["speculative"] is speculative
            return [running.complete(prompt, MAX_TOKENS) for prompt in PROMPTS]

    return run


def test_text_is_the_same_with_a_draft(sharded, real_model, poor_draft, run_all):
    plain = [answer["content"] for answer in run_all(sharded, False)]
    assert len(set(plain)) == len(PROMPTS)

    acceptance = {}
    for model in (real_model, poor_draft):
        draft = ["--spec-draft-model", model, "--spec-draft-n-max", 4, "--spec-draft-device", "none"]
        answers = run_all([*sharded, *draft, "--spec-type", "draft-simple"], True)
        assert [answer["content"] for answer in answers] == plain
        timings = [answer["timings"] for answer in answers]
        assert all(timing["draft_n"] > 0 for timing in timings)
        acceptance[model] = sum(t["draft_n_accepted"] for t in timings) / sum(t["draft_n"] for t in timings)

    # the one draft is the target itself, the other gives the server something to reject
    assert acceptance[real_model] > 0.8
    assert acceptance[poor_draft] < 0.5
