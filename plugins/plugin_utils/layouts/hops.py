# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a token takes on the network: what every device that is reached over RPC adds."""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device
from ansible_collections.relay.pool.plugins.plugin_utils.memory.activations import FLOAT

# Round trip and speed of a link that nobody measured: a switch with gigabit ports.
RTT_SECONDS = 0.0005
SPEED_MBPS = 1000


def hop_seconds(device: Device, n_embd: int, n_out: int | None = None, tokens: int = 1) -> float:
    """Seconds that a batch of tokens needs to and from a device over RPC: one round trip, and its values both ways.

    n_embd: values per token that go there. n_out: values that come back, by default as many; the vocabulary from the
    device of the output.
    """
    rtt = RTT_SECONDS if device.rtt_seconds is None else device.rtt_seconds
    values = n_embd + (n_embd if n_out is None else n_out)
    return rtt + transfer_seconds(device, values * FLOAT * tokens)


def transfer_seconds(device: Device, size_bytes: int) -> float:
    """Seconds that so many bytes take on the link to the device's machine."""
    return size_bytes * 8 / ((device.speed_mbps or SPEED_MBPS) * 1_000_000)
