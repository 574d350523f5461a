# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All GPUs of the machine, from the probes of all vendors."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Callable, Mapping

from ansible_collections.relay.pool.plugins.module_utils.gpu import (
    amd,
    apple,
    bandwidth,
    intel,
    nvidia,
    record,
    visible,
)

# In the order in which the GPUs are listed.
PROBES: tuple[tuple[str, Callable[[record.Machine], tuple[list[dict[str, Any]], list[str]]]], ...] = (
    ("nvidia", nvidia.read_gpus),
    ("amd", amd.read_gpus),
    ("intel", intel.read_gpus),
    ("apple", apple.read_gpus),
)
BESIDE = (
    "an integrated GPU beside a discrete one: llama.cpp leaves it alone, and so does the plan, unless placeable: true "
    "and device are stated for it in relay_overrides"
)


def read_gpus(
    machine: record.Machine,
    timeout: float,
    environment: Mapping[str, str],
    guard: Callable[[str, Callable[[], Any], Any], Any],
    report: Callable[[str, list[str]], None],
) -> list[dict[str, Any]]:
    """The GPUs of every vendor; the tools of each have ``timeout`` seconds in all.

    A probe that breaks goes to ``guard``, what one says to ``report``.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for vendor, probe in PROBES:
        timed = dataclasses.replace(machine, deadline=time.monotonic() + timeout)
        gpus, messages = guard(vendor, lambda probe=probe, timed=timed: probe(timed), ([], []))
        report(vendor, messages)
        found[vendor], said = record.few(gpus, f"the probe of {vendor}")
        report(vendor, said)
    every = [gpu for gpus in found.values() for gpu in gpus]
    discrete = any(gpu["placeable"] and not gpu["integrated"] for gpu in every)
    for gpu in every:
        gpu.update({name: record.shown(value) for name, value in gpu.items() if isinstance(value, str)})
        if discrete and gpu["integrated"] and gpu["placeable"]:
            record.refuse(gpu, BESIDE)
        if gpu["bandwidth_bytes_per_second"] is None:
            gpu["bandwidth_bytes_per_second"] = guard("bandwidth", lambda gpu=gpu: bandwidth.of(gpu), None)
    for vendor, gpus in found.items():
        guard(vendor, lambda vendor=vendor, gpus=gpus: visible.name_devices(vendor, gpus, environment), None)
    return every
