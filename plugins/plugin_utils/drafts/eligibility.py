# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether tokens may be proposed, and by what; every no has one of a fixed set of reasons and a message with the
numbers.

What is refused here is what the real server does badly with: it exits, aborts (often with the first request, after a
healthy start), or runs on without speculation and without a word. docs/speculation.md says so for users.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.relay.pool.plugins.plugin_utils.drafts import architectures, heads
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.pre_tokenizers import unknown_name
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.proposals import speculation_of
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.recurrent import refusal, state_saved
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import (
    IN_BLOCKS,
    MTP,
    NGRAMS,
    SIMPLE,
    Speculation,
    asked_fallback,
    asked_type,
    own_type,
    telling,
)
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.vocabulary import compatibility, fault, same_tokens
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory import kv
from ansible_collections.relay.pool.plugins.plugin_utils.memory.caches import NO_CACHE
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import check_model
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import KNOWN, model_shape
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import Dialect

REASONS = (
    "enabled", "not_configured", "not_found", "replica", "no_host_stage", "unsized", "no_room", "tokenizer_mismatch",
    "hybrid_target", "unsupported_build", "measured_slower",
)  # fmt: skip
# These are choices of the user, not something to warn about.
QUIET = frozenset(("enabled", "not_configured", "replica"))
# A draft must win at least this much, or its memory is better spent on context.
MIN_SPEEDUP = 1.05
# A model with a row for every position aborts beyond the last one.
POSITIONS = "position_embd.weight"


@dataclass(frozen=True)
class Verdict:
    """reason is one of REASONS; message is for people."""

    reason: str
    message: str

    @property
    def enabled(self) -> bool:
        """True when nothing speaks against the draft."""
        return self.reason == "enabled"


def eligible(request: Request, dialect: Dialect) -> tuple[Verdict, Speculation | None]:
    """What can be said before any device is chosen; the second is None where nothing may propose tokens.

    Raises PoolError for a type or a fallback that there is not. A type that is named outright runs on a target with a
    recurrent state, too; everything else that is wrong with it drops it.
    """
    asked = asked_type(request.speculation_type)
    asked_fallback(request.draft_fallback)
    if asked in NGRAMS:
        return _ngram(request, dialect, asked)
    if not _configured(request):
        return Verdict("not_configured", _not_configured(request)), None
    if request.draft is None and request.draft_path and request.draft_error:
        return Verdict("unsized", _unreadable(request)), None
    if request.draft is None and (request.draft_path or asked != MTP):
        return Verdict("not_found", _not_found(request)), None
    if not request.draft_max:
        return Verdict("not_configured", "relay_draft_max is 0, so nothing would be drafted"), None
    try:
        return _drafting(request, dialect, asked)
    except PoolError as exc:
        return Verdict("unsized", f"the draft's memory is unknown: {exc}"), None


def fallback(request: Request, dialect: Dialect) -> Speculation | None:
    """What proposes tokens in the place of a draft that was configured and is dropped; None: nothing does."""
    word = asked_fallback(request.draft_fallback)
    if word == "none" or not _configured(request) or not request.draft_max or request.speculation_type in NGRAMS:
        return None
    if dialect.lacks(word) or _cacheless(request) or model_shape(request.model).hybrid:
        return None
    return Speculation(word, NGRAMS[word], own_file=False)


def asked_for(request: Request) -> tuple[str, ...]:
    """The types that the request is about, whatever the installed build makes of them: the first choice, the fallback.

    Raises PoolError for a type or a fallback that there is not.
    """
    asked, instead = asked_type(request.speculation_type), asked_fallback(request.draft_fallback)
    if asked in NGRAMS:
        return (asked,)
    if not _configured(request) or not request.draft_max:
        return ()
    known = asked != "auto" or request.draft is not None
    first = own_type(request.draft or {}) if asked == "auto" else asked
    return (*([first] if known else []), *([instead] if instead != "none" else []))


def _configured(request: Request) -> bool:
    """Whether a draft is wanted: a file is named, or a type that is neither auto nor none."""
    asked = asked_type(request.speculation_type)
    return asked != "none" and bool(request.draft or request.draft_path or asked != "auto")


def _not_configured(request: Request) -> str:
    if request.speculation_type == "none":
        return "relay_speculation_type is none"
    return "no draft model is configured"


def _not_found(request: Request) -> str:
    if not request.draft_path:
        return (
            f"relay_speculation_type is {request.speculation_type}, which needs a draft model, and relay_draft_model "
            "is empty: set it, or set the type to auto"
        )
    return f"the draft model {request.draft_path} is no file on the host: set relay_draft_model to a GGUF or to nothing"


def _unreadable(request: Request) -> str:
    error = request.draft_error.strip().rstrip(".")
    named = error if request.draft_path and request.draft_path in error else f"{request.draft_path}: {error}"
    return f"the draft model cannot be read, {named}: set relay_draft_model to a whole GGUF or to nothing"


def _ngram(request: Request, dialect: Dialect, asked: str) -> tuple[Verdict, Speculation | None]:
    missing = dialect.lacks(asked)
    if missing:
        return _unknown_to(dialect, missing, f"{asked} cannot run"), None
    if _cacheless(request):
        return _without_cache(request), None
    path = request.draft_path or (request.draft or {}).get("path")
    unused = f", and {path} is not used" if path else ""
    message = f"{asked} proposes tokens from the text itself: no draft model is needed{unused}"
    if model_shape(request.model).hybrid:
        message += (
            f"; in every round with a proposal llama-server saves the target's recurrent state, {state_saved(request)}"
        )
    return Verdict("not_configured", message), Speculation(asked, NGRAMS[asked], own_file=False)


def _drafting(request: Request, dialect: Dialect, asked: str) -> tuple[Verdict, Speculation | None]:
    """A draft in a file of its own, or the target's NextN layers."""
    draft = request.draft
    kind = asked if draft is None else own_type(draft) if asked == "auto" else asked
    if _cacheless(request):
        return _without_cache(request), None
    speculation = speculation_of(request, kind)
    shape = model_shape(request.model)
    if shape.hybrid and not speculation.snapshots and asked == "auto":
        return Verdict("hybrid_target", refusal(request, kind)), None
    wrong = _target_verdict(request) if draft is None else _file_verdict(request, kind)
    wrong = wrong or _settings_verdict(request, dialect, speculation)
    if wrong:
        return wrong, None
    return Verdict("enabled", _enabled(request, speculation)), speculation


def _target_verdict(request: Request) -> Verdict | None:
    """Of the target's own NextN layers."""
    wrong = heads.mtp_layers(request.model, architectures.speak_of(request.llama))
    return Verdict("unsupported_build", wrong) if wrong else None


def _file_verdict(request: Request, kind: str) -> Verdict | None:
    """Of a draft in a file of its own, apart from the build and the settings."""
    draft = request.draft or {}
    pair = heads.Pair(request.model, draft, architectures.speak_of(request.llama))
    # a head counts as a model here: whether it is the wanted one is said next
    check_model({**draft, "role": "model"} if draft.get("role") == "draft_head" else draft, "the draft model")
    wrong = heads.wrong_kind(kind, draft)
    if wrong:
        if kind == MTP and heads.mtp_layers(request.model, pair.tables) is None:
            wrong += ", or relay_draft_model to nothing to draft with the target's own layers"
        return Verdict("unsupported_build", wrong)
    model_shape(draft)
    wrong = fault(draft) or _unknown_pre(request)
    if wrong:
        return Verdict(
            "unsupported_build", f"{pair.path} {wrong}, and llama-server ends while it loads it: use another draft"
        )
    wrong = heads.misfit(kind, pair, request.draft_p_min)
    if wrong:
        return Verdict("unsupported_build", wrong)
    compare = compatibility if kind == SIMPLE else same_tokens
    vocabulary = compare(request.model, draft, request.comparison)
    if not vocabulary["compatible"]:
        return Verdict(
            "tokenizer_mismatch",
            f"{pair.path} cannot draft for this target: {vocabulary['message']}: use a draft of the same family",
        )
    return _model_verdict(request) if kind == SIMPLE else None


def _unknown_pre(request: Request) -> str | None:
    """What unknown_name says of the draft; a build that loads the target knows the target's own name."""
    draft = request.draft or {}
    names = [(gguf.get("tokenizer") or {}).get("pre") for gguf in (request.model, draft)]
    return unknown_name(draft, request.llama) if names[0] != names[1] else None


def _model_verdict(request: Request) -> Verdict | None:
    """Of a plain model: whether llama.cpp loads it and can take back from it what is rejected."""
    draft = request.draft or {}
    architecture, path = draft.get("architecture"), draft.get("path")
    if architecture not in KNOWN and architectures.speak_of(request.llama):
        return Verdict(
            "unsupported_build",
            f"llama.cpp b{architectures.BUILD} has no architecture {architecture}, and llama-server ends at {path}: "
            "use another draft",
        )
    if architecture in NO_CACHE:
        return Verdict(
            "unsupported_build",
            f"llama.cpp keeps no cache for architecture {architecture}, so {path} cannot draft: use a model that "
            "generates text",
        )
    if model_shape(draft).hybrid and not model_shape(request.model).hybrid:
        return Verdict(
            "unsupported_build",
            f"{path} keeps a recurrent state ({architecture}), and for a target without one llama-server aborts at the "
            "first token that is rejected: use a draft of another architecture",
        )
    return _positions_verdict(request)


def _positions_verdict(request: Request) -> Verdict | None:
    """A draft decodes at the positions of the target, whatever it was trained on."""
    draft = request.draft or {}
    trained, slot = heads.keys_of(draft).number("context_length", 0), _slot_context(request)
    if POSITIONS in telling(draft) and trained < slot:
        least = trained // kv.PAD * kv.PAD * request.parallel
        shorter = f"set relay_ctx_size to at most {least}, or " if least else ""
        return Verdict(
            "unsupported_build",
            f"{draft.get('path')} has {trained} positions and a slot {slot}, and llama-server aborts at the first "
            f"beyond: {shorter}use a draft with more",
        )
    return None


def _settings_verdict(request: Request, dialect: Dialect, speculation: Speculation) -> Verdict | None:
    """Of the installed build, the knobs, and what was measured."""
    missing = dialect.lacks(speculation.type)
    if missing:
        return _unknown_to(dialect, missing, f"{speculation.type} cannot run")
    wanted = (("--spec-draft-n-min", request.draft_min), ("--spec-draft-p-min", request.draft_p_min))
    lacking = tuple(flag for flag, value in wanted if value and flag in dialect.draft_optional_missing)
    if lacking:
        return Verdict(
            "unsupported_build",
            f"{dialect.name} does not know {', '.join(lacking)}: set relay_draft_min, relay_draft_p_min to 0",
        )
    if request.draft_min > speculation.n_max and speculation.type not in IN_BLOCKS:
        return Verdict(
            "unsupported_build",
            f"{speculation.n_max} NextN layers propose {speculation.n_max} tokens at most, and with relay_draft_min "
            f"{request.draft_min} all of these would be thrown away: lower it to {speculation.n_max}",
        )
    measured = request.measured or {}
    plain, drafting = (measured.get(key) for key in ("tokens_per_second", "with_draft_tokens_per_second"))
    if plain and drafting and drafting < MIN_SPEEDUP * plain:
        return Verdict(
            "measured_slower",
            f"measured {drafting:g} tokens/s with the draft, {plain:g} without: {MIN_SPEEDUP:g} times is wanted; lower "
            "relay_draft_max or use a smaller draft, and measure again",
        )
    return None


def _unknown_to(dialect: Dialect, missing: tuple[str, ...], consequence: str) -> Verdict:
    return Verdict(
        "unsupported_build",
        f"{dialect.name} does not know {', '.join(missing)}, so {consequence}: install a newer llama.cpp",
    )


def _enabled(request: Request, speculation: Speculation) -> str:
    draft = request.draft
    message = f"the NextN layers of {request.model_path} draft" if draft is None else f"{draft.get('path')} drafts"
    if draft is not None and speculation.type != SIMPLE:
        message += f" ({speculation.type})"
    if model_shape(request.model).hybrid and not speculation.snapshots:
        message += f"; in every round llama-server saves the target's recurrent state, {state_saved(request)}"
    if draft is None:
        return message
    trained, slot = heads.keys_of(draft).number("context_length", 0), _slot_context(request)
    if speculation.type == SIMPLE and 0 < trained < slot:
        message += (
            f"; it was trained on {trained} tokens and a slot has {slot}: expect it to guess badly beyond, "
            "or lower relay_ctx_size"
        )
    return message


def _cacheless(request: Request) -> bool:
    """llama-server speculates with nothing where there is no memory to take tokens back from."""
    return request.model.get("architecture") in NO_CACHE


def _without_cache(request: Request) -> Verdict:
    return Verdict(
        "unsupported_build",
        f"llama.cpp keeps no cache for architecture {request.model.get('architecture')}, so nothing can be drafted for "
        "it: leave relay_draft_model empty",
    )


def _slot_context(request: Request) -> int:
    """Tokens of a slot: llama-server caps it at what the target was trained on."""
    _total, per_slot = kv.context(request.ctx_size, request.parallel)
    trained = heads.keys_of(request.model).number("context_length", 0)
    return min(per_slot, trained) if trained else per_slot
