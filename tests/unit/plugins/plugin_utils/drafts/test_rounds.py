# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many tokens a round of a draft gives."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.rounds import expected_tokens


@pytest.mark.parametrize(
    ("acceptance", "n_draft", "tokens"),
    [
        (0, 16, 1),
        (0.5, 3, 1.875),
        (0.7, 3, 2.533),
        (0.8, 5, 3.68928),
        (0.9, 5, 4.68559),
        (1, 5, 6),
        (0.7, 2**31, 10 / 3),
    ],
)
def test_expected_tokens(acceptance, n_draft, tokens):
    assert expected_tokens(acceptance, n_draft) == pytest.approx(tokens, rel=1e-4)
    if n_draft < 100:
        # the mean over how many tokens are accepted, and the one that the target adds
        chances = [acceptance**n * (1 - acceptance if n < n_draft else 1) for n in range(n_draft + 1)]
        assert sum(chances) == pytest.approx(1)
        assert expected_tokens(acceptance, n_draft) == pytest.approx(sum(p * (n + 1) for n, p in enumerate(chances)))
