# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Intel GPUs as ``xpu-smi`` reports them.

``xpu-smi discovery -j`` lists the GPUs, in newer versions without their memory; ``xpu-smi discovery -d N -j`` tells
all of one. Most numbers are texts, and what is not known is "N/A", "", "0" or "unknown".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any, Collection

from ansible_collections.relay.pool.plugins.module_utils.gpu import pci, record, tool_json, tool_values
from ansible_collections.relay.pool.plugins.module_utils.sizes import MIB, plausible

SOURCE = "xpu-smi"
NO_JSON = "xpu-smi printed no JSON"
_MIB = re.compile(r"([0-9]{1,12})(?:\.[0-9]{1,6})?[ \t]*MiB\Z", re.IGNORECASE)
# What older versions, and a driver that does not know the card, print instead of a name.
_NO_NAME = re.compile(r"Intel(?:\(R\))? Graphics(?: \[0x[0-9a-f]+\])?\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Device:
    """What the tool says of one GPU; None is unknown. Sizes are bytes, ``device`` has four hex digits."""

    number: int | None = None
    name: str | None = None
    address: str | None = None
    device: str | None = None
    uuid: str | None = None
    driver: str | None = None
    total: int | None = None
    free: int | None = None
    tiles: int = 1
    execution_units: int | None = None
    integrated: bool | None = None
    state: str | None = None


def _size(value: Any) -> int | None:
    """Bytes; None for 0, which the tool prints for what it cannot read, and for what is no size."""
    return plausible(tool_values.count(value))


def _total(entry: dict[str, Any]) -> int | None:
    size = _size(entry.get("memory_physical_size_byte"))
    if size is not None:
        return size
    match = _MIB.match((tool_values.text(entry.get("memory_physical_size")) or "").strip())
    return _size(int(match.group(1)) * MIB) if match else None


def _execution_units(entry: dict[str, Any]) -> int | None:
    """How many the GPU has in all; some versions only tell how they are divided."""
    names = ("number_of_slices", "number_of_sub_slices_per_slice", "number_of_eus_per_sub_slice")
    slices, sub_slices, units = (tool_values.count(entry.get(name)) or 0 for name in names)
    return tool_values.count(entry.get("number_of_eus")) or slices * sub_slices * units or None


def _integrated(kind: str | None) -> bool | None:
    """Whether the device type says that the GPU is part of the CPU; None where it says just GPU."""
    for word, answer in (("integrated", True), ("discrete", False)):
        if word in (kind or "").lower():
            return answer
    return None


def _device(entry: dict[str, Any]) -> Device:
    name = tool_values.text(entry.get("device_name"))
    total, free = _total(entry), _size(entry.get("memory_free_size_byte"))
    return Device(
        number=tool_values.count(entry.get("device_id")),
        name=None if name is None or _NO_NAME.match(name) else name,
        address=pci.normal_address(tool_values.text(entry.get("pci_bdf_address"))),
        device=tool_values.pci_device(entry.get("pci_device_id")),
        uuid=tool_values.text(entry.get("uuid")),
        driver=tool_values.text(entry.get("driver_version")),
        total=total,
        free=None if free is None or (total is not None and free > total) else free,
        # More tiles than any GPU has are no number of tiles.
        tiles=min(tool_values.count(entry.get("number_of_tiles")) or 1, 64),
        execution_units=_execution_units(entry),
        integrated=_integrated(tool_values.text(entry.get("device_type"))),
        state=tool_values.text(entry.get("device_state")),
    )


def _entries(value: Any) -> tuple[list[dict[str, Any]], str | None]:
    """The objects of GPUs in what the tool answered, or its message."""
    if isinstance(value, dict):
        if isinstance(value.get("error"), str):
            return [], f"xpu-smi: {value['error'][: tool_values.MAX_TEXT_CHARACTERS]}"
        if "device_list" not in value:
            known = any(key.startswith(("device_", "memory_", "pci_")) for key in value)
            return ([value], None) if known else ([], "xpu-smi answered without device_list")
        value = value["device_list"]
    if isinstance(value, list):
        return [entry for entry in value if isinstance(entry, dict)], None
    return [], f"xpu-smi: {tool_values.text(value) or 'no device discovered'}"


def parse_devices(text: str) -> tuple[list[Device], list[str]]:
    """GPUs in the output of discovery, for one or for all, and messages about what is wrong with it."""
    value = tool_json.find_json(text)
    if value is None:
        return [], [NO_JSON] if text.strip() else []
    entries, message = _entries(value)
    entries, messages = record.few(entries, SOURCE)
    messages += [message] if message else []
    devices: list[Device] = []
    for device in map(_device, entries):
        if device.number is not None and any(device.number == other.number for other in devices):
            messages.append(f"xpu-smi lists device {device.number} twice")
        elif device.address and any(device.address == other.address for other in devices):
            messages.append(f"xpu-smi lists {device.address} twice")
        else:
            devices.append(device)
    return devices, messages


def merge(first: Device, second: Device) -> Device:
    """What ``first`` says, and where it says nothing, what ``second`` says."""
    known = {
        field.name: getattr(second if getattr(first, field.name) is None else first, field.name)
        for field in fields(Device)
    }
    known["tiles"] = max(first.tiles, second.tiles)
    if known["total"] is not None and known["free"] is not None and known["free"] > known["total"]:
        known["free"] = None
    return Device(**known)


def _call(machine: record.Machine, *argv: str) -> tuple[list[Device], list[str], bool]:
    """(GPUs, messages, whether the tool may be called again)."""
    result = machine.tool(*argv)
    devices, messages = parse_devices(result.stdout)
    if not result.ok:
        messages = [message for message in messages if message != NO_JSON]
        # Beside a message in words its return code says nothing.
        messages += [result.error or ""] if result.rc is None or not messages else []
    return devices, messages, result.rc is not None


def read_devices(machine: record.Machine, tool: str, without: Collection[str] = ()) -> tuple[list[Device], list[str]]:
    """What the tool says of all GPUs, and what went wrong. After it gave no answer it is not called again.

    No details are asked for about the addresses ``without``: the tool takes a second for each GPU.
    """
    devices, messages, again = _call(machine, tool, "discovery", "-j")
    if all(device.number is None for device in devices):
        # Versions that list the GPUs with all details do not number them.
        devices = [replace(device, number=position) for position, device in enumerate(devices)]
    for position, device in enumerate(devices):
        known = device.total is not None and device.free is not None
        if not again or known or device.number is None or device.address in without:
            continue
        details, said, again = _call(machine, tool, "discovery", "-d", str(device.number), "-j")
        messages += said
        for detail in details:
            same = detail.number in (None, device.number)
            if same and (detail.address is None or device.address in (None, detail.address)):
                devices[position] = merge(devices[position], detail)
    return devices, messages
