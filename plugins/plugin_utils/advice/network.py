# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to say about a plan's way over the network: a link that is slow among the others, logits that cross it."""

from __future__ import annotations

from statistics import median
from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.advice.links import is_wireless
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.hops import hop_seconds, transfer_seconds
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device
from ansible_collections.relay.pool.plugins.plugin_utils.memory.activations import FLOAT

# A link counts as slow from so many times what the others take, and from so many seconds more.
TIMES = 3
SECONDS = 0.001


def network_advice(layout: Layout, nodes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Of a sharded plan; nothing of links that nobody measured."""
    return _slow_links(layout, nodes) + _logits(layout)


def _slow_links(layout: Layout, nodes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The workers whose way there and back takes much longer than that of the others."""
    devices = {device.host: device for device in layout.rpc_devices}
    known = {host: device for host, device in devices.items() if device.rtt_seconds is not None}
    times = {host: hop_seconds(device, layout.ledger.shape.n_embd) for host, device in known.items()}
    found = []
    for host, seconds in times.items():
        others = [time for other, time in times.items() if other != host]
        # Of Wi-Fi is said already that a cable is faster.
        if not others or is_wireless(host, layout.server.host, nodes):
            continue
        usual = median(others)
        if seconds >= TIMES * usual and seconds - usual >= SECONDS:
            rest = "the other worker" if len(others) == 1 else "the others"
            found.append(
                f"a token takes {seconds * 1000:.1f} ms to {host} and back ({_link(known[host])}), and "
                f"{usual * 1000:.1f} ms to {rest}: look at the link of {host}, every token waits for it"
            )
    return found


def _link(device: Device) -> str:
    speed = f" at {device.speed_mbps} Mbit/s" if device.speed_mbps else ""
    return f"round trip {(device.rtt_seconds or 0) * 1000:.1f} ms{speed}"


def _logits(layout: Layout) -> list[str]:
    """A host without a GPU cannot keep the output, so all logits of a token come from a worker.

    That the output does not fit a GPU which the host has is a warning.
    """
    shape = layout.ledger.shape
    last = layout.devices[-1]
    elsewhere = last.host != layout.server.host and not (last.is_cpu or layout.output_on_cpu)
    if layout.server.gpus or not elsewhere or not shape.n_vocab:
        return []
    size = shape.n_vocab * FLOAT
    return [
        f"{layout.server.host} has no usable GPU, so the output lies on {last.label} and the logits of every token, "
        f"{-(-size // 1024)} KiB, cross the network in {transfer_seconds(last, size) * 1000:.1f} ms: "
        "a machine with a GPU in the group relay_host would keep them"
    ]
