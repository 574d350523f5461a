# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Intel GPUs: what the PCI bus shows, what ``xpu-smi`` says of it, and what the kernel's drivers show.

``index`` is the number that llama.cpp's SYCL back end gives to a GPU. It begins with the first one of Level Zero, whose
order is that of the PCI addresses with the integrated GPU last, and goes on with the one that has most execution units.
xpu-smi counts the integrated GPU first where that has the lower address, so its numbers are taken only where it gives
no address.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ansible_collections.relay.pool.plugins.module_utils.gpu import fdinfo, intel_sysfs, pci, record, tools, xpu_smi

# Every Intel CPU has its GPU there, and the virtual functions of it beside.
INTEGRATED_SLOT = "0000:00:02."
_INTEGRATED_NAME = re.compile(r"\b(?:U?HD|Iris(?! Xe MAX))\b|\bArc Graphics\Z|\bArc [0-9]{3}[VT]\b", re.IGNORECASE)

INTEGRATED = (
    "an integrated GPU works in the machine's memory, which the plan counts for the CPU: to use it all the same, "
    "state placeable: true and memory_free_bytes for it in relay_overrides"
)
OTHER_DRIVERS = {
    "vfio-pci": "vfio-pci holds it for a virtual machine: bind it to the xe or the i915 driver to use it here",
}
NO_DRIVER = (
    "no driver is bound to it: load the xe or the i915 kernel module, or look in the kernel log why it failed "
    "(linux-firmware may be missing or too old)"
)
FIRMWARE = "the xe driver waits for new firmware of it (survivability mode): update the firmware, then reboot"
STATE = "xpu-smi reports its state as"
_STATE_IT = "state memory_total_bytes, memory_free_bytes and placeable: true in relay_overrides"
NO_TOOL = (
    "its memory is not known, because the driver {driver} shows it to root at most and xpu-smi is not found: run the "
    f"probe as root, install xpu-smi, or {_STATE_IT}"
)
UNLISTED = f"xpu-smi does not list it: look for {{driver}} in the kernel log, or {_STATE_IT}"
NO_TOTAL = f"xpu-smi does not know its memory: {_STATE_IT}"
NO_FREE = "its free memory is not known: run as root, install xpu-smi, or state memory_free_bytes in relay_overrides"
NO_FREE_TOOL = "xpu-smi does not know its free memory: state memory_free_bytes in relay_overrides"
NO_PLACE = (
    "llama.cpp numbers Intel GPUs of different kinds by their execution units, and xpu-smi does not say how many each "
    "has: state device, as llama-server --list-devices shows it, and placeable: true in relay_overrides"
)
NO_NUMBER = "xpu-smi gives it neither a number nor an address, so that no process can be told to use it"
TILES = (
    "it has {tiles} tiles, each of which Level Zero shows as a device of its own with its part of the memory: set "
    "ZE_FLAT_DEVICE_HIERARCHY to COMPOSITE in relay_environment and state placeable: true in relay_overrides"
)


def _plain(name: str) -> str:
    return re.sub(r"\((?:R|TM)\)", "", name, flags=re.IGNORECASE)


def _is_integrated(
    address: str | None, device: str | None, seen: xpu_smi.Device | None, memory: intel_sysfs.Memory
) -> bool:
    """Whether the GPU is part of the CPU. Memory of its own, in the kernel's words, proves that it is not."""
    if memory.total is not None or device in intel_sysfs.NAMES:
        return False
    if seen is not None and seen.integrated is not None:
        return seen.integrated
    if address is not None:
        return address.startswith(INTEGRATED_SLOT)
    return bool(seen is not None and seen.name and _INTEGRATED_NAME.search(_plain(seen.name)))


def _name(device: str | None, seen: xpu_smi.Device | None) -> str:
    if seen is not None and seen.name:
        return seen.name
    if device in intel_sysfs.NAMES:
        return f"Intel {intel_sysfs.NAMES[device]}"
    return f"Intel GPU [8086:{device}]" if device else "Intel GPU"


def _memory(seen: xpu_smi.Device | None, memory: intel_sysfs.Memory) -> tuple[int | None, int | None, str | None]:
    """(total, free, source): those of one source where it has both."""
    if seen is not None and seen.total is not None and (seen.free is not None or memory.free is None):
        return seen.total, seen.free, xpu_smi.SOURCE
    if memory.total is not None:
        return memory.total, memory.free, memory.source
    return (None, None, xpu_smi.SOURCE) if seen is not None else (None, None, None)


def _unusable(controller: pci.PciDevice | None, sys_root: str) -> str | None:
    """Why the kernel lets no process use the GPU, or None."""
    if controller is None or controller.driver in intel_sysfs.DRIVERS:
        broken = controller is not None and intel_sysfs.needs_firmware(controller.address, sys_root)
        return FIRMWARE if broken else None
    if controller.driver is None:
        return NO_DRIVER
    return OTHER_DRIVERS.get(
        controller.driver, f"the driver {controller.driver} holds it: bind it to the xe or the i915 driver"
    )


def _no_memory(controller: pci.PciDevice | None, seen: xpu_smi.Device | None, said: str, missing: bool) -> str:
    """Why the total memory is not known."""
    driver = (controller.driver if controller else None) or "xe"
    if missing:
        return NO_TOOL.format(driver=driver)
    if seen is None:
        return f"{said} (see on the machine why)" if said else UNLISTED.format(driver=driver)
    if seen.state and seen.state.lower() != "normal":
        return f"{STATE} {seen.state!r}: update the firmware of it, or xpu-smi where the GPU works"
    return NO_TOTAL


class Row(NamedTuple):
    """A GPU on its way into the list. ``device`` is the PCI device, ``counted``: Level Zero shows it to processes."""

    gpu: dict[str, Any]
    device: str | None
    counted: bool
    number: int | None
    execution_units: int | None


def _gpu(
    machine: record.Machine,
    controller: pci.PciDevice | None,
    seen: xpu_smi.Device | None,
    said: str,
    missing: bool,
) -> Row:
    """One GPU without its index.

    ``said`` is the tool's message when it failed, ``missing``: there is no tool. What has its driver is taken for
    counted, unless xpu-smi, which asks Level Zero, lists other GPUs and not this one.
    """
    address = controller.address if controller else (seen.address if seen else None)
    device = controller.device if controller and controller.device else (seen.device if seen else None)
    memory = intel_sysfs.memory(address, machine.sys_root) if address else intel_sysfs.Memory()
    total, free, source = _memory(seen, memory)
    gpu = record.new(
        "intel",
        None,
        name=_name(device, seen),
        uuid=seen.uuid if seen else None,
        bus_id=address,
        driver=(seen.driver if seen else None) or (controller.driver if controller else None),
        memory_total_bytes=total,
        memory_free_bytes=free,
        source=source,
    )
    unusable = _unusable(controller, machine.sys_root)
    tiles = max(memory.tiles, seen.tiles if seen else 1)
    counted = not unusable and (seen is not None or total is not None or missing or bool(said))
    if _is_integrated(address, device, seen, memory):
        # What xpu-smi calls its memory is that of the machine.
        gpu.update(integrated=True, unified_memory=True, memory_total_bytes=None, memory_free_bytes=None)
        record.refuse(gpu, INTEGRATED)
        counted = not unusable
    elif unusable:
        record.refuse(gpu, unusable)
    elif tiles > 1:
        record.refuse(gpu, TILES.format(tiles=tiles))
    elif total is None:
        record.refuse(gpu, _no_memory(controller, seen, said, missing))
    elif free is None:
        gpu["reason"] = NO_FREE if missing else NO_FREE_TOOL
    return Row(gpu, device, counted, seen.number if seen else None, seen.execution_units if seen else None)


def _numbered(rows: list[Row]) -> list[dict[str, Any]]:
    """The GPUs with their indexes, those that count in the order of these; the rows are in Level Zero's order."""
    if not all(row.gpu["bus_id"] for row in rows):
        for row in rows:
            row.gpu["index"] = row.number
            if row.number is None and row.gpu["placeable"]:
                record.refuse(row.gpu, NO_NUMBER)
        return [row.gpu for row in rows]
    counted = [row for row in rows if row.counted]
    later = [row for row in counted[1:] if not row.gpu["integrated"]]
    unplaced: list[Row] = []
    if len({row.device for row in later}) > 1:
        unplaced = later if any(row.execution_units is None for row in later) else []
        later = sorted(later, key=lambda row: -(row.execution_units or 0))
    # The integrated one, of which xpu-smi is not asked, is taken for the smallest.
    ordered = counted[:1] + later + [row for row in counted[1:] if row.gpu["integrated"]]
    for index, row in enumerate(ordered):
        row.gpu["index"] = index
    for row in unplaced:
        row.gpu["index"] = None
        record.refuse(row.gpu, NO_PLACE)
    places = iter(ordered)
    return [(next(places) if row.counted else row).gpu for row in rows]


def read_gpus(machine: record.Machine) -> tuple[list[dict[str, Any]], list[str]]:
    """The Intel GPUs of this machine, discrete ones first, and messages about what went wrong."""
    controllers = {device.address: device for device in pci.display_devices(pci.INTEL, machine.sys_root)}
    # Shares of a GPU that virtual machines have, which xpu-smi lists too; one with its driver is a GPU to Level Zero.
    lent = {a for a, device in controllers.items() if device.virtual and device.driver not in intel_sysfs.DRIVERS}
    controllers = {address: device for address, device in controllers.items() if address not in lent}
    tool = tools.find(xpu_smi.SOURCE)
    if not controllers and tool is None:
        return [], []
    seen: list[xpu_smi.Device] = []
    messages: list[str] = []
    # Of the GPU of a CPU the tool has nothing to tell.
    integrated = {
        device.address
        for device in controllers.values()
        if _is_integrated(device.address, device.device, None, intel_sysfs.memory(device.address, machine.sys_root))
    }
    if tool is not None and (not controllers or len(integrated) < len(controllers)):
        seen, messages = xpu_smi.read_devices(machine, tool, integrated)
    seen = [device for device in seen if device.address not in lent]
    said = "" if seen else next((message for message in messages if message), "")

    by_address = {device.address: device for device in seen if device.address}
    pairs = [(controllers.get(address), by_address.get(address)) for address in sorted({*controllers, *by_address})]
    pairs += [(None, device) for device in seen if not device.address]
    rows = [_gpu(machine, controller, device, said, tool is None) for controller, device in pairs]
    gpus = _numbered(sorted(rows, key=lambda row: row.gpu["integrated"]))

    if machine.own_pids:
        held = fdinfo.own_bytes(machine.own_pids, machine.proc_root)
        for gpu in gpus:
            if not gpu["integrated"]:
                gpu["memory_own_bytes"] = held.get(gpu["bus_id"], 0)
    return gpus, [message for message in messages if message]
