# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command
from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_smi, record

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "amd"
MIB = 1024 * 1024
TIMED_OUT = command.Result(None, "", "", "amd-smi gave no answer within 10 s and was killed")


def usage(total, used="N/A"):
    return json.dumps([{"gpu": 0, "mem_usage": {"total_vram": total, "used_vram": used}}])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"value": 196288, "unit": "MB"}, 205822885888),
        ({"value": 196592, "unit": "MiB"}, 196592 * MIB),
        ({"value": 24, "unit": "GB"}, 24 << 30),
        ({"value": 191.5, "unit": "GB"}, int(191.5 * 2**30)),
        ({"value": 34359738368, "unit": "B"}, 34359738368),
        ({"value": 1024, "unit": "KB"}, MIB),
        ({"value": "16368", "unit": "MB"}, 16368 * MIB),
        ("16368 MB", 16368 * MIB),
        ("16368", 16368 * MIB),
        (16368, 16368 * MIB),
        ({"value": 16368}, 16368 * MIB),
        ({"value": 0, "unit": "MB"}, 0),
        ({"value": "N/A", "unit": "MB"}, None),
        ({"value": 1, "unit": "W"}, None),
        ({"value": 1, "unit": None}, None),
        ({"value": -1, "unit": "MB"}, None),
        ({"value": True, "unit": "MB"}, None),
        ({"value": {"value": 1}, "unit": "MB"}, None),
        ({"value": float("nan"), "unit": "MB"}, None),
        ({"value": 1e308, "unit": "TB"}, None),
        ({"value": 10**400, "unit": "TB"}, None),
        ("N/A", None),
        ("", None),
        ([], None),
        (None, None),
    ],
)
def test_amount(value, expected):
    assert amd_smi.amount(value) == expected


@pytest.mark.parametrize("root", ["list", "gpu_data", "bare"])
def test_every_root(root):
    entry = {"gpu": 0, "asic": {"market_name": "AMD Instinct MI210"}}
    text = json.dumps({"list": [entry], "gpu_data": {"gpu_data": [entry]}, "bare": entry}[root])
    cards, messages = amd_smi.parse(text)
    assert messages == []
    assert [(card.number, card.name) for card in cards] == [(0, "AMD Instinct MI210")]


def test_static_behind_warnings():
    cards, messages = amd_smi.parse((FIXTURES / "amd-smi-static.txt").read_text())
    assert messages == []
    assert [(c.number, c.address, c.name, c.gfx, c.device, c.vram_total) for c in cards] == [
        (0, "0000:03:00.0", "AMD Radeon RX 7800 XT", "gfx1101", "747e", 16368 * MIB),
        (1, "0000:10:00.0", None, "gfx1036", "164e", None),
    ]


def test_noise_on_both_sides():
    noise = "WARNING: low-power state [AMD/ATI]\n\n[not json]\n{neither}\n"
    cards, _messages = amd_smi.parse(noise + usage({"value": 8176, "unit": "MB"}) + "\nbye {}\n")
    assert [card.vram_total for card in cards] == [8176 * MIB]


def test_an_answer_that_is_cut_off_is_not_taken_for_its_first_gpu():
    text = (FIXTURES / "amd-smi-static.txt").read_text()
    cards, messages = amd_smi.parse(text[:-20])
    assert (cards, messages) == ([], ["amd-smi printed no JSON with GPUs in it"])


@pytest.mark.parametrize(
    ("total", "used", "expected"),
    [
        ({"value": 100, "unit": "MB"}, {"value": 30, "unit": "MB"}, (100 * MIB, 30 * MIB)),
        ({"value": 100, "unit": "MB"}, {"value": 101, "unit": "MB"}, (100 * MIB, None)),
        ({"value": 100, "unit": "MB"}, "N/A", (100 * MIB, None)),
        ({"value": 0, "unit": "MB"}, {"value": 0, "unit": "MB"}, (None, None)),
        ("[Insufficient Permissions]", {"value": 1, "unit": "MB"}, (None, None)),
        ({"value": 2**40, "unit": "MB"}, {"value": 1, "unit": "MB"}, (None, None)),
    ],
)
def test_metric(total, used, expected):
    card = amd_smi.parse(usage(total, used))[0][0]
    assert (card.vram_total, card.vram_used) == expected


def test_gpus_without_a_number_or_with_the_same():
    cards, messages = amd_smi.parse('[{"gpu": 1}, {"gpu": 1}, {"gpu": "N/A"}, {"asic": 3}, 7]')
    assert [card.number for card in cards] == [1]
    assert messages == [
        "amd-smi reports a GPU 1 twice",
        "amd-smi reports a GPU without a number",
        "amd-smi reports a GPU without a number",
    ]


@pytest.mark.parametrize(
    "text",
    ["", "{", "{}", "[]", "null", '{"gpu_data": "N/A"}', '{"error": "no GPU", "code": -13}', "\x00" * 9, "{" * 99999],
)
def test_nothing_to_be_read_is_said(text):
    assert amd_smi.parse(text) == ([], ["amd-smi printed no JSON with GPUs in it"])


@pytest.mark.parametrize(
    "entry",
    [
        {"gpu": 0, "asic": "N/A", "bus": None, "vram": [], "mem_usage": 3},
        {"gpu": 0, "asic": {"market_name": 5, "device_id": [], "target_graphics_version": {}}, "bus": {"bdf": 7}},
        {"gpu": 0, "asic": {"market_name": "[N/A]", "device_id": "0xfffff"}, "vram": {"size": [[]]}},
    ],
)
def test_values_of_another_kind_are_none(entry):
    card = amd_smi.parse(json.dumps([entry]))[0][0]
    assert (card.name, card.device, card.gfx, card.address, card.vram_total) == (None,) * 5


def reader(static, metric=None):
    ran = []

    def run(argv, timeout):
        ran.append(tuple(argv[1:]))
        return static if argv[1] == "static" else metric

    return record.Machine(run=run), ran


def test_both_calls_are_joined_by_number():
    static = command.Result(0, (FIXTURES / "amd-smi-static.txt").read_text(), "", None)
    metric = command.Result(0, (FIXTURES / "amd-smi-metric.json").read_text(), "", None)
    machine, ran = reader(static, metric)
    cards, messages = amd_smi.read(machine, "amd-smi", memory=True)
    assert messages == []
    assert ran == [amd_smi.STATIC, amd_smi.METRIC]
    assert [(c.name, c.address, c.vram_total, c.vram_used, c.gtt_used) for c in cards] == [
        ("AMD Radeon RX 7800 XT", "0000:03:00.0", 16368 * MIB, 1024 * MIB, 46 * MIB),
        (None, "0000:10:00.0", 512 * MIB, None, 21 * MIB),
    ]


def test_the_metrics_are_not_asked_for_where_nobody_wants_them():
    machine, ran = reader(command.Result(0, '[{"gpu": 0}]', "", None))
    amd_smi.read(machine, "amd-smi", memory=False)
    assert ran == [amd_smi.STATIC]


def test_a_tool_that_hung_is_not_asked_again():
    machine, ran = reader(TIMED_OUT)
    assert amd_smi.read(machine, "amd-smi", memory=True) == ([], [TIMED_OUT.error])
    assert ran == [amd_smi.STATIC]


def test_a_tool_that_hung_after_its_answer_is_not_asked_again_either():
    machine, ran = reader(command.Result(None, '[{"gpu": 0}]', "", TIMED_OUT.error))
    cards, messages = amd_smi.read(machine, "amd-smi", memory=True)
    assert ([card.number for card in cards], messages, ran) == ([0], [TIMED_OUT.error], [amd_smi.STATIC])


def test_what_fails_in_the_second_call_costs_nothing_of_the_first():
    static = command.Result(0, '[{"gpu": 0, "vram": {"size": {"value": 8176, "unit": "MB"}}}]', "", None)
    machine, _ran = reader(static, TIMED_OUT)
    cards, messages = amd_smi.read(machine, "amd-smi", memory=True)
    assert [card.vram_total for card in cards] == [8176 * MIB]
    assert messages == [TIMED_OUT.error]


def test_a_failure_is_the_message():
    error = "amd-smi ended with 255: ERROR:root:Unable to detect any GPU devices"
    machine, _ran = reader(command.Result(255, "", error, error), command.Result(255, "", error, error))
    assert amd_smi.read(machine, "amd-smi", memory=False) == ([], [error])
