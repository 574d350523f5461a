# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a vocabulary so that llama-server ends while it loads the file, target or draft.

``llama_vocab::impl::load`` asserts that no text occurs twice (``id_to_token.size() == token_to_id.size()``), and reads
the value of every token of the type BYTE off the fourth character of its text; with WPM it aborts at any such token.
"""

from __future__ import annotations

import hashlib
import sys
from array import array

BYTE = 6  # LLAMA_TOKEN_TYPE_BYTE
BYTE_CHARACTERS = 3  # at least: what follows them is read, and may be nothing
# Those that take the value of a byte off the text; RWKV and PLAMO2 do not.
BY_TEXT = frozenset(("SPM", "UGM", "BPE"))
N_SHARES = 16


def _short_digest(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


# 64 bits: two of a million texts have the same ones by chance once in 37 million vocabularies.
DIGEST = hash if sys.hash_info.width >= 64 else _short_digest


class Repeats:
    """Finds out whether a text occurs twice, in memory that a set of all texts would exceed.

    Digests go into shares by their last bits, and each share is looked at for itself in the end.
    """

    def __init__(self) -> None:
        self.shares = [array("q") for _share in range(N_SHARES)]

    def feed(self, texts) -> None:
        """The next texts, as llama.cpp compares them."""
        add = [share.append for share in self.shares]
        for digest in map(DIGEST, texts):
            add[digest & (N_SHARES - 1)](digest)

    def fault(self):
        """The end of a sentence about the vocabulary, or None."""
        if any(len(set(share)) < len(share) for share in self.shares):
            return "has a text that occurs twice among its tokens"
        return None


def byte_fault(kind, types, short):
    """The end of a sentence about a token of the type BYTE, or None.

    ``kind``: of the tokenizer. ``types``: of the tokens, or None. ``short``: numbers of those with fewer than
    BYTE_CHARACTERS bytes.
    """
    if types is None:
        return None
    number = None
    if kind == "WPM" and BYTE in types:
        number = types.index(BYTE)
    elif kind in BY_TEXT:
        number = next((number for number in short if number < len(types) and types[number] == BYTE), None)
    return None if number is None else f"has a token of the type byte, number {number}, that stands for no byte"
