# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names that llama.cpp gives to GPUs, and the environment under which it gives them.

CUDA, HIP and Level Zero number what they see. A GPU that no process may use (lost, split by MIG, in use by somebody
who has it for himself) makes them number otherwise than the vendor's tool, or fail; so it is hidden from them by the
vendor's variable, and the numbers count what is left.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from ansible_collections.relay.pool.plugins.module_utils.sizes import digits


class Backend(NamedTuple):
    """What llama.cpp calls a vendor's GPUs, and the variable that says which of them a process sees."""

    prefix: str
    variable: str | None
    # Further ones by which a user may have hidden some.
    others: tuple[str, ...] = ()


BACKENDS = {
    "nvidia": Backend("CUDA", "CUDA_VISIBLE_DEVICES"),
    "amd": Backend("ROCm", "ROCR_VISIBLE_DEVICES", ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")),
    # Level Zero has no such list of ids: a GPU keeps its place.
    "intel": Backend("SYCL", None),
    "apple": Backend("MTL", None),
}


def _asked_for(gpus: list[dict[str, Any]], value: str) -> list[dict[str, Any]]:
    """The GPUs that the user's value names, in its order.

    Like the runtimes, it ends at the first word that names none, and a MIG device is the only one that is seen.
    """
    chosen: list[dict[str, Any]] = []
    for word in (part.strip() for part in value.split(",")):
        number = digits(word)
        if number is not None:
            matches = [g for g in gpus if g["partition_of"] is None and g["index"] == number]
        else:
            matches = [g for g in gpus if word and (g["uuid"] or "").startswith(word)]
        if len(matches) != 1 or matches[0] in chosen:
            break
        chosen += matches
        if matches[0]["partition_of"] is not None:
            break
    return chosen


def name_devices(vendor: str, gpus: list[dict[str, Any]], environment: Mapping[str, str] | None = None) -> None:
    """Set ``device`` and ``visible_devices`` of the vendor's GPUs, which are in the order of their indexes.

    ``environment`` is that of the pool's services: where the user set the vendor's variable, it holds.
    """
    prefix, variable, others = BACKENDS[vendor]
    given = [(name, (environment or {})[name]) for name in (variable, *others) if name in (environment or {})]
    if given:
        name, value = given[0]
        chosen = _asked_for(gpus, value)
        for number, gpu in enumerate(chosen):
            gpu["device"] = f"{prefix}{number}"
        for gpu in gpus:
            if not any(gpu is other for other in chosen):
                gpu.update(placeable=False, reason=f"{name}={value} in relay_environment hides it")
        return
    whole = [g for g in gpus if g["partition_of"] is None]
    seen = [g for g in whole if g["placeable"]]
    hide = variable is not None and len(seen) < len(gpus)
    words = ",".join(str(g["uuid"] or g["index"]) for g in seen)
    for number, gpu in enumerate(seen):
        gpu["device"] = f"{prefix}{gpu['index'] if variable is None else number}"
        gpu["visible_devices"] = words if hide else None
    for gpu in gpus:
        if gpu["partition_of"] is not None and gpu["placeable"]:
            # A process sees one MIG device only, and no GPU beside it.
            gpu.update(device=f"{prefix}0", visible_devices=gpu["uuid"])
