# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ``nvidia-smi`` and find the GPUs in what it says, also where one that is lost keeps it from naming the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible_collections.relay.pool.plugins.module_utils import command
from ansible_collections.relay.pool.plugins.module_utils.gpu import (
    nvidia_csv,
    nvidia_list,
    nvidia_pci,
    pci,
    record,
)
from ansible_collections.relay.pool.plugins.module_utils.gpu.nvidia_csv import Card

FORMAT = "--format=csv,noheader,nounits"
# nvidia-smi's return codes that speak of one GPU: no power cable, an interrupt, a corrupt infoROM, fallen off the bus.
ONE_GPU_CODES = (8, 10, 14, 15)
# More than fit in a machine: a list that is longer is none.
MAX_ASKED_ALONE = 64


class Smi:
    """nvidia-smi, which is not run again once it gave no answer."""

    def __init__(self, machine: record.Machine, path: str) -> None:
        self._machine = machine
        self._path = path
        self._gone: str | None = None

    def ask(self, *arguments: str) -> command.Result:
        if self._gone is not None:
            return command.Result(None, "", "", self._gone)
        result = self._machine.tool(self._path, *arguments)
        if result.rc is None:
            self._gone = result.error or "nvidia-smi did not end"
        return result


@dataclass
class Answer:
    """What nvidia-smi said about its GPUs.

    ``lost`` are those it has no handle for, ``said`` is what it said where it failed, ``listing`` is that of -L, None
    before it was asked for.
    """

    cards: list[Card] = field(default_factory=list)
    lost: list[nvidia_list.Lost] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    listing: list[nvidia_list.Listed] | None = None
    said: str = ""


def _query(smi: Smi) -> tuple[command.Result, tuple[str, ...]]:
    """The rows of all GPUs, and the fields that the driver knows."""
    fields = nvidia_csv.FIELDS
    while True:
        result = smi.ask("--query-gpu=" + ",".join(fields), FORMAT)
        unknown = set(nvidia_csv.unknown_fields(result.stdout + result.stderr))
        kept = tuple(name for name in fields if name not in unknown or name not in nvidia_csv.YOUNG_FIELDS)
        if kept == fields:
            return result, fields
        fields = kept


def _both(result: command.Result) -> str:
    return f"{result.stdout}\n{result.stderr}"


def _ask_alone(smi: Smi, answer: Answer, fields: tuple[str, ...], text: str, on_bus: list[pci.PciDevice]) -> str:
    """The rows of the GPUs that are well, where one that is not kept the tool from giving them all."""
    result = smi.ask("-L")
    answer.listing = nvidia_list.parse_list(result.stdout)
    answer.lost += nvidia_list.lost_gpus(_both(result))
    cards, _messages = nvidia_csv.parse_cards(text, {}, fields)
    known = {card.gpu["index"] for card in cards}
    ids = [str(entry.index) for entry in answer.listing if entry.index not in known]
    if not answer.listing:
        known = {card.gpu["bus_id"] for card in cards} | {entry.bus_id for entry in answer.lost}
        ids = [gpu.address for gpu in on_bus if gpu.driver in (None, nvidia_pci.DRIVER) and gpu.address not in known]
    found = []
    for word in ids[:MAX_ASKED_ALONE]:
        result = smi.ask("--query-gpu=" + ",".join(fields), FORMAT, "-i", word)
        found.append(result.stdout)
        answer.lost += nvidia_list.lost_gpus(_both(result))
        if result.rc is None:
            answer.messages.append(result.error or "")
            break
    return "\n".join(found)


def read_cards(smi: Smi, machine: record.Machine, on_bus: list[pci.PciDevice]) -> Answer:
    """All GPUs that the tool reports; ``on_bus`` are those that it should."""
    answer = Answer()
    result, fields = _query(smi)
    text = result.stdout
    answer.lost = nvidia_list.lost_gpus(_both(result))
    rows, _messages = nvidia_csv.split_rows(text, fields)
    partly = answer.lost or result.rc in ONE_GPU_CODES or (rows and not result.ok)
    if partly and result.rc is not None:
        text = f"{text}\n{_ask_alone(smi, answer, fields, text, on_bus)}"
    answer.cards, messages = nvidia_csv.parse_cards(text, machine.meminfo, fields)
    # Each question repeats the sentence about a lost GPU, in another spelling.
    said = [message for message in messages if not nvidia_list.lost_gpus(message)]
    sentences: dict[Any, str] = {}
    for entry in answer.lost:
        sentences.setdefault(entry.bus_id or entry.index, entry.sentence)
    answer.messages = list(dict.fromkeys([*sentences.values(), *said, *answer.messages]))
    if not result.ok and (not answer.messages or result.rc is None):
        answer.messages.append(result.error or "")
    elif not answer.cards and not answer.messages:
        answer.messages.append("nvidia-smi names no GPU")
    if result.rc is None:
        answer.said = result.error or ""
    elif not (result.ok and rows):
        answer.said = command.first_line(*said) or ("" if sentences else result.error or "")
    _refuse_lost(answer)
    return answer


def _refuse_lost(answer: Answer) -> None:
    """A GPU that had no handle in one answer and a row in another is not to be relied on."""
    for card in answer.cards:
        for entry in answer.lost:
            if entry.bus_id is None:
                same = entry.index is not None and entry.index == card.gpu["index"]
            else:
                same = entry.bus_id == card.gpu["bus_id"]
            if same:
                card.refuse(nvidia_pci.with_way_out(entry.sentence))
