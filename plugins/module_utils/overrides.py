# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put what the user states about a machine over what was read from it."""

from __future__ import annotations

import re
from typing import Any

MEMORY_FIELDS = {"total_bytes": int, "available_bytes": int, "bandwidth_bytes_per_second": int}
CPU_FIELDS = {"model": str, "threads": int, "physical_cores": int}
GPU_FIELDS = {
    "vendor": str,
    "name": str,
    "uuid": str,
    "bus_id": str,
    "device": str,
    "driver": str,
    "memory_total_bytes": int,
    "memory_free_bytes": int,
    "memory_own_bytes": int,
    "unified_memory": bool,
    "integrated": bool,
    "placeable": bool,
    "reason": str,
    "bandwidth_bytes_per_second": int,
}
# Facts that a probe may leave null, so that null can be meant.
NULLABLE = frozenset(
    (
        "total_bytes",
        "available_bytes",
        "bandwidth_bytes_per_second",
        "uuid",
        "bus_id",
        "driver",
        "memory_total_bytes",
        "memory_free_bytes",
        "reason",
    )
)
# Nothing could be computed with a 0 here.
POSITIVE = frozenset(("threads", "physical_cores", "bandwidth_bytes_per_second"))
_DIGITS = re.compile(r"[0-9]{1,20}\Z")
TRUE_WORDS = ("true", "yes", "on", "1")
FALSE_WORDS = ("false", "no", "off", "0")


def _value(path: str, value: Any, kind: type) -> Any:
    """``value`` as ``kind``; None stays None where it can be meant. Raises ValueError with the path and the way out."""
    if value is None:
        if path.rpartition(".")[2] in NULLABLE:
            return None
        raise ValueError(f"overrides.{path} is null, which it cannot be: leave it out or give it a value")
    if kind is int:
        least = 1 if path.rpartition(".")[2] in POSITIVE else 0
        number = int(value) if isinstance(value, str) and _DIGITS.match(value.strip()) else value
        if isinstance(number, int) and not isinstance(number, bool) and number >= least:
            return number
        raise ValueError(f"overrides.{path} is {value!r}: it must be a whole number, {least} or more")
    if kind is bool:
        if isinstance(value, bool):
            return value
        if str(value).lower() in TRUE_WORDS + FALSE_WORDS:
            return str(value).lower() in TRUE_WORDS
        raise ValueError(f"overrides.{path} is {value!r}: it must be true or false")
    if isinstance(value, (dict, list, bool)):
        raise ValueError(f"overrides.{path} is {value!r}: it must be a text")
    return str(value)


def _apply(target: dict[str, Any], values: Any, fields: dict[str, type], path: str, done: list[str]) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"overrides.{path} is {values!r}: it must be a dictionary")
    for key, value in values.items():
        if key not in fields:
            raise ValueError(f"overrides.{path}.{key} is not known: use one of {', '.join(sorted(fields))}")
        target[key] = _value(f"{path}.{key}", value, fields[key])
        done.append(f"{path}.{key}")


def new_gpu(index: int) -> dict[str, Any]:
    """A GPU that no probe found and the user names."""
    gpu: dict[str, Any] = dict.fromkeys(GPU_FIELDS)
    gpu.update(index=index, vendor="nvidia", name=f"GPU {index}", device=f"CUDA{index}", memory_own_bytes=0)
    gpu.update(unified_memory=False, integrated=False, placeable=True)
    return gpu


def apply_overrides(facts: dict[str, Any], overrides: dict[str, Any]) -> list[str]:
    """Change ``facts`` in place and return the paths that were set, such as ``gpus.0.placeable``.

    An override of free memory says what the pool may use in all, so the pool's own share of it becomes 0.
    Raises ValueError for what cannot be meant.
    """
    done: list[str] = []
    for section, values in (overrides or {}).items():
        if section == "memory":
            _apply(facts["memory"], values, MEMORY_FIELDS, "memory", done)
            memory = facts["memory"]
            if "memory.available_bytes" in done:
                memory["own_bytes"] = 0
            if None not in (memory["total_bytes"], memory["available_bytes"]):
                memory["available_bytes"] = min(memory["available_bytes"], memory["total_bytes"])
        elif section == "cpu":
            _apply(facts["cpu"], values, CPU_FIELDS, "cpu", done)
        elif section == "gpus":
            _apply_gpus(facts["gpus"], values, done)
        else:
            raise ValueError(f"overrides.{section} is not known: use one of cpu, gpus, memory")
    return done


def _apply_gpus(gpus: list[dict[str, Any]], entries: Any, done: list[str]) -> None:
    if not isinstance(entries, list):
        raise ValueError(f"overrides.gpus is {entries!r}: it must be a list of dictionaries with index")
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("index") is None:
            raise ValueError(f"overrides.gpus holds {entry!r}: every entry needs the index of its GPU")
        index = _value("gpus.index", entry["index"], int)
        gpu = next((g for g in gpus if g["index"] == index), None)
        if gpu is None:
            gpu = new_gpu(index)
            gpus.append(gpu)
        path = f"gpus.{index}"
        _apply(gpu, {k: v for k, v in entry.items() if k != "index"}, GPU_FIELDS, path, done)
        if f"{path}.memory_free_bytes" in done:
            gpu["memory_own_bytes"] = 0
        if None not in (gpu["memory_total_bytes"], gpu["memory_free_bytes"]):
            gpu["memory_free_bytes"] = min(gpu["memory_free_bytes"], gpu["memory_total_bytes"])
        if "reason" not in entry and ("placeable" in entry or "memory_free_bytes" in entry):
            # The reason belonged to what the probe read.
            gpu["reason"] = None if gpu["placeable"] else "set by overrides"
    gpus.sort(key=lambda g: g["index"])
