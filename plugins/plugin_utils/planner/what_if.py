# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools that do not exist: the facts as they would be with other machines and GPUs, filled up to what a plan needs."""

from __future__ import annotations

import ipaddress
from typing import Any, Mapping, NamedTuple, Sequence

from ansible_collections.relay.pool.plugins.module_utils.gpu import bandwidth
from ansible_collections.relay.pool.plugins.module_utils.gpu.visible import BACKENDS
from ansible_collections.relay.pool.plugins.module_utils.sizes import ABSURD_BYTES, digits
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.kinds import SECONDS
from ansible_collections.relay.pool.plugins.plugin_utils.machines.backends import prefix
from ansible_collections.relay.pool.plugins.plugin_utils.machines.facts import check_facts, facts_problem

MACHINE_KEYS = ("state", "gpus", "memory", "link")
GPU_KEYS = (
    "state", "name", "vendor", "memory_total_bytes", "memory_free_bytes", "bandwidth_bytes_per_second", "device",
    "uuid", "unified_memory",
)  # fmt: skip
MEMORY_KEYS = ("total_bytes", "available_bytes", "bandwidth_bytes_per_second")
LINK_KEYS = ("rtt_seconds", "speed_mbps")
STATES = ("present", "absent")
# By words in the names that the vendors' tools print. Everything else is taken for NVIDIA's.
VENDORS = {"radeon": "amd", "instinct": "amd", "amd": "amd", "intel": "intel", "arc": "intel", "apple": "apple"}
# RFC 2544 keeps these for measurements, so no machine of a pool has one.
STAND_IN = ipaddress.IPv4Address("198.18.0.0")
WAY_OUT = "correct it, or leave it out"

Nodes = dict[str, Any]


class Supposed(NamedTuple):
    """Facts by machine, the workers in the order in which they hold layers, and what stands in for something."""

    nodes: Nodes
    workers: tuple[str, ...]
    notes: tuple[str, ...]


def filled_up(nodes: Mapping[str, Any]) -> tuple[Nodes, list[str]]:
    """The nodes with what a machine that does not exist lacks, and a note for every address that stands in.

    A key that is there, if only as null, was gathered and stays. Of a GPU the size and the name are enough; what there
    is of memory counts as free.
    """
    taken = {str(node.get("address")) for node in nodes.values() if isinstance(node, Mapping)}
    filled: Nodes = {}
    notes = []
    number = 0
    for name, node in nodes.items():
        # What is no machine at all is for the planner to say. No facts are no machine either.
        if not node or facts_problem(node):
            filled[name] = node
            continue
        node = dict(node)
        if "address" not in node and "address_reason" not in node:
            number += 1
            while str(STAND_IN + number) in taken:
                number += 1
            node["address"] = str(STAND_IN + number)
            notes.append(f"{name} has no address yet: {node['address']} stands for it")
        if isinstance(node.get("gpus"), (list, tuple)):
            node["gpus"] = _filled(node["gpus"])
        memory = node.get("memory")
        if isinstance(memory, Mapping) and "available_bytes" not in memory and memory.get("total_bytes") is not None:
            node["memory"] = {**memory, "available_bytes": memory["total_bytes"]}
        filled[name] = node
    return filled, notes


def what_if(nodes: Mapping[str, Any], host: str, workers: Sequence[str], changes: Mapping[str, Any]) -> Supposed:
    """The pool with ``changes``, a dictionary by machine as ``relay_what_if`` has it.

    :raises PoolError: for an entry that cannot be meant.
    """
    changed, order = dict(nodes), list(workers)
    for name in (host, *workers):
        if changed.get(name):
            check_facts(name, changed[name])
    for name, change in changes.items():
        where = f"relay_what_if.{name}"
        entry = _entry(where, change, MACHINE_KEYS, "gpus, memory, link or state: absent")
        members = [host, *order]
        known = name in members and bool(changed.get(name))
        if _absent(where, entry):
            if name not in members:
                raise PoolError(
                    f"{where}.state is absent, but the pool is {', '.join(members)}: name one of these, or leave it out"
                )
            if name == host:
                raise PoolError(
                    f"{where}.state is absent, but {host} runs llama-server: take a worker away, or put another "
                    "machine into relay_host"
                )
            if len(entry) > 1:
                raise PoolError(
                    f"{where}.state is absent, but it also has {', '.join(sorted(set(entry) - {'state'}))}: {WAY_OUT}"
                )
            order.remove(name)
            changed.pop(name, None)
            continue
        if not known and not (entry.get("gpus") or entry.get("memory")):
            raise PoolError(
                f"{where} is no machine of the pool and has neither gpus nor memory: state what it would have"
            )
        changed[name] = _machine(where, changed.get(name) or {}, entry)
        if name not in members:
            order.append(name)
        if "link" in entry:
            if name == host:
                raise PoolError(f"{where}.link is the way from {host} to itself: give it to a worker, or leave it out")
            changed[host] = _linked(f"{where}.link", changed.get(host) or {}, name, entry["link"])
    filled, notes = filled_up(changed)
    return Supposed(filled, tuple(order), tuple(notes))


def _machine(where: str, node: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(node)
    if "memory" in entry:
        result["memory"] = _memory(f"{where}.memory", node.get("memory") or {}, entry["memory"])
    if "gpus" in entry:
        if not isinstance(entry["gpus"], (list, tuple)) or not entry["gpus"]:
            raise PoolError(f"{where}.gpus is {entry['gpus']!r:.80}, not a list of GPUs: give one entry per GPU")
        gpus = list(node.get("gpus") or [])
        for position, change in enumerate(entry["gpus"]):
            gpus = _gpus(f"{where}.gpus.{position}", gpus, change)
        result["gpus"] = gpus
    return result


def _memory(where: str, memory: Mapping[str, Any], change: Any) -> dict[str, Any]:
    """RAM of another size. What is used of it stays used; of a machine that does not exist, nothing is."""
    entry = _entry(where, change, MEMORY_KEYS, "total_bytes")
    sizes = {key: _whole(f"{where}.{key}", value) for key, value in entry.items()}
    total, available = memory.get("total_bytes"), memory.get("available_bytes")
    if "total_bytes" in sizes and "available_bytes" not in sizes:
        used = total - available if total is not None and available is not None else 0
        sizes["available_bytes"] = max(sizes["total_bytes"] - used, 0)
    if sizes.get("total_bytes", ABSURD_BYTES) < sizes.get("available_bytes", 0):
        raise PoolError(
            f"{where}.available_bytes is {sizes['available_bytes']}, more than total_bytes, {sizes['total_bytes']}: "
            f"{WAY_OUT}"
        )
    if "available_bytes" in sizes and "total_bytes" not in sizes and total is not None:
        sizes["total_bytes"] = max(total, sizes["available_bytes"])
    return {**memory, **sizes}


def _gpus(where: str, gpus: list[Any], change: Any) -> list[Any]:
    """The GPUs without one of them, or with one more."""
    entry = _entry(where, change, GPU_KEYS, "name and memory_total_bytes")
    if _absent(where, entry):
        keys = set(entry) - {"state"}
        key = "uuid" if "uuid" in entry else "device"
        if keys != {key}:
            raise PoolError(
                f"{where}.state is absent with {', '.join(sorted(keys)) or 'nothing else'}: "
                "name the GPU by device or uuid alone"
            )
        left = [gpu for gpu in gpus if gpu.get(key) != entry[key]]
        if len(left) == len(gpus):
            have = ", ".join(str(gpu.get(key)) for gpu in gpus) or "no GPU"
            raise PoolError(f"{where}.{key} is {entry[key]!r:.80}, and there is {have}: name one of these")
        return left
    if "memory_total_bytes" not in entry and "memory_free_bytes" not in entry:
        raise PoolError(
            f"{where} has no memory_total_bytes: state it, as \"{{{{ '24 GB' | human_to_bytes }}}}\" for example"
        )
    gpu = {key: entry[key] for key in entry if key != "state"}
    for key in ("memory_total_bytes", "memory_free_bytes", "bandwidth_bytes_per_second"):
        if key in gpu:
            gpu[key] = _whole(f"{where}.{key}", gpu[key])
    if gpu.get("memory_free_bytes", 0) > gpu.get("memory_total_bytes", ABSURD_BYTES):
        raise PoolError(
            f"{where}.memory_free_bytes is {gpu['memory_free_bytes']}, more than memory_total_bytes, "
            f"{gpu['memory_total_bytes']}: {WAY_OUT}"
        )
    if str(gpu.get("vendor", "nvidia")) not in BACKENDS:
        raise PoolError(f"{where}.vendor is {gpu['vendor']!r:.80}: it must be one of {', '.join(BACKENDS)}")
    for key in ("name", "device", "uuid"):
        if key in gpu and not (isinstance(gpu[key], str) and gpu[key]):
            raise PoolError(f"{where}.{key} is {gpu[key]!r:.80}, not a text: {WAY_OUT}")
    if not isinstance(gpu.get("unified_memory", False), bool):
        raise PoolError(f"{where}.unified_memory is {gpu['unified_memory']!r:.80}: it must be true or false")
    return _filled([*gpus, gpu])


def _linked(where: str, host: Mapping[str, Any], worker: str, change: Any) -> dict[str, Any]:
    """The facts of the host with another link to a worker."""
    entry = _entry(where, change, LINK_KEYS, "rtt_seconds or speed_mbps")
    for key, value in entry.items():
        number = _number(value)
        sound = number is not None and (SECONDS.fits(number) if key == "rtt_seconds" else number == int(number) >= 0)
        if number is None or not sound:
            kind = SECONDS.name if key == "rtt_seconds" else "a whole number of Mbit/s"
            raise PoolError(f"{where}.{key} is {value!r:.80}, not {kind}: {WAY_OUT}")
        entry[key] = int(number) if key == "speed_mbps" else number
    links = list(host.get("links") or [])
    old = next((link for link in links if link.get("name") == worker), {})
    # Of another link the rest is not known.
    new = {"name": worker, **{key: old.get(key) for key in LINK_KEYS}, **entry}
    return {**host, "links": [*(link for link in links if link.get("name") != worker), new]}


def _filled(gpus: Sequence[Any]) -> list[Any]:
    """The GPUs with llama.cpp's names, and with what follows from what is stated."""
    filled: list[Any] = []
    for gpu in gpus:
        if isinstance(gpu, Mapping):
            others = [*filled, *(other for other in gpus[len(filled) + 1 :] if isinstance(other, Mapping))]
            gpu = _named(dict(gpu), others)
            if "memory_free_bytes" not in gpu and gpu.get("memory_total_bytes") is not None:
                gpu["memory_free_bytes"] = gpu["memory_total_bytes"]
            if "bandwidth_bytes_per_second" not in gpu:
                gpu["bandwidth_bytes_per_second"] = bandwidth.of(gpu)
        filled.append(gpu)
    return filled


def _named(gpu: dict[str, Any], others: Sequence[Any]) -> dict[str, Any]:
    """With a vendor and a name that none of the others has, in the process that uses the others."""
    others = [other for other in others if isinstance(other, Mapping)]
    if "vendor" not in gpu and "device" not in gpu:
        words = str(gpu.get("name") or "").lower().replace("(", " ").split()
        gpu["vendor"] = next((VENDORS[word] for word in words if word in VENDORS), "nvidia")
    backend = BACKENDS.get(str(gpu.get("vendor")))
    if "device" not in gpu and backend:
        names = {other.get("device") for other in others}
        gpu["device"] = next(
            f"{backend.prefix}{index}" for index in range(len(names) + 1) if f"{backend.prefix}{index}" not in names
        )
        same = [other for other in others if prefix(str(other.get("device"))) == backend.prefix]
        if "visible_devices" not in gpu and same:
            gpu["visible_devices"] = same[0].get("visible_devices")
    if "index" not in gpu:
        taken = [other["index"] for other in others if isinstance(other.get("index"), int)]
        gpu["index"] = max(taken, default=-1) + 1
    if gpu.get("vendor") == "apple":
        gpu.setdefault("unified_memory", True)
    return gpu


def _entry(where: str, value: Any, keys: Sequence[str], example: str) -> dict[str, Any]:
    """A dictionary with some of the keys, or an error that names what is wrong."""
    if not isinstance(value, Mapping) or not value:
        raise PoolError(f"{where} is {value!r:.80}, not a dictionary: give {example}")
    unknown = [str(key) for key in value if key not in keys]
    if unknown:
        raise PoolError(f"{where} has {', '.join(unknown)}, which is none of {', '.join(keys)}: {WAY_OUT}")
    return dict(value)


def _absent(where: str, entry: Mapping[str, Any]) -> bool:
    state = entry.get("state", "present")
    if state not in STATES:
        raise PoolError(f"{where}.state is {state!r:.80}: it must be one of {', '.join(STATES)}")
    return bool(state == "absent")


def _number(value: Any) -> float | None:
    """A finite number, also as the text that a template makes of it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if abs(number) < ABSURD_BYTES else None


def _whole(where: str, value: Any) -> int:
    """A size in bytes, or bytes per second."""
    number = digits(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < ABSURD_BYTES:
        raise PoolError(
            f"{where} is {value!r:.80}, not a number of bytes: write \"{{{{ '24 GB' | human_to_bytes }}}}\" for example"
        )
    return number
