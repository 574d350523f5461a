# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi -L``, and the sentence that stands in any output for a GPU that the driver has lost."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.relay.pool.plugins.module_utils.gpu import pci

# A longer line is none of nvidia-smi's.
MAX_LINE_CHARACTERS = 1000
# "GPU 0000:02:00.0: GPU is lost.", "GPU0000:65:00.0: Unknown Error", "gpu 0000:3B:00.0: ...", "GPU1: 0000:34:00.0: ..."
_LOST = re.compile(
    r"Unable to determine the device handle for GPU\s*(?:([0-9]{1,4}):\s+)?"
    r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])?",
    re.IGNORECASE,
)
_GPU = re.compile(r"GPU ([0-9]{1,4}): (.*)\Z")
_MIG = re.compile(r"\s*MIG (\S+)\s+Device\s+([0-9]{1,4}):(.*)\Z")
# Jetson writes one without GPU- before it.
_UUID = re.compile(r"\(UUID: ([^)\s\[]+)\)")


@dataclass(frozen=True)
class Lost:
    """A GPU without a handle: the sentence about it, and what the sentence says of where it is."""

    sentence: str
    index: int | None
    bus_id: str | None


@dataclass
class Listed:
    """A GPU in the list. ``mig`` has (profile, uuid) of its MIG devices by their index."""

    index: int
    uuid: str | None
    mig: dict[int, tuple[str, str | None]] = field(default_factory=dict)


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) <= MAX_LINE_CHARACTERS]


def lost_gpus(text: str) -> list[Lost]:
    """The GPUs that the tool could get no handle for, in the order of the text."""
    found = []
    for line in _lines(text):
        match = _LOST.search(line)
        if match:
            index = None if match.group(1) is None else int(match.group(1))
            found.append(Lost(line.strip(), index, pci.normal_address(match.group(2))))
    return found


def parse_list(text: str) -> list[Listed]:
    """The GPUs of ``nvidia-smi -L`` with their MIG devices; other lines say nothing."""
    found: list[Listed] = []
    for line in _lines(text):
        gpu, part, uuid = _GPU.match(line), _MIG.match(line), _UUID.search(line)
        if gpu:
            found.append(Listed(int(gpu.group(1)), uuid.group(1) if uuid else None))
        elif part and found:
            found[-1].mig.setdefault(int(part.group(2)), (part.group(1), uuid.group(1) if uuid else None))
    return found
