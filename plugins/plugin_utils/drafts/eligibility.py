# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a draft model may be used; every no has one of a fixed set of reasons and a message with the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import check_model
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import model_shape
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import Dialect

REASONS = (
    "enabled", "not_configured", "not_found", "replica", "no_host_stage", "unsized", "no_room", "tokenizer_mismatch",
    "hybrid_target", "unsupported_build", "measured_slower",
)  # fmt: skip
# These are choices of the user, not something to warn about.
QUIET = frozenset(("enabled", "not_configured", "replica"))
# common/speculative.cpp: SPEC_VOCAB_MAX_SIZE_DIFFERENCE
MAX_VOCAB_DIFFERENCE = 128
# A draft must win at least this much, or its memory is better spent on context.
MIN_SPEEDUP = 1.05


@dataclass(frozen=True)
class Verdict:
    """reason is one of REASONS; message is for people."""

    reason: str
    message: str

    @property
    def enabled(self) -> bool:
        """True when nothing speaks against the draft."""
        return self.reason == "enabled"


def compatibility(
    target: Mapping[str, Any], draft: Mapping[str, Any], comparison: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """{compatible, reason, message}: llama.cpp's vocabulary rule for draft-simple.

    comparison is what gguf_info found with both files at hand; without it the digests of both are compared.
    """
    if comparison:
        if comparison.get("compatible"):
            return {"compatible": True, "reason": None, "message": "the vocabularies match"}
        detail = comparison.get("first_difference") or "the vocabularies differ ({})".format(comparison.get("reason"))
        return {"compatible": False, "reason": comparison.get("reason"), "message": str(detail)}
    mine, other = target.get("tokenizer") or {}, draft.get("tokenizer") or {}

    def no(reason: str, message: str) -> dict[str, Any]:
        return {"compatible": False, "reason": reason, "message": message}

    if not mine or not other:
        return {"compatible": True, "reason": "unknown", "message": "the vocabularies could not be compared"}
    if mine.get("type") != other.get("type"):
        return no("type", f"the target's vocabulary is {mine.get('type')}, the draft's {other.get('type')}")
    for end in ("bos", "eos"):
        flag, token = f"add_{end}_token", f"{end}_token_id"
        if bool(mine.get(flag)) != bool(other.get(flag)):
            return no(end, f"{flag} is {bool(mine.get(flag))} in the target and {bool(other.get(flag))} in the draft")
        if mine.get(flag) and mine.get(token) != other.get(token):
            return no(end, f"{token} is {mine.get(token)} in the target and {other.get(token)} in the draft")
    return _compare_tokens(mine, other, no)


def _compare_tokens(mine: Mapping[str, Any], other: Mapping[str, Any], no: Any) -> dict[str, Any]:
    n_mine, n_other = int(mine.get("n_tokens") or 0), int(other.get("n_tokens") or 0)
    if abs(n_mine - n_other) > MAX_VOCAB_DIFFERENCE:
        return no(
            "size",
            f"the target has {n_mine} tokens and the draft {n_other}: {abs(n_mine - n_other)} apart, at most "
            f"{MAX_VOCAB_DIFFERENCE} are allowed",
        )
    if n_mine == n_other:
        if mine.get("digest") and other.get("digest") and mine["digest"] != other["digest"]:
            return no("token", "the tokens of target and draft differ")
        return {"compatible": True, "reason": None, "message": "the vocabularies match"}
    # A token beyond the smaller vocabulary aborts the server, so what the larger one has more must be padding.
    larger = mine if n_mine > n_other else other
    padding_from = larger.get("padding_from")
    if padding_from is None or padding_from > min(n_mine, n_other):
        return no(
            "padding",
            f"the target has {n_mine} tokens and the draft {n_other}, and those beyond the smaller one are in use",
        )
    for left, right in list(zip(mine.get("chunk_digests") or [], other.get("chunk_digests") or []))[:-1]:
        if left != right:
            return no("token", "the tokens of target and draft differ")
    return {"compatible": True, "reason": None, "message": "the vocabularies match up to padding"}


def eligibility(
    target: Mapping[str, Any],
    draft: Mapping[str, Any] | None,
    draft_path: str | None,
    comparison: Mapping[str, Any] | None,
    dialect: Dialect,
    measured: Mapping[str, Any] | None = None,
) -> Verdict:
    """What can be said before any device is chosen."""
    if not draft_path and not draft:
        return Verdict("not_configured", "no draft model is configured")
    path = draft_path or str((draft or {}).get("path"))
    if not draft:
        return Verdict(
            "not_found", f"the draft model {path} is no file on the host: set relay_draft_model to a GGUF or to nothing"
        )
    if model_shape(target).hybrid:
        return Verdict(
            "hybrid_target",
            f"{target.get('architecture')} keeps a recurrent state: a rejected token costs more than drafting saves",
        )
    try:
        check_model(draft, "the draft model")
        model_shape(draft)
    except PoolError as exc:
        return Verdict("unsized", f"the draft's memory is unknown: {exc}")
    vocabulary = compatibility(target, draft, comparison)
    if not vocabulary["compatible"]:
        return Verdict("tokenizer_mismatch", f"{path} cannot draft for this target: {vocabulary['message']}")
    if dialect.draft_missing:
        return Verdict("unsupported_build", f"{dialect.name} does not know {', '.join(dialect.draft_missing)}")
    plain, with_draft = ((measured or {}).get(key) for key in ("tokens_per_second", "with_draft_tokens_per_second"))
    if plain and with_draft and with_draft < MIN_SPEEDUP * plain:
        return Verdict(
            "measured_slower",
            f"measured {with_draft:g} tokens/s with the draft, {plain:g} without: {MIN_SPEEDUP:g} times is wanted",
        )
    return Verdict("enabled", f"{path} drafts")


def eligible(request: Request, dialect: Dialect) -> tuple[Verdict, Speculation | None]:
    """What can be said before any device is chosen, and what may propose tokens."""
    wanted = request.speculation_type
    if wanted.startswith("ngram-"):
        return Verdict("not_configured", f"{wanted} proposes tokens"), Speculation(wanted, 64, False)
    if wanted == "draft-mtp" and not (request.draft or request.draft_path):
        return Verdict("enabled", "the target's MTP layers"), Speculation(wanted, request.draft_max, False)
    if (request.draft or request.draft_path) and not request.draft_max:
        return Verdict("not_configured", "relay_draft_max is 0, so nothing would be drafted"), None
    verdict = eligibility(
        request.model, request.draft, request.draft_path, request.comparison, dialect, request.measured
    )
    options = (("--spec-draft-n-min", request.draft_min), ("--spec-draft-p-min", request.draft_p_min))
    missing = [flag for flag, value in options if value and flag in dialect.draft_optional_missing]
    if verdict.enabled and missing:
        return Verdict(
            "unsupported_build",
            f"{dialect.name} does not know {', '.join(missing)}: set relay_draft_min, relay_draft_p_min to 0",
        ), None
    kind = "draft-simple" if wanted == "auto" else wanted
    return verdict, Speculation(kind, request.draft_max, True) if verdict.enabled else None


def fallback(request: Request, dialect: Dialect) -> Speculation | None:
    """What proposes tokens where a draft is dropped."""
    return Speculation("ngram-mod", 64, False) if request.draft_fallback == "ngram-mod" else None
