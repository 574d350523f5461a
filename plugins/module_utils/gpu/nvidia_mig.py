# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG devices as GPUs of their own.

One has no ``index`` (the whole GPUs have them all) and no address of its own: it is known by its ``uuid``, and
``partition_of`` is the uuid of the GPU whose part it is.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible_collections.relay.pool.plugins.module_utils.gpu import record
from ansible_collections.relay.pool.plugins.module_utils.gpu.nvidia_csv import SOURCE, Card
from ansible_collections.relay.pool.plugins.module_utils.gpu.nvidia_xml import MigDevice

NO_DEVICE = "MIG is enabled, but there is no MIG device: create one with nvidia-smi mig -cgi, or disable MIG"
NO_MEMORY = "nvidia-smi -q -x says nothing about its memory"
NO_UUID = (
    "nvidia-smi gives no UUID of it, by which alone a process can address a MIG device: "
    "see what nvidia-smi -L says as root"
)


def devices(known: Sequence[MigDevice], listed: Mapping[int, tuple[str, str | None]]) -> list[MigDevice]:
    """The MIG devices of a GPU: those of the XML, else those of the list, whose memory is not known."""
    found = list(known) or [MigDevice(index=index, reason=NO_MEMORY) for index in sorted(listed)]
    return found[: record.MOST_GPUS]


def entries(
    card: Card, parts: Sequence[MigDevice], listed: Mapping[int, tuple[str, str | None]]
) -> list[tuple[dict[str, Any], MigDevice]]:
    """A GPU for each part of the card. ``listed`` has (profile, uuid) by the index of the MIG device."""
    parent = card.gpu
    found: list[tuple[dict[str, Any], MigDevice]] = []
    owners: dict[int, int | None] = {}
    for part in parts:
        profile, uuid = (None, None) if part.index is None else listed.get(part.index, (None, None))
        word = profile or part.index
        gpu = record.new(
            "nvidia",
            None,
            name=f"{parent['name']} MIG" if word is None else f"{parent['name']} MIG {word}",
            uuid=part.uuid or uuid,
            bus_id=parent["bus_id"],
            driver=parent["driver"],
            memory_total_bytes=part.total_bytes,
            memory_free_bytes=part.free_bytes,
            reason=part.reason,
            partition_of=parent["uuid"] or parent["bus_id"] or f"GPU {parent['index']}",
            source=SOURCE,
        )
        if card.fault:
            record.refuse(gpu, card.fault)
        elif not gpu["uuid"]:
            record.refuse(gpu, NO_UUID)
        elif part.instance is not None and part.instance in owners:
            # Several compute instances of one GPU instance each show all of its memory.
            record.refuse(
                gpu,
                f"it shares its memory with MIG device {owners[part.instance]} of the same GPU, which is counted: "
                "make a GPU instance of its own for it",
            )
        elif part.instance is not None:
            owners[part.instance] = part.index
        found.append((gpu, part))
    return found
