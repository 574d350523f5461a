# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger of a draft that has a file of its own."""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import ContextSpec, Ledger, model_ledger
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request


def draft_ledger(request: Request, speculation: Speculation) -> Ledger:
    """That of request.draft."""
    return model_ledger(request.draft or {}, request.draft_spec())


def target_spec(request: Request, speculation: Speculation) -> ContextSpec:
    """The target's context beside that speculation."""
    return request.target_spec(speculation.n_max, speculation.mtp_of_target, speculation.snapshots)
