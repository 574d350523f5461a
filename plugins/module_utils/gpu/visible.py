# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names that llama.cpp gives to GPUs, and the environment under which it gives them.

CUDA and HIP number what they see. A GPU that no process may use (lost, split by MIG, in use by somebody who has it for
himself) makes them number otherwise than the vendor's tool, or fail; so it is hidden from them by the vendor's
variable, and the numbers count what is left.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from ansible_collections.relay.pool.plugins.module_utils.gpu import record
from ansible_collections.relay.pool.plugins.module_utils.sizes import digits


class Hiding(NamedTuple):
    """Variables by which a user may have hidden some GPUs from a runtime: the first of them that is set holds."""

    names: tuple[str, ...]
    # Whether an empty value hides all, or is none.
    empty_hides: bool = True
    # Whether the value is a mask of Level Zero's numbers, which says nothing of an order.
    mask: bool = False


class Backend(NamedTuple):
    """What llama.cpp calls a vendor's GPUs, and how a process is told which of them it sees.

    ``variable`` is what the plan sets. ``hiding`` is by runtime, the lowest first: each numbers what the one below it
    shows.
    """

    prefix: str
    variable: str | None
    hiding: tuple[Hiding, ...] = ()


BACKENDS = {
    "nvidia": Backend("CUDA", "CUDA_VISIBLE_DEVICES", (Hiding(("CUDA_VISIBLE_DEVICES",)),)),
    "amd": Backend(
        "ROCm",
        "ROCR_VISIBLE_DEVICES",
        (
            Hiding(("ROCR_VISIBLE_DEVICES",)),
            Hiding(("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), empty_hides=False),
        ),
    ),
    # A GPU that is not used keeps no other from working, so the plan hides none: each keeps its place, unless the user
    # masked some.
    "intel": Backend("SYCL", None, (Hiding(("ZE_AFFINITY_MASK",), empty_hides=False, mask=True),)),
    "apple": Backend("MTL", None),
}


def _asked_for(
    numbered: Mapping[int, dict[str, Any]], gpus: Sequence[dict[str, Any]], value: str
) -> list[dict[str, Any]]:
    """Those of the GPUs that the user's value names, by number or by the first letters of the uuid, in its order.

    Like the runtimes, it ends at the first word that names none, and a MIG device is the only one that is seen.
    """
    chosen: list[dict[str, Any]] = []
    for word in (part.strip() for part in value.split(",")):
        number = digits(word)
        if number is None:
            matches = [g for g in gpus if word and (g["uuid"] or "").startswith(word)]
        else:
            matches = [numbered[number]] if number in numbered else []
        if len(matches) != 1 or any(matches[0] is gpu for gpu in chosen):
            break
        chosen += matches
        if matches[0]["partition_of"] is not None:
            break
    return chosen


def _unmasked(gpus: Sequence[dict[str, Any]], value: str) -> list[dict[str, Any]]:
    """Those of the GPUs that the user's mask names, in the order in which the back end numbers them then.

    Level Zero numbers them by their addresses, the integrated one last. The back end begins with the first that it
    sees, whatever the order of the others.
    """
    counted = sorted((gpu for gpu in gpus if gpu["index"] is not None), key=lambda gpu: gpu["index"])
    numbers = [gpu["index"] for gpu in counted]
    if all(gpu["bus_id"] for gpu in counted):
        counted.sort(key=lambda gpu: (gpu["integrated"], gpu["bus_id"]))
    asked = {digits(word.strip()) for word in value.split(",")}
    # A part of a GPU, such as 0.1, would be a device too.
    left = [] if None in asked else [gpu for number, gpu in zip(numbers, counted) if number in asked]
    return left[:1] + sorted(left[1:], key=lambda gpu: gpu["index"])


def _obey(hiding: Sequence[Hiding], gpus: list[dict[str, Any]], environment: Mapping[str, str]) -> list | None:
    """What the user's environment leaves to see, in the order in which it is numbered; None where it says nothing."""
    seen, numbered, said = gpus, {gpu["index"]: gpu for gpu in gpus if gpu["index"] is not None}, False
    for names, empty_hides, mask in hiding:
        name = next((name for name in names if name in environment and (environment[name] or empty_hides)), None)
        if name is None:
            continue
        said = True
        value = environment[name]
        chosen = _unmasked(seen, value) if mask else _asked_for(numbered, seen, value)
        for gpu in seen:
            if not any(gpu is other for other in chosen):
                record.refuse(gpu, f"{name}={value} in relay_environment hides it")
        seen, numbered = chosen, dict(enumerate(chosen))
    return seen if said else None


def _words(gpus: list[dict[str, Any]]) -> list[str]:
    """What names these GPUs to the runtime: uuids as it knows them, or indexes, as it takes no list of both."""
    uuids = [str(gpu["uuid"]) for gpu in gpus]
    # That of a Jetson's GPU is only a number.
    return uuids if all(uuid.startswith("GPU-") for uuid in uuids) else [str(gpu["index"]) for gpu in gpus]


def name_devices(vendor: str, gpus: list[dict[str, Any]], environment: Mapping[str, str] | None = None) -> None:
    """Set ``device`` and ``visible_devices`` of the vendor's GPUs, which are in the order of their indexes.

    ``environment`` is that of the pool's services: where the user set the vendor's variable, it holds.
    """
    prefix, variable, hiding = BACKENDS[vendor]
    left = _obey(hiding, gpus, environment or {})
    if left is not None:
        for number, gpu in enumerate(left):
            gpu["device"] = f"{prefix}{number}"
        return
    whole = [g for g in gpus if g["partition_of"] is None]
    if variable is None:
        # What cannot be hidden has its name whether or not it is used.
        for gpu in whole:
            gpu["device"] = None if gpu["index"] is None else f"{prefix}{gpu['index']}"
        return
    seen = [g for g in whole if g["placeable"]]
    words = ",".join(_words(seen))
    for number, gpu in enumerate(seen):
        gpu["device"] = f"{prefix}{number}"
        gpu["visible_devices"] = words if len(seen) < len(gpus) else None
    for gpu in gpus:
        if gpu["partition_of"] is not None and gpu["placeable"]:
            # A process sees one MIG device only, and no GPU beside it.
            gpu.update(device=f"{prefix}0", visible_devices=gpu["uuid"])
