# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What contexts take that draft by themselves, and what their targets keep for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory import heads
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import ContextSpec, model_ledger, whole_model

MIB = 1024 * 1024
EAGLE3 = {"target_layers": [1, 2, 3], "target_hidden_size": 1024, "feed_forward_length": 3072}
GROUPED = {"attention__head_count": 16, "attention__head_count_kv": 8}


def head(world, arch="eagle3", n_layer=1, **keys):
    """A head of a vocabulary of 32000 tokens and rows of 1024 values, unless the keys say more."""
    model = world.gguf(arch=arch, n_layer=n_layer, **{**EAGLE3, **GROUPED, **keys})
    model["role"] = "draft_head"
    return model


def spec(ctx=2048, slots=1, ubatch=512, n_outputs=None, **more):
    return ContextSpec(ctx, slots, ubatch_size=ubatch, n_outputs=n_outputs or slots, drafts=True, **more)


@pytest.mark.parametrize(
    ("arch", "n_layer", "ctx", "slots", "ubatch", "device", "host"),
    [
        # MiB as a llama-server said when it ended, with the head on a worker
        ("eagle3", 1, 2048, 1, 512, 129.1221, 6.0117),
        ("eagle3", 1, 8192, 2, 512, 129.1221, 8.0117),
        ("eagle3", 1, 4096, 4, 128, 32.41, 1.53),
        ("dflash", 2, 2048, 1, 512, 129.1221, 6.0098),
        ("dflash", 2, 4096, 4, 128, 32.41, 1.53),
    ],
)
def test_a_head_takes_the_logits_of_a_micro_batch_twice(world, arch, n_layer, ctx, slots, ubatch, device, host):
    ledger = model_ledger(head(world, arch, n_layer), spec(ctx, slots, ubatch))
    gpu, ram = whole_model(ledger, on_gpu=True, padded=False)
    assert device <= gpu.compute / MIB <= 1.1 * device
    beside = (ram.compute - heads.output_rows(ledger.shape, ledger.drafting.outputs)) / MIB
    assert host <= beside <= 1.5 * host


def test_eagle3_keeps_four_rows_of_the_vocabulary_per_token_in_ram(world):
    ledger = model_ledger(head(world), spec())
    # as the kernel had it: a mapping of this and of the page with malloc's own bytes
    assert heads.output_rows(ledger.shape, ledger.drafting.outputs) == 264245248 - 4096 + 2048
    block = model_ledger(head(world, "dflash", 2), spec(slots=2, n_outputs=2 * 9))
    assert block.drafting.outputs == 18


def test_a_head_is_no_model_to_serve(world):
    with pytest.raises(PoolError, match="role draft_head"):
        model_ledger(head(world), ContextSpec(2048, 1))


def test_a_head_in_ram_takes_the_same_there(world):
    ledger = model_ledger(head(world), spec())
    gpu, ram = whole_model(ledger, on_gpu=False)
    assert gpu.total == 0
    # a server with the head on its CPU said 129.1221
    rows = heads.output_rows(ledger.shape, ledger.drafting.outputs)
    assert 129.1221 <= (ram.compute - rows) / MIB <= 142


def test_an_eagle3_without_an_output_has_no_copy_of_its_embedding(world):
    model = head(world)
    model["tensors"].update(output_bytes=0, tied=True)
    assert model_ledger(model, spec()).output_tied == 0


def test_a_target_keeps_the_rows_that_a_head_reads_where_the_layers_are(world):
    plain = model_ledger(world.gguf(), ContextSpec(4096, 1))
    read = model_ledger(world.gguf(), ContextSpec(4096, 1, read_layers=(1, 4, 9), batch_size=1024))
    row = 512 * 1024 * 4
    assert heads.read_layers(head(world)) == (1, 2, 3)
    assert heads.read_layers(world.gguf()) == heads.read_layers(None) == ()
    assert not read.layers_alike
    for layers, output, count in (((0, 5), False, 2), ((5, 10), True, 1), ((5, 9), False, 0), (None, True, 3)):
        more = read.device_bytes(True, False, output, layers) - plain.device_bytes(True, False, output, layers)
        assert more == count * row
    assert read.host_bytes(False, False) - plain.host_bytes(False, False) == 3 * 1024 * 1024 * 4
    assert read.host_bytes(True, False) - plain.host_bytes(True, False) == 3 * 1024 * 1024 * 4 + 3 * row


def test_the_number_after_the_last_layer_stands_for_its_result():
    given = heads.Given((1, 10))
    assert [given.rows((0, 5), False), given.rows((5, 10), True), given.rows((5, 10), False)] == [1, 1, 0]


def nextn(world, **keys):
    return world.gguf(arch="glm4moe", n_layer=3, nextn_predict_layers=1, **{**GROUPED, "expert_count": 0, **keys})


def test_own_nextn_layers_are_loaded_and_get_a_context_where_they_draft(world):
    plain = model_ledger(nextn(world), ContextSpec(8192, 2))
    drafting = model_ledger(nextn(world), ContextSpec(8192, 2, "q8_0", "q8_0", mtp=True))
    assert (plain.mtp_device, plain.mtp_host, plain.mtp_weights) == (0, 0, 0)
    assert plain.weights == (100 * MIB, 100 * MIB, 0)
    assert drafting.weights == (100 * MIB,) * 3
    assert drafting.mtp_weights == 100 * MIB
    assert drafting.kv[2] == 0
    # in half floats, whatever the target's caches are
    assert drafting.mtp.kv == 8192 * 2 * 8 * 64 * 2
    assert drafting.mtp_device == drafting.mtp.kv + drafting.mtp.compute
    assert drafting.mtp_host > heads.output_rows(drafting.shape, 2)
    assert drafting.given.result
    assert drafting.rows_kept == 2048 * 1024 * 4


def test_layers_that_nothing_drafts_with_stay_out(world):
    # glm4 has NextN layers in its file and no graph for them
    ledger = model_ledger(world.gguf(arch="glm4", n_layer=3, nextn_predict_layers=1), ContextSpec(4096, 1, mtp=True))
    assert (ledger.weights[2], ledger.mtp, ledger.mtp_device) == (0, None, 0)


def test_nextn_layers_in_a_file_of_their_own(world):
    model = nextn(world)
    model["role"] = "draft_head"
    model["tensors"]["blocks"] = [0, 0, 100 * MIB]
    gpu, ram = whole_model(model_ledger(model, spec(8192, 2)), on_gpu=True)
    assert gpu.kv == 8192 * 2 * 8 * 64 * 2
    assert gpu.weights == 160 * MIB + 4096
    assert ram.weights == 50 * MIB
    target = model_ledger(nextn(world), ContextSpec(8192, 2, handed=True))
    # --spec-type draft-mtp loads what the target's own file has as well
    assert target.weights[2] == 100 * MIB
    assert (target.mtp, target.given.result) == (None, True)


def test_a_gemma4_assistant_has_no_cache(world):
    ledger = model_ledger(head(world, "gemma4-assistant", 4, embedding_length_out=3840), spec())
    assert sum(ledger.kv) == 0
    assert ledger.drafting.read == 2 * 3840


def test_states_to_step_back_to(world):
    keys = {"full_attention_interval": 4, "ssm__conv_kernel": 4, "ssm__inner_size": 2048, "ssm__state_size": 128}
    keys.update(ssm__group_count=16, ssm__time_step_rank=16, feed_forward_length=3584, nextn_predict_layers=1)
    model = world.gguf(arch="qwen35", n_layer=5, **keys, attention__head_count=8, attention__head_count_kv=2,
                       attention__key_length=256, attention__value_length=256)  # fmt: skip
    model["tokenizer"]["n_tokens"] = 248320
    asked = ContextSpec(4096, 4, ubatch_size=128, n_outputs=16, mtp=True)
    one, kept = (model_ledger(model, replace(asked, snapshots=count)) for count in (0, 3))
    assert sum(kept.recurrent) == 4 * sum(one.recurrent)
    # 12.84 MiB with one slot and three snapshots, as a llama-server said
    assert sum(model_ledger(model, ContextSpec(2048, 1, snapshots=3)).recurrent) / MIB == pytest.approx(12.84, abs=0.01)
    # 29.5 MiB on a single worker; the widest moment of a layer has as many states
    assert one.device_bytes(True, False, True, (0, 5)) < 29.5 * MIB < kept.device_bytes(True, False, True, (0, 5))
