# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speculation takes: the ledger of a draft that has a file of its own, and the target's context beside it."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.memory.heads import read_layers
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import ContextSpec, Ledger, model_ledger
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

# They propose all tokens of a round in one pass, each in an output row of its own.
BLOCKS = frozenset(("draft-dflash", "draft-dspark"))


def draft_ledger(request: Request, speculation: Speculation) -> Ledger:
    """That of request.draft in its own context (common_speculative_init_result of common/speculative.cpp).

    :raises PoolError: when its size cannot be computed.
    """
    return model_ledger(request.draft or {}, draft_spec(request, speculation))


def draft_spec(request: Request, speculation: Speculation) -> ContextSpec:
    """The draft's context: the target's size and slots and an f16 cache, whatever the target's is."""
    spec = request.draft_spec()
    if speculation.type == "draft-simple":
        return spec
    per_slot = speculation.n_max + 1 if speculation.type in BLOCKS else 1
    return replace(spec, drafts=True, n_outputs=request.parallel * per_slot, batch_size=request.batch_size)


def target_spec(request: Request, speculation: Speculation) -> ContextSpec:
    """The target's context beside that speculation, with the rows that a head reads of it."""
    mtp = speculation.type == "draft-mtp"
    spec = request.target_spec(speculation.n_max, speculation.mtp_of_target, speculation.snapshots)
    return replace(
        spec,
        read_layers=read_layers(request.draft) if speculation.own_file else (),
        handed=mtp and speculation.own_file,
        batch_size=request.batch_size,
    )


def shares_output(request: Request, speculation: Speculation) -> bool:
    """The draft multiplies with the target's output: it must run on the device that has it, unless the CPU has it.

    On any other llama-server ends with "pre-allocated tensor (output.weight) in a buffer ... that cannot run".
    """
    draft = request.draft or {}
    if not speculation.own_file or draft.get("architecture") not in ("eagle3", "dflash"):
        return False
    tensors = draft.get("tensors") or {}
    tied = draft.get("architecture") == "dflash" and tensors.get("token_embd_bytes")
    return not (tensors.get("output_bytes") or tied)


def shares_caches(request: Request, speculation: Speculation) -> bool:
    """The draft reads the caches of the target's last two layers: it must run on the device that has them.

    On any other llama-server ends with "pre-allocated tensor (cache_k_l...) in a buffer ... that cannot run".
    """
    return speculation.own_file and (request.draft or {}).get("architecture") == "gemma4-assistant"
