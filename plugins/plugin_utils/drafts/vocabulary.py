# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the tokens of a draft are those of the target.

llama.cpp compares vocabularies for draft-simple only (common_speculative_are_compatible in common/speculative.cpp).
Sizes that are 128 apart pass in every build from August 2025 on that was looked at; some before allowed 100. Neither
there nor with the other types does it look at what lies beyond the smaller vocabulary, and it aborts as soon as one
side meets a token that it does not have.
"""

from __future__ import annotations

from typing import Any, Mapping

# SPEC_VOCAB_MAX_SIZE_DIFFERENCE
MAX_VOCAB_DIFFERENCE = 128
DIGITS = 16


def compatibility(
    target: Mapping[str, Any], draft: Mapping[str, Any], comparison: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """{compatible, reason, message}: llama.cpp's vocabulary rule for draft-simple.

    comparison is what gguf_info found with both files at hand; without it the digests of both are compared.
    """
    if comparison:
        if comparison.get("compatible"):
            return _yes()
        detail = comparison.get("first_difference") or "the vocabularies differ ({})".format(comparison.get("reason"))
        return _no(comparison.get("reason"), str(detail))
    for side, gguf in (("target", target), ("draft", draft)):
        if _wordless(gguf):
            return _no("type", f"the {side} has no tokenizer that llama.cpp knows")
    mine, other = target.get("tokenizer") or {}, draft.get("tokenizer") or {}
    if not mine or not other:
        return _unknown()
    if mine.get("type") != other.get("type"):
        return _no("type", f"the target's vocabulary is {mine.get('type')}, the draft's {other.get('type')}")
    for end in ("bos", "eos"):
        flag, token = f"add_{end}_token", f"{end}_token_id"
        if bool(mine.get(flag)) != bool(other.get(flag)):
            values = [str(bool(side.get(flag))).lower() for side in (mine, other)]
            return _no(end, f"{flag} is {values[0]} in the target and {values[1]} in the draft")
        if mine.get(flag) and mine.get(token) != other.get(token):
            return _no(end, f"{token} is {mine.get(token)} in the target and {other.get(token)} in the draft")
    apart = abs(_size(mine) - _size(other))
    if apart > MAX_VOCAB_DIFFERENCE:
        return _no(
            "size",
            f"the target has {_size(mine)} tokens and the draft {_size(other)}: {apart} apart, at most "
            f"{MAX_VOCAB_DIFFERENCE} are allowed",
        )
    found = _compare_tokens(mine, other)
    if found["compatible"]:
        for side, gguf in (("target", target), ("draft", draft)):
            if fault(gguf):
                return _no("fault", f"the {side} {fault(gguf)}, and llama-server ends while it loads it")
    return found


def fault(gguf: Mapping[str, Any]) -> str | None:
    """Why llama.cpp does not load the vocabulary of a file, as the end of a sentence; None: nothing is known."""
    found = (gguf.get("tokenizer") or {}).get("fault")
    return str(found) if found else None


def lone_padding(target: Mapping[str, Any], draft: Mapping[str, Any]) -> tuple[int, int] | None:
    """The first and the last number of the tokens that only the target has; None where there are none.

    They are padding that no text gives, or the draft would have been refused. A client that sends such a number, in a
    prompt or in logit_bias, makes llama-server abort all the same: the draft is given a token that it does not have.
    """
    n_mine, n_other = (_size(gguf.get("tokenizer") or {}) for gguf in (target, draft))
    return (n_other, n_mine - 1) if 0 < n_other < n_mine else None


def not_compared(
    target: Mapping[str, Any], draft: Mapping[str, Any], comparison: Mapping[str, Any] | None = None
) -> list[str]:
    """What differs and llama.cpp does not mind; gguf_info says so of both files, and their facts tell as well."""
    if comparison:
        return [str(note) for note in comparison.get("notes") or ()]
    mine, other = target.get("tokenizer") or {}, draft.get("tokenizer") or {}
    return [
        f"{what} is {mine[key]!s:.80} in the target and {other[key]!s:.80} in the draft, "
        "which llama.cpp does not compare"
        for key, what in (("eos_token_id", "eos_token_id"), ("pre", "the pre-tokenizer"))
        if key in mine and key in other and mine[key] != other[key]
    ]


def same_tokens(
    target: Mapping[str, Any], draft: Mapping[str, Any], comparison: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """{compatible, reason, message}: whether what a head proposes can be a token of the target.

    A head is trained on one target and carries that one's vocabulary. How a text begins and ends is not its business.
    """
    if comparison and (comparison.get("compatible") or comparison.get("reason") == "token"):
        return compatibility(target, draft, comparison)
    mine, other = target.get("tokenizer") or {}, draft.get("tokenizer") or {}
    return _compare_tokens(mine, other) if mine and other else _unknown()


def _wordless(gguf: Mapping[str, Any]) -> bool:
    """Whether it is known that the file has no texts of tokens: llama-server ends at such a model."""
    known = "tokenizer" in gguf
    tokenizer = gguf.get("tokenizer")
    return known and (tokenizer is None or tokenizer.get("type", "SPM") in (None, "NONE"))


def _yes(message: str = "the vocabularies match") -> dict[str, Any]:
    return {"compatible": True, "reason": None, "message": message}


def _unknown() -> dict[str, Any]:
    return {"compatible": True, "reason": "unknown", "message": "the vocabularies could not be compared"}


def _no(reason: Any, message: str) -> dict[str, Any]:
    return {"compatible": False, "reason": reason, "message": message}


def _size(tokenizer: Mapping[str, Any]) -> int:
    return int(tokenizer.get("n_tokens") or 0)


def _compare_tokens(mine: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    n_mine, n_other = _size(mine), _size(other)
    if n_mine == n_other:
        if mine.get("digest") and other.get("digest") and mine["digest"] != other["digest"]:
            return _no("token", "the tokens of target and draft differ")
        return _yes()
    common = min(n_mine, n_other)
    # A token beyond the smaller vocabulary aborts the server, so what the larger one has more must be padding.
    side, larger = ("target", mine) if n_mine > n_other else ("draft", other)
    sizes = f"the target has {n_mine} tokens and the draft {n_other}, and those of the {side} from {common} on are"
    if not _all_from(larger, "padding_from", common):
        return _no("padding", f"{sizes} in use: llama-server would abort at the first of them")
    if larger is mine and not _all_from(mine, "unreachable_from", common):
        return _no(
            "padding",
            f"{sizes} padding that a text in a prompt becomes: llama-server would abort at such a prompt",
        )
    digests = _digest_at(mine, common), _digest_at(other, common)
    if all(digests):
        differ = digests[0] != digests[1]
    else:
        chunks = list(zip(mine.get("chunk_digests") or [], other.get("chunk_digests") or []))[:-1]
        differ = any(left != right for left, right in chunks)
    if differ:
        return _no("token", "the tokens of target and draft differ")
    return _yes("the vocabularies match up to padding")


def _all_from(tokenizer: Mapping[str, Any], what: str, number: int) -> bool:
    first = tokenizer.get(what)
    return first is not None and first <= number


def _digest_at(tokenizer: Mapping[str, Any], n_tokens: int) -> str | None:
    """The short digest over the first tokens, None when the facts do not reach that far back."""
    if n_tokens == tokenizer.get("n_tokens"):
        return str(tokenizer.get("digest") or "")[:DIGITS] or None
    tail = tokenizer.get("tail_digests") or []
    index = n_tokens - (_size(tokenizer) - len(tail))
    return tail[index] if 0 <= index < len(tail) else None
