# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model that is described in another way than gguf_info's."""

from __future__ import annotations

import json

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import describe
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory.header import GGUF, check_header
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import ContextSpec, model_ledger
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tensors": 1}, "tensors is 1, not a dictionary"),
        ({"metadata": [1]}, "metadata is \\[1\\], not a dictionary by name"),
        ({"metadata": {1: 2}}, "metadata is {1: 2}, not a dictionary by name"),
        ({"size_bytes": float("inf")}, "size_bytes is inf, not a whole number, 0 or more"),
        ({"missing": "a.gguf"}, "missing is 'a.gguf', not a list"),
        ({"missing": [None]}, "missing.0 is None, not a text"),
        ({"tokenizer": [0]}, "tokenizer is \\[0\\], not a dictionary"),
        ({"tokenizer": {"n_tokens": "many"}}, "tokenizer.n_tokens is 'many', not a whole number"),
        ({"tensors": {"blocks": [1, "2"]}}, "tensors.blocks.1 is '2', not a whole number"),
        ({"tensors": {"experts": [-1]}}, "tensors.experts.0 is -1, not a whole number"),
        ({"tensors": {"expert": [None]}}, "tensors.expert.0 is None, not a whole number"),
        ({"tensors": {"input_bytes": "RPC0"}}, "tensors.input_bytes is 'RPC0', not a whole number"),
        ({"tensors": {"row_padding": {"512": [0.5]}}}, "tensors.row_padding.512.0 is 0.5, not a whole number"),
    ],
)
def test_what_is_no_description(ask, world, changed, said):
    message = f"^what is said of /models/target.gguf cannot be used: {said}.*: read it again with relay.pool.gguf_info$"
    model = {**world.gguf(), **changed}
    with pytest.raises(PoolError, match=message):
        model_ledger(model, ContextSpec(512, 1))
    with pytest.raises(PoolError, match=message):
        make_plan(ask([3000], model=model))
    with pytest.raises(PoolError, match=message):
        make_plan(ask([3000], draft=model, draft_path="/models/target.gguf"))


def test_a_description_without_a_path():
    with pytest.raises(PoolError, match=r"^what is said of the draft model cannot be used: it is 5, not a dictionary"):
        check_header(5, "the draft model")


@pytest.mark.parametrize(("keys", "claimed"), [({"block_count": 2**31}, 2**31), ({"num_loops": 600}, 6000)])
def test_more_layers_than_llama_cpp_takes(world, keys, claimed):
    model = world.gguf(arch="nanbeige", **keys)
    with pytest.raises(
        PoolError, match=f"^/models/target.gguf claims {claimed} layers, and llama.cpp takes at most 512"
    ):
        model_ledger(model, ContextSpec(512, 1))


def test_what_gguf_info_returns_is_accepted(models):
    found = json.loads(json.dumps(describe(str(models["model"]))))
    check_header(found, "the model")
    assert set(GGUF) <= set(found)
    for part in ("tensors", "tokenizer"):
        assert set(GGUF[part]) <= set(found[part])
