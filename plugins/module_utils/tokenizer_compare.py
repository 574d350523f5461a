# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a draft model's vocabulary fits a target: llama.cpp's own rule, and what it forgets.

The rule is that of ``common_speculative_are_compatible`` in common/speculative.cpp, for draft models of the type
``draft-simple``. In addition the tokens that only one side has must be padding, see ``tokenizer.py``, and both files
must be ones that llama.cpp loads.
"""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.module_utils.gguf_files import read_files
from ansible_collections.relay.pool.plugins.module_utils.gguf_source import open_local, shown
from ansible_collections.relay.pool.plugins.module_utils.tokenizer import (
    CHUNK_TOKENS,
    FIRST_COMPARED,
    MAX_SIZE_DIFFERENCE,
    SHORT_DIGITS,
    TokenListener,
    token_bytes,
)

MAX_SHOWN_CHARACTERS = 40


def _result(reason=None, sentence=None, notes=()) -> dict:
    return {"compatible": reason is None, "reason": reason, "first_difference": sentence, "notes": list(notes)}


def _special_difference(target: dict, draft: dict, name: str):
    """The sentence about a differing bos or eos, or None. The number only counts when the token is added."""
    flag, number = f"add_{name}_token", f"{name}_token_id"
    if target[flag] != draft[flag]:
        return f"{flag} is {str(target[flag]).lower()} in the target and {str(draft[flag]).lower()} in the draft"
    if target[flag] and target[number] != draft[number]:
        return f"{number} is {target[number]} in the target and {draft[number]} in the draft"
    return None


def _digest_at(facts: dict, n_tokens: int):
    """The short digest over the first ``n_tokens``, None when the facts do not reach that far back."""
    if n_tokens == facts["n_tokens"]:
        return facts["digest"][:SHORT_DIGITS]
    index = n_tokens - (facts["n_tokens"] - len(facts["tail_digests"]))
    return facts["tail_digests"][index] if 0 <= index < len(facts["tail_digests"]) else None


def differing_chunk(target: dict, draft: dict) -> tuple:
    """The range of token numbers, end excluded, in which the first difference lies."""
    common = min(target["n_tokens"], draft["n_tokens"])
    for index, (one, other) in enumerate(zip(target["chunk_digests"], draft["chunk_digests"])):
        if one != other:
            return max(index * CHUNK_TOKENS, FIRST_COMPARED), min((index + 1) * CHUNK_TOKENS, common)
    return FIRST_COMPARED, common


def _unfit_padding(target: dict, draft: dict, common: int):
    """The end of the sentence about what one side has more than ``common`` tokens, or None when it is padding."""
    side, longer = ("target", target) if target["n_tokens"] > common else ("draft", draft)
    if longer["padding_from"] is None or longer["padding_from"] > common:
        return (
            f"the {side}'s tokens from {common} on are no padding: llama-server would abort as soon as one of them is"
            " generated"
        )
    if side == "target" and (longer["unreachable_from"] is None or longer["unreachable_from"] > common):
        return (
            f"the target's tokens from {common} on are padding that a text in a prompt becomes: llama-server would"
            " abort at such a prompt"
        )
    return None


def compare_facts(target, draft) -> dict:
    """Compares two ``gguf.tokenizer`` facts.

    Returns ``{compatible, reason, first_difference, notes}``; ``reason`` is null, ``type``, ``bos``, ``eos``,
    ``size``, ``token``, ``padding`` or ``fault``.
    """
    for side, facts in (("target", target), ("draft", draft)):
        # A file of the type NONE has numbers and no tokens: llama-server aborts when it serves such a target.
        if facts is None or facts["type"] in (None, "NONE"):
            empty = facts is None or facts["type"] == "NONE"
            what = "has no tokenizer" if empty else f"has the unknown tokenizer '{shown(facts['model'])}'"
            return _result("type", f"the {side} {what}")
    if target["type"] != draft["type"]:
        return _result("type", f"the target's tokenizer is {target['type']}, the draft's is {draft['type']}")
    for name in ("bos", "eos"):
        sentence = _special_difference(target, draft, name)
        if sentence:
            return _result(name, sentence)
    sizes = f"the target has {target['n_tokens']} tokens and the draft {draft['n_tokens']}"
    difference = abs(target["n_tokens"] - draft["n_tokens"])
    if difference > MAX_SIZE_DIFFERENCE:
        return _result("size", f"{sizes}, {difference} more or less, at most {MAX_SIZE_DIFFERENCE} are allowed")
    common = min(target["n_tokens"], draft["n_tokens"])
    if _digest_at(target, common) != _digest_at(draft, common):
        start, stop = differing_chunk(target, draft)
        return _result("token", f"a token between {start} and {stop - 1} differs")
    if difference:
        sentence = _unfit_padding(target, draft, common)
        if sentence:
            return _result("padding", f"{sizes}, and {sentence}")
    for side, facts in (("target", target), ("draft", draft)):
        if facts["fault"]:
            return _result("fault", f"the {side} {facts['fault']}, and llama-server ends while it loads it")
    notes = [
        f"{what} is {shown(str(target[key]))} in the target and {shown(str(draft[key]))} in the draft, which llama.cpp"
        " does not compare"
        for key, what in (("eos_token_id", "eos_token_id"), ("pre", "the pre-tokenizer"))
        if target[key] != draft[key]
    ]
    return _result(notes=notes)


class _RangeListener(TokenListener):
    """Keeps the tokens of one range of numbers, and hashes nothing."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__()
        self.start = start
        self.stop = stop
        self.kept: list = []

    def feed(self, values) -> None:
        first, self.number = self.number, self.number + values.count
        if first < self.stop and self.number > self.start:
            texts = values.texts()
            for number in range(max(first, self.start), min(self.number, self.stop)):
                self.kept.append(token_bytes(texts[number - first], number))


def _shown(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    return repr(text[:MAX_SHOWN_CHARACTERS]) + ("..." if len(text) > MAX_SHOWN_CHARACTERS else "")


def _tokens_between(path: str, start: int, stop: int, opener) -> list:
    listener = _RangeListener(start, stop)
    read_files(path, {"tokenizer.ggml.tokens": listener}, opener)
    return listener.kept


def first_different_token(target_path: str, draft_path: str, start: int, stop: int, opener=open_local):
    """The sentence that names the first differing token between ``start`` and ``stop``, or None."""
    pairs = zip(_tokens_between(target_path, start, stop, opener), _tokens_between(draft_path, start, stop, opener))
    for number, (one, other) in enumerate(pairs, start):
        if one != other:
            return f"token {number} is {_shown(one)} in the target and {_shown(other)} in the draft"
    return None


def compare_files(target: dict, draft: dict, opener=open_local) -> dict:
    """Compares two ``gguf`` facts whose files ``opener`` opens: like :func:`compare_facts`, to the token."""
    result = compare_facts(target["tokenizer"], draft["tokenizer"])
    if result["reason"] == "token":
        start, stop = differing_chunk(target["tokenizer"], draft["tokenizer"])
        exact = first_different_token(target["path"], draft["path"], start, stop, opener)
        result["first_difference"] = exact or result["first_difference"]
    return result
