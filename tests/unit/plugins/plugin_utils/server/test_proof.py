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
    "speculation": "draft-simple",
    "server_args": ["--spec-draft-model", "/m/draft.gguf", "--spec-draft-ngl", "99", "--spec-type", "draft-simple"],
    "draft": {
        "enabled": True,
        "reason": "enabled",
        "path": "/m/draft.gguf",
        "host": "host1",
        "device": "none",
        "memory": {"weights_bytes": 40 * MIB, "kv_bytes": 4 * MIB, "compute_bytes": MIB, "total_bytes": 45 * MIB},
    },
}
# As a build has it in which a draft model runs by being named, and whose own default is another one.
BY_NAME = ["--model-draft", "/m/draft.gguf", "--n-gpu-layers-draft", "99", "--draft-p-min", "0.0"]
NONE = {"enabled": False, "reason": "not_configured", "path": None, "host": None, "device": None, "memory": None}


def plan(draft=None, **fields):
    return {**PLAN, "draft": {**PLAN["draft"], **(draft or {})}, **fields}


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
    "slots": [{"id": 0, "speculative": True}, {"id": 1, "speculative": True}],
    "spec_types": ["draft-simple"],
    "spec_error": None,
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
        (changed(speculative=False, slots=2, draft_n=None), "llama.cpp dropped it"),
        (changed(draft_n=None), "proposed no token"),
        (changed(slots=[{"speculative": True}] * 4), "4 slots, planned are 2"),
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


def without_draft(**fields):
    """What runs where nothing proposes tokens."""
    plain = [entry for entry in PROBE["buffers"] if entry["model"] == "target"]
    slots = [{"id": number, "speculative": False} for number in range(2)]
    return changed(**{"speculative": False, "draft_n": 0, "slots": slots, "spec_types": [], "buffers": plain, **fields})


def said(plan, probe):
    """(the rest's differences, the draft's) and what was proven and not."""
    proof = prove(plan, probe)
    assert [
        sentence for sentence in proof.differences if sentence in proof.draft_differences
    ] == proof.draft_differences
    rest = [sentence for sentence in proof.differences if sentence not in proof.draft_differences]
    return rest, proof.draft_differences, proof


NO_DRAFT = {**PLAN, "draft": NONE, "speculation": None, "server_args": []}
NGRAM = {**NO_DRAFT, "speculation": "ngram-mod", "server_args": ["--spec-type", "ngram-mod"]}


def test_no_speculation_where_none_is_planned():
    assert said(NO_DRAFT, without_draft())[:2] == ([], [])


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (PROBE, "The server speculates (draft-simple, 16 tokens proposed), but the plan has no draft"),
        (without_draft(spec_types=["ngram-mod"]), "The server speculates (ngram-mod), but"),
        (without_draft(draft_n=3), "The server speculates (of a type that the log does not name, 3 tokens proposed)"),
        (without_draft(slots=[{"speculative": True}, {"speculative": False}]), "The server speculates (of a type"),
        (without_draft(buffers=PROBE["buffers"]), "44.0 MiB of a draft lie on CPU, but the plan has none."),
    ],
)
def test_speculation_that_nobody_planned(probe, words):
    rest, draft, _proof = said(NO_DRAFT, probe)
    assert rest == []
    assert words in " ".join(draft)


def moved_draft(**fields):
    """Both buffers of the draft elsewhere."""
    probe = moved(7, **fields)
    probe["buffers"][8].update(fields)
    return probe


@pytest.mark.parametrize(
    ("planned", "probe", "words"),
    [
        (
            PLAN,
            changed(spec_types=[], speculative=False, spec_error="draft model vocab type must match"),
            "The plan has the draft /m/draft.gguf but llama.cpp dropped it, its log says: draft model vocab type must",
        ),
        (PLAN, changed(slots=[{"speculative": True}, {"speculative": False}]), "/slots says that 1 of 2 do not: llama"),
        (PLAN, changed(slots=2, speculative=False), "the server does not speculate: llama.cpp dropped it"),
        (PLAN, changed(spec_types=["draft-mtp"]), "speculates by draft-simple, but the log names draft-mtp."),
        (PLAN, changed(spec_types=["draft-simple", "ngram-mod"]), "but the log names draft-simple, ngram-mod."),
        (NGRAM, without_draft(), "The plan has ngram-mod, without a draft, but /slots says that the server does not"),
        (PLAN, moved(7, bytes=60 * MIB, device="CPU"), "The draft holds 60.0 MiB of weights, planned are 40.0 MiB."),
        (PLAN, moved(7, bytes=20 * MIB), "The draft holds 20.0 MiB of weights, planned are 40.0 MiB."),
        (PLAN, moved(8, bytes=8 * MIB), "The draft holds 8.0 MiB of KV cache, planned are 4.0 MiB."),
        (plan({"device": "CUDA0"}), PROBE, "4.0 MiB of the draft lie on CPU, planned is CUDA0 of host1 only."),
        (
            plan({"device": "CUDA0", "memory": None}),
            moved(8, bytes=0, kind="compute"),
            "Nothing of the draft lies on CUDA0 of host1, where it is planned.",
        ),
        (
            plan({"device": "RPC1", "host": "w1"}),
            moved_draft(device=f"RPC0[{FAR}]", endpoint=FAR),
            f"44.0 MiB of the draft lie on {FAR} device 0, planned is {FAR} device 1 of w1 only.",
        ),
        (plan({"device": "RPC2"}), PROBE, "The draft is planned on RPC2, and the workers have 2 devices."),
    ],
)
def test_a_draft_that_is_not_as_planned_is_a_difference_of_its_own(planned, probe, words):
    rest, draft, _proof = said(planned, probe)
    assert rest == []
    assert words in " ".join(draft)


@pytest.mark.parametrize(
    ("planned", "probe"),
    [
        (plan({"device": "RPC1", "host": "w1"}), moved_draft(device=f"RPC1[{FAR}]", endpoint=FAR)),
        # the token embedding stays in RAM
        (plan({"device": "RPC0", "host": "w1"}), moved(8, device=f"RPC0[{FAR}]", endpoint=FAR)),
        (plan({"device": "CUDA0"}), moved(8, device="CUDA0")),
        # half of its layers stay on the CPU
        (
            plan({"device": "CUDA0"}, server_args=["--spec-draft-ngl", "8"]),
            changed(buffers=[*PROBE["buffers"], buffer("CUDA0", "weights", 0.5, model="draft")]),
        ),
        # the name that an older build has for it, and one that names none
        (PLAN, changed(spec_types=["draft"])),
        (PLAN, changed(spec_types=[])),
        # one that has no other type for a draft model needs to name none
        (plan(server_args=BY_NAME), changed(spec_types=[])),
        # MTP of the target: its cache lies with the target's layers
        (
            plan({"path": None, "device": None, "memory": {"total_bytes": 6 * MIB}}, speculation="draft-mtp"),
            changed(
                spec_types=["draft-mtp"],
                buffers=[*PROBE["buffers"][:7], buffer(f"RPC1[{FAR}]", "kv", 4, FAR, model="draft")],
            ),
        ),
        (NGRAM, without_draft(speculative=True, slots=2, spec_types=["ngram-mod"], draft_n=64, draft_n_accepted=60)),
        # a plan of before there were several types
        ({key: value for key, value in PLAN.items() if key not in ("speculation", "server_args")}, PROBE),
    ],
)
def test_every_kind_of_speculation_as_planned(planned, probe):
    rest, draft, proof = said(planned, probe)
    assert (rest, draft) == ([], [])
    assert any(" is live: " in sentence for sentence in proof.proven)
    assert bool(proof.unproven) == (not probe["spec_types"] and "--spec-type" in planned["server_args"])


def test_a_draft_that_was_dropped_is_one_sentence():
    """That it holds nothing then is no news."""
    _rest, draft, _proof = said(PLAN, without_draft(spec_error="no implementations specified"))
    assert draft == [
        "The plan has the draft /m/draft.gguf but llama.cpp dropped it, its log says: no implementations specified."
    ]


def test_mtp_layers_that_lie_where_the_model_is_not_or_take_too_much():
    planned = plan({"path": None, "device": None, "memory": {"total_bytes": 4 * MIB}}, speculation="draft-mtp")

    def of(device, mib):
        buffers = [*PROBE["buffers"][:7], buffer(device, "kv", mib, model="draft")]
        return said(planned, changed(spec_types=["draft-mtp"], buffers=buffers))[1]

    assert of("CUDA7", 4) == ["4.0 MiB of the draft lie on CUDA7, planned is devices of the model only."]
    assert of("CPU", 6) == ["The context of the model's MTP layers holds 6.0 MiB, planned are 4.0 MiB."]


@pytest.mark.parametrize(
    ("planned", "types", "words"),
    [
        (NGRAM, ["ngram-mod"], "Ngram-mod, without a draft, is loaded and proposed nothing on this prompt"),
        (
            {**PLAN, "server_args": ["--draft-p-min", "0.9"]},
            ["draft-simple"],
            "is loaded and proposed nothing on this prompt, which --spec-draft-p-min may be for.",
        ),
    ],
)
def test_no_proposal_is_no_difference_where_it_may_be_so(planned, types, words):
    buffers = PROBE["buffers"] if planned["draft"]["enabled"] else without_draft()["buffers"]
    rest, draft, proof = said(planned, changed(draft_n=0, spec_types=types, buffers=buffers))
    assert (rest, draft) == ([], [])
    assert words in " ".join(proof.unproven)
    assert not any("live" in sentence for sentence in proof.proven)


def test_a_limit_of_zero_excuses_nothing():
    _rest, draft, _proof = said(plan(server_args=BY_NAME), changed(draft_n=0, spec_types=[]))
    assert draft == ["The draft /m/draft.gguf is loaded, but it proposed no token for the prompt."]


def test_slots_that_are_hidden_prove_nothing():
    _rest, draft, proof = said(PLAN, changed(speculative=None, slots=[]))
    assert draft == []
    assert "does not show its slots" in " ".join(proof.unproven)


@pytest.mark.parametrize(("loading", "restarts", "of_the_draft"), [(True, 4, 1), (False, 4, 0), (True, 0, 0)])
def test_a_server_that_ends_while_it_loads_the_draft(loading, restarts, of_the_draft):
    probe = {"healthy": False, "state": "down", "error": "no answer", "draft_loading": loading,
             "unit": {"n_restarts": restarts}}  # fmt: skip
    proof = prove(PLAN, probe)
    assert len(proof.differences) == 1
    assert len(proof.draft_differences) == of_the_draft
    assert ("while it loads the draft /m/draft.gguf" in proof.differences[0]) == bool(of_the_draft)
    assert prove(NO_DRAFT, probe).draft_differences == []


def test_a_journal_without_buffers_is_said_and_not_taken_for_a_proof():
    proof = prove(PLAN, changed(buffers=[]))
    assert proof.differences == []
    assert len(proof.unproven) == 1
    assert not any("MiB" in sentence for sentence in proof.proven)
