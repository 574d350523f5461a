# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contexts of a draft and of its target, by type of speculation."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.ledgers import (
    draft_ledger,
    draft_spec,
    shares_caches,
    shares_output,
    target_spec,
)
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request


def request(world, draft=None, **options):
    return Request(model=world.gguf(), host="host", nodes={}, draft=draft, parallel=3, **options)


def head(world, arch, **sizes):
    model = world.gguf(arch=arch, n_layer=1, target_layers=[2, 5, 8], target_hidden_size=1024)
    model["role"] = "draft_head"
    model["tensors"].update(sizes)
    return model


@pytest.mark.parametrize(
    ("kind", "drafts", "n_outputs"),
    [
        ("draft-simple", False, 3),
        ("draft-eagle3", True, 3),
        ("draft-mtp", True, 3),
        ("draft-dflash", True, 27),
        ("draft-dspark", True, 27),
    ],
)
def test_a_drafts_context(world, kind, drafts, n_outputs):
    asked = request(world, cache_type_k="q8_0", cache_type_v="q8_0", ubatch_size=256, batch_size=1024)
    spec = draft_spec(asked, Speculation(kind, 8, True))
    assert (spec.drafts, spec.n_outputs, spec.cache_type_k, spec.ubatch_size) == (drafts, n_outputs, "f16", 256)


def test_a_targets_context(world):
    asked = request(world, head(world, "eagle3"), batch_size=1024)
    eagle3 = target_spec(asked, Speculation("draft-eagle3", 4, True))
    assert (eagle3.read_layers, eagle3.handed, eagle3.mtp) == ((2, 5, 8), False, False)
    assert (eagle3.n_outputs, eagle3.batch_size) == (15, 1024)
    mtp = target_spec(asked, Speculation("draft-mtp", 3, False, 3))
    assert (mtp.read_layers, mtp.handed, mtp.mtp, mtp.snapshots) == ((), False, True, 3)
    assert target_spec(request(world), Speculation("draft-mtp", 3, True)).handed
    # n-grams beside a head that has no room
    assert target_spec(asked, Speculation("ngram-mod", 64, False)).read_layers == ()


def test_a_heads_ledger_is_that_of_its_file(world):
    simple = draft_ledger(request(world, world.gguf(n_layer=4)), Speculation("draft-simple", 8, True))
    eagle3 = draft_ledger(request(world, head(world, "eagle3")), Speculation("draft-eagle3", 8, True))
    assert simple.drafting is None
    assert (eagle3.drafting.read, eagle3.drafting.outputs) == (3 * 1024, 512)


@pytest.mark.parametrize(
    ("arch", "sizes", "shares"),
    [
        ("eagle3", {}, False),
        ("eagle3", {"output_bytes": 0}, True),
        ("eagle3", {"output_bytes": 0, "token_embd_bytes": 0}, True),
        ("dflash", {"token_embd_bytes": 0}, False),
        # it multiplies with its own embedding
        ("dflash", {"output_bytes": 0}, False),
        ("dflash", {"output_bytes": 0, "token_embd_bytes": 0}, True),
        ("llama", {"output_bytes": 0}, False),
    ],
)
def test_a_head_without_an_output_is_bound_to_its_targets(world, arch, sizes, shares):
    asked = request(world, head(world, arch, **sizes))
    assert shares_output(asked, Speculation("draft-eagle3", 8, True)) is shares
    assert not shares_output(asked, Speculation("ngram-mod", 8, False))


def test_an_assistant_is_bound_to_the_caches_of_its_target(world):
    asked = request(world, head(world, "gemma4-assistant"))
    assert shares_caches(asked, Speculation("draft-mtp", 3, True))
    assert not shares_output(asked, Speculation("draft-mtp", 3, True))
    assert not shares_caches(asked, Speculation("ngram-mod", 8, False))
    assert not shares_caches(request(world, head(world, "eagle3")), Speculation("draft-eagle3", 8, True))
