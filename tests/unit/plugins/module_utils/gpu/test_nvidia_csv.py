# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gpu import nvidia_csv, nvidia_values

MIB = 1024 * 1024
MEMINFO = {"MemTotal": 128 * 1024**3, "MemAvailable": 100 * 1024**3}
HEADER = (
    "index, name, uuid, pci.bus_id, driver_version, memory.total [MiB], memory.free [MiB], compute_mode, "
    "mig.mode.current"
)


def row(index=0, name="NVIDIA L40S", total="46068", free="45460", mode="Default", mig="[N/A]"):
    return f"{index}, {name}, GPU-{index}, 00000000:0{index}:00.0, 590.48, {total}, {free}, {mode}, {mig}"


def parse(text, meminfo=None):
    cards, messages = nvidia_csv.parse_cards(text, MEMINFO if meminfo is None else meminfo)
    return [card.gpu for card in cards], messages


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            row(),
            {
                "memory_total_bytes": 46068 * MIB,
                "memory_free_bytes": 45460 * MIB,
                "placeable": True,
                "reason": None,
                "unified_memory": False,
                "device": None,
                "uuid": "GPU-0",
                "bus_id": "0000:00:00.0",
                "driver": "590.48",
                "source": "nvidia-smi",
            },
        ),
        # The units are left out where the driver knows nounits.
        (row(total="16384 MiB", free="16379 MiB"), {"memory_total_bytes": 16384 * MIB}),
        (row(total="6143 MB", free="14 MB"), {"memory_total_bytes": 6143 * MIB, "memory_free_bytes": 14 * MIB}),
        (
            row(total="[Insufficient Permissions]", free="[Insufficient Permissions]"),
            {"memory_total_bytes": None, "memory_free_bytes": None, "unified_memory": False}
            | {"reason": "insufficient_permissions"},
        ),
        (row(free="[Unknown Error]"), {"memory_total_bytes": 46068 * MIB, "memory_free_bytes": None}),
        (row(free="[Unknown Error]"), {"reason": "unknown_error", "placeable": True}),
        (row(free="[Some New Word]"), {"memory_free_bytes": None, "reason": "some_new_word"}),
        (row(total="[]"), {"memory_total_bytes": None, "reason": "unknown"}),
        (row(total="many"), {"memory_total_bytes": None, "reason": "unreadable value 'many'"}),
        (row(total="-1"), {"memory_total_bytes": None, "reason": "unreadable value '-1'"}),
        (row(total="1e9"), {"memory_total_bytes": None, "reason": "unreadable value '1e9'"}),
        (row(total="NaN"), {"memory_total_bytes": None, "reason": "unreadable value 'NaN'"}),
        (row(total="1_0"), {"memory_total_bytes": None}),
        (row(total="\u0663"), {"memory_total_bytes": None}),
        (row(total="9" * 5000), {"memory_total_bytes": None, "reason": f"unreadable value '{'9' * 40}'"}),
        (row(total=str(2**30)), {"memory_total_bytes": None, "reason": f"unreadable value '{2**30}'"}),
        (
            row(total="0", free="0"),
            {"memory_total_bytes": None, "memory_free_bytes": None, "unified_memory": False}
            | {"reason": "nvidia-smi reports a memory of 0 MiB"},
        ),
        (
            row(total="100", free="101"),
            {"memory_total_bytes": 100 * MIB, "memory_free_bytes": None}
            | {"reason": "nvidia-smi reports 101 MiB free of 100 MiB"},
        ),
        (row(mode="Exclusive_Process"), {"placeable": True}),
        (row(mode="Prohibited"), {"placeable": False, "memory_total_bytes": 46068 * MIB}),
        (row(mig="Enabled"), {"placeable": False, "memory_total_bytes": 46068 * MIB}),
        # No memory, but MIG: the parent is not a part with unified memory.
        (row(total="[N/A]", free="[N/A]", mig="Enabled"), {"placeable": False, "unified_memory": False}),
        (row(name="[Unknown Error]"), {"name": "NVIDIA GPU"}),
    ],
)
def test_one_row(line, expected):
    gpus, messages = parse(line + "\n")
    assert messages == []
    assert {key: gpus[0][key] for key in expected} == expected


UNIFIED = {
    "memory_total_bytes": MEMINFO["MemTotal"],
    "memory_free_bytes": MEMINFO["MemAvailable"],
    "unified_memory": True,
    "integrated": True,
    "placeable": True,
    "reason": None,
}
CARD = {"unified_memory": False, "integrated": False}


@pytest.mark.parametrize(
    ("name", "total", "free", "expected", "said"),
    [
        ("NVIDIA GB10", "[N/A]", "[N/A]", UNIFIED, None),
        ("Orin (nvgpu)", "[N/A]", "[N/A]", UNIFIED, None),
        ("NVIDIA Thor", "[Not Supported]", "[Not Supported]", UNIFIED, None),
        ("NVIDIA N1X", "8128", "7929", UNIFIED, "nvidia-smi reports 8128 MiB of it, 7929 MiB free"),
        ("NVIDIA RTX Spark N1X", "8128", "[N/A]", UNIFIED, "131072 MiB: nvidia-smi reports 8128 MiB of it"),
        ("NVIDIA Tegra X2", "100", "200", UNIFIED, "nvidia-smi reports 100 MiB of it"),
        ("Xavier", "[Unknown Error]", "[Unknown Error]", UNIFIED, None),
        ("an unheard-of part", "[N/A]", "[N/A]", UNIFIED, None),
        # The processor next to it has memory of its own, and so has the GPU.
        ("NVIDIA GH200 480GB", "97871", "97281", {**CARD, "memory_total_bytes": 97871 * MIB}, None),
        ("NVIDIA GB200", "[N/A]", "[N/A]", {**CARD, "memory_total_bytes": None, "reason": "n_a"}, None),
        ("NVIDIA GeForce RTX 5090", "[N/A]", "[N/A]", {**CARD, "memory_total_bytes": None, "reason": "n_a"}, None),
        ("Tesla V100S-PCIE-32GB", "[Not Supported]", "5", {**CARD, "memory_total_bytes": None}, None),
        ("NVIDIA A10G", "[N/A]", "[N/A]", {**CARD, "memory_total_bytes": None}, None),
        ("GRID T4-16Q", "[N/A]", "[N/A]", {**CARD, "memory_total_bytes": None}, None),
        ("NVIDIA GB102", "24576", "24000", {**CARD, "memory_total_bytes": 24576 * MIB}, None),
        # An error is no sign of unified memory.
        ("NVIDIA L4", "[Unknown Error]", "[N/A]", {**CARD, "memory_total_bytes": None}, None),
        ("NVIDIA L4", "[N/A]", "[GPU requires reset]", {**CARD, "memory_total_bytes": None, "placeable": False}, None),
    ],
)
def test_unified_memory(name, total, free, expected, said):
    gpus, messages = parse(row(name=name, total=total, free=free))
    assert {key: gpus[0][key] for key in expected} == expected
    assert len(messages) == (said is not None)
    assert said is None or said in messages[0]


@pytest.mark.parametrize("total", ["[N/A]", "8128"])
@pytest.mark.parametrize("meminfo", [{}, {"MemTotal": 5}, {"MemTotal": 5, "MemAvailable": 6}, {"MemAvailable": 6}])
def test_unified_without_meminfo_is_unknown(total, meminfo):
    gpus, _messages = parse(row(name="NVIDIA GB10", total=total, free=total), meminfo)
    assert gpus[0]["memory_total_bytes"] == meminfo.get("MemTotal")
    assert gpus[0]["memory_free_bytes"] in (None, 6)
    assert "meminfo" in gpus[0]["reason"]


def test_unified_by_its_missing_memory_without_meminfo():
    gpus, _messages = parse(row(name="an unheard-of part", total="[N/A]", free="[N/A]"), {})
    assert gpus[0]["memory_total_bytes"] is None
    assert "meminfo" in gpus[0]["reason"]


def test_refusals_have_words():
    gpus, _messages = parse(row(mode="Prohibited") + "\n" + row(1, mig="Enabled"))
    assert "Prohibited" in gpus[0]["reason"]
    # Without -i it would change the other GPUs too.
    assert "nvidia-smi -i 0 -c 0" in gpus[0]["reason"]
    assert gpus[1]["reason"].startswith("MIG is enabled")


def test_split_gpu_in_a_container_without_privileges():
    words = "[Insufficient Permissions]"
    gpus, _messages = parse(row(total=words, free=words, mig="Enabled"))
    assert (gpus[0]["placeable"], gpus[0]["memory_total_bytes"]) == (False, None)
    assert gpus[0]["reason"].startswith("insufficient_permissions; MIG is enabled")


@pytest.mark.parametrize("field", ["name", "total", "free", "mode", "mig"])
def test_gpu_that_requires_a_reset_is_refused_wherever_it_says_so(field):
    gpus, messages = parse(row(3, **{field: "[GPU requires reset]"}))
    assert messages == []
    assert gpus[0]["placeable"] is False
    assert gpus[0]["reason"].startswith("gpu_requires_reset")
    assert "nvidia-smi --gpu-reset -i 3" in gpus[0]["reason"]
    if field == "free":
        assert gpus[0]["memory_free_bytes"] is None


@pytest.mark.parametrize("field", ["name", "total", "free", "mode", "mig"])
def test_gpu_that_is_lost_is_refused_wherever_it_says_so(field):
    gpus, messages = parse(row(3, **{field: "[GPU is lost]"}))
    assert messages == []
    assert (gpus[0]["placeable"], gpus[0]["unified_memory"]) == (False, False)
    assert gpus[0]["reason"].startswith("gpu_is_lost: ")
    assert "reboot" in gpus[0]["reason"]


@pytest.mark.parametrize("word", ["[Unknown Error]", "[N/A]"])
def test_gpu_of_which_nothing_can_be_read_is_refused(word):
    gpus, _messages = parse(row(name=word, total=word, free=word), {})
    assert gpus[0]["placeable"] is False
    assert "reboot" in gpus[0]["reason"]


def test_what_else_a_card_is():
    text = "\n".join([row(0, mode="Exclusive_Process"), row(1, mode="Exclusive_Thread"), row(2), row(3, mig="Enabled")])
    cards, _messages = nvidia_csv.parse_cards(text, MEMINFO)
    assert [card.exclusive for card in cards] == ["Exclusive_Process", "Exclusive_Thread", None, None]
    assert [card.mig for card in cards] == [False, False, False, True]
    # A MIG device of a GPU that is well may be used, one of a GPU with a fault may not.
    assert [card.fault for card in cards] == [None] * 4
    cards, _messages = nvidia_csv.parse_cards(row(mode="Prohibited", mig="Enabled"), MEMINFO)
    assert "Prohibited" in cards[0].fault


def test_rows_and_messages_are_kept_apart():
    lost = "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system"
    gpus, messages = parse("\n".join([row(0), "", lost, row(2), "1, short, row", row("x")]))
    assert [gpu["index"] for gpu in gpus] == [0, 2]
    assert messages[:2] == [lost, "1, short, row"]
    assert "no index" in messages[2]


@pytest.mark.parametrize("blank", ["", "\n", "  \n\n"])
def test_header_and_blank_lines_say_nothing(blank):
    gpus, messages = parse(f"{HEADER}\n{blank}{row(0)}\n{blank}{row(1)}\n")
    assert [gpu["memory_total_bytes"] for gpu in gpus] == [46068 * MIB] * 2
    assert messages == []


@pytest.mark.parametrize("index", [-1, "1_0", 0])
def test_a_row_with_an_impossible_or_a_second_index_is_a_message(index):
    gpus, messages = parse(row(0) + "\n" + row(index))
    assert [gpu["index"] for gpu in gpus] == [0]
    assert len(messages) == 1


def test_a_row_whose_index_alone_is_missing_survives():
    line = "[Unknown Error], NVIDIA L4, GPU-7, 00000000:07:00.0, 590.48, 23034, 22563, Default, [N/A]"
    gpus, messages = parse(line)
    assert (gpus[0]["index"], gpus[0]["placeable"], gpus[0]["memory_total_bytes"]) == (None, False, 23034 * MIB)
    assert "unknown_error" in gpus[0]["reason"]
    assert messages == []


def test_a_driver_that_does_not_know_a_field():
    said = 'Field "mig.mode.current" is not a valid field to query.\n\n'
    assert nvidia_csv.unknown_fields(said) == ["mig.mode.current"]
    assert nvidia_csv.unknown_fields(row()) == []
    fields = nvidia_csv.FIELDS[:-1]
    cards, messages = nvidia_csv.parse_cards(row().rpartition(",")[0], MEMINFO, fields)
    assert (len(cards), cards[0].mig, messages) == (1, False, [])


def test_apps():
    text = "\n".join(
        [
            "gpu_uuid, pid, used_gpu_memory [MiB]",
            "GPU-0, 10, 500",
            "GPU-1, 12, [N/A]",
            "GPU-0, [N/A], 7",
            "GPU-1, 13, 70 MiB",
            "No running processes found",
            "GPU is lost",
        ]
    )
    apps, messages = nvidia_csv.parse_apps(text)
    assert [(uuid, process.pid, process.used_bytes, process.reason) for uuid, process in apps] == [
        ("GPU-0", 10, 500 * MIB, None),
        ("GPU-1", 12, None, "n_a"),
        ("GPU-1", 13, 70 * MIB, None),
    ]
    assert messages == ["GPU is lost"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("[N/A]", "n_a"),
        ("N/A", "n_a"),
        ("[Not Supported]", "not_supported"),
        ("Insufficient Permissions", "insufficient_permissions"),
        ("[GPU requires reset]", "gpu_requires_reset"),
        ("[Anything, at all!]", "anything_at_all"),
        ("[ ]", "unknown"),
        ("12", None),
        ("", None),
        ("None", None),
        ("Default", None),
    ],
)
def test_no_value(value, reason):
    assert nvidia_values.no_value_reason(value) == reason
