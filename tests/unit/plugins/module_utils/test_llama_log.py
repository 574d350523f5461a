# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import time
from pathlib import Path

import pytest
from ansible_collections.relay.pool.plugins.module_utils import llama_log, llama_unit

FIXTURES = Path(__file__).parent / "fixtures"
# Recorded from b11434: 30 layers, the first 10 on the host's CPU, two workers, the draft on the host (--fit off -lv 5).
SHARDED = (FIXTURES / "llama_server_sharded_draft.txt").read_text()
# Recorded without --spec-type: the draft is loaded and dropped.
DROPPED = (FIXTURES / "llama_server_dropped_draft.txt").read_text()
# Recorded from builds of spring 2026 at the level of the plan, one slot: the draft's context comes after the slots.
SPRING = {build: (FIXTURES / f"llama_server_{build}_sharded_draft.txt").read_text() for build in ("f49e917", "7d442ab")}
# The same with two slots, on one machine, at the next level, which names the type.
PER_SLOT = (FIXTURES / "llama_server_f49e917_draft_per_slot.txt").read_text()
W2, W3 = "10.0.0.2:50052", "10.0.0.3:50052"


def mib(log):
    return {
        (b["model"], b["kind"], b["endpoint"] or b["device"]): round(b["bytes"] / llama_log.MIB, 2) for b in log.buffers
    }


def test_target_and_draft_are_kept_apart():
    log = llama_log.parse(SHARDED)
    assert mib(log) == {
        ("target", "weights", "CPU_Mapped"): 92.10,
        ("target", "weights", W2): 21.14,
        ("target", "weights", W3): 49.83,
        ("target", "output", "CPU"): 0.38,
        ("target", "kv", "CPU"): 7.5,
        ("target", "kv", W2): 7.5,
        ("target", "kv", W3): 7.5,
        ("target", "compute", W2): 11.76,
        ("target", "compute", W3): 11.76,
        ("target", "compute", "CPU"): 15.14,
        ("draft", "weights", "CPU_Mapped"): 92.10,
        ("draft", "output", "CPU"): 0.38,
        ("draft", "kv", "CPU"): 22.5,
        ("draft", "compute", "CPU"): 15.14,
    }
    assert (log.spec_types, log.spec_error, log.complete) == (["draft-simple"], None, True)
    # Both workers' buffers carry the same name; only the endpoint tells them apart.
    assert {b["device"] for b in log.buffers if b["endpoint"]} == {f"RPC0[{W2}]", f"RPC0[{W3}]"}


def test_layers():
    layers = llama_log.parse(SHARDED).layers
    assert [(x["layer"], x["device"], x["endpoint"]) for x in layers if x["model"] == "target"] == [
        (0, "CPU", None),
        (9, "CPU", None),
        (10, "RPC0", W2),
        (19, "RPC0", W2),
        (20, "RPC1", W3),
        (30, "RPC1", W3),
    ]
    assert {x["device"] for x in layers if x["model"] == "draft"} == {"CPU"}


def test_dropped_draft_holds_nothing():
    log = llama_log.parse(DROPPED)
    assert {b["model"] for b in log.buffers} == {"target"}
    assert log.spec_types == []
    assert log.spec_error == "no implementations specified for speculative decoding"


def test_rejected_draft_says_why():
    line = (
        "0.1 E srv    load_model: failed to initialize speculative decoding context: draft model vocab type must match"
    )
    log = llama_log.parse(SHARDED.replace("adding speculative implementation 'draft-simple'", line))
    assert log.spec_error == "draft model vocab type must match"
    assert {b["model"] for b in log.buffers} == {"target"}


@pytest.mark.parametrize("build", SPRING)
def test_the_drafts_context_may_follow_the_slots(build):
    log = llama_log.parse(SPRING[build])
    assert {key: size for key, size in mib(log).items() if key[0] == "draft"} == {
        ("draft", "weights", "CPU_Mapped"): 92.10,
        ("draft", "output", "CPU"): 0.19,
        ("draft", "kv", "CPU"): 22.5,
        ("draft", "compute", "CPU"): 12.81,
    }
    # The statistics of a completion name the type, and nothing before it does.
    assert (log.spec_types, log.spec_error, log.complete, log.draft_loading) == (["draft"], None, True, False)
    assert llama_log.parse(SPRING[build].partition("statistics")[0]).spec_types == []


def test_the_contexts_of_the_slots_come_together():
    log = llama_log.parse(PER_SLOT)
    assert {key: size for key, size in mib(log).items() if key[0] == "draft"} == {
        ("draft", "weights", "CPU_Mapped"): 92.10,
        ("draft", "output", "CPU"): 0.38,
        ("draft", "kv", "CPU"): 22.5,
        ("draft", "compute", "CPU"): 25.78,
    }
    assert mib(log)[("target", "kv", "CPU")] == 45.0
    assert (log.spec_types, log.complete) == (["draft"], True)
    later = "sched_reserve: reserving ...\nsched_reserve:        CPU compute buffer size =    99.00 MiB\n"
    assert mib(llama_log.parse(PER_SLOT + later)) == mib(log)


def test_a_context_that_is_made_to_look_and_freed_again_is_none():
    """Until autumn 2025 the draft's vocabulary was compared by way of a context before there were slots."""
    start, slots, rest = PER_SLOT.partition("srv    load_model: initializing slots")
    first = rest.partition("common_speculative_init")[0].partition("\n")[2]
    assert "KV buffer size" in first
    rest = rest.replace("new slot, n_ctx = ", "new slot n_ctx_slot = ")
    log = llama_log.parse(start + first + slots + rest)
    assert (mib(log), log.complete) == (mib(llama_log.parse(PER_SLOT)), True)


@pytest.mark.parametrize("cut", ["constructing llama_context", "id  1 | task -1 | new slot"])
def test_a_log_that_ends_with_a_slots_context_ends_in_the_draft(cut):
    log = llama_log.parse(PER_SLOT.rpartition(cut)[0])
    assert (log.complete, log.draft_loading) == (False, True)


def test_slots_that_are_not_listed_are_made_once_the_model_is_loaded():
    text = "".join(line for line in PER_SLOT.splitlines(keepends=True) if "new slot" not in line)
    assert llama_log.parse(text).complete


@pytest.mark.parametrize(
    "words", ["failed to create draft context", "speculative decoding not supported by this context"]
)
def test_slots_without_their_context_say_why(words):
    start = PER_SLOT.partition("llama_context: constructing")[0]
    log = llama_log.parse(f"{start}{words}\n")
    assert log.spec_error == words


@pytest.mark.parametrize("prefix", ["", "Nov 29 15:00:00 host llama-server[7]: "])
def test_lines_may_carry_a_prefix(prefix):
    text = "".join(prefix + line + "\n" for line in SHARDED.splitlines())
    assert mib(llama_log.parse(text)) == mib(llama_log.parse(SHARDED))


def test_the_last_of_several_starts_counts():
    assert mib(llama_log.parse(SHARDED + DROPPED)) == mib(llama_log.parse(DROPPED))


def test_what_comes_after_the_load_is_no_first_allocation():
    later = "0.09 I sched_reserve: reserving ...\n0.09 I sched_reserve:        CPU compute buffer size =    99.00 MiB\n"
    assert mib(llama_log.parse(SHARDED + later))[("draft", "compute", "CPU")] == 15.14


def test_a_load_that_starts_over_replaces():
    start = (
        "I srv    load_model: loading model 'm'\n"
        "I llama_model_loader: loaded meta data with 3 key-value pairs\n"
        "D load_tensors: layer   0 assigned to device CUDA0, is_swa = 0\n"
        "I load_tensors:        CUDA0 model buffer size =   100.00 MiB\n"
        "I llama_context: constructing llama_context\n"
        "I sched_reserve: reserving ...\n"
        "I sched_reserve:      CUDA0 compute buffer size =    40.00 MiB\n"
    )
    again = (
        "I llama_model_loader: loaded meta data with 3 key-value pairs\n"
        "D load_tensors: layer   0 assigned to device CPU, is_swa = 0\n"
        "I load_tensors:   CPU_Mapped model buffer size =    60.00 MiB\n"
        "I load_tensors:   CPU_Mapped model buffer size =    50.00 MiB\n"
        "I llama_context: constructing llama_context\n"
        "I llama_kv_cache:        CPU KV buffer size =     4.00 MiB\n"
        "I llama_kv_cache:        CPU KV buffer size =     2.00 MiB\n"
        "I llama_memory_recurrent:        CPU RS buffer size =     1.50 MiB\n"
        "I sched_reserve: reserving ...\n"
        "I sched_reserve:  CUDA_Host compute buffer size =     9.00 MiB\n"
        "I sched_reserve: reserving ...\n"
        "I sched_reserve:  CUDA_Host compute buffer size =     8.00 MiB\n"
    )
    log = llama_log.parse(start + again)
    assert mib(log) == {
        ("target", "weights", "CPU_Mapped"): 110.0,  # one line per file of a split model
        ("target", "kv", "CPU"): 6.0,  # one line per cache of a model with a sliding window
        ("target", "recurrent", "CPU"): 1.5,
        ("target", "compute", "CUDA_Host"): 8.0,
    }
    assert [x["device"] for x in log.layers] == ["CPU"]
    assert not log.complete


def test_nothing_to_read():
    log = llama_log.parse("Started relay-llama.service\n")
    assert (log.buffers, log.layers, log.spec_types, log.complete) == ([], [], [], False)


@pytest.mark.parametrize(
    "text",
    [
        "load_tensors: layer " + "9" * 3000 + " assigned to device CPU",
        "load_tensors: CPU model buffer size = " + "9" * 500 + " MiB",
        "using device x (" * 50_000,
        "a: x " + " " * 100_000,
        "\ufffd\0\x1b[31m" * 50_000,
    ],
    ids=["layer", "size", "device", "spaces", "binary"],
)
def test_rubbish_is_read_quickly_and_says_nothing(text):
    started = time.monotonic()
    assert llama_log.parse(text) == llama_log.LoadLog()
    assert llama_unit.error_lines(text) == []
    assert time.monotonic() - started < 1
