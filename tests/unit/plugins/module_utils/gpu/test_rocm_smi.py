# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command
from ansible_collections.relay.pool.plugins.module_utils.gpu import record, rocm_smi

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "amd"


def cards(text):
    return rocm_smi.parse(text)[0]


def totals(text):
    return [card.vram_total for card in cards(text)]


@pytest.mark.parametrize(
    ("version", "used", "name", "gpu_id", "gfx"),
    [
        ("4.3", 1622728704, None, None, None),
        ("5.7", 1572745216, "Navi 22 [Radeon RX 6700/6700 XT / 6800M]", None, None),
        ("6.1", 1572745216, "Navi 22 [Radeon RX 6700/6700 XT / 6800M]", 55069, "gfx1031"),
    ],
)
def test_json_of_every_version(version, used, name, gpu_id, gfx):
    found, messages = rocm_smi.parse((FIXTURES / f"rocm-smi-{version}.json").read_text())
    assert messages == []
    assert len(found) == 1
    card = found[0]
    assert (card.number, card.address, card.device) == (0, "0000:07:00.0", "73df")
    assert (card.vram_total, card.vram_used, card.gtt_total) == (12868124672, used, 16792432640)
    assert (card.name, card.uuid, card.gpu_id, card.gfx) == (name, None, gpu_id, gfx)


def test_cards_are_in_the_order_of_their_numbers():
    text = json.dumps(
        {
            "card10": {"VRAM Total Memory (B)": "34342961152", "PCI Bus": "0000:83:00.0"},
            "system": {"Driver version": "6.7.0"},
            "card2": {"VRAM Total Memory (B)": "34342961152", "PCI Bus": "0000:1E:00.0"},
            "card1": {"Temperature (Sensor edge) (C)": "31.0"},
        }
    )
    found = cards(text)
    assert [(card.number, card.address, card.vram_total) for card in found] == [
        (1, None, None),
        (2, "0000:1e:00.0", 34342961152),
        (10, "0000:83:00.0", 34342961152),
    ]


def test_csv_behind_a_warning():
    found, messages = rocm_smi.parse((FIXTURES / "rocm-smi-apu.csv").read_text())
    assert messages == []
    assert [(c.name, c.vram_total, c.gfx, c.device, c.gpu_id) for c in found] == [
        ("AMD Radeon 8060S Graphics", 536870912, "gfx1151", "1586", 64042),
        ("AMD Radeon RX 9070 XT", 17163091968, "gfx1201", "7550", 1),
    ]


def test_csv_columns_go_by_name():
    text = "device,GTT Total Memory (B),Card Series,VRAM Total Memory (B)\ncard0,17179869184,Arcturus,34342961152\n"
    assert (cards(text)[0].vram_total, cards(text)[0].gtt_total) == (34342961152, 17179869184)


def test_csv_row_of_another_length_is_said_and_the_others_stay():
    text = (
        "device,VRAM Total Memory (B),Card Series\ncard0,8573157376\ncard1,8573157376,Navi 10, XT\ncard2,8573157376,X\n"
    )
    found, messages = rocm_smi.parse(text)
    assert [card.number for card in found] == [2]
    assert len(messages) == 2
    assert "2 values under 3 names: card0" in messages[0]


def test_json_behind_a_warning():
    text = (
        "WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status\n\n"
        '{"card0": {"VRAM Total Memory (B)": "536870912"}, "card1": {"VRAM Total Memory (B)": "17163091968"}}\n'
    )
    assert totals(text) == [536870912, 17163091968]


def test_text():
    found, messages = rocm_smi.parse((FIXTURES / "rocm-smi.txt").read_text())
    assert messages == []
    card = found[0]
    assert (card.address, card.name, card.device, card.gfx) == ("0000:03:00.0", "Radeon RX 7900 XT", "744c", "gfx1100")
    assert (card.vram_total, card.vram_used, card.gtt_used, card.gpu_id) == (21458059264, 27246592, 15638528, 41214)


@pytest.mark.parametrize(
    "text",
    [
        "GPU[0] VRAM Total Memory (B): 8589934592\nGPU[0] GTT  Total Memory (B): 133143986176\n",
        "GPU[0]\t\t: VRAM Total Memory (B): 8589934592\nGPU[0]\t\t: GTT Total Memory (B): 133143986176\n",
        "GPU[0] : VRAM Total Memory (B): 8,589,934,592\nGPU[0] : GTT Total Memory (B): 133,143,986,176\n",
    ],
)
def test_text_in_other_hands(text):
    assert (cards(text)[0].vram_total, cards(text)[0].gtt_total) == (8589934592, 133143986176)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("17163091968", 17163091968),
        (17163091968, 17163091968),
        ("0", None),
        ("-1", None),
        ("N/A", None),
        ("[Unknown Error]", None),
        ("1e10", None),
        (True, None),
        (None, None),
        ([1], None),
        (float("nan"), None),
        (float("inf"), None),
        (2**50, None),
        ("9" * 5000, None),
        ("1,2", None),
    ],
)
def test_a_size_is_a_size_or_nothing(value, expected):
    assert totals(json.dumps({"card0": {"VRAM Total Memory (B)": value}})) == [expected]


def test_more_in_use_than_there_is_is_no_value():
    row = {"VRAM Total Memory (B)": "1000000", "VRAM Total Used Memory (B)": "1000001"}
    assert (cards(json.dumps({"card0": row}))[0].vram_total, cards(json.dumps({"card0": row}))[0].vram_used) == (
        1000000,
        None,
    )


@pytest.mark.parametrize(
    ("value", "uuid"),
    [
        ("0x7cb7a9a1f0bd6ea9", "GPU-7cb7a9a1f0bd6ea9"),
        ("0x2A", "GPU-000000000000002a"),
        ("0x0", None),
        ("0x0000000000000000", None),
        ("N/A", None),
        (7, None),
    ],
)
def test_unique_id(value, uuid):
    assert cards(json.dumps({"card0": {"Unique ID": value}}))[0].uuid == uuid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "No JSON data to report\n",
        "{",
        "[]",
        "[1, 2]",
        "{}",
        '{"card0": "N/A"}',
        '{"card0": {"VRAM Total Memory (B)": "171630',
        '{"system": {"Driver version": "6.3.6"}}',
        '{"cardX": {"VRAM Total Memory (B)": "1"}}',
        "device,\n",
        "\x00\xff\ufffd" * 40,
        "[" * 100000,
        "GPU[0]",
        "GPU[0] :",
        "GPU[999999999] : VRAM Total Memory (B): 1",
        "GPU[0]" + " " * 100000 + "x",
    ],
)
def test_nothing_to_be_read_is_said(text):
    found, messages = rocm_smi.parse(text)
    assert found == []
    assert messages == ["rocm-smi printed nothing about a card"]


def test_a_failure_is_the_message():
    ran = []

    def run(argv, timeout):
        ran.append(argv)
        return command.Result(1, "ERROR: no devices\n", "", "rocm-smi ended with 1: ERROR: no devices")

    found, messages = rocm_smi.read(record.Machine(run=run), "/opt/rocm/bin/rocm-smi")
    assert (found, messages) == ([], ["rocm-smi ended with 1: ERROR: no devices"])
    assert ran == [["/opt/rocm/bin/rocm-smi", *rocm_smi.ARGUMENTS]]
