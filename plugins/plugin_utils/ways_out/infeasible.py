# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When nothing fits: one sentence with both numbers and the smallest ways out."""

from __future__ import annotations

import heapq
from typing import Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.arrangement import Arrangement
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import MAX_DEVICES
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.machines.members import Refusal
from ansible_collections.relay.pool.plugins.plugin_utils.machines.pool import Pool
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib
from ansible_collections.relay.pool.plugins.plugin_utils.views.refusals import refused_lines
from ansible_collections.relay.pool.plugins.plugin_utils.ways_out.trials import Trials
from ansible_collections.relay.pool.plugins.plugin_utils.ways_out.ways_out import ways_out

# So many devices are named.
NAMED = 8


def explain(request: Request, arrangement: Arrangement, pool: Pool, refused: Sequence[Refusal]) -> str:
    """Why there is no plan, and what would give one.

    arrangement: that of the target without a draft. refused: what the pool does not count.
    """
    ways = ways_out(Trials(request, pool, arrangement.overrides))
    left_out = refused_lines([entry for entry in refused if _counts(entry, request.allow_cpu)])
    return "{}: {}{}".format(
        _nothing(request, pool)
        or _too_little_ram(request, arrangement.ledger, pool.host)
        or _too_little(request, arrangement.ledger, pool),
        ", or ".join(ways) or "add a machine",
        f" (not counted: {'; '.join(left_out)})" if left_out else "",
    )


def _nothing(request: Request, pool: Pool) -> str | None:
    """When there is no device at all that may hold layers."""
    allow_cpu, names = request.allow_cpu, [member.host for member in pool.machines()]
    if pool.holders(allow_cpu):
        return None
    shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    if allow_cpu:
        return f"no device can hold layers: neither a usable GPU nor a known amount of free RAM on {shown}"
    return f"no usable GPU on {shown}"


def _counts(entry: Refusal, allow_cpu: bool) -> bool:
    """Whether what is left out could have held layers."""
    return entry["reason"] not in ("no_room", "no_gpu", "too_many_devices") and (allow_cpu or entry["device"] != "CPU")


def _too_little(request: Request, ledger: Ledger, pool: Pool) -> str:
    devices = pool.holders(request.allow_cpu)
    # As many as llama.cpp takes; the others are no help.
    counted = heapq.nlargest(MAX_DEVICES, devices, key=lambda device: device.usable_bytes)
    first = counted[0]
    need = (
        ledger.layer_weights(0, ledger.n_layer, not first.is_cpu)
        + ledger.output_weights(not first.is_cpu)
        + sum(ledger.kv)
        + sum(ledger.recurrent)
        + sum(ledger.device_bytes(i == 0, len(counted) > 1 and not first.is_cpu, True) for i in range(len(counted)))
    )
    if any(device.shared for device in pool.host.gpus):
        need += ledger.input + ledger.host_bytes(layers=False, pipelined=len(counted) > 1)
    have = sum(device.usable_bytes for device in counted)
    although = ", but not in whole layers" if need <= have else ""
    limit = f", on the {MAX_DEVICES} largest of {len(devices)} devices" if len(devices) > MAX_DEVICES else ""
    return (
        f"{request.served_alias} needs {mib(need)} with a context of {request.ctx_size}, the pool has {mib(have)} "
        f"beside its reserves{limit} ({_names(devices if not limit else counted)}){although}"
    )


def _too_little_ram(request: Request, ledger: Ledger, host: Machine) -> str | None:
    """When not even what llama-server keeps in RAM fits there, GPUs are no help."""
    need = ledger.input + ledger.host_bytes(layers=False, pipelined=False)
    if host.ram is None or need <= host.ram.usable_bytes:
        return None
    return (
        f"{request.served_alias} needs {mib(need)} of RAM on {host.host} for its token embedding and buffers, "
        f"and {host.host} has {mib(host.ram.usable_bytes)} beside its reserve"
    )


def _names(devices: Sequence[Device]) -> str:
    shown = ", ".join(f"{device.label} {mib(device.usable_bytes)}" for device in devices[:NAMED])
    return shown + (f" and {len(devices) - NAMED} more" if len(devices) > NAMED else "")
