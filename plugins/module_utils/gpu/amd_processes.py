# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pool's own processes hold on AMD GPUs."""

from __future__ import annotations

from typing import Mapping, NamedTuple

from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_join, amd_kfd, fdinfo, record


class Held(NamedTuple):
    """What the pool's processes hold: bytes per gpu_id of KFD, and per region per PCI address."""

    by_gpu_id: Mapping[int, int]
    regions: Mapping[str, Mapping[str, int]]
    unknown: bool


def read(machine: record.Machine) -> Held:
    """From KFD, and from the open files of the processes that KFD does not know."""
    if not machine.own_pids:
        return Held({}, {}, False)
    by_gpu_id, counted = amd_kfd.own_bytes(machine.own_pids, machine.sys_root, machine.proc_root)
    found = fdinfo.read(machine.own_pids, machine.proc_root)
    return Held(by_gpu_id, found.regions, not counted.issuperset(found.unreadable))


def of(chip: amd_join.Chip, node: amd_kfd.Node | None, shared: bool, held: Held) -> int | None:
    """What the pool's processes hold there: KFD's count or that of the open files, of which the larger one knows more.

    The files say nothing of the parts of a GPU.
    """
    if held.unknown:
        return None
    own = held.by_gpu_id.get(node.gpu_id, 0) if node else 0
    regions = held.regions.get(chip.card.address or "", {})
    in_files = fdinfo.shared_bytes(regions) if shared else fdinfo.local_bytes(regions) or 0
    if chip.split:
        counted = sum(held.by_gpu_id.get(part.gpu_id, 0) for part in chip.parts)
        return own if counted or not in_files else None
    return max(own, in_files)
