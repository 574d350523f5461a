# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a file fits its type and its target.

Every no was seen on llama-server b11434 with tiny files: what it did stands behind it.
"""

from __future__ import annotations

import re

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.drafts import architectures
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.heads import Pair, misfit, mtp_layers, wrong_kind
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import KNOWN

FITS = {"llama": ("eagle3", "dflash", "dspark"), "glm4moe": ("glm4moe-mtp",), "gemma4": ("gemma4-assistant",)}
KINDS = {
    "draft": "draft-simple", "eagle3": "draft-eagle3", "dflash": "draft-dflash", "dspark": "draft-dspark",
    "glm4moe-mtp": "draft-mtp", "gemma4-assistant": "draft-mtp",
}  # fmt: skip


@pytest.mark.parametrize(("target", "head"), [(target, head) for target, heads in FITS.items() for head in heads])
def test_a_head_of_the_target_fits(files, target, head):
    draft = files(head)
    assert wrong_kind(KINDS[head], draft) is None
    assert misfit(KINDS[head], Pair(files(target), draft)) is None


@pytest.mark.parametrize("head", KINDS)
@pytest.mark.parametrize("kind", sorted(set(KINDS.values())))
def test_a_file_of_another_kind(files, kind, head):
    """Exit 1 (MTP), abort (DFlash, DSpark), silence (EAGLE-3) or a crash (an MTP file as a plain draft)."""
    message = wrong_kind(kind, files(head))
    assert (message is None) is (kind == KINDS[head])
    if message:
        assert re.search(f"not one for {kind}: set relay_speculation_type to auto or {KINDS[head]}$", message)


def test_a_whole_model_may_draft_with_its_own_layers(files):
    assert wrong_kind("draft-mtp", files("glm4moe")) is None
    assert wrong_kind("draft-simple", files("glm4moe")) is None


@pytest.mark.parametrize(
    ("kind", "head", "keys", "numbers"),
    [
        # healthy, then "failed to add embedding" with the first request
        ("draft-eagle3", "eagle3", {"target_hidden_size": 2048}, "listens to layers of 2048 values.* have 1024"),
        # "EAGLE3: target layer id 11 exceeds target n_layer 10"
        ("draft-eagle3", "eagle3", {"target_layers": [2, 5, 11]}, "layers 2, 5, 11, and the target has 10"),
        # "expected 3 extract layers", exit 1
        ("draft-eagle3", "eagle3", {"target_layers": [2, 5]}, "has 1 layers and listens to 2"),
        ("draft-eagle3", "eagle3", {"n_layer": 2}, "has 2 layers and listens to 3"),
        ("draft-eagle3", "eagle3", {"target_layers": None}, "does not say to which layers"),
        ("draft-dflash", "dflash", {"embedding_length": 512}, "listens to layers of 512 values.* have 1024"),
        # GGML_ASSERT(lid <= model.hparams.n_layer())
        ("draft-dflash", "dflash", {"target_layers": [2, 11]}, "layers 2, 11, and the target has 10"),
        # "layer input tensor is null" with the first request
        ("draft-dflash", "dflash", {"target_layers": [2, 10]}, "what comes out of the last of llama"),
        ("draft-dflash", "dflash", {"block_size": 1}, "blocks of 1 tokens, so nothing is drafted"),
        ("draft-dspark", "dspark", {"block_size": 1, "sample_from_anchor": False}, "blocks of 1 tokens"),
        # healthy, then "failed to add embedding" with the first draft
        ("draft-dflash", "dflash", {"tokenizer": {"mask_token_id": None}}, "names no mask token"),
    ],
)
def test_a_head_of_another_target(files, kind, head, keys, numbers):
    assert re.search(numbers, misfit(kind, Pair(files("llama"), files(head, **keys))))


@pytest.mark.parametrize(
    ("keys", "p_min", "fits"),
    [
        ({}, 0.5, True),
        ({"has_confidence_head": True}, 0.5, True),
        # "DSpark draft has no confidence head: please set --spec-draft-p-min 0", and the server runs without
        ({"has_confidence_head": False}, 0.5, False),
        ({"has_confidence_head": False}, 0.0, True),
        # healthy, and never drafts
        ({"tensors": {"telling": ["markov_w1.weight"]}}, 0.5, False),
        ({"tensors": {"telling": ["markov_w1.weight"]}}, 0.0, True),
    ],
)
def test_a_least_probability_needs_a_confidence_head(files, keys, p_min, fits):
    message = misfit("draft-dspark", Pair(files("llama"), files("dspark", **keys)), p_min)
    assert (message is None) is fits
    assert fits or "relay_draft_p_min 0.5: set it to 0" in message
    assert misfit("draft-dflash", Pair(files("llama"), files("dflash")), 0.5) is None


def test_a_target_that_gives_nothing_away(files, world):
    """Healthy, then "layer input tensor is null" with the first request."""
    target = world.gguf(arch="qwen2")
    for head in ("eagle3", "dflash"):
        assert "layers of architecture qwen2" in misfit(KINDS[head], Pair(target, files(head)))
        assert misfit(KINDS[head], Pair(target, files(head), tables=False)) is None
    # of the last layer's output an EAGLE-3 draft gets another row, which all give
    assert misfit("draft-eagle3", Pair(target, files("eagle3", target_layers=[10, 10, 10]))) is None


@pytest.mark.parametrize(
    ("target", "head", "keys", "numbers"),
    [
        # "MTP input row width must match the target h_nextn width"
        ("glm4moe", "glm4moe-mtp", {"embedding_length": 512}, "rows of 512 values, and the target gives 1024"),
        ("gemma4", "gemma4-assistant", {"embedding_length_out": 2048}, "rows of 2048 values.* gives 1024"),
        ("llama", "glm4moe-mtp", {}, "targets of architecture glm4moe, and this one is llama"),
        ("llama", "gemma4-assistant", {}, "targets of architecture gemma4, and this one is llama"),
        ("gemma4", "gemma4-assistant", {"nextn_predict_layers": 0}, "has no NextN layers"),
        ("glm4moe", "glm4moe-mtp", {"tensors": {"nextn_blocks": []}}, "lacks block 10"),
    ],
)
def test_an_mtp_file_of_another_target(files, target, head, keys, numbers):
    assert re.search(numbers, misfit("draft-mtp", Pair(files(target), files(head, **keys))))


@pytest.mark.parametrize(
    ("kind", "keys", "message"),
    [
        ("glm4moe", {}, None),
        ("qwen35", {}, None),
        # "context type MTP requested but model doesn't contain MTP layers", exit 1
        ("llama", {}, "has no NextN layers, without which llama-server exits"),
        ("glm4moe", {"nextn_predict_layers": 0}, "has no NextN layers"),
        # "MTP block missing nextn.eh_proj", abort
        ("glm4moe", {"tensors": {"nextn_blocks": []}}, "names 1 NextN layers and lacks block 10"),
        # of a file that an older gguf_info read, the metadata are believed
        ("glm4moe", {"tensors": {"nextn_blocks": None}}, None),
        # "GLM4_MOE MTP currently only supports a single MTP block", abort
        ("glm4moe", {"nextn_predict_layers": 2}, "has 2 NextN layers, and llama.cpp b11434 aborts with more than 1"),
        ("glm4moe", {"arch": "step35", "nextn_predict_layers": 3}, None),
        ("glm4moe", {"arch": "glm4"}, "does not draft with the NextN layers of architecture glm4"),
        ("glm4moe", {"arch": "graniteswitch"}, "has no NextN layers"),
        ("glm4moe", {"arch": "deepseek2"}, "without attention.key_length_mla"),
        ("glm4moe", {"arch": "deepseek2", "attention__key_length_mla": 192}, None),
    ],
)
def test_own_layers(files, kind, keys, message):
    found = mtp_layers(files(kind, **keys))
    assert found is None if message is None else message in found


def test_a_newer_build_may_have_learned_more(files):
    assert mtp_layers(files("glm4moe", arch="glm4"), tables=False) is None
    assert "no NextN layers" in mtp_layers(files("llama"), tables=False)
    assert architectures.speak_of(None)
    assert architectures.speak_of({"build": 11434})
    assert architectures.speak_of({"build": None})
    assert not architectures.speak_of({"build": 11435})


@pytest.mark.parametrize("layers", [["a", 1, 2], [True, 1, 2], [-1, 1, 2], [1.5, 2, 3]])
def test_layers_that_are_no_numbers(files, layers):
    with pytest.raises(PoolError, match="no numbers of layers: get the file again"):
        misfit("draft-eagle3", Pair(files("llama"), files("eagle3", target_layers=layers)))


def test_every_architecture_of_the_tables_is_known():
    named = [architectures.MTP_OF_ONE, architectures.MTP_OF_SEVERAL, architectures.MTP_BY_LATENT, architectures.ROUTED]
    named += [architectures.LAYER_INPUTS, architectures.LAST_OUTPUT, architectures.ROLLBACK]
    assert not frozenset().union(*named) - KNOWN
