# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why each usable device that the plan does without is not in it."""

from __future__ import annotations

from typing import Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.hops import hop_seconds
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import MAX_DEVICES
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine, without_gpu
from ansible_collections.relay.pool.plugins.plugin_utils.machines.members import Refusal, refusal
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib


def unused(machines: Sequence[Machine], layout: Layout, refused: Sequence[Refusal], allow_cpu: bool) -> list[Refusal]:
    """One entry for every device that may hold layers and holds none, in the order of the machines.

    machines: all that are usable. refused: what is said of others already. The CPU of a machine with a usable GPU
    never holds layers, and a machine that serves without any is not left out, so these are not named.
    """
    used = {(device.host, device.name) for device in layout.devices}
    if layout.cpu_layers or layout.on_cpu:
        used.add((layout.server.host, "CPU"))
    if layout.draft and layout.draft.device:
        used.add((layout.draft.device.host, layout.draft.device.name))
    said = used | {(entry["host"], entry["device"]) for entry in refused}
    needs = {gpu: _least_layer(layout, gpu) for gpu in (True, False)} if layout.sharded else {}
    found = []
    for machine in machines:
        holders = machine.holders(allow_cpu)
        if not holders and machine.host != layout.server.host and (machine.host, None) not in said:
            found.append(without_gpu(machine))
        for device in holders:
            if (device.host, device.name) in said:
                continue
            reason, message = _why_sharded(device, layout, needs) if layout.sharded else _why_replica(device, layout)
            found.append(refusal(device.host, device.name, reason, message))
    return found


def _why_replica(device: Device, layout: Layout) -> tuple[str, str]:
    names = ", ".join(device.name for device in layout.devices) or "CPU"
    return "not_needed", f"{device.label} is not needed: the whole model fits {layout.server.host} {names}"


def _why_sharded(device: Device, layout: Layout, needs: dict[bool, int]) -> tuple[str, str]:
    need = needs[not device.is_cpu]
    if need > device.usable_bytes:
        return "no_room", (
            f"{device.label} has no room for a layer: the smallest takes {mib(need)} there with its buffers, and "
            f"{mib(device.usable_bytes)} are free beside the reserve"
        )
    if len(layout.segments) >= MAX_DEVICES:
        return "too_many_devices", (
            f"{device.label} is left out: llama.cpp takes {MAX_DEVICES} devices, and the plan has that many others"
        )
    speed = f"it reads at {device.bandwidth / 1e9:.0f} GB/s" if device.bandwidth else "its bandwidth is unknown"
    if device.host != layout.server.host:
        hop = hop_seconds(device, layout.ledger.shape.n_embd) * 1000
        guess = " by assumption, as it was not measured" if device.rtt_seconds is None else ""
        speed += f", and the way to it and back takes {hop:.2f} ms{guess}"
    return "slower", f"{device.label} is left out: a token would take as long or longer with it ({speed})"


def _least_layer(layout: Layout, gpu: bool) -> int:
    """Bytes that a device needs at least to hold any one layer of the middle."""
    ledger: Ledger = layout.ledger
    return min(
        ledger.layer_weights(layer, layer + 1, gpu)
        + ledger.kv[layer]
        + ledger.recurrent[layer]
        + ledger.per_device
        + ledger.device_bytes(False, layout.pipelined, False, (layer, layer + 1), gpu)
        for layer in range(ledger.n_layer)
    )
