# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``nvidia-smi -q -x`` says beyond the CSV: MIG devices, the recovery action, processes with their memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

from ansible_collections.relay.pool.plugins.module_utils.gpu import nvidia_values as values
from ansible_collections.relay.pool.plugins.module_utils.gpu import pci
from ansible_collections.relay.pool.plugins.module_utils.gpu.nvidia_csv import Process

ROOT = "nvidia_smi_log"
DRAIN_AND_RESET = "Drain and Reset"
# What stands for "nothing to do" or "the driver cannot say".
_NO_ACTION = ("", "none", "n_a", "not_supported", "requested_functionality_has_been_deprecated")
_ENTITY = re.compile(r"<!ENTITY", re.IGNORECASE)
# XML allows none of them, and the name of a process may hold any.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@dataclass(frozen=True)
class MigDevice:
    """A part of a GPU. ``instance`` is the GPU instance whose memory it uses, perhaps with other MIG devices."""

    index: int | None
    instance: int | None = None
    uuid: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Details:
    """One GPU. ``processes`` is None where the driver does not name them; ``action`` is what it wants done first.

    ``shared_out`` is the virtualization mode in which virtual machines have it, or None.
    """

    bus_id: str | None
    uuid: str | None
    mig: bool = False
    mig_devices: tuple[MigDevice, ...] = ()
    action: str | None = None
    reset: bool = False
    addressing: str | None = None
    shared_out: str | None = None
    processes: tuple[Process, ...] | None = None


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _known(element: ElementTree.Element, path: str) -> str | None:
    value = _text(element, path)
    return None if not value or values.no_value_reason(value) else value


def _number(element: ElementTree.Element, path: str) -> int | None:
    return values.number(_text(element, path))[0]


def _mig_device(element: ElementTree.Element) -> MigDevice:
    # The memory stands beside bar1_memory_usage, the window through which the CPU sees it.
    total, free, reason = values.memory(_text(element, "fb_memory_usage/total"), _text(element, "fb_memory_usage/free"))
    return MigDevice(
        index=_number(element, "index"),
        instance=_number(element, "gpu_instance_id"),
        uuid=_known(element, "uuid"),
        total_bytes=values.in_bytes(total),
        free_bytes=values.in_bytes(free),
        reason=reason,
    )


def _process(element: ElementTree.Element) -> Process | None:
    pid = _number(element, "pid")
    if pid is None:
        return None
    used, reason = values.number(_text(element, "used_memory"))
    return Process(
        pid=pid,
        used_bytes=values.in_bytes(used),
        reason=reason,
        kind=_text(element, "type"),
        name=_text(element, "process_name"),
        instance=_number(element, "gpu_instance_id"),
    )


def _processes(gpu: ElementTree.Element) -> tuple[Process, ...] | None:
    element = gpu.find("processes")
    if element is None or (len(element) == 0 and values.no_value_reason((element.text or "").strip())):
        return None
    found = (_process(child) for child in element.findall("process_info"))
    return tuple(process for process in found if process is not None)


def _action(gpu: ElementTree.Element) -> str | None:
    action = _text(gpu, "gpu_recovery_action")
    if (values.no_value_reason(action) or action.lower()) not in _NO_ACTION:
        return action[: values.MAX_SHOWN_CHARACTERS]
    # What drivers said before they knew the recovery action.
    if _text(gpu, "gpu_reset_status/reset_required") == "Yes":
        return "Reset"
    return DRAIN_AND_RESET if _text(gpu, "gpu_reset_status/drain_and_reset_recommended") == "Yes" else None


def _needs_reset(gpu: ElementTree.Element) -> bool:
    """Any reading may be the words "GPU requires reset"."""
    return any(
        values.no_value_reason((element.text or "").strip()) == "gpu_requires_reset"
        for part in gpu
        if part.tag != "processes"
        for element in part.iter()
    )


def _shared_out(gpu: ElementTree.Element) -> str | None:
    """Host VGPU or Host VSGA; others are None, Pass-Through and VGPU, as a virtual machine sees its own GPU."""
    mode = _text(gpu, "gpu_virtualization_mode/virtualization_mode")
    return mode[: values.MAX_SHOWN_CHARACTERS] if mode.lower().startswith("host ") else None


def _details(gpu: ElementTree.Element) -> Details:
    return Details(
        bus_id=pci.normal_address(gpu.get("id")) or pci.normal_address(_text(gpu, "pci/pci_bus_id")),
        uuid=_known(gpu, "uuid"),
        mig=_text(gpu, "mig_mode/current_mig") == "Enabled",
        mig_devices=tuple(_mig_device(element) for element in gpu.findall("mig_devices/mig_device")),
        action=_action(gpu),
        reset=_needs_reset(gpu),
        addressing=_known(gpu, "addressing_mode"),
        shared_out=_shared_out(gpu),
        processes=_processes(gpu),
    )


def parse_xml(text: str) -> tuple[list[Details], str | None]:
    """The GPUs, as many as there are ``<gpu>`` elements whatever ``attached_gpus`` says, and what is wrong, or None.

    Messages may stand before and behind the document. The document type, which names a file, is not read at all.
    """
    if _ENTITY.search(text):
        return [], "its XML declares entities, which nvidia-smi never does"
    start = text.find(f"<{ROOT}")
    end = text.find(f"</{ROOT}>", start)
    if start < 0 or end < 0:
        return [], f"no whole {ROOT} in its output"
    try:
        root = ElementTree.fromstring(_CONTROL.sub("", text[start : end + len(ROOT) + 3]))
    except (ElementTree.ParseError, ValueError) as exc:
        # ValueError: characters that cannot be encoded.
        return [], f"its XML cannot be read: {exc}"
    return [_details(gpu) for gpu in root.findall("gpu")], None
