# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A part of ``python -m tests.memory.live``: the smaller pairs in one arrangement each, and the check itself."""

from __future__ import annotations

import pytest

pytest.importorskip("gguf")

from tests.memory import live
from tests.memory.drafting import PAIRS
from tests.memory.truth import Pool

SMALL = [pair for pair in PAIRS if pair.target.keys["embedding_length"] < 4096]
# One worker and a pipeline in turn.
CASES = [(pair, live.RUNS[(0, 3)[number % 2]]) for number, pair in enumerate(SMALL)]


@pytest.fixture(scope="module")
def pool(llama_bin, tmp_path_factory):
    """Workers that are kept from pair to pair."""
    made = Pool(llama_bin, tmp_path_factory.mktemp("draft-memory"))
    yield made
    made.close()


@pytest.mark.parametrize(("pair", "run"), CASES, ids=[pair.name for pair, _run in CASES])
def test_ledger_against_a_server_that_drafts(pair, run, pool, tmp_path):
    rows = live.compare(pair, run, pool, tmp_path)
    assert {row.context for row in rows} >= {"target", "draft", "weights", "caches"}
    assert any(row.context == "outputs" for row in rows) == (pair.kind == "draft-eagle3")
    assert all(row.measured > 0 for row in rows if row.context == "target")
    assert [row.text() for row in rows if row.wrong] == []


@pytest.mark.parametrize(
    ("context", "predicted", "wrong"),
    [
        ("weights", 100.04, False),
        ("weights", 100.1, True),
        ("caches", 99.9, True),
        ("outputs", 99.0, True),
        ("draft", 130.0, False),
        ("target", 99.99, True),
    ],
)
def test_what_counts_as_wrong(context, predicted, wrong):
    row = live.Row("pair", live.RUNS[0], context, "RPC0", predicted, 100.0)
    assert row.wrong is wrong
    assert ("WRONG" in row.text()) is wrong
