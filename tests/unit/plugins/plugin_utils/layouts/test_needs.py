# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a device needs for a range of layers is what the ledger says of exactly these, however it is remembered."""

from __future__ import annotations

from random import Random

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.needs import HostNeeds, Needs
from ansible_collections.relay.pool.plugins.plugin_utils.memory import compute
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import ContextSpec, model_ledger

from tests.scale.pools import KINDS, random_model


def ledger_of(kind, n_layer=14):
    rng = Random(5)
    model = next(model for model in iter(lambda: random_model(rng, n_layer, 50), None) if model["architecture"] == kind)
    return model_ledger(model, ContextSpec(ctx_size=8192, parallel=2, n_outputs=2))


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_range(kind, gpu, pipelined):
    ledger = ledger_of(kind)
    needs, n_layer = Needs(ledger, gpu, pipelined), ledger.n_layer
    for first in range(n_layer + 1):
        for end in range(first + 1, n_layer + 2):
            layers = (first, min(end, n_layer))
            output = end > n_layer
            expected = compute.device_bytes(ledger.shape, ledger.batch, first == 0, pipelined, output, layers, gpu)
            assert ledger.device_bytes(first == 0, pipelined, output, layers, gpu) == expected
            held = ledger.layer_weights(*layers, gpu) + (ledger.output_weights(gpu) if output else 0)
            state = sum(ledger.kv[slice(*layers)]) + sum(ledger.recurrent[slice(*layers)])
            size = held + state + ledger.per_device + expected
            assert needs.row(first).sizes[end - first - 1] == needs.size(first, end) == size
    # The worst case and a known range are not taken for each other.
    worst = ledger.device_bytes(True, pipelined, True, gpu=gpu)
    assert worst == compute.device_bytes(ledger.shape, ledger.batch, True, pipelined, True, None, gpu)
    assert needs.held() == ledger.layer_weights(0, n_layer, gpu) + ledger.output_weights(gpu) + sum(
        ledger.kv + ledger.recurrent
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_longest_range_that_fits(kind):
    needs = Needs(ledger_of(kind), True, True)
    for first in range(14):
        row = needs.row(first)
        for room in (*row.sizes, *(size - 1 for size in row.sizes), 0):
            fitting = [count for count, size in enumerate(row.sizes, 1) if size <= room]
            assert row.longest(room) == max(fitting, default=0)
    least = min(size for first in range(15) for size in needs.row(first).sizes)
    assert 0 < needs.least <= least


def test_layers_differ_where_the_architecture_says_so():
    alike = {kind for kind in KINDS if ledger_of(kind).layers_alike}
    assert alike == {"llama", "glm4moe"}
    nested = {kind for kind in KINDS if Needs(ledger_of(kind), True, True).nested}
    assert alike <= nested


def test_the_host_holds_the_first_layers():
    ledger = ledger_of("llama")
    sizes = HostNeeds(ledger, False).row(0).sizes
    assert len(sizes) == ledger.n_layer
    fixed = ledger.input + ledger.per_device + ledger.host_bytes(True, False)
    assert sizes[2] == fixed + ledger.layer_weights(0, 3, False) + sum(ledger.kv[:3])
    with pytest.raises(ValueError, match="first layers"):
        HostNeeds(ledger, False).row(1)
    beside = ledger.host_bytes(True, False, True) - ledger.host_bytes(True, False)
    beside += ledger.output_weights(False, on_cpu=True)
    assert beside > 0
    assert HostNeeds(ledger, True).row(0).sizes == [size + beside for size in sizes]
