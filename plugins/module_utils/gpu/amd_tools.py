# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AMD's tools add to what /sys says."""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_card, amd_smi, record, rocm_smi, tools


def ask(machine: record.Machine, memory: bool) -> tuple[list[list[amd_card.Card]], list[str]]:
    """What each tool that was needed says, the best one first; ``memory`` where /sys does not say all of it.

    rocm-smi is asked where amd-smi is missing or gives no answer, and where its answer lacks a GPU's memory.
    """
    answers: list[list[amd_card.Card]] = []
    messages: list[str] = []
    path = tools.find("amd-smi")
    if path:
        cards, messages = amd_smi.read(machine, path, memory)
        if cards:
            answers.append(cards)
    if not answers or (memory and any(card.vram_total is None for card in answers[0])):
        path = tools.find("rocm-smi")
        if path:
            cards, said = rocm_smi.read(machine, path)
            messages += said
            if cards:
                answers.append(cards)
    return answers, messages
