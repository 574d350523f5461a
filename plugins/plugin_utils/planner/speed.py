# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long one token takes on the network: what every device that is reached over RPC adds."""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.plugin_utils.planner.devices import Device

# Round trip and speed of a link that nobody measured: a switch with gigabit ports.
RTT_SECONDS = 0.0005
SPEED_MBPS = 1000
# An activation is a float per value of the embedding.
FLOAT = 4


def hop_seconds(device: Device, n_embd: int) -> float:
    """Seconds that a token needs to and from a device over RPC: one round trip, and its activations both ways."""
    rtt = RTT_SECONDS if device.rtt_seconds is None else device.rtt_seconds
    return rtt + transfer_seconds(device, 2 * n_embd * FLOAT)


def transfer_seconds(device: Device, size_bytes: int) -> float:
    """Seconds that so many bytes take on the link to the device's machine."""
    return size_bytes * 8 / ((device.speed_mbps or SPEED_MBPS) * 1_000_000)
