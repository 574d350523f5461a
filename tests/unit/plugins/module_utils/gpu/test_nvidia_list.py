# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gpu import nvidia_list


@pytest.mark.parametrize(
    ("line", "index", "bus_id"),
    [
        (
            "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover "
            "this GPU",
            None,
            "0000:02:00.0",
        ),
        ("Unable to determine the device handle for GPU0000:65:00.0: Unknown Error", None, "0000:65:00.0"),
        ("Unable to determine the device handle for gpu 0000:3B:00.0: Unknown Error", None, "0000:3b:00.0"),
        ("Unable to determine the device handle for GPU 00000000:0A:00.0: Not Found", None, "0000:0a:00.0"),
        ("Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error", 1, "0000:34:00.0"),
        ("Unable to determine the device handle for GPU 12: Unknown Error", 12, None),
        ("Unable to determine the device handle for GPU 000:BA:80.0: Unknown Error", None, None),
        ("Unable to determine the device handle for GPU", None, None),
    ],
)
def test_the_sentence_about_a_lost_gpu(line, index, bus_id):
    lost = nvidia_list.lost_gpus(f"\nGPU 0: something\n  {line}\n")
    assert [(entry.sentence, entry.index, entry.bus_id) for entry in lost] == [(line, index, bus_id)]


@pytest.mark.parametrize("text", ["", "GPU is lost", "\x00\ud800", "Unable to determine " * 500_000])
def test_other_texts_name_no_lost_gpu(text):
    assert nvidia_list.lost_gpus(text) == []
    assert nvidia_list.parse_list(text) == []


def test_list():
    text = "\n".join(
        [
            "Unable to determine the device handle for gpu 0000:3B:00.0: Unknown Error",
            "  MIG 1g.10gb     Device  0: (UUID: MIG-nobody)",
            "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-1)",
            "  MIG 1g.5gb      Device  0: (UUID: MIG-GPU-1/7/0)",
            "  MIG 1g.5gb+me   Device  4: (UUID: MIG-e138a708)",
            "  MIG 2g.10gb     Device  5: (UUID: [Unknown Error])",
            "GPU 2: GeForce GTX TITAN",
            "GPU 3: Orin (nvgpu) (UUID: 54d0709b-558d)",
            "GPU many: no GPU (UUID: GPU-3)",
        ]
    )
    assert nvidia_list.parse_list(text) == [
        nvidia_list.Listed(
            1, "GPU-1", {0: ("1g.5gb", "MIG-GPU-1/7/0"), 4: ("1g.5gb+me", "MIG-e138a708"), 5: ("2g.10gb", None)}
        ),
        nvidia_list.Listed(2, None, {}),
        nvidia_list.Listed(3, "54d0709b-558d", {}),
    ]
