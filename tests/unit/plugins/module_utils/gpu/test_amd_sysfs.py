# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_card, amd_sysfs

GIB = 1 << 30


def card(root, name, address=None, **files):
    """A card in /sys/class/drm: a link to the PCI device, or a plain folder where no address is given."""
    drm = root / "class" / "drm" / name
    drm.mkdir(parents=True)
    device = drm / "device"
    if address:
        target = root / "devices" / "pci0000:00" / address
        target.mkdir(parents=True, exist_ok=True)
        device.symlink_to(target)
    else:
        device.mkdir()
    for file_name, text in files.items():
        (device / file_name).write_text(f"{text}\n")


def test_cards(tmp_path):
    card(
        tmp_path,
        "card2",
        "0000:03:00.0",
        vendor="0x1002",
        device="0x744c",
        unique_id="7cb7a9a1f0bd6ea9",
        product_name="AMD Instinct MI210",
        mem_info_vram_total=20 * GIB,
        mem_info_vram_used=GIB,
        mem_info_gtt_total=31 * GIB,
        mem_info_gtt_used=0,
    )
    card(tmp_path, "card10", "0000:01:00.0", vendor="0x1002", mem_info_vram_total=8 * GIB)
    card(tmp_path, "card0", "0000:00:02.0", vendor="0x8086")
    card(tmp_path, "card3", vendor="0x1002")
    card(tmp_path, "card2-DP-1", "0000:03:00.0")
    card(tmp_path, "renderD128", "0000:03:00.0")
    assert amd_sysfs.read_cards(str(tmp_path)) == [
        amd_card.Card(
            "/sys/class/drm/card10/device", number=10, address="0000:01:00.0", vram_total=8 * GIB
        ),
        amd_card.Card(
            "/sys/class/drm/card2/device",
            number=2,
            address="0000:03:00.0",
            device="744c",
            name="AMD Instinct MI210",
            uuid="GPU-7cb7a9a1f0bd6ea9",
            vram_total=20 * GIB,
            vram_used=GIB,
            gtt_total=31 * GIB,
            gtt_used=0,
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"mem_info_vram_total": 17163091968, "mem_info_vram_used": 692142080}, (17163091968, 692142080)),
        ({"mem_info_vram_total": 17163091968}, (17163091968, None)),
        ({"mem_info_vram_total": 0, "mem_info_vram_used": 0}, (None, None)),
        ({"mem_info_vram_total": "", "mem_info_vram_used": 5}, (None, None)),
        ({"mem_info_vram_total": 100, "mem_info_vram_used": 101}, (100, None)),
        ({"mem_info_vram_total": 100, "mem_info_vram_used": -1}, (100, None)),
        ({"mem_info_vram_total": 1 << 50, "mem_info_vram_used": 1}, (None, None)),
        ({"mem_info_vram_total": "9" * 300}, (None, None)),
        ({"mem_info_vram_total": "0x100"}, (None, None)),
    ],
)
def test_sizes(tmp_path, files, expected):
    card(tmp_path, "card0", "0000:03:00.0", **files)
    found = amd_sysfs.read_cards(str(tmp_path))[0]
    assert (found.vram_total, found.vram_used) == expected


@pytest.mark.parametrize(
    ("uevent", "address"),
    [
        ("DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_SLOT_NAME=0000:C5:00.0\n", "0000:c5:00.0"),
        ("DRIVER=amdgpu\n", None),
        ("PCI_SLOT_NAME=\n", None),
        ("", None),
    ],
)
def test_address_of_a_folder_that_is_no_link(tmp_path, uevent, address):
    card(tmp_path, "card1", uevent=uevent, mem_info_vram_total=GIB)
    assert amd_sysfs.read_cards(str(tmp_path))[0].address == address


def test_another_vendor_with_such_files_is_none(tmp_path):
    card(tmp_path, "card1", "0000:03:00.0", vendor="0x8086", mem_info_vram_total=GIB)
    assert amd_sysfs.read_cards(str(tmp_path)) == []


def test_no_sys(tmp_path):
    assert amd_sysfs.read_cards(str(tmp_path / "none")) == []
