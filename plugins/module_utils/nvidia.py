# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs as ``nvidia-smi`` reports them.

Its CSV is trusted only row by row: a message may stand where a row should be, and any value may be a bracketed
word such as ``[N/A]`` or ``[Insufficient Permissions]``. A number that cannot be read is None with a reason.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from typing import Any, Callable, Iterable

from ansible_collections.relay.pool.plugins.module_utils import command

MIB = 1024 * 1024
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
APP_FIELDS = ("gpu_uuid", "pid", "used_memory")
SEARCH_PATH = "/usr/bin:/usr/local/bin:/usr/local/nvidia/bin:/usr/lib/wsl/lib:/run/current-system/sw/bin"
PCI_DEVICES = "/sys/bus/pci/devices"
PCI_VENDOR = "0x10de"
# Reasons under which a missing memory.total means "the part has no memory of its own".
UNIFIED_REASONS = ("n_a", "not_supported")

# More digits than any count of MiB has are no number.
_DIGITS = re.compile(r"[0-9]{1,12}\Z")
MAX_SHOWN_CHARACTERS = 40
_NO_VALUE = re.compile(r"^\[(.*)\]$|^(N/A)$")


def no_value_reason(value: str) -> str | None:
    """``[Insufficient Permissions]`` -> ``insufficient_permissions``; None for a value that says something."""
    match = _NO_VALUE.match(value)
    if not match:
        return None
    word = match.group(1) if match.group(1) is not None else match.group(2)
    return re.sub(r"[^a-z0-9]+", "_", word.lower()).strip("_") or "unknown"


def _number(value: str) -> tuple[int | None, str | None]:
    """(number, None) or (None, reason)."""
    reason = no_value_reason(value)
    if reason:
        return None, reason
    if _DIGITS.match(value):
        return int(value), None
    return None, f"unreadable value {value[:MAX_SHOWN_CHARACTERS]!r}"


def split_rows(text: str, fields: tuple[str, ...]) -> tuple[list[dict[str, str]], list[str]]:
    """Rows with exactly as many values as ``fields``, and the lines that are not such rows."""
    rows: list[dict[str, str]] = []
    messages: list[str] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        values = [value.strip() for value in line.split(",")]
        if len(values) == len(fields):
            rows.append(dict(zip(fields, values)))
        else:
            messages.append(line.strip())
    return rows, messages


def _placeable(row: dict[str, str]) -> str | None:
    """Why nothing may be placed on this GPU, or None."""
    if row["mig.mode.current"] == "Enabled":
        return "MIG is enabled: no process can use the whole GPU, only its MIG devices"
    if row["compute_mode"] == "Prohibited":
        return "compute mode is Prohibited: set it to Default with nvidia-smi -c 0"
    return None


def parse_gpus(text: str, meminfo: dict[str, int]) -> tuple[list[dict[str, Any]], list[str]]:
    """GPUs in the CSV and the messages in it that are no GPU."""
    rows, messages = split_rows(text, FIELDS)
    gpus: list[dict[str, Any]] = []
    seen: set[int] = set()
    for row in rows:
        index, bad_index = _number(row["index"])
        if index is None:
            messages.append(f"a GPU row has no index ({bad_index}): {row['name']}")
            continue
        if index in seen:
            messages.append(f"two GPU rows have the index {index}: {row['name']}")
            continue
        seen.add(index)
        total_mib, total_reason = _number(row["memory.total"])
        free_mib, free_reason = _number(row["memory.free"])
        if total_mib == 0:
            total_mib, free_mib, total_reason = None, None, "nvidia-smi reports a memory of 0 MiB"
        elif total_mib is not None and free_mib is not None and free_mib > total_mib:
            free_mib, free_reason = None, f"nvidia-smi reports {free_mib} MiB free of {total_mib} MiB"
        refusal = _placeable(row)
        unified = total_reason in UNIFIED_REASONS and refusal is None
        total = None if total_mib is None else total_mib * MIB
        free = None if free_mib is None else free_mib * MIB
        reason = refusal or total_reason or free_reason
        if unified:
            total, free = meminfo.get("MemTotal"), meminfo.get("MemAvailable")
            reason = None if total and free else "unified memory, and /proc/meminfo cannot be read"
        text_or_none = {key: None if no_value_reason(row[key]) else row[key] for key in FIELDS}
        gpus.append(
            {
                "index": index,
                "vendor": "nvidia",
                "name": text_or_none["name"] or "NVIDIA GPU",
                "uuid": text_or_none["uuid"],
                "bus_id": text_or_none["pci.bus_id"],
                # nvidia-smi counts in PCI order; CUDA does so only with CUDA_DEVICE_ORDER=PCI_BUS_ID.
                "device": f"CUDA{index}",
                "driver": text_or_none["driver_version"],
                "memory_total_bytes": total,
                "memory_free_bytes": free,
                "memory_own_bytes": 0,
                "unified_memory": unified,
                "integrated": unified,
                "placeable": refusal is None,
                "reason": reason,
                "bandwidth_bytes_per_second": None,
            }
        )
    return gpus, messages


def add_own_memory(gpus: list[dict[str, Any]], text: str, pids: Iterable[int]) -> list[str]:
    """Add to each GPU what the processes ``pids`` hold on it; returns messages about what cannot be counted."""
    rows, messages = split_rows(text, APP_FIELDS)
    own = set(pids)
    by_uuid = {gpu["uuid"]: gpu for gpu in gpus}
    for row in rows:
        pid, _reason = _number(row["pid"])
        if pid not in own or row["gpu_uuid"] not in by_uuid:
            continue
        used_mib, reason = _number(row["used_memory"])
        if used_mib is None:
            messages.append(f"memory of process {pid} on {row['gpu_uuid']} is not known: {reason}")
        else:
            by_uuid[row["gpu_uuid"]]["memory_own_bytes"] += used_mib * MIB
    return messages


def find_tool() -> str | None:
    """Path of nvidia-smi, also where a login shell of root does not look."""
    # An empty entry of PATH means the current directory, whoever may write there.
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *SEARCH_PATH.split(os.pathsep)]
    return shutil.which("nvidia-smi", path=os.pathsep.join(folder for folder in folders if os.path.isabs(folder)))


def pci_gpus(root: str = PCI_DEVICES) -> list[str]:
    """PCI addresses of NVIDIA display controllers, with or without a driver."""
    found = []
    for device in sorted(glob.glob(os.path.join(root, "*"))):
        try:
            with open(os.path.join(device, "vendor"), encoding="ascii") as handle:
                vendor = handle.read().strip()
            with open(os.path.join(device, "class"), encoding="ascii") as handle:
                pci_class = handle.read().strip()
        except (OSError, UnicodeDecodeError):
            continue
        if vendor == PCI_VENDOR and pci_class.startswith("0x03"):
            found.append(os.path.basename(device))
    return found


def read_gpus(
    meminfo: dict[str, int],
    own_pids: Iterable[int],
    timeout: float,
    run: Callable[..., command.Result] = command.run,
    tool: str | None = None,
    pci_root: str = PCI_DEVICES,
) -> tuple[list[dict[str, Any]], list[str]]:
    """GPUs of this machine and what went wrong in finding them."""
    tool = tool or find_tool()
    if tool is None:
        return [], [
            f"an NVIDIA GPU is at {address}, but nvidia-smi is not found: install the driver"
            for address in pci_gpus(pci_root)
        ]
    csv = "--format=csv,noheader,nounits"
    result = run([tool, "--query-gpu=" + ",".join(FIELDS), csv], timeout=timeout)
    gpus, messages = parse_gpus(result.stdout, meminfo)
    if not result.ok and (not messages or result.rc is None):
        messages.append(result.error or "")
    own = list(own_pids)
    if gpus and own:
        apps = run([tool, "--query-compute-apps=" + ",".join(APP_FIELDS), csv], timeout=timeout)
        messages += add_own_memory(gpus, apps.stdout, own)
        if not apps.ok:
            messages.append(apps.error or "")
    return gpus, messages
