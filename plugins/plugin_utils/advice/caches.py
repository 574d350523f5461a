# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a quantised KV cache brings with it in llama.cpp."""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout
from ansible_collections.relay.pool.plugins.plugin_utils.memory import kv
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib


def cache_advice(request: Request, layout: Layout) -> list[str]:
    """The lines about a quantised cache; [] for any other."""
    types = list(dict.fromkeys((request.cache_type_k, request.cache_type_v)))
    if not any(kv.is_quantised(kind) for kind in types):
        return []
    found = []
    half = layout.ledger.batch.half_kv
    if half and any(not device.is_cpu for device in layout.devices):
        found.append(
            f"the {'/'.join(types)} cache needs flash attention, which on a GPU turns a layer's cache into half floats "
            f"to process a batch: up to {mib(half)} of each GPU's compute buffer are for that"
        )
    if layout.draft and layout.draft.gpu.kv + layout.draft.ram.kv:
        size = layout.draft.gpu.kv + layout.draft.ram.kv
        found.append(f"the draft's KV cache stays f16 ({mib(size)}): relay_kv_cache_type does not reach it")
    return found
