# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every way in which something else runs than planned, one at a time."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.server.proof import prove
from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB


def memory(weights, kv):
    return {"weights_bytes": weights * MIB, "kv_bytes": kv * MIB, "recurrent_bytes": 0}


PLAN = {
    "host": "host1",
    "ctx_size": 2048,
    "parallel": 2,
    "stages": [
        {"host": "host1", "device": "CPU", "transport": "local", "endpoint": None, "memory": memory(100, 10)},
        {"host": "w1", "device": "CUDA0", "transport": "rpc", "endpoint": "10.0.0.2:50052", "memory": memory(200, 20)},
        {"host": "w1", "device": "CUDA1", "transport": "rpc", "endpoint": "10.0.0.2:50052", "memory": memory(300, 30)},
    ],
    "workers": [{"host": "w1", "endpoint": "10.0.0.2:50052", "devices": ["CUDA0", "CUDA1"]}],
    "draft": {"enabled": True, "path": "/m/draft.gguf", "device": "none"},
}


def buffer(device, kind, mib, endpoint=None, model="target"):
    return {"model": model, "device": device, "endpoint": endpoint, "kind": kind, "bytes": int(mib * MIB)}


FAR = "10.0.0.2:50052"
PROBE = {
    "healthy": True,
    "state": "ready",
    "completion": True,
    "tokens_per_second": 12.0,
    "speculative": True,
    "draft_n": 16,
    "draft_n_accepted": 9,
    "n_ctx": 1024,
    "slots": 2,
    "error": None,
    "buffers": [
        buffer("CPU_Mapped", "weights", 150),
        buffer("CPU", "kv", 10),
        buffer(f"RPC0[{FAR}]", "weights", 200, FAR),
        buffer(f"RPC0[{FAR}]", "kv", 20, FAR),
        buffer(f"RPC1[{FAR}]", "weights", 300, FAR),
        buffer(f"RPC1[{FAR}]", "kv", 30, FAR),
        buffer(f"RPC1[{FAR}]", "compute", 99, FAR),
        buffer("CPU_Mapped", "weights", 40, model="draft"),
        buffer("CPU", "kv", 4, model="draft"),
    ],
}


def test_what_was_planned_runs():
    proof = prove(PLAN, PROBE)
    assert proof.differences == []
    assert proof.unproven == []
    assert any("16 tokens proposed, 9 accepted" in sentence for sentence in proof.proven)
    assert any("44.0 MiB lie on CPU of host1" in sentence for sentence in proof.proven)


def changed(**fields):
    return {**copy.deepcopy(PROBE), **fields}


def moved(index, **fields):
    probe = copy.deepcopy(PROBE)
    probe["buffers"][index].update(fields)
    return probe


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (changed(speculative=False, draft_n=None), "llama.cpp dropped it"),
        (changed(draft_n=None), "proposed no token"),
        (changed(slots=4), "4 slots, planned are 2"),
        (changed(n_ctx=512), "context of 512 tokens, planned are 1024"),
        (changed(completion=None), "empty text"),
        (changed(error="timed out"), "did not complete a prompt: timed out"),
        (moved(0, bytes=90 * MIB), "CPU holds 90.0 MiB of weights, planned are 100.0 MiB"),
        (moved(3, bytes=22 * MIB), f"{FAR} device 0 holds 22.0 MiB of KV cache, planned are 20.0 MiB"),
        (moved(2, device=f"RPC1[{FAR}]"), f"{FAR} device 0 holds 0.0 MiB of weights, planned are 200.0 MiB"),
        (moved(7, device=f"RPC0[{FAR}]", endpoint=FAR), f"40.0 MiB of the draft lie on {FAR} device 0"),
        (moved(8, device=f"RPC0[{FAR}]", endpoint=FAR), f"4.0 MiB of the draft lie on {FAR} device 0"),
    ],
)
def test_what_runs_is_something_else(probe, words):
    assert words in " ".join(prove(PLAN, probe).differences)


def test_a_dead_server_is_one_sentence_with_its_last_words():
    last_words = "Failed to connect to 10.0.0.2:50052"
    probe = {"healthy": False, "state": "failing", "error": "connection refused", "log_tail": [last_words]}
    (sentence,) = prove(PLAN, probe).differences
    assert "connection refused" in sentence
    assert last_words in sentence


def test_a_server_that_speculates_without_a_draft():
    plan = {**PLAN, "draft": {"enabled": False, "path": None, "device": None}}
    assert "has no draft" in " ".join(prove(plan, PROBE).differences)


def test_a_journal_without_buffers_is_said_and_not_taken_for_a_proof():
    proof = prove(PLAN, changed(buffers=[]))
    assert proof.differences == []
    assert len(proof.unproven) == 1
    assert not any("MiB" in sentence for sentence in proof.proven)
