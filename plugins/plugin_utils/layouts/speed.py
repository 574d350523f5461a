# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a token, or a batch of several, takes through a layout; docs/predictions.md has the formulas.

A token is taken to cost the reading of its weights and the way over the network, nothing else, so times are the least
that is possible. A batch is taken to read the same weights once, which holds on GPUs as long as the batch is small; on
a CPU it is bound by its arithmetic, about which nothing is known here.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.hops import hop_seconds
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger


@dataclass(frozen=True)
class Stage:
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


def computing(layout: Layout) -> list[Stage]:
    """Who computes what, in the order of the layers."""
    n_layer, server = layout.ledger.n_layer, layout.server
    found = []
    if layout.cpu_layers or layout.on_cpu:
        found.append(Stage(server.host, server.ram, 0, layout.cpu_layers, layout.output_on_cpu))
    found += [
        Stage(device.host, device, first, min(end, n_layer), end > n_layer) for device, first, end in layout.segments
    ]
    return found


def unknown_bandwidth(layout: Layout) -> str | None:
    """A sentence that names the devices whose bandwidth would be needed, or None."""
    missing = [stage.label for stage in computing(layout) if not (stage.device and stage.device.bandwidth)]
    return bandwidth_missing(*missing) if missing else None


def bandwidth_missing(*labels: str) -> str:
    """The sentence on devices of which the memory bandwidth is not known."""
    return f"the memory bandwidth of {', '.join(labels)} is unknown, relay_overrides can state it"


def reading_seconds(layout: Layout, tokens: int = 1) -> float:
    """Seconds in which all devices, one after the other, read what a batch needs; every bandwidth must be known."""
    return sum(
        stage.read_bytes(layout.ledger, tokens) / stage.device.bandwidth
        for stage in computing(layout)
        if stage.device and stage.device.bandwidth
    )


def network_seconds(layout: Layout, tokens: int = 1) -> float:
    """Seconds that a batch is under way between the machines; from one GPU of a worker to the next it stays there."""
    shape = layout.ledger.shape
    hosts = [layout.server.host, *(stage.host for stage in computing(layout)), layout.server.host]
    seconds = 0.0
    for before, stage, after in zip(hosts, computing(layout), hosts[2:]):
        if stage.device and stage.host != layout.server.host:
            there = shape.n_embd if before != stage.host else 0
            back = shape.n_embd if after != stage.host else 0
            seconds += hop_seconds(stage.device, there, shape.n_vocab if stage.output else back, tokens)
    return seconds


def pass_seconds(layout: Layout, tokens: int = 1) -> float:
    """Seconds of a pass of the target over a batch."""
    return reading_seconds(layout, tokens) + network_seconds(layout, tokens)
