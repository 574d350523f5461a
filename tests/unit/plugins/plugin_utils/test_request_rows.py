# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output rows that the ledger charges, by what the installed build reserves."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

from tests.builds import BUILDS, MARCH, TODAY, facts_of


@pytest.fixture
def request_of(world):
    def make(llama, **options):
        return Request(model=world.gguf(), host="h", nodes={"h": world.node(1)}, llama=llama, **options)

    return make


@pytest.mark.parametrize(
    ("build", "options", "target", "draft"),
    [
        (TODAY, {"parallel": 2}, 2 * 17, 2),
        # a row per token of a batch, and a draft's context per slot
        (MARCH, {"parallel": 1}, 512, 512),
        (MARCH, {"parallel": 2}, 512, 1024),
        (MARCH, {"parallel": 2, "ubatch_size": 64}, 64, 128),
        # never fewer than are verified at once, nor more than a batch has
        (MARCH, {"parallel": 8, "ubatch_size": 64}, 8 * 17, 512),
        (MARCH, {"parallel": 1, "batch_size": 128}, 128, 128),
    ],
)
def test_output_rows(request_of, build, options, target, draft):
    request = request_of(facts_of(build), **options)
    assert request.target_spec(16).n_outputs == target
    assert request.draft_spec().n_outputs == draft


def test_without_facts_it_is_a_build_of_today(request_of):
    assert request_of(None).target_spec(16) == request_of(facts_of(TODAY)).target_spec(16)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(
    "broken",
    [
        {"flag_values": {"--flash-attn": {"words": "on"}}},
        {"flag_values": {"--draft-p-min": {"default": 0.75}}},
        {"rpc_devices": 1},
        {"rpc_reuses_graphs": "yes"},
        {"bounds_output_rows": 1},
    ],
)
def test_facts_that_no_module_returns_are_named(request_of, build, broken):
    request_of(facts_of(build))
    with pytest.raises(PoolError, match=f"^llama.{next(iter(broken))}.* is "):
        request_of(facts_of(build, **broken))
