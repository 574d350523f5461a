# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPU of the machine: model, hardware threads, physical cores."""

from __future__ import annotations

import glob
import os
import platform
from typing import Any

from ansible_collections.relay.pool.plugins.module_utils import darwin
from ansible_collections.relay.pool.plugins.module_utils.sizes import digits
from ansible_collections.relay.pool.plugins.module_utils.small_files import read_text

# x86 says "model name"; some ARM and RISC-V kernels say one of the others, or nothing.
MODEL_KEYS = ("model name", "Model", "cpu model", "uarch", "Hardware")
# Some 1500 bytes for each thread.
CPUINFO_BYTES = 16 * 1024 * 1024


def parse_cpuinfo(text: str) -> tuple[str | None, int, int]:
    """(model or None, threads, physical cores or 0 where the text does not say) of /proc/cpuinfo."""
    models: dict[str, str] = {}
    threads = 0
    cores: set[tuple[str, str]] = set()
    package = ""
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon:
            continue
        if key == "processor" and digits(value) is not None:
            threads += 1
            package = ""
        elif key == "physical id":
            package = value
        elif key == "core id":
            cores.add((package, value))
        elif key in MODEL_KEYS and value:
            models.setdefault(key, value)
    model = next((models[key] for key in MODEL_KEYS if key in models), None)
    return model, threads, len(cores)


def count_cores(root: str = "/sys/devices/system/cpu") -> int:
    """Physical cores by the sets of sibling threads, 0 where the kernel does not show them."""
    siblings = set()
    for path in glob.glob(os.path.join(root, "cpu[0-9]*", "topology", "thread_siblings_list")):
        siblings.add(read_text(path).strip())
    return len(siblings - {""})


def read_cpu(proc: str = "/proc", sys_root: str = "/sys/devices/system/cpu") -> dict[str, Any]:
    """``model``, ``threads`` and ``physical_cores``."""
    text = read_text(proc, "cpuinfo", max_bytes=CPUINFO_BYTES)
    if not text and darwin.is_here():
        known = darwin.read_cpu()
        model, threads, cores = known["model"], known["threads"] or 0, known["physical_cores"] or 0
    else:
        model, threads, cores = parse_cpuinfo(text)
    threads = threads or os.cpu_count() or 1
    return {
        "model": model or platform.machine(),
        "threads": threads,
        "physical_cores": min(threads, count_cores(sys_root) or cores or threads),
    }
