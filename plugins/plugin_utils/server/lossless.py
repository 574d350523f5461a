# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether texts with speculation are those without it."""

from __future__ import annotations

from typing import Sequence

SNIPPET_CHARACTERS = 40
PROMPT_CHARACTERS = 60


def differences(prompts: Sequence[str], speculating: Sequence[str | None], plain: Sequence[str | None]) -> list[str]:
    """A sentence per prompt whose texts are not the same: where they part, and what each says from there.

    :param speculating: the completions with speculation, plain: those without, in the order of the prompts.
        None stands for one that failed, which is a difference, too.
    """
    if not len(prompts) == len(speculating) == len(plain):
        raise ValueError(f"{len(prompts)} prompts have {len(speculating)} and {len(plain)} completions")
    pairs = zip(prompts, speculating, plain)
    return [_sentence(prompt, one, other) for prompt, one, other in pairs if one is None or one != other]


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
