# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of llama-server that are about speculation, in the spelling of any build."""

from __future__ import annotations

import re
from typing import Sequence

# Those of common/arg.cpp, today's and older ones, that neither begin with --spec- or --draft nor end with -draft.
SHORT = frozenset(
    (
        "-md", "-hfd", "-hfrd", "-devd", "-ngld", "-td", "-tbd", "-ctkd", "-ctvd", "-otd", "-cmoed", "-ncmoed", "-cd",
        "-Cd", "-Crd", "-Cbd", "-Crbd", "--fim-qwen-7b-spec", "--fim-qwen-14b-spec",
    )
)  # fmt: skip
# Files of ngram-cache, for which there is no variable.
LOOKUP_CACHES = frozenset(("-lcs", "-lcd", "--lookup-cache-static", "--lookup-cache-dynamic"))
# What follows one of these is its value, whatever it looks like: a name or a path may begin with a dash.
NAMING = frozenset(
    (
        "-m", "--model", "-a", "--alias", "--host", "--api-key-file", "-md", "--model-draft", "--spec-draft-model",
    )
)  # fmt: skip
_PREFIXES = ("--spec-", "--no-spec-", "--draft")
_ENDINGS = ("-draft", "-batch-draft")
# A value may be a negative number; no flag of llama-server is one.
_FLAG = re.compile(r"--?[A-Za-z]")


def is_of_speculation(flag: str) -> bool:
    """True for a flag that only speculation has a use for."""
    name = flag.replace("_", "-")
    return (
        name in SHORT | LOOKUP_CACHES
        or name.startswith(_PREFIXES)
        or (name.startswith("--") and name.endswith(_ENDINGS))
    )


def without_speculation(argv: Sequence[str]) -> list[str]:
    """The arguments without speculation: each of its flags goes, and the value that follows it.

    llama-server has no argument that is no option, so what follows a flag and is none belongs to it.
    """
    kept: list[str] = []
    dropping = named = False
    for word in argv:
        if _FLAG.match(word) and not named:
            dropping = is_of_speculation(word)
            named = word.replace("_", "-") in NAMING
        else:
            named = False
        if not dropping:
            kept.append(word)
    return kept
