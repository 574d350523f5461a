# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory and CPU of macOS, which has no /proc: ``sysctl`` and ``vm_stat``."""

from __future__ import annotations

import platform
import re
from typing import Any, Callable

from ansible_collections.relay.pool.plugins.module_utils import command
from ansible_collections.relay.pool.plugins.module_utils.sizes import ABSURD_BYTES, MIB, digits

SYSCTL, VM_STAT = "/usr/sbin/sysctl", "/usr/bin/vm_stat"
CPU_NAMES = ("machdep.cpu.brand_string", "hw.logicalcpu", "hw.physicalcpu")
# What can be had without swapping: psutil calls the same sum available.
AVAILABLE = ("Pages free", "Pages inactive", "Pages speculative")
# No machine has so little memory: such a number is a mistake.
LEAST_BYTES = MIB
TIMEOUT_SECONDS = 5.0
_PAGE_SIZE = re.compile(r"page size of ([0-9]{1,8}) bytes")


def parse_sysctl(text: str) -> dict[str, str]:
    """Values by name. "sysctl: unknown oid 'name'" is no value."""
    values = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        name = name.strip()
        if colon and "." in name and " " not in name:
            values[name] = value.strip()
    return values


def number(values: dict[str, str], name: str) -> int | None:
    """A value as a whole number that is not negative; None for a missing one and for what is no number."""
    return digits(values.get(name, ""))


def memory_size(values: dict[str, str]) -> int | None:
    """The RAM in bytes."""
    size = number(values, "hw.memsize")
    return size if size is not None and LEAST_BYTES <= size < ABSURD_BYTES else None


def parse_vm_stat(text: str) -> int | None:
    """Available RAM in bytes, or None where the text does not say."""
    page = _PAGE_SIZE.search(text)
    pages = {}
    for line in text.splitlines():
        name, _colon, value = line.partition(":")
        count = digits(value.strip().rstrip("."))
        if name.strip() in AVAILABLE and count is not None:
            pages[name.strip()] = count
    if not page or AVAILABLE[0] not in pages:
        return None
    size = int(page.group(1)) * sum(pages.values())
    return size if size < ABSURD_BYTES else None


def is_here() -> bool:
    return platform.system() == "Darwin"


def read_memory(run: Callable[..., command.Result] = command.run) -> tuple[int | None, int | None]:
    """(total, available) in bytes; None for what cannot be read."""
    # An unknown name makes sysctl end with 1 after it printed the others.
    total = memory_size(parse_sysctl(run([SYSCTL, "hw.memsize"], timeout=TIMEOUT_SECONDS).stdout))
    available = parse_vm_stat(run([VM_STAT], timeout=TIMEOUT_SECONDS).stdout)
    if total is not None and available is not None:
        available = min(total, available)
    return total, available


def read_cpu(run: Callable[..., command.Result] = command.run) -> dict[str, Any]:
    """``model``, ``threads`` and ``physical_cores``, None for what cannot be read."""
    values = parse_sysctl(run([SYSCTL, *CPU_NAMES], timeout=TIMEOUT_SECONDS).stdout)
    return {
        "model": values.get(CPU_NAMES[0]) or None,
        "threads": number(values, CPU_NAMES[1]) or None,
        "physical_cores": number(values, CPU_NAMES[2]) or None,
    }
