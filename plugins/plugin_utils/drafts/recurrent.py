# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What it costs to take rejected tokens back from a target with a recurrent state.

Where the state cannot be rolled back, llama-server saves all of it before it checks a proposal and restores it when a
token of that is rejected (COMMON_CONTEXT_SEQ_RM_TYPE_FULL in tools/server/server-context.cpp); what a worker holds of
it crosses the network.
"""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.plugin_utils.drafts import architectures, heads
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import model_ledger
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib


def state_saved(request: Request) -> str:
    """The state of a slot, for people."""
    state = sum(model_ledger(request.model, request.target_spec()).recurrent) // request.parallel
    slots = f" for each of {request.parallel} slots" if request.parallel > 1 else ""
    return f"{mib(state)}{slots}"


def refusal(request: Request, kind: str) -> str:
    """Why this type of speculation does not pay on such a target, and what else there is."""
    instead = "draft with its NextN layers (relay_speculation_type draft-mtp, no relay_draft_model)"
    if heads.mtp_layers(request.model, architectures.speak_of(request.llama)) or (
        request.model.get("architecture") not in architectures.ROLLBACK
    ):
        instead = "do without a draft"
    return (
        f"{request.model.get('architecture')} keeps a recurrent state, and to take rejected tokens back llama-server "
        f"would save {state_saved(request)} in every round: {instead}, or set relay_speculation_type to {kind} to "
        "draft all the same"
    )
