# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a model is described as gguf_info describes one."""

from __future__ import annotations

from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.kinds import FLAG, KEYS, SIZE, TEXT, wrong

# What is read of it. What stands in the metadata is for keys.py to judge.
GGUF: dict[str, Any] = {
    "path": TEXT,
    "size_bytes": SIZE,
    "architecture": TEXT,
    "role": TEXT,
    "missing": [TEXT],
    "byte_order": TEXT,
    "parameters": SIZE,
    "metadata": KEYS,
    "tensors": {
        "count": SIZE,
        "blocks": [SIZE],
        "experts": [SIZE],
        "expert": [SIZE],
        "token_embd_bytes": SIZE,
        "input_bytes": SIZE,
        "output_bytes": SIZE,
        "output_norm_bytes": SIZE,
        "other_bytes": SIZE,
        "rope_freqs_bytes": SIZE,
        "tied": FLAG,
        "unknown_types": [SIZE],
        "nextn_blocks": [SIZE],
        "telling": [TEXT],
        "row_padding": {"512": [SIZE], "512_output": SIZE},
    },
    "tokenizer": {
        "type": TEXT,
        "pre": TEXT,
        "n_tokens": SIZE,
        "bos_token_id": SIZE,
        "eos_token_id": SIZE,
        "mask_token_id": SIZE,
        "add_bos_token": FLAG,
        "add_eos_token": FLAG,
        "digest": TEXT,
        "chunk_digests": [TEXT],
        "tail_digests": [TEXT],
        "padding_from": SIZE,
        "unreachable_from": SIZE,
        "fault": TEXT,
    },
}


def check_header(gguf: Any, what: str) -> None:
    """Raise for a model that is described in another way; what: how it is called where it has no path."""
    problem = wrong("", gguf, GGUF) if isinstance(gguf, Mapping) else f"it is {gguf!r:.80}, not a dictionary"
    if problem:
        path = gguf.get("path") if isinstance(gguf, Mapping) else None
        name = path if path and TEXT.fits(path) else what
        raise PoolError(f"what is said of {name} cannot be used: {problem}: read it again with relay.pool.gguf_info")
