# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs and compute processes in the CSV of ``nvidia-smi``.

It is trusted only row by row: a message, a header or a blank line may stand where a row should be, and any value may
be a bracketed word such as ``[N/A]`` or ``[Insufficient Permissions]``. A number that cannot be read is None with a
reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ansible_collections.relay.pool.plugins.module_utils.gpu import nvidia_values as values
from ansible_collections.relay.pool.plugins.module_utils.gpu import pci, record
from ansible_collections.relay.pool.plugins.module_utils.sizes import MIB

FIELDS = (
    "index",
    "name",
    "uuid",
    "pci.bus_id",
    "driver_version",
    "memory.total",
    "memory.free",
    "compute_mode",
    "mig.mode.current",
)
# A driver older than the field refuses the whole question, and is asked again without it.
YOUNG_FIELDS = ("compute_mode", "mig.mode.current")
APP_FIELDS = ("gpu_uuid", "pid", "used_memory")
SOURCE = "nvidia-smi"
MIG_ENABLED = "MIG is enabled: no process can use the whole GPU, only its MIG devices"
# What a container without privileges says about a GPU that is split by MIG.
PERMISSIONS = "insufficient_permissions"
# Reasons under which a missing memory.total means "the part has no memory of its own".
UNIFIED_REASONS = ("n_a", "not_supported")
# Parts that share the machine's memory. Some report a part of it that the firmware set aside as if it were all.
UNIFIED_NAMES = re.compile(r"\b(?:GB10|N1X?|Thor|Orin|Xavier|Tegra|Jetson|nvgpu)\b", re.IGNORECASE)
# Graphics cards, and parts on the same kind of board that have HBM of their own: no memory is a fault there.
OWN_MEMORY_NAMES = re.compile(
    r"\b(?:G[BH][23]00|GeForce|Quadro|Tesla|TITAN|GRID|GTX|RTX|[ABHLPTV][0-9]{1,4}[A-Z]?)\b", re.IGNORECASE
)

# What any value of a row may say in place of itself, and the way out.
FAULTS = {
    "gpu_requires_reset": "run nvidia-smi --gpu-reset {option} when nothing uses it, or reboot",
    "gpu_is_lost": "look for Xid in the kernel log, then reboot",
}
UNREADABLE = "nvidia-smi cannot read it ({reason}): look for Xid in the kernel log, then reset the GPU or reboot"

_UNKNOWN_FIELD = re.compile(r'Field "([a-z_.]{1,60})" is not a valid field to query', re.IGNORECASE)
_NONE_RUNNING = re.compile(r"No running (?:compute )?processes found", re.IGNORECASE)


@dataclass
class Card:
    """A GPU as a fact, and what the fact does not say.

    ``fault`` is why neither the GPU nor a part of it may be used, or None; ``exclusive`` is the compute mode that lets
    one process in, or None.
    """

    gpu: dict[str, Any]
    mig: bool = False
    fault: str | None = None
    exclusive: str | None = None

    def refuse(self, reason: str) -> None:
        self.fault = self.fault or reason
        record.refuse(self.gpu, reason)

    @property
    def option(self) -> str:
        """How nvidia-smi is told to act on this GPU alone."""
        gpu = self.gpu
        return f"-i {gpu['bus_id'] if gpu['index'] is None else gpu['index']}"


@dataclass(frozen=True)
class Process:
    """A process on a GPU. ``used_bytes`` is None for the ``reason``; ``instance`` is the MIG GPU instance it uses."""

    pid: int
    used_bytes: int | None
    reason: str | None = None
    kind: str = "C"
    name: str = ""
    instance: int | None = None


def unknown_fields(text: str) -> list[str]:
    """The fields that the tool says it does not know."""
    return _UNKNOWN_FIELD.findall(text)


def _is_header(row: Sequence[str], fields: Sequence[str]) -> bool:
    # "memory.total [MiB]"; the header may write a field's other name (used_gpu_memory), so that one is enough.
    return row[0].split(" ")[0] == fields[0]


def split_rows(text: str, fields: Sequence[str]) -> tuple[list[dict[str, str]], list[str]]:
    """Rows with exactly as many values as ``fields``, and the lines that are not such rows."""
    rows: list[dict[str, str]] = []
    messages: list[str] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        row = [value.strip() for value in line.split(",")]
        if len(row) != len(fields):
            messages.append(line.strip())
        elif not _is_header(row, fields):
            rows.append(dict(zip(fields, row)))
    return rows, messages


def _is_unified(name: str, total_reason: str | None, other: bool) -> bool:
    """``other``: something else may be why there is no memory."""
    if UNIFIED_NAMES.search(name):
        return True
    return total_reason in UNIFIED_REASONS and not (other or OWN_MEMORY_NAMES.search(name))


def machine_memory(
    gpu: dict[str, Any], meminfo: Mapping[str, int], total: int | None = None, free: int | None = None
) -> list[str]:
    """Give the GPU the machine's memory. A message when the tool reported ``total`` MiB of it."""
    whole, available = meminfo.get("MemTotal") or None, meminfo.get("MemAvailable")
    if whole and available and available > whole:
        available = None
    gpu.update(memory_total_bytes=whole, memory_free_bytes=available, unified_memory=True, integrated=True)
    gpu["reason"] = None if whole and available else "unified memory, and /proc/meminfo cannot be read"
    if total is None:
        return []
    size = f"{whole // MIB} MiB" if whole else "unknown size"
    rest = "" if free is None else f", {free} MiB free"
    return [f"{gpu['name']} shares the machine's memory of {size}: nvidia-smi reports {total} MiB of it{rest}"]


def _card(row: Mapping[str, str], index: int | None, meminfo: Mapping[str, int]) -> tuple[Card, list[str]]:
    def text(field: str) -> str | None:
        value = row.get(field, "")
        return None if not value or values.no_value_reason(value) else value

    said = {values.no_value_reason(value) for value in row.values()}
    fault = next((word for word in FAULTS if word in said), None)
    total, free, reason = values.memory(row["memory.total"], row["memory.free"])
    gpu = record.new(
        "nvidia",
        index,
        name=text("name") or "NVIDIA GPU",
        uuid=text("uuid"),
        bus_id=pci.normal_address(row["pci.bus_id"]) or text("pci.bus_id"),
        driver=text("driver_version"),
        memory_total_bytes=values.in_bytes(total),
        memory_free_bytes=values.in_bytes(free),
        reason=reason,
        source=SOURCE,
    )
    mode = text("compute_mode") or ""
    card = Card(gpu, mig=row.get("mig.mode.current") == "Enabled", exclusive=mode if "Exclusive" in mode else None)
    messages = []
    if _is_unified(gpu["name"], values.no_value_reason(row["memory.total"]), card.mig or fault is not None):
        messages = machine_memory(gpu, meminfo, total, free)
    if fault:
        card.refuse(f"{fault}: {FAULTS[fault].format(option=card.option)}")
    if not text("name") and gpu["memory_total_bytes"] is None:
        card.refuse(UNREADABLE.format(reason=reason))
    if mode == "Prohibited":
        card.refuse(f"compute mode is Prohibited: set it to Default with nvidia-smi {card.option} -c 0")
    if card.mig:
        record.refuse(gpu, f"{PERMISSIONS}; {MIG_ENABLED}" if reason == PERMISSIONS else MIG_ENABLED)
    if index is None:
        card.refuse(f"nvidia-smi gives no index of it ({values.no_value_reason(row['index'])}): reset it or reboot")
    return card, messages


def parse_cards(text: str, meminfo: Mapping[str, int], fields: Sequence[str] = FIELDS) -> tuple[list[Card], list[str]]:
    """GPUs in the CSV and the messages in it that are no GPU. ``meminfo`` is /proc/meminfo in bytes."""
    rows, messages = split_rows(text, fields)
    rows, said = record.few(rows, SOURCE)
    messages += said
    cards: list[Card] = []
    seen: set[int] = set()
    for row in rows:
        index, bad_index = values.number(row["index"])
        if index is None and not (values.no_value_reason(row["index"]) and pci.normal_address(row["pci.bus_id"])):
            messages.append(f"a GPU row has no index ({bad_index}): {row['name']}")
            continue
        if index in seen:
            messages.append(f"two GPU rows have the index {index}: {row['name']}")
            continue
        card, said = _card(row, index, meminfo)
        cards.append(card)
        messages += said
        if index is not None:
            seen.add(index)
    return cards, messages


def parse_apps(text: str) -> tuple[list[tuple[str, Process]], list[str]]:
    """Compute processes as (uuid of the GPU, process), and the messages that are none."""
    rows, messages = split_rows(text, APP_FIELDS)
    found = []
    for row in rows:
        pid, _reason = values.number(row["pid"])
        used, reason = values.number(row["used_memory"])
        if pid is not None:
            found.append((row["gpu_uuid"], Process(pid, values.in_bytes(used), reason)))
    return found, [message for message in messages if not _NONE_RUNNING.search(message)]
