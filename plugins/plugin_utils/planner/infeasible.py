# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When nothing fits: one sentence with both numbers and the smallest ways out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory import kv
from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB, mib

if TYPE_CHECKING:
    from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import Planner

STEP_BYTES = 64 * MIB


def explain(planner: Planner) -> str:
    """Why there is no plan, and what would give one."""
    request, ledger = planner.request, planner.ledger
    devices = planner.pool.holders(request.allow_cpu)
    first = max(devices, key=lambda device: device.usable_bytes)
    need = (
        ledger.layer_weights(0, ledger.n_layer, not first.is_cpu)
        + ledger.output_weights(not first.is_cpu)
        + sum(ledger.kv)
        + sum(ledger.recurrent)
        + sum(ledger.device_bytes(i == 0, len(devices) > 1 and not first.is_cpu, True) for i in range(len(devices)))
    )
    if any(device.shared for device in planner.pool.host.gpus):
        need += ledger.input + ledger.host_bytes(layers=False, pipelined=len(devices) > 1)
    have = sum(device.usable_bytes for device in devices)
    although = ", but not in whole layers" if need <= have else ""
    names = ", ".join(f"{device.label} {mib(device.usable_bytes)}" for device in devices)
    left_out = "; ".join(entry["message"] for entry in planner.refused if entry["reason"] not in ("no_room", "no_gpu"))
    ways = [way for way in (_smaller_context(planner), _smaller_cache(planner), _more_memory(planner)) if way]
    return "{} needs {} with a context of {}, the pool has {} beside its reserves ({}){}: {}{}".format(
        request.served_alias,
        mib(need),
        request.ctx_size,
        mib(have),
        names,
        although,
        ", or ".join(ways) or "add a machine",
        f" (not counted: {left_out})" if left_out else "",
    )


def _works(planner: Planner, **changes: Any) -> bool:
    try:
        return planner.varied(**changes).feasible()
    except PoolError:
        return False


def _least(works: Callable[[int], bool], low: int, high: int) -> int | None:
    """The least value in low..high that works, given that larger ones do; None when none does."""
    if not works(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if works(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _smaller_context(planner: Planner) -> str | None:
    request = planner.request
    step = kv.PAD * request.parallel
    steps = kv.context(request.ctx_size, request.parallel)[0] // step
    found = (
        _least(lambda fewer: _works(planner, ctx_size=max((steps - fewer) * step, step)), 1, steps - 1)
        if steps > 1
        else None
    )
    return None if found is None else f"lower relay_ctx_size to {(steps - found) * step}"


def _smaller_cache(planner: Planner) -> str | None:
    request = planner.request
    if kv.is_quantised(request.cache_type_k) or not _works(planner, cache_type_k="q8_0", cache_type_v="q8_0"):
        return None
    return "set relay_kv_cache_type to q8_0"


def _more_memory(planner: Planner) -> str | None:
    request = planner.request
    biggest = max(planner.pool.holders(request.allow_cpu), key=lambda device: device.usable_bytes)

    def works(steps: int) -> bool:
        return _works(planner, pool=planner.pool.with_more(biggest, steps * STEP_BYTES, request.allow_cpu))

    ledger = planner.ledger
    most = sum(ledger.weights) + ledger.output_weights(True) + sum(ledger.kv) + sum(ledger.recurrent)
    most += ledger.device_bytes(True, True, True) + ledger.host_bytes(True, True) + ledger.input
    found = _least(works, 1, most // STEP_BYTES + 8)
    return None if found is None else f"give {biggest.label} {mib(found * STEP_BYTES)} more"
