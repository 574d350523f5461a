# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy

import pytest
from ansible_collections.relay.pool.plugins.module_utils import overrides

FACTS = {
    "memory": {"total_bytes": 100, "available_bytes": 60, "own_bytes": 20, "bandwidth_bytes_per_second": None},
    "cpu": {"model": "EPYC", "threads": 8, "physical_cores": 4},
    "gpus": [
        {**overrides.new_gpu(1), "memory_total_bytes": 80, "memory_own_bytes": 5, "placeable": False, "reason": "MIG"}
    ],
}


def apply(values):
    facts = copy.deepcopy(FACTS)
    return facts, overrides.apply_overrides(facts, values)


@pytest.mark.parametrize(
    ("values", "memory"),
    [
        ({}, (100, 60, 20, None)),
        ({"available_bytes": 50}, (100, 50, 0, None)),
        ({"available_bytes": "50"}, (100, 50, 0, None)),
        # No more can be available than there is.
        ({"total_bytes": 40}, (40, 40, 20, None)),
        ({"bandwidth_bytes_per_second": 7}, (100, 60, 20, 7)),
    ],
)
def test_memory(values, memory):
    facts, done = apply({"memory": values})
    assert tuple(facts["memory"].values()) == memory
    assert done == [f"memory.{key}" for key in values]


def test_nothing_given():
    assert apply({}) == (FACTS, [])
    assert apply(None) == (FACTS, [])


def test_known_gpu():
    facts, done = apply({"gpus": [{"index": 1, "placeable": "yes", "memory_free_bytes": 70}]})
    gpu = facts["gpus"][0]
    assert (gpu["placeable"], gpu["reason"], gpu["memory_free_bytes"], gpu["memory_own_bytes"]) == (True, None, 70, 0)
    assert gpu["memory_total_bytes"] == 80
    assert done == ["gpus.1.placeable", "gpus.1.memory_free_bytes"]


@pytest.mark.parametrize(
    ("values", "memory"),
    [
        # No more can be free than there is.
        ({"memory_total_bytes": 40, "memory_free_bytes": 50}, (40, 40)),
        ({"memory_free_bytes": 90}, (80, 80)),
        ({"memory_free_bytes": None}, (80, None)),
    ],
)
def test_memory_of_a_gpu(values, memory):
    gpu = apply({"gpus": [{"index": 1, **values}]})[0]["gpus"][0]
    assert (gpu["memory_total_bytes"], gpu["memory_free_bytes"]) == memory


def test_gpu_that_is_not_to_be_used_says_so():
    facts, _done = apply({"gpus": [{"index": 1, "placeable": False}]})
    assert facts["gpus"][0]["reason"] == "set by overrides"


def test_unknown_index_adds_a_gpu_in_order():
    facts, done = apply({"gpus": [{"index": 0, "name": "RTX", "memory_total_bytes": 24}], "cpu": {"threads": 2}})
    assert [(gpu["index"], gpu["device"], gpu["name"]) for gpu in facts["gpus"]] == [
        (0, "CUDA0", "RTX"),
        (1, "CUDA1", "GPU 1"),
    ]
    assert facts["cpu"]["threads"] == 2
    assert done == ["gpus.0.name", "gpus.0.memory_total_bytes", "cpu.threads"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"disk": {}}, "overrides.disk is not known"),
        ({"memory": {"free": 1}}, "overrides.memory.free is not known"),
        ({"memory": 5}, "overrides.memory is 5"),
        ({"memory": {"total_bytes": -1}}, "overrides.memory.total_bytes is -1"),
        ({"memory": {"total_bytes": "8G"}}, "overrides.memory.total_bytes is '8G'"),
        ({"memory": {"total_bytes": True}}, "overrides.memory.total_bytes is True"),
        ({"gpus": {"index": 0}}, "overrides.gpus is"),
        ({"gpus": [{"name": "x"}]}, "needs the index"),
        ({"gpus": ["x"]}, "needs the index"),
        ({"gpus": [{"index": 1, "placeable": "maybe"}]}, "overrides.gpus.1.placeable is 'maybe'"),
        ({"memory": {"total_bytes": "\u00b2"}}, "overrides.memory.total_bytes is"),
        ({"memory": {"total_bytes": "9" * 5000}}, "overrides.memory.total_bytes is"),
        ({"memory": {"bandwidth_bytes_per_second": 0}}, "a whole number, 1 or more"),
        ({"cpu": {"threads": 0}}, "overrides.cpu.threads is 0"),
        ({"cpu": {"threads": None}}, "overrides.cpu.threads is null"),
        ({"cpu": {"model": ["x"]}}, "overrides.cpu.model is ['x']"),
        ({"gpus": [{"index": True}]}, "overrides.gpus.index is True"),
        ({"gpus": [{"index": 1, "placeable": None}]}, "overrides.gpus.1.placeable is null"),
        ({"gpus": [{"index": 1, "device": None}]}, "overrides.gpus.1.device is null"),
        ({"gpus": [{"index": 1, "vram": 1}]}, "overrides.gpus.1.vram is not known"),
    ],
)
def test_what_cannot_be_meant(values, words):
    with pytest.raises(ValueError, match="overrides") as error:
        apply(values)
    assert words in str(error.value)
