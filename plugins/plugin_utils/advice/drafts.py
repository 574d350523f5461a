# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a draft model gains little and where it would gain most, by the numbers of the plan; nothing is measured."""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.plugin_utils.drafts import architectures, heads
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.charge import FALLS_BACK
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import MIN_SPEEDUP, Verdict, compatibility
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.rounds import ASSUMED_ACCEPTANCE, Rounds, draft_rounds
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import MTP, SIMPLE, Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.vocabulary import lone_padding, not_compared
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.hops import hop_seconds
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.speed import (
    network_seconds,
    pass_seconds,
    unknown_bandwidth,
)
from ansible_collections.relay.pool.plugins.plugin_utils.memory.activations import FLOAT
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import model_shape
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import Dialect
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib

# More requests at once than this fill a batch of their own.
MANY_SLOTS = 4
# Longer rounds than this gain nothing at any acceptance that a draft has.
MOST_DRAFTED = 64
# A draft that wins less than this by the estimate gains little.
LITTLE = 1.2
# Where reading the weights cannot be timed, a network that takes so long per token is far.
FAR_SECONDS = 0.01
# Kilobytes that a worker was sent for a token, with the draft on a device of the target and without (measured).
SHARED_KB, ALONE_KB = 200, 21
# Here a draft model is missing, and not forbidden.
WITHOUT = frozenset(("not_configured", "not_found"))


def draft_warnings(request: Request, speculation: Speculation) -> list[str]:
    """Of a draft that runs: what its tokens bring with them, or that it is no smaller than what it drafts for."""
    found = []
    draft = request.draft or {}
    if draft and compatibility(request.model, draft, request.comparison)["reason"] == "unknown":
        found.append("the vocabularies of target and draft could not be compared: verify that the draft is live")
    lone = lone_padding(request.model, draft)
    if lone:
        numbers = f"{lone[0]} to {lone[1]}" if lone[0] < lone[1] else f"{lone[0]}"
        found.append(
            f"only the target has the tokens {numbers}, padding that no text gives: a client that sends such a number, "
            "in prompt or logit_bias, aborts llama-server; let in trusted clients only (relay_api_key), or use a draft "
            f"with {lone[1] + 1} tokens"
        )
    if speculation.type == SIMPLE:
        found += [f"{note}: the draft may be right less often, a measurement tells" for note in _notes(request)]
    mine, other = request.model.get("size_bytes"), draft.get("size_bytes")
    if mine and other and other >= mine:
        found.append(
            f"the draft {draft.get('path')} has {mib(other)}, the target {mib(mine)}: "
            "only a much smaller model drafts faster"
        )
    return found


def _notes(request: Request) -> list[str]:
    return not_compared(request.model, request.draft or {}, request.comparison)


def draft_advice(
    request: Request, dialect: Dialect, layout: Layout, verdict: Verdict, speculation: Speculation | None
) -> list[str]:
    """The lines about the draft that the plan has, or could have."""
    if verdict.enabled:
        rounds, _reason = draft_rounds(request, layout, speculation)
        return [
            *_mixture(request, layout, rounds),
            *_many_slots(request),
            *(_rounds(request, rounds) if rounds and not request.draft_p_min else []),
            *_remote(request, layout),
            *_on_a_cpu(request, layout, speculation),
        ]
    if speculation:
        return _many_slots(request)
    may_draft = layout.sharded or request.draft_scope == "any"
    if verdict.reason == "hybrid_target":
        return _state(request, layout)
    if verdict.reason in WITHOUT:
        return [*(_own_layers(request, dialect) if may_draft else []), *_far(layout)]
    return _fallback(request, dialect) if may_draft and verdict.reason in FALLS_BACK else []


def _own_layers(request: Request, dialect: Dialect) -> list[str]:
    """That the target has layers which draft, and needs no second model."""
    if request.speculation_type != "auto" or not request.draft_max or dialect.lacks(MTP):
        return []
    if heads.mtp_layers(request.model, architectures.speak_of(request.llama)):
        return []
    layers = heads.n_nextn(request.model)
    what = "a layer that predicts" if layers == 1 else f"{layers} layers that predict"
    return [
        f"the target has {what} further tokens (MTP): relay_speculation_type draft-mtp drafts without a second model"
    ]


def _fallback(request: Request, dialect: Dialect) -> list[str]:
    """That n-grams may take the place of a draft that was dropped."""
    if request.draft_fallback != "none" or dialect.lacks("ngram-mod"):
        return []
    return ["relay_draft_fallback ngram-mod would propose tokens without a second model, by what the text repeats"]


def _remote(request: Request, layout: Layout) -> list[str]:
    """What the network takes of a draft on a worker."""
    device = layout.remote_draft
    if device is None or request.draft is None:
        return []
    shape = model_shape(request.draft)
    hop = hop_seconds(device, shape.n_embd, shape.n_vocab)
    guess = ", by assumption, as the link was not measured" if device.rtt_seconds is None else ""
    found = [
        f"the draft runs on {device.label}, over the network: every drafted token waits {hop * 1000:.2f} ms for its "
        f"way there and back with {-(-shape.n_vocab * FLOAT // 1024)} KiB of logits{guess}; a draft on "
        f"{layout.server.host} (relay_draft_device auto) waits for none"
    ]
    if layout.shared_draft:
        found.append(
            f"{device.label} holds the draft and a part of the target, so that llama.cpp cannot reuse the graph that "
            f"it sent last: about {SHARED_KB} KB and not {ALONE_KB} KB go there for every token; a device of its own "
            "for the draft avoids that"
        )
    return found


def _on_a_cpu(request: Request, layout: Layout, speculation: Speculation | None) -> list[str]:
    """That a draft is on a CPU although the machine has a GPU, and nobody asked for that."""
    draft, wanted = layout.draft, request.draft_device
    named = wanted.lower() in ("cpu", "none") or not request.draft_gpu_layers
    if draft is None or named or not (speculation and speculation.own_file):
        return []
    if draft.device and not draft.device.is_cpu:
        return []
    host = draft.device.host if draft.device else layout.server.host
    gpus = [
        gpu["device"] for gpu in request.nodes[host].get("gpus") or [] if gpu.get("placeable") and gpu.get("device")
    ]
    if not gpus:
        return []
    return [
        f"the draft, {mib(draft.total)}, runs on the CPU of {host}, as {', '.join(gpus)} there has no room for it "
        "beside the target: a smaller draft or a lower relay_ctx_size may bring it there"
    ]


def _best(request: Request, rounds: Rounds) -> int:
    """The length of a round with the highest rate at the assumed acceptance."""
    least, most = max(request.draft_min, 1), min(request.draft_max, MOST_DRAFTED)
    return max(range(least, max(most, least) + 1), key=rounds.tokens_per_second)


def _mixture(request: Request, layout: Layout, rounds: Rounds | None) -> list[str]:
    reads = layout.ledger.weight_reads
    if not reads.mixture:
        return []
    if rounds and rounds.gain(_best(request, rounds)) >= LITTLE:
        return []
    batch = request.draft_max + 1
    one, all_of_them = (mib(sum(reads.batch(tokens)) + layout.ledger.output_reads) for tokens in (1, batch))
    return [
        f"a mixture of experts gains little from a draft: a token reads {one} of weights, a check of {batch} tokens, "
        f"each with experts of its own, up to {all_of_them}"
    ]


def _many_slots(request: Request) -> list[str]:
    if request.parallel <= MANY_SLOTS:
        return []
    batch = request.draft_max + 1
    return [
        f"a draft gains little while many requests run: with {request.parallel} slots busy a round checks "
        f"{request.parallel * batch} tokens at once ({request.parallel} x {batch}), which takes longer than one token"
    ]


def _rounds(request: Request, rounds: Rounds) -> list[str]:
    """Whether the rounds that are configured pay, and whether shorter ones would pay more."""
    found = []
    n_draft = request.draft_max
    if rounds.break_even(n_draft) is None:
        found.append(f"by the estimate the draft never pays with relay_draft_max {n_draft}: {rounds.never(n_draft)}")
    best = _best(request, rounds)
    rate, now = rounds.tokens_per_second(best), rounds.tokens_per_second(n_draft)
    if rounds.gain(best) <= 1:
        found.append(
            f"by the estimate the draft does not pay at an acceptance of {ASSUMED_ACCEPTANCE:.0%}, which is assumed: "
            f"at best {rate:.3g} tokens/s with relay_draft_max {best}, {rate / rounds.gain(best):.3g} without the draft"
        )
    elif rate >= MIN_SPEEDUP * now:
        found.append(
            f"by the estimate relay_draft_max {best} is better than {n_draft} at an acceptance of "
            f"{ASSUMED_ACCEPTANCE:.0%}, which is assumed: {rate:.3g} tokens/s instead of {now:.3g}"
        )
    return found


def _state(request: Request, layout: Layout) -> list[str]:
    state = sum(layout.ledger.recurrent) // request.parallel
    across = ", over the network where a worker holds it" if layout.sharded else ""
    return [f"to draft for this model, llama.cpp would save {mib(state)} of recurrent state in every round{across}"]


def _far(layout: Layout) -> list[str]:
    """That most of a token's time is the network; only of links that were measured."""
    remote = layout.rpc_devices
    if not remote or any(device.rtt_seconds is None for device in remote):
        return []
    network = network_seconds(layout)
    if unknown_bandwidth(layout):
        far, of_all = network >= FAR_SECONDS, ""
    else:
        total = pass_seconds(layout)
        far, of_all = 2 * network >= total, f" of about {1000 * total:.3g}"
    if not far:
        return []
    return [
        f"every token waits {1000 * network:.3g}{of_all} ms for the network: a draft model (relay_draft_model) pays "
        "most in such a pool, as the several tokens of a round cross it together"
    ]
