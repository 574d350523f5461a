# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether texts with speculation are those without it.

Builds until May 2026 (llama.cpp's server counted all accepted tokens of a round before it used the first) end a text at
the limit up to a round early, and say in their own numbers by how much: only that much is forgiven.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

SNIPPET_CHARACTERS = 40
PROMPT_CHARACTERS = 60


def differences(
    prompts: Sequence[str],
    speculating: Sequence[Mapping[str, Any]],
    plain: Sequence[Mapping[str, Any]],
    draft_max: int = 0,
) -> list[str]:
    """A sentence per prompt whose texts are not the same: where they part, and what each says from there.

    :param speculating: ``probe`` of relay.pool.llama_probe with speculation, plain: without, in the order of the
        prompts. Of each ``text`` is read, where None stands for a failure, which is a difference, too; and ``tokens``
        and ``tokens_unsent``, which may be missing.
    :param draft_max: tokens that a round proposes at most.
    """
    if not len(prompts) == len(speculating) == len(plain):
        raise ValueError(f"{len(prompts)} prompts have {len(speculating)} and {len(plain)} completions")
    return [
        _sentence(prompt, one["text"], other["text"])
        for prompt, one, other in zip(prompts, speculating, plain)
        if not _same(one, other, draft_max)
    ]


def _same(one: Mapping[str, Any], other: Mapping[str, Any], draft_max: int) -> bool:
    text, whole = one["text"], other["text"]
    if text is None or whole is None or text == whole:
        return text is not None and text == whole
    missing, unsent = (other.get("tokens") or 0) - (one.get("tokens") or 0), one.get("tokens_unsent") or 0
    # A text that is empty says nothing of what was checked.
    return bool(text) and whole.startswith(text) and 0 < missing <= unsent <= draft_max


def _sentence(prompt: str, one: str | None, other: str | None) -> str:
    start = f"After the prompt {_shown(prompt, PROMPT_CHARACTERS)}"
    if one is None or other is None:
        which = "with" if one is None else "without"
        return f"{start} there is no text {which} speculation to compare."
    at = next((i for i, (left, right) in enumerate(zip(one, other)) if left != right), min(len(one), len(other)))
    return (
        f"{start} the texts part at character {at + 1}: {_snippet(one, at)} with speculation, "
        f"{_snippet(other, at)} without."
    )


def _shown(text: str, most: int) -> str:
    return repr(text if len(text) <= most else text[:most] + "...")


def _snippet(text: str, at: int) -> str:
    rest = text[at:]
    return _shown(rest, SNIPPET_CHARACTERS) if rest else "the end"
