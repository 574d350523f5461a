# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rounds of a draft: how long they take, what they give, and from which acceptance on they pay.

docs/predictions.md has the formulas. A rate with a draft is an estimate at an assumed acceptance.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.hops import hop_seconds
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.speed import (
    bandwidth_missing,
    computing,
    pass_seconds,
    unknown_bandwidth,
)
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger, model_ledger
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

# How likely a drafted token is accepted when those before it were. An assumption: it differs by model pair and text.
ASSUMED_ACCEPTANCE = 0.7
# The break-even acceptance is looked for in steps of one part in so many.
ACCEPTANCE_STEPS = 1000


def expected_tokens(acceptance: float, n_draft: int) -> float:
    """Tokens that a round of n_draft drafted tokens gives in the mean (arXiv 2211.17192, equation 1)."""
    if acceptance >= 1:
        return n_draft + 1
    return (1 - acceptance ** (n_draft + 1)) / (1 - acceptance)


@dataclass(frozen=True)
class Rounds:
    """The rounds of a draft model on one GPU; bandwidth: its bytes per second. remote: the GPU is a worker's."""

    layout: Layout
    ledger: Ledger
    bandwidth: int
    remote: Device | None = None

    def _draft_seconds(self, tokens: int) -> float:
        read = sum(self.ledger.weight_reads.batch(tokens)) + self.ledger.output_reads
        return read / self.bandwidth + self.draft_network_seconds(tokens)

    def draft_network_seconds(self, tokens: int = 1) -> float:
        """Seconds that a pass of the draft is on the way: embeddings of all tokens there, logits of the last back."""
        if self.remote is None:
            return 0.0
        shape = self.ledger.shape
        return hop_seconds(self.remote, shape.n_embd * tokens, shape.n_vocab)

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


def draft_rounds(request: Request, layout: Layout, speculation: Speculation | None) -> tuple[Rounds | None, str | None]:
    """The draft's rounds, or None and why their time cannot be estimated."""
    if speculation and speculation.type != "draft-simple":
        return None, f"how many tokens of {speculation.type} are accepted, and how long it takes, is not known"
    if speculation is None or layout.draft is None or request.draft is None:
        return None, "there is no draft"
    missing = unknown_bandwidth(layout)
    if missing:
        return None, missing
    cpus = [stage.label for stage in computing(layout) if stage.is_cpu]
    if cpus:
        return None, f"how long {', '.join(cpus)} takes to check several tokens at once is not known"
    ledger = model_ledger(request.draft, request.draft_spec())
    device = layout.draft.device
    if device is None or device.is_cpu or request.draft_gpu_layers <= ledger.n_layer:
        return None, "how long a CPU takes for several tokens of the draft at once is not known"
    if not device.bandwidth:
        return None, bandwidth_missing(device.label)
    return Rounds(layout, ledger, device.bandwidth, layout.remote_draft), None
