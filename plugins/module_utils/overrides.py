# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put what the user states about a machine over what was read from it.

Ansible checks names, types and choices with ``argument_spec``; the ranges, and what only the machine can tell, are
checked here.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping

from ansible_collections.relay.pool.plugins.module_utils.gpu import pci, record, visible
from ansible_collections.relay.pool.plugins.module_utils.sizes import ABSURD_BYTES

SELECTORS = ("index", "uuid", "bus_id")
FLAGS = frozenset(("unified_memory", "integrated", "placeable"))
# Nothing could be computed with a 0 here.
POSITIVE = frozenset(("threads", "physical_cores", "bandwidth_bytes_per_second"))
COUNTS = frozenset(("threads", "physical_cores", "index"))
COUNT_LIMIT = 2**16
# What ends up in command lines and units, and what it must be.
TEXTS = {
    "device": (
        re.compile(r"(?!(?:CPU|RPC[0-9]*)\Z)[A-Za-z][A-Za-z0-9_]{0,63}\Z"),
        "llama.cpp's name of one GPU of this machine, such as CUDA0",
    ),
    "visible_devices": (
        re.compile(r"[A-Za-z0-9_:./, -]*\Z"),
        "a text of numbers or UUIDs of GPUs with commas between them, such as '0,1'",
    ),
}
LEFT_OUT = "left out by placeable: false in the overrides"


def argument_spec() -> dict[str, Any]:
    """The option ``overrides``. A new dictionary each time, because Ansible writes into the default."""
    number, text, flag = {"type": "int"}, {"type": "str"}, {"type": "bool"}
    return {
        "type": "dict",
        "default": {},
        "options": {
            "memory": {
                "type": "dict",
                "options": {
                    "total_bytes": number,
                    "available_bytes": number,
                    "bandwidth_bytes_per_second": number,
                },
            },
            "cpu": {"type": "dict", "options": {"model": text, "threads": number, "physical_cores": number}},
            "gpus": {
                "type": "list",
                "elements": "dict",
                "mutually_exclusive": [list(SELECTORS)],
                "required_one_of": [list(SELECTORS)],
                "required_by": {"vendor": ["index"]},
                "options": {
                    "index": number,
                    "vendor": {"type": "str", "choices": list(visible.BACKENDS)},
                    "uuid": text,
                    "bus_id": text,
                    "name": text,
                    "device": text,
                    "visible_devices": text,
                    "driver": text,
                    "memory_total_bytes": number,
                    "memory_free_bytes": number,
                    "memory_own_bytes": number,
                    "unified_memory": flag,
                    "integrated": flag,
                    "placeable": flag,
                    "reason": text,
                    "bandwidth_bytes_per_second": number,
                },
            },
        },
    }


def misplaced(given: Any) -> str:
    """What in the overrides is no dictionary and should be one: ansible-core breaks on such numbers, and names none."""
    entries = {"overrides": given}
    if isinstance(given, dict):
        entries = {f"overrides.{name}": given.get(name) for name in ("memory", "cpu")}
    wrong = [f"{path} is {value!r}" for path, value in entries.items() if not isinstance(value, (dict, type(None)))]
    return f"{' and '.join(wrong) or 'overrides has a wrong type'}: it must be a dictionary of values by name"


def _check_number(path: str, value: int) -> None:
    name = path.rpartition(".")[2]
    least = 1 if name in POSITIVE else 0
    # Ansible takes true for a whole number.
    if isinstance(value, bool) or value < least:
        raise ValueError(f"overrides.{path} is {value}: it must be a whole number, {least} or more")
    if name in COUNTS and value >= COUNT_LIMIT:
        raise ValueError(f"overrides.{path} is {value}: it must be less than {COUNT_LIMIT}")
    if value >= ABSURD_BYTES:
        raise ValueError(f"overrides.{path} is {value}: it must be less than {ABSURD_BYTES}; sizes are in bytes")


def _stated(path: str, values: dict[str, Any] | None, without: Iterable[str] = ()) -> dict[str, Any]:
    """What is given, each number in its range, each text of its form."""
    stated = {name: value for name, value in (values or {}).items() if value is not None and name not in without}
    for name, value in stated.items():
        if isinstance(value, int) and name not in FLAGS:
            _check_number(f"{path}.{name}", value)
        pattern, what = TEXTS.get(name, (None, ""))
        if pattern is not None and not pattern.match(value):
            raise ValueError(f"overrides.{path}.{name} is {value!r}: it must be {what}")
    return stated


def _fit(path: str, facts: dict[str, Any], stated: dict[str, Any], total: str, free: str, own: str) -> None:
    """No more can be free than there is, and free memory that is stated is what the pool may use in all."""
    if free in stated and own not in stated:
        facts[own] = 0
    if facts[total] is None or facts[free] is None or not {total, free, own} & set(stated):
        return
    if facts[free] > facts[total] and free in stated:
        raise ValueError(
            f"overrides.{path}.{free} is {facts[free]}, more than the {facts[total]} of {total}: "
            f"lower it, or state the right {total} too"
        )
    facts[free] = min(facts[free], facts[total])
    facts[own] = min(facts[own] or 0, facts[total] - facts[free])


def _fit_cpu(cpu: dict[str, Any], stated: dict[str, Any]) -> None:
    """No core is without a thread."""
    if not {"threads", "physical_cores"} & set(stated) or cpu["physical_cores"] <= cpu["threads"]:
        return
    if "physical_cores" in stated:
        raise ValueError(
            f"overrides.cpu.physical_cores is {cpu['physical_cores']}, more than the {cpu['threads']} of threads: "
            f"lower it, or state the right threads too"
        )
    cpu["physical_cores"] = cpu["threads"]


def _label(gpu: dict[str, Any]) -> str:
    number = gpu["vendor"] if gpu["index"] is None else f"{gpu['vendor']} {gpu['index']}"
    known = (number, gpu["uuid"], gpu["bus_id"])
    return f"{gpu['device'] or gpu['name']} ({', '.join(part for part in known if part)})"


def _what_there_is(gpus: list[dict[str, Any]]) -> str:
    return "; ".join(map(_label, gpus)) or "no GPU"


def _selector(entry: dict[str, Any]) -> str:
    return next((name for name in SELECTORS if entry.get(name) is not None), "")


def _select(gpus: list[dict[str, Any]], entry: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The entry's path, such as gpus.0, and the GPUs that it selects. Raises ValueError for what cannot be meant."""
    by = _selector(entry)
    if by == "uuid":
        uuid = entry["uuid"].strip()
        if not uuid:
            raise ValueError(
                f"overrides.gpus.uuid is empty; the machine has {_what_there_is(gpus)}: state one, or select by index"
            )
        return f"gpus.{uuid}", [gpu for gpu in gpus if (gpu["uuid"] or "").lower() == uuid.lower()]
    if by == "bus_id":
        address = pci.normal_address(entry["bus_id"])
        if address is None:
            raise ValueError(
                f"overrides.gpus.bus_id is {entry['bus_id']!r}: it must be a PCI address like 0000:01:00.0, in quotes"
            )
        # A part of a GPU has the address of the whole one; it is selected by its uuid.
        whole = [gpu for gpu in gpus if gpu["partition_of"] is None]
        return f"gpus.{address}", [gpu for gpu in whole if pci.normal_address(gpu["bus_id"]) == address]
    if by == "index":
        index, vendor = entry["index"], entry.get("vendor")
        _check_number("gpus.index", index)
        found = [gpu for gpu in gpus if gpu["index"] == index and vendor in (None, gpu["vendor"])]
        return f"gpus.{vendor or ''}{index}", found
    raise ValueError("overrides.gpus has an entry that selects no GPU: give it an index, a uuid or a bus_id")


def _one(path: str, found: list[dict[str, Any]], entry: dict[str, Any]) -> dict[str, Any] | None:
    if len(found) < 2:
        return found[0] if found else None
    vendors = sorted({gpu["vendor"] for gpu in found})
    others = [name for name in SELECTORS if name != _selector(entry)]
    way_out = f"add vendor, {' or '.join(vendors)}" if len(vendors) > 1 else f"select by {' or '.join(others)}"
    raise ValueError(f"overrides.{path} selects {' and '.join(map(_label, found))}: {way_out}")


def _added(path: str, gpus: list[dict[str, Any]], entry: dict[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    """A GPU that no probe found. All of its memory is free, unless something else is stated."""
    nothing = f"overrides.{path} selects no GPU; the machine has {_what_there_is(gpus)}: correct the {_selector(entry)}"
    if _selector(entry) != "index":
        raise ValueError(f"{nothing}, or select or add the GPU by index")
    if not {"memory_total_bytes", "memory_free_bytes"} & set(stated):
        raise ValueError(f"{nothing}, or give memory_total_bytes or memory_free_bytes to add a GPU")
    if "memory_total_bytes" in stated:
        stated.setdefault("memory_free_bytes", stated["memory_total_bytes"])
    vendor = entry.get("vendor") or "nvidia"
    device = f"{visible.BACKENDS[vendor].prefix}{entry['index']}"
    return record.new(vendor, entry["index"], device=device, source="overrides")


def _insert(gpus: list[dict[str, Any]], gpu: dict[str, Any]) -> None:
    """Put the GPU where a probe would have listed it: vendor by vendor, in the order of the indexes."""
    vendors = list(visible.BACKENDS)

    def later(other: dict[str, Any]) -> bool:
        if other["vendor"] != gpu["vendor"]:
            return vendors.index(other["vendor"]) > vendors.index(gpu["vendor"])
        return other["index"] is not None and other["index"] > gpu["index"]

    gpus.insert(next((place for place, other in enumerate(gpus) if later(other)), len(gpus)), gpu)


def _give_reason(gpu: dict[str, Any], stated: dict[str, Any], was_placeable: bool) -> None:
    """The reason belonged to what the probe read: take it away where it does not hold any more."""
    if "reason" in stated:
        return
    if not gpu["placeable"]:
        if "placeable" in stated:
            gpu["reason"] = LEFT_OUT
        return
    unknown = [name for name in ("memory_total_bytes", "memory_free_bytes") if gpu[name] is None]
    if not unknown and {"placeable", "memory_total_bytes", "memory_free_bytes"} & set(stated):
        gpu["reason"] = None
    elif unknown and not (was_placeable and gpu["reason"]):
        gpu["reason"] = f"{' and '.join(unknown)} unknown: state it in the overrides"


def _apply_gpu(path: str, gpu: dict[str, Any], stated: dict[str, Any]) -> None:
    was_placeable = gpu["placeable"]
    gpu.update(stated)
    gpu["overridden"] = sorted(stated)
    _fit(path, gpu, stated, "memory_total_bytes", "memory_free_bytes", "memory_own_bytes")
    if stated.get("placeable") and not gpu["device"]:
        example = f"{visible.BACKENDS[gpu['vendor']].prefix}{gpu['index'] or 0}"
        raise ValueError(
            f"overrides.{path}.placeable is true, but llama.cpp has no name for {_label(gpu)}"
            f"{': ' + gpu['reason'] if gpu['reason'] else ''}: give device too, such as {example}, "
            f"if a process can use this GPU"
        )
    _give_reason(gpu, stated, was_placeable)


def _check_device(path: str, gpu: dict[str, Any], gpus: list[dict[str, Any]]) -> None:
    """One process cannot have two GPUs of one name."""
    named = (gpu["device"], gpu["visible_devices"])
    twin = next(
        (g for g in gpus if g is not gpu and g["placeable"] and (g["device"], g["visible_devices"]) == named), None
    )
    if gpu["placeable"] and gpu["device"] and twin:
        raise ValueError(
            f"overrides.{path} makes {gpu['device']} the device of {_label(gpu)}, but {_label(twin)} has it: "
            f"state another device, or leave one of them out with placeable: false"
        )


def _apply_gpus(gpus: list[dict[str, Any]], entries: list[dict[str, Any]]) -> list[str]:
    done: list[str] = []
    taken: list[tuple[str, dict[str, Any]]] = []
    new: list[dict[str, Any]] = []
    # All entries are about what the probes found; no entry selects what another one adds.
    for entry in entries:
        path, found = _select(gpus, entry)
        stated = _stated(path, entry, without=(*SELECTORS, "vendor"))
        gpu = _one(path, found, entry)
        if gpu is None:
            gpu = _added(path, gpus, entry, stated)
            same = (gpu["vendor"], gpu["index"])
            other = next((name for name, one in taken if (one["vendor"], one["index"]) == same), None)
            new.append(gpu)
        else:
            other = next((name for name, one in taken if one is gpu), None)
        if other is not None:
            raise ValueError(
                f"overrides.gpus has two entries for {_label(gpu)}, {other} and {path}: make them one entry"
            )
        taken.append((path, gpu))
        _apply_gpu(path, gpu, stated)
        done += [f"{path}.{name}" for name in stated]
    for gpu in new:
        _insert(gpus, gpu)
    for path, gpu in taken:
        if any(gpu is one for one in new) or {"device", "visible_devices", "placeable"} & set(gpu["overridden"]):
            _check_device(path, gpu, gpus)
    return done


def _check_environment(gpus: list[dict[str, Any]], environment: Mapping[str, str]) -> None:
    """The services have one value of a variable, and it is the user's."""
    for gpu in gpus:
        name = visible.BACKENDS[gpu["vendor"]].variable
        given, stated = environment.get(name or ""), gpu["visible_devices"]
        if given is not None and "visible_devices" in gpu["overridden"] and stated not in ("", given):
            raise ValueError(
                f"overrides states visible_devices {stated!r} for {_label(gpu)}, but {name} is {given!r} in the "
                f"environment of the services: leave one of them out"
            )


def apply_overrides(
    facts: dict[str, Any], overrides: dict[str, Any] | None, environment: Mapping[str, str] | None = None
) -> list[str]:
    """Change ``facts`` in place and return the paths that were set, such as ``gpus.0.placeable``.

    ``overrides`` is what Ansible made of ``argument_spec``: None is what is not given. Free memory that is stated says
    what the pool may use in all, so the pool's own share of it becomes 0. ``environment`` is that of the services.
    Raises ValueError for what cannot be meant.
    """
    given = overrides or {}
    memory = _stated("memory", given.get("memory"))
    facts["memory"].update(memory)
    _fit("memory", facts["memory"], memory, "total_bytes", "available_bytes", "own_bytes")
    cpu = _stated("cpu", given.get("cpu"))
    facts["cpu"].update(cpu)
    _fit_cpu(facts["cpu"], cpu)
    done = [f"memory.{name}" for name in memory] + [f"cpu.{name}" for name in cpu]
    done += _apply_gpus(facts["gpus"], given.get("gpus") or [])
    _check_environment(facts["gpus"], environment or {})
    return done
