# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A part of ``make memory-check``: every shape of a real model in two arrangements, and the check itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("gguf")

from tests.memory import grid, report
from tests.memory.check import compare, written
from tests.memory.prediction import Bytes
from tests.memory.shapes import SHAPES
from tests.memory.truth import Measured, Pool

MIB = 1024 * 1024
RUN = grid.Run(4096, 1, "f16", grid.BY_NAME["2"])
EXACT = report.Row(SHAPES[0], RUN, "RPC0", Bytes(100 * MIB, 60 * MIB, 4 * MIB, 20 * MIB), Measured(100, 64, 20.0))


@pytest.fixture(scope="module")
def pool(llama_bin, tmp_path_factory):
    """Workers that are kept from shape to shape."""
    made = Pool(llama_bin, tmp_path_factory.mktemp("memory-check"))
    yield made
    made.close()


@pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])
def test_ledger_against_llama_cpp(shape, pool, tmp_path):
    outcome = report.Outcome(shape)
    facts = written(shape, tmp_path)
    for run in grid.SAMPLE:
        compare(outcome, facts, run, pool)()
    assert len(outcome.truths) + len(outcome.aborted) == len(grid.SAMPLE), outcome.refusals
    assert [row.text() for row in outcome.rows if row.wrong] == []


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, False),
        ({"weights": 101 * MIB}, False),
        ({"weights": 102 * MIB}, True),
        ({"weights": 98 * MIB}, True),
        ({"kv": 62 * MIB}, True),
        ({"recurrent": 0}, True),
        ({"compute": 30 * MIB}, False),
        ({"compute": 20 * MIB - MIB // 64}, True),
    ],
)
def test_what_counts_as_wrong(change, wrong):
    row = replace(EXACT, predicted=replace(EXACT.predicted, **change))
    assert row.wrong is wrong
    outcome = report.Outcome(SHAPES[0], rows=[EXACT] * 9 + [row])
    assert bool(report.failures([outcome])) is wrong


def test_a_bound_that_is_far_off_fails():
    row = replace(EXACT, predicted=replace(EXACT.predicted, compute=24 * MIB))
    assert not row.wrong
    assert report.failures([report.Outcome(SHAPES[0], rows=[row])]) == [
        "compute is predicted 20.0% too high in the mean, at most 15% are allowed"
    ]


def test_a_refusal_of_one_side_fails():
    outcome = report.Outcome(SHAPES[0], rows=[EXACT], refusals=[(RUN, "", "wrong shape")])
    assert report.failures([outcome]) == [f"{SHAPES[0].name} {RUN.label}: only llama.cpp refuses: wrong shape"]
    outcome.refusals[:] = [(RUN, "no", "no")]
    assert report.failures([outcome]) == []


def test_nothing_measured_fails():
    assert report.failures([report.Outcome(SHAPES[0])])


def test_summed_figures_are_each_rounded_down():
    row = replace(EXACT, measured=replace(EXACT.measured, weights=98, parts=3))
    assert row.weights == 0
    assert replace(row, measured=replace(row.measured, parts=2)).weights == 2
