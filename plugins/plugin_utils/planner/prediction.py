# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many tokens per second a plan may give, with and without its draft; docs/predictions.md has the formulas.

A token is taken to cost the reading of its weights and the way over the network, nothing else, so a rate without a
draft is an upper bound. A batch of several tokens is taken to read the same weights once, which holds on GPUs as long
as the batch is small; on a CPU it is bound by its arithmetic, about which nothing is known here.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.speed import hop_seconds
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger, model_ledger
from ansible_collections.relay.pool.plugins.plugin_utils.planner.draft import Verdict
from ansible_collections.relay.pool.plugins.plugin_utils.planner.request import Request

# How likely a drafted token is accepted when those before it were. An assumption: it differs by model pair and text.
ASSUMED_ACCEPTANCE = 0.7
# The break-even acceptance is looked for in steps of one part in so many.
ACCEPTANCE_STEPS = 1000


@dataclass(frozen=True)
class Share:
    """The layers first..end-1 on a device, and the output; device is None for RAM of unknown size."""

    host: str
    device: Device | None
    first: int
    end: int
    output: bool

    @property
    def label(self) -> str:
        """Machine and device for messages."""
        return self.device.label if self.device else f"{self.host} CPU"

    @property
    def is_cpu(self) -> bool:
        """A CPU computes it."""
        return self.device is None or self.device.is_cpu

    def read_bytes(self, ledger: Ledger, tokens: int) -> int:
        """Bytes of weights that a batch of so many tokens reads here."""
        layers = sum(ledger.weight_reads.batch(tokens)[self.first : self.end])
        return layers + (ledger.output_reads if self.output else 0)


def shares(layout: Layout) -> list[Share]:
    """Who computes what, in the order of the layers."""
    n_layer, server = layout.ledger.n_layer, layout.server
    found = []
    if layout.cpu_layers or layout.on_cpu:
        found.append(Share(server.host, server.ram, 0, layout.cpu_layers, layout.output_on_cpu))
    found += [
        Share(device.host, device, first, min(end, n_layer), end > n_layer) for device, first, end in layout.segments
    ]
    return found


def unknown_bandwidth(layout: Layout) -> str | None:
    """A sentence that names the devices whose bandwidth would be needed, or None."""
    missing = [share.label for share in shares(layout) if not (share.device and share.device.bandwidth)]
    return _unknown(*missing) if missing else None


def _unknown(*labels: str) -> str:
    return f"the memory bandwidth of {', '.join(labels)} is unknown, relay_overrides can state it"


def reading_seconds(layout: Layout, tokens: int = 1) -> float:
    """Seconds in which all devices, one after the other, read what a batch needs; every bandwidth must be known."""
    return sum(
        share.read_bytes(layout.ledger, tokens) / share.device.bandwidth
        for share in shares(layout)
        if share.device and share.device.bandwidth
    )


def network_seconds(layout: Layout, tokens: int = 1) -> float:
    """Seconds that a batch is under way between the machines; from one GPU of a worker to the next it stays there."""
    shape = layout.ledger.shape
    hosts = [layout.server.host, *(share.host for share in shares(layout)), layout.server.host]
    seconds = 0.0
    for before, share, after in zip(hosts, shares(layout), hosts[2:]):
        if share.device and share.host != layout.server.host:
            there = shape.n_embd if before != share.host else 0
            back = shape.n_embd if after != share.host else 0
            seconds += hop_seconds(share.device, there, shape.n_vocab if share.output else back, tokens)
    return seconds


def pass_seconds(layout: Layout, tokens: int = 1) -> float:
    """Seconds of a pass of the target over a batch."""
    return reading_seconds(layout, tokens) + network_seconds(layout, tokens)


def expected_tokens(acceptance: float, n_draft: int) -> float:
    """Tokens that a round of n_draft drafted tokens gives in the mean (arXiv 2211.17192, equation 1)."""
    if acceptance >= 1:
        return n_draft + 1
    return (1 - acceptance ** (n_draft + 1)) / (1 - acceptance)


@dataclass(frozen=True)
class Drafting:
    """The rounds of a draft model on one GPU of the server."""

    layout: Layout
    ledger: Ledger
    bandwidth: int

    def _draft_seconds(self, tokens: int) -> float:
        read = sum(self.ledger.weight_reads.batch(tokens)) + self.ledger.output_reads
        return read / self.bandwidth

    def round_seconds(self, n_draft: int) -> float:
        """Seconds of a round: the steps of the draft, the target's pass, and the draft's pass over the same batch."""
        batch = n_draft + 1
        return n_draft * self._draft_seconds(1) + self._draft_seconds(batch) + pass_seconds(self.layout, batch)

    def relative_cost(self, n_draft: int) -> float:
        """A round in tokens without the draft; it pays when it gives more of them."""
        return self.round_seconds(n_draft) / pass_seconds(self.layout)

    def tokens_per_second(self, n_draft: int, acceptance: float = ASSUMED_ACCEPTANCE) -> float:
        """The rate of rounds of n_draft drafted tokens."""
        return expected_tokens(acceptance, n_draft) / self.round_seconds(n_draft)

    def gain(self, n_draft: int, acceptance: float = ASSUMED_ACCEPTANCE) -> float:
        """The rate with the draft, in times of that without."""
        return expected_tokens(acceptance, n_draft) / self.relative_cost(n_draft)

    def break_even(self, n_draft: int) -> float | None:
        """The least acceptance with which the draft wins, None when it wins with none."""
        cost = self.relative_cost(n_draft)
        steps = range(ACCEPTANCE_STEPS + 1)
        at = bisect_left(steps, True, key=lambda step: expected_tokens(step / ACCEPTANCE_STEPS, n_draft) > cost)
        return None if at == len(steps) else at / ACCEPTANCE_STEPS

    def never(self, n_draft: int) -> str:
        """Why no acceptance is high enough."""
        takes = "can take" if self.layout.ledger.weight_reads.mixture else "takes"
        return (
            f"a round of {n_draft} drafted token{'s' if n_draft > 1 else ''} {takes} as long as "
            f"{self.relative_cost(n_draft):.1f} tokens without the draft and gives at most {n_draft + 1}"
        )


def drafting(request: Request, layout: Layout) -> tuple[Drafting | None, str | None]:
    """The draft's rounds, or None and why their time cannot be estimated."""
    if layout.draft is None or request.draft is None:
        return None, "there is no draft"
    missing = unknown_bandwidth(layout)
    if missing:
        return None, missing
    cpus = [share.label for share in shares(layout) if share.is_cpu]
    if cpus:
        return None, f"how long {', '.join(cpus)} takes to check several tokens at once is not known"
    ledger = model_ledger(request.draft, request.draft_spec())
    device = next((gpu for gpu in layout.server.gpus if gpu.name == layout.draft.device), None)
    if device is None or request.draft_gpu_layers <= ledger.n_layer:
        return None, "how long a CPU takes for several tokens of the draft at once is not known"
    if not device.bandwidth:
        return None, _unknown(device.label)
    return Drafting(layout, ledger, device.bandwidth), None


def predicted(request: Request, layout: Layout, verdict: Verdict) -> dict[str, Any]:
    """``plan.predicted``: rates, what they assume, and why one is null."""
    reason = unknown_bandwidth(layout)
    seconds = None if reason else pass_seconds(layout)
    if seconds == 0:
        reason, seconds = "the file lists no weights that a token reads", None
    result: dict[str, Any] = {
        "tokens_per_second": _rounded(1 / seconds if seconds else None),
        "network_seconds": _rounded(network_seconds(layout) if seconds else None),
        "reason": reason,
        "with_draft_tokens_per_second": None,
        "break_even_acceptance": None,
        "assumed_acceptance": None,
        "draft_tokens": None,
        "draft_reason": f"no draft ({verdict.reason})",
    }
    if not verdict.enabled:
        return result
    rounds, why = drafting(request, layout) if seconds else (None, reason)
    n_draft = request.draft_max
    result.update(assumed_acceptance=ASSUMED_ACCEPTANCE, draft_tokens=n_draft, draft_reason=why)
    if rounds:
        even = rounds.break_even(n_draft)
        result["with_draft_tokens_per_second"] = _rounded(rounds.tokens_per_second(n_draft))
        result["break_even_acceptance"] = even
        if even is None:
            result["draft_reason"] = rounds.never(n_draft)
    return result


def _rounded(value: float | None) -> float | None:
    """Three digits, as more would be made up."""
    return None if value is None else float(f"{value:.3g}")
