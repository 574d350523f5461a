# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute buffers of recurrent and hybrid models, beside what llama.cpp b11434 reports for the same shapes."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.memory.batch import Batch
from ansible_collections.relay.pool.plugins.plugin_utils.memory.compute import device_bytes, host_bytes
from ansible_collections.relay.pool.plugins.plugin_utils.memory.recurrence import (
    KINDS,
    UNKNOWN,
    Recurrence,
    widest,
)
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import model_shape

MIB = 1024 * 1024


def dims(arch, layers, embd, ff, heads, head_kv, vocab, blocks=None, **more):
    """A gguf_info result as far as the shape reads it; two underscores stand for a dot."""
    keys = {
        "block_count": layers,
        "embedding_length": embd,
        "feed_forward_length": ff,
        "attention.head_count": heads,
        **({} if head_kv is None else {"attention.head_count_kv": head_kv}),
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    return {
        "architecture": arch,
        "path": f"/models/{arch}.gguf",
        "metadata": {f"{arch}.{name}": value for name, value in keys.items()},
        "tokenizer": {"n_tokens": vocab},
        "tensors": {"blocks": blocks or [MIB] * layers},
    }


def ssm(inner, state, rank, groups=None):
    keys = {
        "ssm__inner_size": inner,
        "ssm__state_size": state,
        "ssm__time_step_rank": rank,
        "ssm__conv_kernel": 4,
        "ssm__group_count": groups,
    }
    return {name: value for name, value in keys.items() if value is not None}


def at(layers, count, value):
    return [value if layer in layers else 0 for layer in range(count)]


def routed(count, used, inner):
    return {"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": inner}


NEMOTRON = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"
LATENT = {
    "attention__key_length": 576, "attention__value_length": 512, "attention__key_length_mla": 192,
    "attention__value_length_mla": 128,
}  # fmt: skip
MODELS = {
    "Codestral-Mamba-7B": dims("mamba2", 64, 4096, 0, 0, None, 32768, **ssm(8192, 128, 128, 8)),
    "Falcon-Mamba-7B": dims("mamba", 64, 4096, 0, 0, None, 65024, **ssm(8192, 16, 256)),
    "Jamba-Reasoning-3B": dims("jamba", 28, 2560, 8192, 20, at((7, 21), 28, 1), 65536, **ssm(5120, 16, 160)),
    "Jamba-Mini-52B": dims(
        "jamba", 32, 4096, 14336, 32, at((4, 12, 20, 28), 32, 8), 65536, blocks=[MIB, 9 * MIB] * 16,
        expert_count=16, expert_used_count=2, **ssm(8192, 16, 256),
    ),
    "Granite-4.0-H-Tiny": dims(
        "granitehybrid", 40, 1536, 512, 12, at((5, 15, 25, 35), 40, 4), 100352, expert_count=64, expert_used_count=6,
        expert_shared_feed_forward_length=1024, **ssm(3072, 128, 48, 1),
    ),
    "Nemotron-Nano-9B-v2": dims(
        "nemotron_h", 56, 4480, [15680 if kind == "-" else 0 for kind in NEMOTRON], 40,
        [8 if kind == "*" else 0 for kind in NEMOTRON], 131072, attention__key_length=128,
        attention__value_length=128, **ssm(10240, 128, 128, 8),
    ),
    "Qwen3.5-0.8B": dims(
        "qwen35", 24, 1024, 3584, 8, 2, 248320, attention__key_length=256, attention__value_length=256,
        **ssm(2048, 128, 16, 16),
    ),
    "Kimi-Linear-48B-A3B": dims(
        "kimi-linear", 27, 2304, 9216, 32, at((3, 7, 11, 15, 19, 23, 26), 27, 1), 163840, ssm__conv_kernel=4,
        kda__head_dim=128, leading_dense_block_count=1, **LATENT, **routed(256, 8, 1024),
    ),
    "RWKV7-G1-2.9B": dims("rwkv7", 32, 2560, 10240, 0, None, 65536, wkv__head_size=64),
    "RWKV6-Finch-7B": dims("rwkv6", 32, 4096, 14336, 0, None, 65536, wkv__head_size=64),
    "LFM2-1.2B": dims(
        "lfm2", 16, 2048, 8192, 32, at((2, 5, 8, 10, 12, 14), 16, 8), 65536, shortconv__l_cache=3
    ),
}  # fmt: skip
# slots, first, pipelined, output, layers
PLACES = {
    "only": (1, True, False, True, None),
    "first": (4, True, True, False, True),
    "middle": (4, False, True, False, True),
    "after host": (1, False, False, True, True),
}
# MiB that llama.cpp takes with a context of 4096 tokens and an f16 cache: (place, layers, MiB)
MEASURED = {
    "Codestral-Mamba-7B": [
        ("only", (0, 64), 124.37), ("first", (0, 16), 301.2), ("middle", (32, 48), 406.03),
        ("after host", (40, 64), 108.58), ("host", (0, 64), 148.73), ("bare host", (0, 0), 80.03),
    ],
    "Falcon-Mamba-7B": [
        ("only", (0, 64), 97.57), ("first", (0, 16), 266.77), ("middle", (32, 48), 354.63),
        ("after host", (40, 64), 104.59), ("host", (0, 64), 122.38), ("bare host", (0, 0), 80.03),
    ],
    "Jamba-Reasoning-3B": [
        ("only", (0, 28), 76.07), ("first", (0, 7), 126.73), ("middle", (14, 21), 181.64),
        ("after host", (17, 28), 70.41), ("host", (0, 28), 77.5), ("bare host", (0, 0), 66.06),
    ],
    "Jamba-Mini-52B": [
        ("only", (0, 32), 204.01), ("first", (0, 8), 292.42), ("middle", (16, 24), 252.41),
        ("after host", (20, 32), 188.07), ("host", (0, 32), 209.02), ("bare host", (0, 0), 96.06),
    ],
    "Granite-4.0-H-Tiny": [
        ("only", (0, 40), 52.01), ("first", (0, 10), 91.06), ("middle", (20, 30), 74.94), ("host", (0, 40), 53.92),
    ],
    "Nemotron-Nano-9B-v2": [
        ("only", (0, 56), 156.4), ("first", (0, 14), 264.64), ("middle", (28, 42), 492.97),
        ("after host", (35, 56), 161.73), ("host", (0, 56), 177.58),
    ],
    "Qwen3.5-0.8B": [
        ("first", (0, 6), 70.64), ("middle", (12, 18), 60.63), ("after host", (15, 24), 44.16),
        ("host", (0, 24), 47.3),
    ],
    "Kimi-Linear-48B-A3B": [
        ("only", (0, 27), 106.01), ("first", (0, 6), 163.53), ("middle", (13, 20), 137.02),
        ("after host", (16, 27), 98.5), ("host", (0, 27), 107.51),
    ],
    "RWKV7-G1-2.9B": [
        ("only", (0, 32), 95.63), ("first", (0, 8), 180.28), ("middle", (16, 24), 205.58),
        ("after host", (20, 32), 91.27), ("host", (0, 32), 102.51), ("bare host", (0, 0), 50.03),
    ],
    "RWKV6-Finch-7B": [
        ("only", (0, 32), 113.0), ("first", (0, 8), 252.39), ("middle", (16, 24), 276.75),
        ("after host", (20, 32), 106.03), ("host", (0, 32), 124.01),
    ],
    "LFM2-1.2B": [
        ("only", (0, 16), 68.01), ("first", (0, 4), 112.12), ("middle", (8, 12), 92.1),
        ("after host", (10, 16), 64.01), ("host", (0, 16), 69.02), ("bare host", (0, 0), 56.07),
    ],
}  # fmt: skip
# Of the measured bytes; on a device after the host it depends on the layers where the holes are.
EXCESS = {"after host": 1.3}


def batch(slots, ubatch=512, cells=4096, n_outputs=None):
    return Batch(cells // slots, 0, ubatch, n_outputs or slots, slots=slots)


def predicted(shape, place, layers):
    """MiB, without the logits that every context keeps on the host."""
    if place in ("host", "bare host"):
        slots = 4 if place == "host" else 1
        size = host_bytes(shape, batch(slots), place == "host", place != "host", place == "host")
        return (size - slots * shape.n_vocab * 4) / MIB
    slots, first, pipelined, output, named = PLACES[place]
    return device_bytes(shape, batch(slots), first, pipelined, output, layers if named else None) / MIB


@pytest.mark.parametrize(
    ("name", "place", "layers", "measured"),
    [(name, *row) for name, rows in MEASURED.items() for row in rows],
)
def test_compute_is_never_below_llama_cpp_and_little_above(name, place, layers, measured):
    size = predicted(model_shape(MODELS[name]), place, layers)
    assert measured - 0.006 <= size <= measured * EXCESS.get(place, 1.15)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_without_named_layers_the_worst_is_taken(name):
    shape = model_shape(MODELS[name])
    for place, layers, _measured in MEASURED[name]:
        if PLACES.get(place, (0,))[-1]:
            slots, first, pipelined, output, _named = PLACES[place]
            worst = device_bytes(shape, batch(slots), first, pipelined, output)
            assert worst >= device_bytes(shape, batch(slots), first, pipelined, output, layers)


def test_a_stage_without_attention_gets_no_mask():
    shape = model_shape(MODELS["Nemotron-Nano-9B-v2"])
    short, long = batch(1), batch(1, cells=131072)

    def stage(context, layers):
        return device_bytes(shape, context, True, True, False, layers)

    assert stage(short, (0, 14)) == stage(long, (0, 14))
    assert stage(long, (0, 15)) - stage(short, (0, 15)) == 4 * (131072 - 4096) * 512 * 2


@pytest.mark.parametrize(
    ("name", "inside", "behind"),
    [
        ("Jamba-Reasoning-3B", (8, 14), (8, 21)),  # layer 21 attends
        ("Jamba-Mini-52B", (6, 11), (6, 10)),  # layer 9 has experts
    ],
)
def test_what_is_handed_back_depends_on_the_layers_beside_the_boundary(name, inside, behind):
    shape = model_shape(MODELS[name])
    crossing = 4 * shape.recurrence.inner * 512 * 4
    ends = [device_bytes(shape, batch(1), False, True, False, layers) for layers in (inside, behind)]
    assert ends[0] - ends[1] == pytest.approx(crossing, rel=0.01)


@pytest.mark.parametrize("name", ["Codestral-Mamba-7B", "RWKV7-G1-2.9B", "Qwen3.5-0.8B"])
def test_every_slot_has_a_state_in_the_buffer(name):
    shape = model_shape(MODELS[name])
    few, many = (device_bytes(shape, batch(slots), True, False, False) for slots in (16, 32))
    assert few + 16 * shape.recurrence.state * 4 <= many


def test_tokens_are_rounded_up_to_the_slots():
    shape = model_shape(MODELS["RWKV6-Finch-7B"])
    assert device_bytes(shape, batch(3), True, False, False) > device_bytes(shape, batch(2), True, False, False)


def test_many_output_rows_outgrow_the_scan():
    shape = model_shape(MODELS["Qwen3.5-0.8B"])
    size = device_bytes(shape, batch(1, n_outputs=512), True, False, True)
    # measured 499.02 MiB
    assert 512 * 248320 * 4 < 499.02 * MIB <= size < 1.03 * 499.02 * MIB


def test_lightning_attention_has_matrices_over_all_pairs_of_tokens():
    shape = model_shape(
        dims("minimax-01", 24, 2048, 2048, 16, 4, 64000, attention__key_length=128, attention__value_length=128,
             expert_count=16, expert_used_count=2)
    )  # fmt: skip
    # measured 84.01 MiB, of which the mask is 4, and an input, its decay and the scores are 16 each
    assert 84.01 <= device_bytes(shape, batch(1), True, False, False) / MIB < 1.15 * 84.01
    # a context with more slots is reserved for one sequence too
    assert device_bytes(shape, batch(4), True, False, False) >= 80.01 * MIB
    # four copies for the pipeline, beside the two of the graph
    assert device_bytes(shape, batch(1), True, True, False) / MIB > 6 * 16


def test_an_unknown_kind_is_charged_more_than_any_known():
    known = [
        Recurrence(kind, 3 * inner, inner, inner, 256, 3, 128 * inner, 64)
        for kind in set(KINDS.values())
        for inner in (1024, 4096)
    ]
    for one in known:
        unknown = Recurrence(UNKNOWN, *(getattr(one, field) for field in list(Recurrence.__dataclass_fields__)[1:]))
        for slots in (1, 4):
            assert widest(unknown, 512, slots) > widest(one, 512, slots)


def test_an_unknown_architecture_with_a_state_gets_the_largest_rows():
    keys = ssm(2048, 128, 16, 1)
    unknown = model_shape(dims("somethingnew", 24, 1024, 3584, 8, 2, 32000, **keys))
    known = model_shape(dims("mamba2", 24, 1024, 0, 8, 2, 32000, **keys))
    assert all(unknown.recurrent)
    for first in (True, False):
        for pipelined in (True, False):
            sizes = [device_bytes(shape, batch(4), first, pipelined, False) for shape in (unknown, known)]
            assert sizes[0] > sizes[1]


def test_layers_with_experts_are_told_by_their_weight():
    shape = model_shape(MODELS["Jamba-Mini-52B"])
    assert shape.recurrence.routed == (False, True) * 16
    assert model_shape(MODELS["Jamba-Reasoning-3B"]).recurrence.routed == ()
