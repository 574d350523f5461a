# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The estimated speed of a plan in words."""

from __future__ import annotations

from typing import Any, Mapping


def _what(plan: Mapping[str, Any]) -> str:
    kind = plan.get("speculation")
    return "the draft" if kind in (None, "draft-simple") else str(kind)


def lines(plan: Mapping[str, Any]) -> list[str]:
    """One sentence on the speed, one more on that with a draft where there is one; [] where a plan says nothing."""
    found: Mapping[str, Any] = plan.get("predicted") or {}
    rate = found.get("tokens_per_second")
    if rate is None:
        reason = found.get("reason")
        return [f"not estimated: {reason}"] if reason else []
    network = found.get("network_seconds")
    per_token = f" ({1000 * network:.3g} of {1000 / rate:.3g} ms on the network)" if network else ""
    sentences = [f"estimate: at most about {rate:g} tokens/s without a draft{per_token}"]
    n_draft, reason = found.get("draft_tokens"), found.get("draft_reason")
    if not n_draft:
        return sentences
    drafted = found.get("with_draft_tokens_per_second")
    if drafted is None:
        return [*sentences, f"with {_what(plan)} not estimated: {reason}"]
    even = found.get("break_even_acceptance")
    pays = f"it never pays, as {reason}" if even is None else f"it pays above {even:.1%}"
    return [
        *sentences,
        f"estimate: about {drafted:g} tokens/s with {n_draft} drafted per round, each accepted with a chance of "
        f"{found['assumed_acceptance']:.0%}; {pays}",
    ]
