# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From headers to the fact ``gguf``."""

from __future__ import annotations

import json

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import describe
from ansible_collections.relay.pool.plugins.module_utils.gguf_reader import GgufError
from gguf import GGUFReader

BLOCKS = (("add_uint32", "llama.block_count", 2),)


def describe_model(gguf_factory, **options):
    return describe(str(gguf_factory.model(**options)))


@pytest.mark.parametrize(
    ("name", "arch", "place"),
    [
        ("token_embd.weight", "llama", "input"),
        ("per_layer_token_embd.weight", "llama", "input"),
        ("position_embd.weight", "llama", "input"),
        ("token_types.weight", "llama", "input"),
        ("output.weight", "llama", "output"),
        ("output.bias", "llama", "other"),
        ("output_norm.weight", "llama", "output_norm"),
        ("output_norm.bias", "llama", "output_norm"),
        ("token_embd_norm.weight", "lfm2", "output_norm"),
        ("token_embd_norm.weight", "bloom", 0),
        ("per_layer_model_proj.weight", "llama", 0),
        ("blk.0.attn_q.weight", "llama", 0),
        ("blk.1.ffn_up.bias", "llama", 1),
        ("blk.1.nextn.eh_proj.weight", "llama", 1),
        ("enc.blk.1.attn_q.weight", "t5", 1),
        ("dec.blk.0.attn_q.weight", "t5", 0),
        ("blk.2.attn_q.weight", "llama", "other"),  # beyond block_count
        ("v.blk.0.attn_q.weight", "llama", "other"),
        ("cls.output.weight", "llama", "other"),
        ("altup_proj.weight", "llama", "other"),
        ("rope_freqs.weight", "llama", "rope_freqs"),
        ("rope_factors_long.weight", "llama", "rope_freqs"),
        ("masked_embd_centroids.weight", "gemma4-assistant", "unused"),
    ],
)
def test_where_a_tensor_goes(gguf_factory, name, arch, place):
    keys = [("add_uint32", f"{arch}.block_count", 2)]
    tensors = describe_model(gguf_factory, arch=arch, keys=keys, tensors=[(name, (32, 3), "Q8_0")])["tensors"]
    expected = {"input": 0, "output": 0, "output_norm": 0, "other": 0, "rope_freqs": 0, "unused": 0, 0: 0, 1: 0}
    expected[place] = 102
    found = {word: tensors[f"{word}_bytes"] for word in expected if isinstance(word, str)}
    found.update(enumerate(tensors["blocks"]))
    assert found == expected
    assert tensors["bytes"] == 102


TENSORS = (
    ("token_embd.weight", (576, 10), "Q8_0"),
    ("output_norm.weight", (576,), "F32"),
    ("blk.0.attn_q.weight", (576, 4), "Q4_1"),
    ("blk.0.attn_norm.weight", (576,), "F32"),
    ("blk.0.ffn_down.weight", (1536, 4), "Q4_1"),
    ("blk.1.ffn_down_exps.weight", (256, 4, 3), "Q4_K"),
)


@pytest.mark.parametrize("split", [0, 2])
def test_sums(gguf_factory, split):
    path = gguf_factory.model(tensors=TENSORS, keys=BLOCKS, split=split)
    files = sorted(gguf_factory.folder.iterdir())
    facts = describe(str(files[-1]))
    oracle = {tensor.name: tensor for file in files for tensor in GGUFReader(file).tensors}
    sizes = {name: int(tensor.n_bytes) for name, tensor in oracle.items()}
    tensors = facts["tensors"]
    assert facts["path"] == str(files[0])
    assert path in files or split
    assert facts["files"] == [{"path": str(file), "size_bytes": file.stat().st_size} for file in files]
    assert facts["size_bytes"] == sum(file.stat().st_size for file in files)
    assert facts["parameters"] == sum(int(tensor.n_elements) for tensor in oracle.values())
    assert tensors["count"] == len(TENSORS)
    assert tensors["bytes"] == sum(sizes.values())
    assert tensors["token_embd_bytes"] == tensors["input_bytes"] == sizes["token_embd.weight"]
    assert tensors["output_norm_bytes"] == 2304
    assert tensors["blocks"] == [
        sum(size for name, size in sizes.items() if name.startswith("blk.0.")),
        sizes["blk.1.ffn_down_exps.weight"],
    ]
    assert tensors["types"] == {
        "F32": 4608,
        "Q4_1": sizes["blk.0.attn_q.weight"] + sizes["blk.0.ffn_down.weight"],
        "Q4_K": sizes["blk.1.ffn_down_exps.weight"],
        "Q8_0": sizes["token_embd.weight"],
    }
    # 576 leaves 64 elements over: 448 more of Q4_1, once per tensor. 256 of Q4_K want 256 more.
    assert tensors["row_padding"] == {"512": [448 // 32 * 20, 144], "512_output": 448 // 32 * 34}


def test_an_output_matrix_of_its_own(gguf_factory):
    tensors = (*TENSORS, ("output.weight", (576, 10), "Q4_0"))
    facts = describe_model(gguf_factory, tensors=tensors, keys=BLOCKS)["tensors"]
    assert facts["tied"] is False
    assert facts["output_bytes"] == 576 // 32 * 18 * 10
    assert facts["row_padding"]["512_output"] == 448 // 32 * 18


@pytest.mark.parametrize(
    ("arch", "names", "tied"),
    [
        ("llama", ["token_embd.weight"], True),
        ("llama", ["token_embd.weight", "output.weight"], False),
        ("nomic-bert", ["token_embd.weight"], False),
        ("llama", ["blk.0.attn_q.weight"], False),
    ],
)
def test_tied(gguf_factory, arch, names, tied):
    tensors = [(name, (32, 2), "Q8_0") for name in names]
    facts = describe_model(gguf_factory, arch=arch, tensors=tensors)["tensors"]
    assert facts["tied"] is tied


@pytest.mark.parametrize(
    ("arch", "keys", "names", "role"),
    [
        ("llama", [], ["blk.0.attn_q.weight"], "model"),
        ("llama", [("add_string", "general.type", "model")], ["blk.0.attn_q.weight"], "model"),
        ("llama", [("add_string", "general.type", "adapter")], ["blk.0.attn_q.weight.lora_a"], "adapter"),
        ("llama", [("add_string", "adapter.type", "lora")], ["blk.0.attn_q.weight.lora_a"], "adapter"),
        ("clip", [], ["v.blk.0.attn_q.weight"], "mmproj"),
        ("llama", [("add_string", "general.type", "mmproj")], ["v.blk.0.attn_q.weight"], "mmproj"),
        ("llama", [], [], "vocab"),
        ("eagle3", [], ["blk.0.attn_q.weight"], "draft_head"),
        ("dflash", [], ["blk.0.attn_q.weight"], "draft_head"),
        ("qwen35", [], ["token_embd.weight", "blk.3.nextn.eh_proj.weight"], "draft_head"),
        ("qwen35", [], ["blk.0.ssm_a.weight", "blk.3.nextn.eh_proj.weight"], "model"),
    ],
)
def test_role(gguf_factory, arch, keys, names, role):
    tensors = [(name, (32, 2), "Q8_0") for name in names]
    assert describe_model(gguf_factory, arch=arch, keys=keys, tensors=tensors)["role"] == role


@pytest.mark.parametrize(
    ("names", "blocks", "telling"),
    [
        (["blk.0.attn_q.weight"], [], []),
        (["blk.0.attn_q.weight", "blk.3.nextn.eh_proj.weight"], [3], []),
        (["blk.2.nextn.eh_proj.weight", "blk.3.nextn.eh_proj.weight", "blk.3.nextn.enorm.weight"], [2, 3], []),
        (["blk.4.nextn.eh_proj.weight", "blk.1.nextn.eh_proj.bias"], [], []),  # beyond block_count, and no matrix
        (["markov_w1.weight", "conf_proj.weight", "conf_proj.bias"], [], ["conf_proj.weight", "markov_w1.weight"]),
        (["position_embd.weight", "markov_w2.weight"], [], ["position_embd.weight"]),
    ],
)
def test_what_tells_one_draft_from_another(gguf_factory, names, blocks, telling):
    tensors = [(name, (32, 2), "Q8_0") for name in names]
    facts = describe_model(gguf_factory, keys=[("add_uint32", "llama.block_count", 4)], tensors=tensors)["tensors"]
    assert (facts["nextn_blocks"], facts["telling"]) == (blocks, telling)


def test_metadata_holds_what_a_plan_reads(gguf_factory):
    keys = [
        ("add_string", "general.name", "A model"),
        ("add_uint32", "general.file_type", 15),
        ("add_array", "llama.attention.head_count_kv", [0, 8]),
        ("add_array", "llama.pattern", [True, False]),
        ("add_array", "general.tags", ["a", "b"]),
        ("add_float32", "llama.scale", float("inf")),
        ("add_string", "general.description", "x" * 5000),
        ("add_string", "tokenizer.chat_template", "{{ x }}"),
        ("add_string", "tokenizer.ggml.model", "gpt2"),
    ]
    facts = describe_model(gguf_factory, keys=keys, tokens=["a"] * 20, tensors=TENSORS)
    assert facts["metadata"] == {
        "general.architecture": "llama",
        "general.name": "A model",
        "general.file_type": 15,
        "llama.attention.head_count_kv": [0, 8],
        "llama.pattern": [True, False],
        "llama.scale": None,
    }
    assert (facts["architecture"], facts["name"], facts["file_type"]) == ("llama", "A model", 15)
    assert facts["tokenizer"]["n_tokens"] == 20
    assert facts["comparison"] is None
    json.dumps(facts, allow_nan=False)


def test_facts_stay_small_however_long_the_vocabulary(gguf_factory):
    tokens = [f"token{number}" for number in range(50000)]
    facts = describe_model(gguf_factory, tokens=tokens, keys=[("add_string", "tokenizer.ggml.model", "gpt2")])
    assert len(json.dumps(facts)) < 6000
    assert "token49" not in json.dumps(facts)


def test_an_unknown_type_is_listed(gguf_factory):
    path = gguf_factory.model(tensors=TENSORS, keys=BLOCKS)
    gguf_factory.set_type(path, "blk.0.attn_q.weight", 43)
    tensors = describe(str(path))["tensors"]
    assert tensors["unknown_types"] == [43]
    assert tensors["types"]["type43"] == 576 // 32 * 20 * 4


def test_missing_shards_are_listed_by_name(gguf_factory):
    gguf_factory.model(tensors=TENSORS, keys=BLOCKS, split=2)
    (gguf_factory.folder / "m-00002-of-00003.gguf").unlink()
    facts = describe(str(gguf_factory.folder / "m-00003-of-00003.gguf"))
    assert facts["missing"] == ["m-00002-of-00003.gguf"]
    assert facts["tensors"]["count"] == 4


def test_blocks_without_a_count_are_counted(gguf_factory):
    assert len(describe_model(gguf_factory, tensors=TENSORS)["tensors"]["blocks"]) == 2


@pytest.mark.parametrize("keys", [[("add_uint32", "llama.block_count", 2**31)], []])
def test_too_many_blocks_are_refused(gguf_factory, keys):
    tensors = [("blk.99999999999999999999.x.weight", (32,), "Q8_0")]
    with pytest.raises(GgufError, match="at most 512"):
        describe_model(gguf_factory, keys=keys, tensors=tensors)


def test_a_file_without_an_architecture_is_no_model(gguf_factory):
    with pytest.raises(GgufError, match=r"no general\.architecture"):
        describe(str(gguf_factory.raw(bytes(0))))


def test_an_array_of_arrays_is_what_llama_cpp_does_not_load(gguf_factory):
    with pytest.raises(GgufError, match=r"'t\.nested' is an array of arrays, which llama\.cpp does not load"):
        describe_model(gguf_factory, keys=[("add_array", "t.nested", [[1], [2]])])


@pytest.mark.parametrize(
    ("name", "shape", "kind", "one"),
    [
        ("ffn_gate_exps.weight", (32, 6, 4), "Q8_0", 34 * 6),
        ("ffn_up_exps.weight", (32, 6, 4), "Q8_0", 34 * 6),
        ("ffn_down_exps.weight", (64, 2, 4), "Q4_0", 36 * 2),
        ("ffn_gate_up_exps.weight", (32, 6, 4), "Q8_0", 34 * 6),
        ("ffn_gate_chexps.weight", (32, 6, 2), "Q8_0", 34 * 6),
        ("ffn_down_chexps.weight", (32, 6, 2), "Q8_0", 34 * 6),
        ("ffn_down_exps.bias", (32, 4), "F32", 128),
        ("ffn_up_exps.scale", (4,), "F32", 4),
        ("ffn_up_exps.input_scale", (4,), "F32", 4),
        # the file has no dimension for a single expert
        ("ffn_up_exps.weight", (32, 6), "Q8_0", 34 * 6),
        # what every token reads
        ("ffn_up_shexp.weight", (32, 6), "Q8_0", None),
        ("ffn_gate_inp.weight", (32, 4), "F32", None),
        ("ffn_norm_exps.weight", (32,), "F32", None),
        ("exp_probs_b.bias", (4,), "F32", None),
        ("ffn_up.weight", (32, 6), "Q8_0", None),
        ("attn_q.weight", (32, 6, 4), "Q8_0", None),
    ],
)
def test_a_routed_expert_is_told_from_what_every_token_reads(gguf_factory, name, shape, kind, one):
    keys = [("add_uint32", "llama.block_count", 2)]
    facts = describe_model(gguf_factory, keys=keys, tensors=[(f"blk.1.{name}", shape, kind)])["tensors"]
    assert facts["experts"] == [0, facts["bytes"] if one else 0]
    assert facts["expert"] == [0, one or 0]
    assert facts["blocks"] == [0, facts["bytes"]]


def test_experts_are_summed_by_block(gguf_factory):
    tensors = [
        ("blk.0.ffn_up.weight", (32, 6), "Q8_0"),
        ("blk.1.ffn_gate_exps.weight", (32, 6, 4), "Q8_0"),
        ("blk.1.ffn_down_exps.weight", (64, 2, 4), "Q4_0"),
        ("blk.1.ffn_down_shexp.weight", (64, 2), "Q4_0"),
    ]
    facts = describe_model(gguf_factory, keys=BLOCKS, tensors=tensors)["tensors"]
    assert facts["blocks"] == [34 * 6, 4 * (34 * 6 + 36 * 2) + 36 * 2]
    assert facts["experts"] == [0, 4 * (34 * 6 + 36 * 2)]
    assert facts["expert"] == [0, 34 * 6 + 36 * 2]
