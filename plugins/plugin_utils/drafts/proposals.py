# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many tokens a type of speculation proposes per round, and what it makes the target keep."""

from __future__ import annotations

from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.drafts import architectures, heads
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import (
    ASSISTANT,
    IN_BLOCKS,
    MTP,
    SIMPLE,
    STEPPING_BACK,
    Speculation,
    own_type,
)
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request


def speculation_of(request: Request, kind: str) -> Speculation:
    """Of a draft in a file of its own, or of the target's NextN layers where there is no file.

    llama.cpp's implementations lower n_max to what they can propose (common/speculative.cpp): DFlash and DSpark to
    their block, several NextN layers to their number. n_rs_seq is n_max wherever the architecture can step back, and 0
    elsewhere (the constructor of llama_context).
    """
    draft = request.draft
    n_max = request.draft_max
    if kind in IN_BLOCKS and draft is not None and own_type(draft) in IN_BLOCKS:
        n_max = min(n_max, max(heads.block_tokens(kind, draft), 0))
    elif kind == MTP:
        source = request.model if draft is None else draft
        layers = heads.n_nextn(source)
        if layers > 1 and source.get("architecture") != ASSISTANT:
            n_max = min(n_max, layers)
    steps_back = kind in STEPPING_BACK and request.model.get("architecture") in architectures.ROLLBACK
    return Speculation(
        kind,
        n_max,
        own_file=draft is not None,
        snapshots=n_max if steps_back else 0,
        beside_output=draft is not None and _leans_on_target(kind, draft),
        beside_cache=draft is not None and draft.get("architecture") == ASSISTANT,
    )


def _leans_on_target(kind: str, draft: Mapping[str, Any]) -> bool:
    """Whether it uses the target's output matrix or cache (llama_context: ctx_other)."""
    if draft.get("architecture") == ASSISTANT:
        return True
    tensors = draft.get("tensors") or {}
    has_output = bool(tensors.get("output_bytes") or (kind in IN_BLOCKS and tensors.get("token_embd_bytes")))
    return kind not in (SIMPLE, MTP) and not has_output
