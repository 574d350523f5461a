# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A thousand machines with eight GPUs each; the bounds are generous, docs/scale.md has the figures."""

from __future__ import annotations

import pytest

from tests.scale.measure import CASES, FLEETS, measure, measure_apart

SECONDS, MIB = 2.0, 300


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_hundred_machines(case, fleet):
    cost = measure(100, fleet, case)
    assert cost.answer == case.answer
    assert cost.seconds < SECONDS
    assert cost.again_seconds < SECONDS


LARGE = (("replica on a worker", "random"), ("sharded, host without GPU", "usual"), ("just too small", "random"))


@pytest.mark.parametrize(("name", "fleet"), LARGE)
def test_a_thousand_machines(name, fleet):
    case = next(case for case in CASES if case.name == name)
    cost = measure_apart(1000, fleet, case)
    assert cost.answer == case.answer
    assert cost.seconds < SECONDS
    assert cost.again_seconds < SECONDS
    assert cost.peak_mib < MIB
