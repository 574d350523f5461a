# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a ``llama-server`` put its bytes and layers, as its log says (``-lv 4``; layers need ``-lv 5``).

The log runs in one line: target model, its context, then, after ``loading draft model``, the same lines again
for the draft, then ``initializing, n_slots``. Nothing that is printed later is a first allocation.
Until May 2026 each slot had a context of the draft of its own, which follows ``initializing slots, n_slots``, and its
``new slot`` is the end of it. Such a build names the type at ``-lv 4`` and in the statistics of a completion.
A load that starts over (``--fit on`` loads for practice, a retry of the compute buffers) replaces what was read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.relay.pool.plugins.module_utils.sizes import MIB

# No line of interest is longer; on rubbish without line breaks the patterns would take for ever.
MAX_LINE_CHARACTERS = 4096
KINDS = {"model": "weights", "KV": "kv", "RS": "recurrent", "compute": "compute", "output": "output"}

_BUFFER = re.compile(
    r"\b\w+:\s+(?P<device>\S+)\s+(?:(?P<kind>model|KV|RS|compute|output)|DSV4 \S+ (?P<state>state)) buffer size\s*=\s*"
    r"(?P<mib>\d{1,12}(?:\.\d{1,6})?) MiB"
)
_LAYER = re.compile(r"load_tensors: layer\s+(\d{1,6}) assigned to device ([^\s,]+)")
_DEVICE = re.compile(r"using device (\S+) \(([^)]*)\)")
_ENDPOINT = re.compile(r"\[([^\[\]]+:\d+)\]$")
_HOST_PORT = re.compile(r"^[^\s:]+:\d+$")
_DRAFT_STARTS = re.compile(r"loading draft model '|creating MTP draft context against the target model '")
_TARGET_STARTS = re.compile(r"load_model: loading model '")
_MODEL_STARTS = re.compile(r"llama_model_loader: loaded meta data with ")
_CONTEXT_STARTS = re.compile(r"llama_context: constructing llama_context")
_RESERVE_STARTS = re.compile(r"sched_reserve: reserving \.\.\.")
_DONE = re.compile(r"(?:load_model|init): initializing, n_slots = ")
_SLOTS_START = re.compile(r"(?:load_model|init): initializing slots, n_slots = (\d{1,6})")
_NEW_SLOT = re.compile(r"id\s+\d+ \| task -1 \| new slot,? n_ctx")
_LOADED = re.compile(r":\s+model loaded\s*$")
# Older builds word these otherwise.
_SPEC_TYPE = re.compile(r"(?:adding (?:speculative )?implementation '?|statistics\s+(?=\S+: #calls))([a-z0-9_-]+)")
_SPEC_NONE = re.compile(r"no implementations specified for speculative decoding")
_SPEC_FAILED = re.compile(
    r"failed to initialize speculative decoding context: (.*)"
    r"|(failed to create draft context|speculative decoding not supported by this context)"
)
_CONTEXT_KINDS = ("kv", "recurrent", "compute", "output")


@dataclass
class LoadLog:
    """What the log of one start says. ``bytes`` are those of the log, which rounds to 0.01 MiB.

    ``draft_loading``: it ends after the draft was begun and before the slots were. ``complete``: nothing is allocated
    after what was read.
    """

    buffers: list[dict[str, Any]] = field(default_factory=list)
    layers: list[dict[str, Any]] = field(default_factory=list)
    devices: dict[str, str] = field(default_factory=dict)
    spec_types: list[str] = field(default_factory=list)
    spec_error: str | None = None
    draft_loading: bool = False
    complete: bool = False


class _Reader:
    def __init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        self.model = "target"
        self.sizes: dict[tuple[str, str, str], int] = {}
        self.assigned: dict[tuple[str, int], str] = {}
        # Of the contexts of the slots that are made already, where each has its own, and how many are still to come.
        self.of_slots: dict[tuple[str, str, str], int] = {}
        self.slots_to_come = 0
        self.log = LoadLog()

    def slot_made(self) -> None:
        """The next context is another slot's, and comes on top."""
        self.slots_to_come -= 1
        for key in [key for key in self.sizes if key[0] == "draft" and key[2] in _CONTEXT_KINDS]:
            self.of_slots[key] = self.of_slots.get(key, 0) + self.sizes.pop(key)
        self.log.complete = not self.slots_to_come

    def forget(self, kinds: tuple[str, ...]) -> None:
        self.sizes = {k: v for k, v in self.sizes.items() if k[0] != self.model or k[2] not in kinds}

    def structure(self, line: str) -> bool:
        """Lines that say whose turn it is; True when the line was one."""
        if _TARGET_STARTS.search(line):
            self.start_over()
        elif self.log.complete:
            return False
        elif _DRAFT_STARTS.search(line):
            self.model = "draft"
        elif _MODEL_STARTS.search(line):
            self.forget(("weights", *_CONTEXT_KINDS))
            self.assigned = {k: v for k, v in self.assigned.items() if k[0] != self.model}
        elif _CONTEXT_STARTS.search(line):
            self.forget(_CONTEXT_KINDS)
        elif _RESERVE_STARTS.search(line):
            self.forget(("compute",))
        elif _DONE.search(line):
            self.log.complete = True
        elif self.slots_to_come:
            return self.slot(line)
        else:
            slots = _SLOTS_START.search(line)
            self.slots_to_come = int(slots.group(1)) if slots else 0
            return bool(slots)
        return True

    def slot(self, line: str) -> bool:
        """The same of lines between the first and the last slot."""
        if _NEW_SLOT.search(line):
            self.slot_made()
        elif _LOADED.search(line):
            self.log.complete = True
        else:
            return False
        return True

    def speculation(self, line: str) -> bool:
        found = _SPEC_TYPE.search(line)
        failed = _SPEC_FAILED.search(line)
        if found:
            # Each slot of an older build names it.
            if found.group(1) not in self.log.spec_types:
                self.log.spec_types.append(found.group(1))
        elif failed:
            self.log.spec_error = (failed.group(1) or failed.group(2)).strip()
        elif _SPEC_NONE.search(line):
            self.log.spec_error = "no implementations specified for speculative decoding"
        else:
            return False
        return True

    def placement(self, line: str) -> None:
        buffer = _BUFFER.search(line)
        if buffer:
            kind = KINDS.get(buffer.group("kind") or "", "kv")
            key = (self.model, buffer.group("device"), kind)
            # Split files and sliding-window caches print several lines for one device.
            self.sizes[key] = self.sizes.get(key, 0) + round(float(buffer.group("mib")) * MIB)
            return
        layer = _LAYER.search(line)
        if layer:
            self.assigned[(self.model, int(layer.group(1)))] = layer.group(2)
            return
        device = _DEVICE.search(line)
        if device:
            self.log.devices[device.group(1)] = device.group(2)

    def result(self) -> LoadLog:
        log = self.log
        log.draft_loading = self.model == "draft" and not log.complete
        for key, size in self.of_slots.items():
            self.sizes[key] = self.sizes.get(key, 0) + size
        if log.spec_error and not log.spec_types:
            # The draft was loaded and freed again.
            self.sizes = {k: v for k, v in self.sizes.items() if k[0] != "draft"}
            self.assigned = {k: v for k, v in self.assigned.items() if k[0] != "draft"}
        for (model, device, kind), size in self.sizes.items():
            endpoint = _ENDPOINT.search(device)
            log.buffers.append(
                {
                    "model": model,
                    "device": device,
                    "endpoint": endpoint.group(1) if endpoint else None,
                    "kind": kind,
                    "bytes": size,
                }
            )
        in_order = sorted(self.assigned.items(), key=lambda item: (item[0][0] == "draft", item[0][1]))
        for (model, index), device in in_order:
            described = log.devices.get(device, "")
            endpoint = described if device.startswith("RPC") and _HOST_PORT.match(described) else None
            log.layers.append({"model": model, "layer": index, "device": device, "endpoint": endpoint})
        return log


def parse(text: str) -> LoadLog:
    """Read the log of one start, or of several: the last one counts.

    The last layer of each model is the output. Buffer names count devices inside each worker
    (``RPC0[10.0.0.2:50052]``), layers count them over all workers (``RPC1``); ``endpoint`` is the same in both.
    """
    reader = _Reader()
    for line in (whole[:MAX_LINE_CHARACTERS] for whole in text.splitlines()):
        if reader.structure(line) or reader.speculation(line) or reader.log.complete:
            continue
        reader.placement(line)
    return reader.result()
