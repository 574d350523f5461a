# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the way to a device and back takes."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.hops import hop_seconds
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device


def test_a_hop_is_a_round_trip_and_its_values():
    near = Device("b", "CUDA0", 1, 0, rtt_seconds=0.001, speed_mbps=10_000)
    assert hop_seconds(near, 1000) == pytest.approx(0.001 + 2 * 1000 * 32 / 1e10)
    assert hop_seconds(near, 1000, 5000, tokens=3) == pytest.approx(0.001 + 3 * 6000 * 32 / 1e10)
    assert hop_seconds(Device("b", "CUDA0", 1, 0), 1000) == pytest.approx(0.0005 + 2 * 1000 * 32 / 1e9)
