# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's tools: which are there, and what they add to what /sys says."""

from __future__ import annotations

import os
import shutil

from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_card, amd_smi, record, rocm_smi

SEARCH_PATH = "/usr/bin:/usr/local/bin:/opt/rocm/bin:/run/current-system/sw/bin"


def find_tool(name: str) -> str | None:
    """Path of a tool of ROCm, also where a login shell of root does not look."""
    # An empty entry of PATH means the current directory, whoever may write there.
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *SEARCH_PATH.split(os.pathsep)]
    return shutil.which(name, path=os.pathsep.join(folder for folder in folders if os.path.isabs(folder)))


def ask(machine: record.Machine, memory: bool) -> tuple[list[list[amd_card.Card]], list[str]]:
    """What each tool that was needed says, the best one first; ``memory`` where /sys does not say all of it.

    rocm-smi is asked where amd-smi is missing or gives no answer, and where its answer lacks a GPU's memory.
    """
    answers: list[list[amd_card.Card]] = []
    messages: list[str] = []
    path = find_tool("amd-smi")
    if path:
        cards, messages = amd_smi.read(machine, path, memory)
        if cards:
            answers.append(cards)
    if not answers or (memory and any(card.vram_total is None for card in answers[0])):
        path = find_tool("rocm-smi")
        if path:
            cards, said = rocm_smi.read(machine, path)
            messages += said
            if cards:
                answers.append(cards)
    return answers, messages
