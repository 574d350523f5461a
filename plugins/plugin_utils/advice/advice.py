# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to say about a plan beside its numbers: what to look at, and what could be better."""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.plugin_utils.advice.balance import balance_advice
from ansible_collections.relay.pool.plugins.plugin_utils.advice.caches import cache_advice
from ansible_collections.relay.pool.plugins.plugin_utils.advice.drafts import draft_advice, draft_warnings
from ansible_collections.relay.pool.plugins.plugin_utils.advice.links import link_advice
from ansible_collections.relay.pool.plugins.plugin_utils.advice.network import network_advice
from ansible_collections.relay.pool.plugins.plugin_utils.advice.ports import SERVER, WORKER, port_advice
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import QUIET, Verdict
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.pre_tokenizers import unknown_name
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout, stages
from ansible_collections.relay.pool.plugins.plugin_utils.memory import kv
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import Dialect


def warnings(
    request: Request, dialect: Dialect, layout: Layout, verdict: Verdict, speculation: Speculation | None
) -> list[str]:
    """What is not as the user may think."""
    found = []
    if not request.llama:
        found.append("llama.cpp is not installed yet: the flags of a current build are assumed")
    elif dialect.assumed:
        found.append("the flags of llama-server could not be read: those of a current build are assumed")
    unknown = unknown_name(request.model, request.llama)
    if unknown:
        found.append(f"{request.model_path} {unknown}: llama-server may not load it, unless the build is another one")
    if verdict.reason not in QUIET:
        found.append(f"no draft ({verdict.reason}): {verdict.message}")
    if verdict.enabled and speculation and speculation.own_file:
        found += draft_warnings(request, speculation)
    total, per_slot = kv.context(request.ctx_size, request.parallel)
    if total != request.ctx_size:
        found.append(
            f"relay_ctx_size {request.ctx_size} over {request.parallel} slots becomes {total}: "
            f"llama.cpp gives every slot a multiple of {kv.PAD} tokens"
        )
    trained = (request.model.get("metadata") or {}).get("{}.context_length".format(request.model.get("architecture")))
    if isinstance(trained, int) and per_slot > trained:
        found.append(f"a slot has {per_slot} tokens of context, the model was trained for {trained}")
    if layout.server.ram is None:
        found.append(f"the free RAM of {layout.server.host} is unknown: what llama.cpp keeps there was not checked")
    if (
        layout.sharded
        and layout.server.gpus
        and not any(s["has_output"] for s in stages(layout) if s["transport"] == "local")
    ):
        found.append(
            f"the output does not fit a GPU of {layout.server.host}: its logits cross the network for every token"
        )
    return found


def advice(
    request: Request, dialect: Dialect, layout: Layout, verdict: Verdict, speculation: Speculation | None
) -> list[str]:
    """What could be better."""
    found = []
    own_file = verdict.enabled and speculation and speculation.own_file
    drafts = [request.draft_path or str((request.draft or {}).get("path"))] if own_file else []
    if not layout.sharded and layout.server.host != request.host:
        found.append(
            f"the whole model fits {layout.server.host} but not {request.host}: "
            f"{' and '.join([request.model_path, *drafts])} must be there"
        )
    found += draft_advice(request, dialect, layout, verdict, speculation)
    found += cache_advice(request, layout)
    found += layout.ledger.assumptions
    workers = list(dict.fromkeys(device.host for device in layout.exposed))
    found += link_advice(layout.server.host, request.nodes, workers)
    if layout.sharded:
        found += network_advice(layout, request.nodes)
        found += balance_advice(layout)
    found += port_advice(request.nodes, workers, request.rpc_port, WORKER)
    found += port_advice(request.nodes, [layout.server.host], request.server_port, SERVER)
    return found
