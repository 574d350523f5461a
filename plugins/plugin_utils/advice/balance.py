# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to say about how full a plan's devices are, and which kinds of them it mixes."""

from __future__ import annotations

from typing import Any

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout, stages
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib, mib_free

# A device of which so many tenths stay free is almost empty.
EMPTY_TENTHS = 9


def balance_advice(layout: Layout) -> list[str]:
    """Of a sharded plan: CPUs among GPUs, and GPUs that hold almost nothing."""
    rows = [row for row in stages(layout) if row["n_layers"]]
    n_layer = layout.ledger.n_layer
    found = []
    if any(row["device"] != "CPU" for row in rows):
        found += [
            f"{row['host']} CPU holds {row['n_layers']} of {n_layer} layers ({mib(_content(row))}) beside GPUs: "
            "RAM mostly is read more slowly than the memory of a GPU, and every token waits for it"
            for row in rows
            if row["device"] == "CPU"
        ]
    for row in rows:
        memory = row["memory"]
        if row["device"] != "CPU" and memory["left_bytes"] * 10 >= memory["free_bytes"] * EMPTY_TENTHS:
            found.append(
                f"{row['host']} {row['device']} holds {row['n_layers']} of {n_layer} layers, and "
                f"{mib_free(memory['left_bytes'])} of its {mib_free(memory['free_bytes'])} stay free: a longer context "
                "or a larger quantisation would use them"
            )
    return found


def _content(row: dict[str, Any]) -> int:
    memory = row["memory"]
    return memory["weights_bytes"] + memory["kv_bytes"] + memory["recurrent_bytes"]
