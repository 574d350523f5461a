# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gpu import fdinfo

MIB = 1024 * 1024
DGPU, APU = "0000:03:00.0", "0000:c5:00.0"

AMDGPU = f"""pos:\t0
flags:\t02100002
drm-driver:\tamdgpu
drm-client-id:\t4
drm-pdev:\t{DGPU}
pasid:\t32771
drm-total-cpu:\t0
drm-total-gtt:\t2392 KiB
drm-shared-gtt:\t0
drm-resident-gtt:\t2048 KiB
drm-total-vram:\t96 MiB
drm-shared-vram:\t31952 KiB
drm-resident-vram:\t64 MiB
drm-memory-vram:\t65536 KiB
drm-memory-gtt: \t2048 KiB
drm-memory-cpu: \t0 KiB
amd-evicted-vram:\t0 KiB
amd-requested-vram:\t98304 KiB
drm-engine-compute:\t46464671 ns
"""
OLD_AMDGPU = f"drm-driver:\tamdgpu\ndrm-pdev:\t{DGPU}\ndrm-client-id:\t9\ndrm-memory-vram:\t1024 KiB\n"
XE = f"""drm-driver:\txe
drm-client-id:\t3
drm-pdev:\t{DGPU}
drm-total-system:\t0
drm-total-gtt:\t192 KiB
drm-resident-gtt:\t192 KiB
drm-total-vram0:\t23992 KiB
drm-resident-vram0:\t16 MiB
drm-resident-vram1:\t1 MiB
drm-total-stolen:\t0
"""
I915 = """drm-driver:\ti915
drm-client-id:\t14
drm-pdev:\t0000:00:02.0
drm-total-system0:\t8192 KiB
drm-resident-system0:\t6144 KiB
drm-active-system0:\t99 MiB
drm-resident-stolen-system0:\t1024
drm-engine-render:\t2000 ns
"""


def proc(root, processes):
    for pid, files in processes.items():
        folder = root / str(pid) / "fdinfo"
        folder.mkdir(parents=True)
        for number, text in enumerate(files):
            (folder / str(number)).write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("text", "driver", "number", "regions"),
    [
        (AMDGPU, "amdgpu", "4", {"cpu": 0, "gtt": 2048 * 1024, "vram": 64 * MIB}),
        (OLD_AMDGPU, "amdgpu", "9", {"vram": MIB}),
        (XE, "xe", "3", {"system": 0, "gtt": 192 * 1024, "vram0": 16 * MIB, "vram1": MIB, "stolen": 0}),
        (I915, "i915", "14", {"system0": 6 * MIB, "stolen-system0": 1024}),
    ],
)
def test_drivers(text, driver, number, regions):
    client = fdinfo.parse(text)
    assert (client.driver, client.number, client.regions) == (driver, number, regions)


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("drm-memory-vram: 5", 5),
        ("drm-memory-vram:\t5 KiB", 5120),
        ("drm-memory-vram:  5 MiB  ", 5 * MIB),
        ("drm-memory-vram :5 GiB", 5 << 30),
        ("drm-memory-vram:\t5 TB", None),
        ("drm-memory-vram:\t-5 KiB", None),
        ("drm-memory-vram:\t5.5 KiB", None),
        ("drm-memory-vram:\t" + "9" * 400, None),
        ("drm-memory-vram:\t999999999999999999 KiB", None),
        ("drm-memory-vram:", None),
        ("drm-memory-:\t5 KiB", None),
        ("amd-memory-vram:\t5 KiB", None),
        ("drm-shared-vram:\t5 KiB", None),
        ("drm-purgeable-vram:\t5 KiB", None),
    ],
)
def test_units(line, size):
    client = fdinfo.parse(f"drm-pdev:\t{DGPU}\n{line}\n")
    assert client.regions == ({} if size is None else {"vram": size})


@pytest.mark.parametrize(
    "text",
    ["", "pos:\t0\nflags:\t02\n", "drm-driver:\tpanfrost\ndrm-client-id:\t3\n", "drm-pdev:\tN/A\n", "\x00\xff:::", ":"],
)
def test_other_files_are_none(text):
    assert fdinfo.parse(text) is None


def test_files_and_processes_of_one_client_count_once(tmp_path):
    root = proc(
        tmp_path,
        {
            10: [AMDGPU, "pos:\t0\n", AMDGPU.replace("64 MiB", "60 MiB"), OLD_AMDGPU],
            11: [AMDGPU],
            12: [AMDGPU.replace(DGPU, APU)],
            13: [AMDGPU.replace("client-id:\t4", "client-id:\t5")],
        },
    )
    assert fdinfo.own_bytes((10, 11), root) == {DGPU: 65 * MIB}
    assert fdinfo.own_bytes((10, 10, 12), root) == {DGPU: 65 * MIB, APU: 64 * MIB}
    assert fdinfo.own_bytes((10, 13), root) == {DGPU: 129 * MIB}


def test_files_without_a_client_are_one_per_process(tmp_path):
    text = OLD_AMDGPU.replace("drm-client-id:\t9\n", "")
    assert fdinfo.own_bytes((1, 2), proc(tmp_path, {1: [text, text], 2: [text]})) == {DGPU: 2 * MIB}


@pytest.mark.parametrize(
    ("text", "address", "size"),
    [
        (XE, DGPU, 17 * MIB),
        (I915, "0000:00:02.0", 6 * MIB + 1024),
        (I915.replace("system0", "local0"), "0000:00:02.0", 6 * MIB + 1024),
        ("drm-pdev: 3:00.0\n", None, None),
        (f"drm-pdev: {DGPU}\n", DGPU, 0),
    ],
)
def test_own_memory_is_that_of_the_gpu_and_where_it_has_none_that_of_the_machine(tmp_path, text, address, size):
    assert fdinfo.own_bytes((5,), proc(tmp_path, {5: [text]})) == ({} if address is None else {address: size})


def test_a_process_that_has_ended_holds_nothing(tmp_path):
    held = fdinfo.read((1, 2), proc(tmp_path, {1: [OLD_AMDGPU]}))
    assert held == ({DGPU: {"vram": MIB}}, ())
    assert fdinfo.read((), str(tmp_path)) == ({}, ())


@pytest.mark.parametrize("error", [PermissionError, ProcessLookupError, FileNotFoundError])
@pytest.mark.parametrize("call", ["listdir", "open"])
def test_a_process_that_may_not_be_looked_at_is_named(monkeypatch, tmp_path, error, call):
    root = proc(tmp_path, {1: [OLD_AMDGPU], 2: [OLD_AMDGPU.replace("id:\t9", "id:\t8")]})
    real = getattr(os, call)

    def refuse(path, *args, **kwargs):
        if f"{os.sep}2{os.sep}" in str(path):
            raise error(1, "no")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, call, refuse)
    held = fdinfo.read((1, 2), root)
    assert held.regions == {DGPU: {"vram": MIB}}
    assert held.unreadable == ((2,) if error is PermissionError else ())
