# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The types of speculation that llama.cpp has, and which of them a request is about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Speculation:
    """How tokens are proposed.

    type: a value of today's ``--spec-type``. n_max: tokens per round at most, each needing an output row of the
    target. own_file: a second model proposes them, which goes to a device; else layers of the target or n-grams do.
    snapshots: recurrent states per slot that the target keeps to step back (n_rs_seq in llama.cpp). beside_output: the
    second model works with the target's output, so that both must be on one device, unless the output is on the CPU.
    beside_cache: it works with the caches of the target's last two layers, so that it must be on their device.
    """

    type: str
    n_max: int
    own_file: bool
    snapshots: int = 0
    beside_output: bool = False
    beside_cache: bool = False

    @property
    def mtp_of_target(self) -> bool:
        """Layers of the target's own file propose the tokens."""
        return self.type == "draft-mtp" and not self.own_file
