# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arrangements in which a shape is run."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

CONTEXTS = (4096, 32768, 131072)
SLOTS = (1, 4)
CACHES = ("f16", "q8_0")
UBATCH = 512
BATCH = 2048


@dataclass(frozen=True)
class Devices:
    """How many workers share the layers evenly, and the share of the first layers that stays on the host's CPU.

    keeps_output: the output stays there, too.
    """

    name: str
    count: int
    on_host: float = 0.0
    keeps_output: bool = False


DEVICES = (
    Devices("cpu", 0, 1.0),
    Devices("1", 1),
    Devices("2", 2),
    Devices("4", 4),
    Devices("host+2", 2, 0.25),
    Devices("host+2+out", 2, 0.25, True),
)
BY_NAME = {devices.name: devices for devices in DEVICES}


@dataclass(frozen=True)
class Run:
    """One arrangement. program: "server", or "fit" for llama-fit-params, which wants an output row for every token."""

    ctx_size: int
    slots: int
    cache: str
    devices: Devices
    program: str = "server"
    ubatch: int = UBATCH

    @property
    def n_outputs(self) -> int:
        """Output rows of a micro batch that the program reserves."""
        return self.slots if self.program == "server" else self.ubatch

    @property
    def label(self) -> str:
        """Unique; the parts that are as usual are left out."""
        size = f"{self.ctx_size // 1024}k" if self.ctx_size % 1024 == 0 else str(self.ctx_size)
        words = [size, f"x{self.slots}", self.cache, self.devices.name]
        words += [self.program] if self.program != "server" else []
        words += [f"ub{self.ubatch}"] if self.ubatch != UBATCH else []
        return " ".join(words)


QUICK = (
    Run(4096, 1, "f16", BY_NAME["cpu"]),
    Run(32768, 1, "f16", BY_NAME["1"]),
    Run(131072, 4, "q8_0", BY_NAME["2"]),
    Run(4096, 1, "q8_0", BY_NAME["4"]),
    Run(32768, 4, "f16", BY_NAME["host+2"]),
    Run(4096, 1, "f16", BY_NAME["host+2+out"]),
    Run(32768, 1, "f16", BY_NAME["2"], "fit"),
)
# What the integration tests run of every shape.
SAMPLE = (QUICK[0], QUICK[2])
# Sizes that do not divide, a small and a large micro batch.
UNUSUAL = (
    Run(5000, 3, "q8_0", BY_NAME["2"]),
    Run(32768, 1, "f16", BY_NAME["2"], ubatch=128),
    Run(32768, 1, "f16", BY_NAME["1"], ubatch=2048),
)
FULL = tuple(
    dict.fromkeys(
        [Run(*point) for point in itertools.product(CONTEXTS, SLOTS, CACHES, DEVICES)]
        + [Run(ctx_size, 1, "f16", devices, "fit") for ctx_size in (4096, 131072) for devices in DEVICES]
        + list(UNUSUAL + QUICK)
    )
)


def layers_of(n_layer: int, devices: Devices) -> tuple[int, list[int]]:
    """(layers on the host's CPU, layers of each device); the output goes to the last device."""
    if not devices.count:
        return n_layer, []
    on_host = int(n_layer * devices.on_host)
    if devices.on_host:
        on_host = max(on_host, 1)
    rest = n_layer - on_host
    return on_host, [rest * (i + 1) // devices.count - rest * i // devices.count for i in range(devices.count)]
