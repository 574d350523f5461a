# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``plan.predicted``: how many tokens per second a plan may give, with and without its draft."""

from __future__ import annotations

from typing import Any

from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import Verdict
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.rounds import ASSUMED_ACCEPTANCE, draft_rounds
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.speed import (
    network_seconds,
    pass_seconds,
    unknown_bandwidth,
)
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request


def predicted(request: Request, layout: Layout, verdict: Verdict, speculation: Speculation | None) -> dict[str, Any]:
    """``plan.predicted``: rates, what they assume, and why one is null."""
    reason = unknown_bandwidth(layout)
    seconds = None if reason else pass_seconds(layout)
    if seconds == 0:
        reason, seconds = "the file lists no weights that a token reads", None
    result: dict[str, Any] = {
        "tokens_per_second": _rounded(1 / seconds if seconds else None),
        "network_seconds": _rounded(network_seconds(layout) if seconds else None),
        "reason": reason,
        "with_draft_tokens_per_second": None,
        "break_even_acceptance": None,
        "assumed_acceptance": None,
        "draft_tokens": None,
        "draft_reason": f"no draft ({verdict.reason})",
    }
    if speculation is None:
        return result
    rounds, why = draft_rounds(request, layout, speculation) if seconds else (None, reason)
    n_draft = speculation.n_max
    result.update(assumed_acceptance=ASSUMED_ACCEPTANCE, draft_tokens=n_draft, draft_reason=why)
    if rounds:
        even = rounds.break_even(n_draft)
        result["with_draft_tokens_per_second"] = _rounded(rounds.tokens_per_second(n_draft))
        result["break_even_acceptance"] = even
        if even is None:
            result["draft_reason"] = rounds.never(n_draft)
    return result


def _rounded(value: float | None) -> float | None:
    """Three digits, as more would be made up."""
    return None if value is None else float(f"{value:.3g}")
