# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which weights a token reads, and a batch of tokens."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import describe
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import ContextSpec, model_ledger

from tests.memory.headers import write_header
from tests.memory.shapes import SHAPES

MIB = 1024 * 1024
SPEC = ContextSpec(ctx_size=4096, parallel=1)


def mixture(world, single=3 * MIB, count=32, used=4, arch="qwen3moe", **keys):
    """Blocks of 100 MiB, of which count experts take 3 MiB each."""
    model = world.gguf(arch=arch, n_layer=4, expert_count=count, expert_used_count=used, **keys)
    model["tensors"].update(experts=[count * single] * 4, expert=[single] * 4)
    return model


def test_a_dense_layer_is_read_in_full(world):
    ledger = model_ledger(world.gguf(n_layer=3), SPEC)
    assert ledger.reads == ledger.weight_reads.batch(17) == (100 * MIB,) * 3
    assert not ledger.weight_reads.mixture


def test_a_token_reads_the_experts_it_is_routed_to(world):
    ledger = model_ledger(mixture(world), SPEC)
    assert ledger.reads == ((100 - 96 + 4 * 3) * MIB,) * 4
    assert ledger.weights == (100 * MIB,) * 4
    assert ledger.weight_reads.mixture


@pytest.mark.parametrize(("tokens", "experts"), [(1, 4), (2, 8), (7, 28), (8, 32), (17, 32)])
def test_a_batch_reads_more_experts_up_to_all_of_them(world, tokens, experts):
    reads = model_ledger(mixture(world), SPEC).weight_reads
    assert reads.batch(tokens) == ((4 + experts * 3) * MIB,) * 4


def test_layers_may_route_to_different_numbers_of_experts(world):
    ledger = model_ledger(mixture(world, used=[1, 2, 4, 40]), SPEC)
    assert ledger.reads == (7 * MIB, 10 * MIB, 16 * MIB, 100 * MIB)


def test_what_does_not_say_its_experts_counts_in_full(world):
    model = mixture(world)
    del model["tensors"]["experts"], model["tensors"]["expert"]
    assert model_ledger(model, SPEC).reads == (100 * MIB,) * 4
    model = mixture(world, used=None)
    assert model_ledger(model, SPEC).reads == (100 * MIB,) * 4
    assert not model_ledger(model, SPEC).weight_reads.mixture


@pytest.mark.parametrize("change", [{"experts": [1]}, {"expert": [1] * 5}])
def test_sizes_of_other_blocks_are_refused(world, change):
    model = mixture(world)
    model["tensors"].update(change)
    with pytest.raises(PoolError, match=r"target\.gguf lists no experts .* read it again with gguf_info"):
        model_ledger(model, SPEC)


def test_skipped_next_token_layers_are_not_read(world):
    ledger = model_ledger(mixture(world, arch="glm4moe", nextn_predict_layers=1), SPEC)
    assert ledger.reads == (16 * MIB,) * 3 + (0,)
    assert ledger.weight_reads.batch(17) == (100 * MIB,) * 3 + (0,)


def test_blocks_that_are_run_several_times_are_read_as_often(world):
    ledger = model_ledger(world.gguf(arch="nanbeige", n_layer=4, num_loops=3), SPEC)
    assert ledger.reads == (300 * MIB,) * 4 + (0,) * 8
    assert model_ledger(world.gguf(arch="graniteswitch", n_layer=4), SPEC).reads == (100 * MIB,) * 4 + (0,)


@pytest.mark.parametrize(
    ("arch", "output_mib", "mib"), [("llama", 60, 60), ("llama", 0, 50), ("bitnet", 0, 50), ("bitnet", 60, 60)]
)
def test_a_tied_output_is_read_wherever_it_lies(world, arch, output_mib, mib):
    ledger = model_ledger(world.gguf(arch=arch, output_mib=output_mib), SPEC)
    assert ledger.output_reads == mib * MIB + 4096


# Billions of parameters that a token uses, as the models' makers say; the output counts, the token embedding does not.
ACTIVE = {"Qwen3-30B-A3B": 3.3, "gpt-oss-20B": 3.6, "gpt-oss-120B": 5.1, "Mixtral-8x7B": 12.9, "GLM-4.5-Air": 12}


@pytest.mark.parametrize("name", sorted(ACTIVE))
def test_real_models_read_what_their_makers_call_active(tmp_path, name):
    shape = next(shape for shape in SHAPES if shape.name == name)
    path = tmp_path / f"{name}.gguf"
    write_header(shape, path)
    model = describe(str(path))
    skipped = shape.keys.get("nextn_predict_layers", 0)
    count, used = shape.keys["expert_count"], shape.keys["expert_used_count"]
    weights = 0
    for tensor, dims in shape.tensors.items():
        size = 1
        for dim in dims:
            size *= dim
        if tensor.startswith("token_embd") or any(
            tensor.startswith(f"blk.{shape.n_layer - 1 - nextn}.") for nextn in range(skipped)
        ):
            continue
        weights += size * used // count if "_exps." in tensor else size
    assert weights / 1e9 == pytest.approx(ACTIVE[name], rel=0.12)
    # The bytes of the same weights: every kind of tensor has its own bits, so the blocks are compared by their parts.
    reads = model_ledger({**model, "tokenizer": {"n_tokens": shape.vocab}}, SPEC).weight_reads
    assert [routed * count for routed in reads.routed] == [size * used for size in reads.experts]
    assert sum(reads.experts) + sum(reads.always) == sum(model["tensors"]["blocks"][: shape.n_layer - skipped])
