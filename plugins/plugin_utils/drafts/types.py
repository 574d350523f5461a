# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The types of speculation that llama.cpp has, and which of them a request is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import TODAYS_NAMES

SIMPLE, EAGLE3, MTP = "draft-simple", "draft-eagle3", "draft-mtp"
DFLASH, DSPARK = "draft-dflash", "draft-dspark"
# Tokens per round at most, by llama.cpp's defaults (common/common.h; ngram-cache: common/speculative.cpp).
NGRAMS = {"ngram-simple": 48, "ngram-map-k": 48, "ngram-map-k4v": 48, "ngram-mod": 64, "ngram-cache": 8}
# Those with which the target keeps states to step back to (need_n_rs_seq in common/common.h).
STEPPING_BACK = frozenset((EAGLE3, MTP, DFLASH, DSPARK))
# Both draft a whole block of tokens at once.
IN_BLOCKS = frozenset((DFLASH, DSPARK))
WORDS = ("auto", "none", SIMPLE, EAGLE3, MTP, DFLASH, DSPARK, *NGRAMS)
FALLBACKS = ("none", "ngram-mod")
# Block size of a DFlash file that does not say its own (common_speculative_impl_draft_dflash).
USUAL_BLOCK_SIZE = 16
# Works on the target's cache, all its layers in one round, so that their count limits nothing.
ASSISTANT = "gemma4-assistant"
OWN_TYPES = {"eagle3": EAGLE3, ASSISTANT: MTP}


@dataclass(frozen=True)
class Speculation:
    """How tokens are proposed.

    type: a value of today's ``--spec-type``. n_max: tokens per round at most, each needing an output row of the
    target; as ``--spec-draft-n-max`` of a draft it makes llama.cpp reserve just that. own_file: a second model proposes
    them, which goes to a device; else layers of the target or n-grams do. snapshots: recurrent states per slot that the
    target keeps to step back (n_rs_seq in llama.cpp). beside_output: the second model has no output matrix of its own
    and works with the target's, so llama-server aborts unless both are on one device; an output on the CPU can be used
    from every device. beside_cache: it works with the caches of the target's last two layers, so that it must be on
    their device wherever the output is; beside_output is then set, too.
    """

    type: str
    n_max: int
    own_file: bool
    snapshots: int = 0
    beside_output: bool = False
    beside_cache: bool = False

    @property
    def mtp_of_target(self) -> bool:
        """Layers of the target's own file propose the tokens."""
        return self.type == MTP and not self.own_file


def asked_type(word: str) -> str:
    """The configured type; raises PoolError for a word that is none, as llama-server would end at it."""
    if word in WORDS:
        return word
    guesses = (TODAYS_NAMES.get(word, ""), f"draft-{word}")
    today = next((guess for guess in guesses if guess in WORDS), word.replace("_", "-"))
    hint = f"today's name is {today}" if today in WORDS else f"it must be one of {', '.join(WORDS)}"
    raise PoolError(f"speculation_type is {word!r:.80}: {hint}")


def asked_fallback(word: str) -> str:
    """The configured fallback; raises PoolError for a word that is none."""
    if word in FALLBACKS:
        return word
    raise PoolError(f"draft_fallback is {word!r:.80}: it must be one of {', '.join(FALLBACKS)}")


def telling(gguf: Mapping[str, Any]) -> frozenset[str]:
    """Which of the tensors that tell drafts apart are in the file."""
    return frozenset((gguf.get("tensors") or {}).get("telling") or ())


def own_type(draft: Mapping[str, Any]) -> str:
    """What a file can draft as, by its header.

    llama.cpp guesses by the last block (common_speculative_types_from_gguf) and takes a whole model with NextN layers
    for a separate MTP file. Only a file without the layers before them is one.
    """
    architecture = str(draft.get("architecture"))
    if architecture == "dflash":
        return DSPARK if "markov_w1.weight" in telling(draft) else DFLASH
    usual = MTP if draft.get("role") == "draft_head" else SIMPLE
    return OWN_TYPES.get(architecture, usual)
