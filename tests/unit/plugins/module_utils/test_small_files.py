# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import socket
import tracemalloc

import pytest
from ansible_collections.relay.pool.plugins.module_utils import (
    cpu,
    deadline,
    interfaces,
    memory,
    small_files,
)
from ansible_collections.relay.pool.plugins.module_utils.gpu import (
    amd,
    amd_kfd,
    fdinfo,
    intel,
    intel_sysfs,
    pci,
    record,
)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def make_loop(path):
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, "no regular file"),
        (os.mkdir, "Is a directory"),
        (make_socket, "No such device"),
        (lambda path: path.symlink_to("/dev/zero"), "no regular file"),
        (make_loop, "Too many levels"),
        (lambda path: path.symlink_to("/nonexistent/key"), "No such file"),
    ],
    ids=["pipe", "directory", "socket", "device", "loop", "dangling"],
)
def test_no_regular_file_is_an_error_at_once(tmp_path, make, words):
    path = tmp_path / "file"
    make(path)
    with pytest.raises(OSError, match=words):
        small_files.read_bytes(str(path))


def test_path_that_is_none():
    with pytest.raises(OSError, match="null byte"):
        small_files.read_bytes("/tmp/a\0b")


def test_regular_file_is_read_up_to_the_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    (tmp_path / "link").symlink_to(path)
    assert small_files.read_bytes(str(tmp_path / "link")) == b"12345"
    assert small_files.read_bytes(str(path), 2) == b"12"


def test_text_of_what_may_not_be_there(tmp_path):
    (tmp_path / "file").write_bytes(b"a\xffb\n")
    assert small_files.read_text(str(tmp_path), "file") == "a\ufffdb\n"
    for path in ((str(tmp_path), "none", "file"), (str(tmp_path),), ("/tmp/a\0b",)):
        assert small_files.read_text(*path) == ""


PCI = "bus/pci/devices/0000:03:00.0"
FILES = (
    *(
        f"{PCI}/{name}"
        for name in ("vendor", "class", "device", "uevent", "mem_info_vram_total", "tile0/physical_vram")
    ),
    *(f"class/drm/card0/{name}" for name in ("lmem_total_bytes", "device/vendor", "device/mem_info_vram_total")),
    *(f"class/kfd/kfd/topology/nodes/1/{name}" for name in ("gpu_id", "properties", "mem_banks/0/properties")),
    *(f"class/net/eth0/{name}" for name in ("operstate", "carrier", "speed", "uevent", "type")),
    *(f"fs/cgroup/{name}" for name in ("memory.max", "memory.current", "memory.stat", "dmem.capacity", "dmem.current")),
    *(f"kernel/debug/dri/0000:03:00.0/{name}" for name in ("vram0_mm", "i915_gem_objects")),
    *(f"cpu0/topology/{name}" for name in ("thread_siblings_list",)),
    *("module/amdgpu/version", "meminfo", "cpuinfo", "7/status", "7/smaps_rollup", "7/fdinfo/3", "net/route"),
)


def make_large(path):
    with open(path, "wb") as handle:
        handle.truncate(1 << 28)


@pytest.fixture(params=[os.mkfifo, make_large], ids=["pipes", "large"])
def odd(request, tmp_path):
    """A /sys and a /proc in which nothing is a small file."""
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        request.param(path)
    return str(tmp_path)


@pytest.mark.parametrize(
    "read",
    [
        lambda root: [pci.display_devices(vendor, root) for vendor in (pci.NVIDIA, pci.AMD, pci.INTEL)],
        lambda root: amd.read_gpus(record.Machine(sys_root=root, proc_root=root)),
        lambda root: intel.read_gpus(record.Machine(sys_root=root, proc_root=root)),
        lambda root: intel_sysfs.memory("0000:03:00.0", root),
        amd_kfd.read_nodes,
        lambda root: fdinfo.read((7,), root),
        lambda root: interfaces.is_down("eth0", root + "/class/net"),
        lambda root: interfaces.speed_mbps("eth0", root + "/class/net"),
        lambda root: interfaces.is_wireless("eth0", root + "/class/net"),
        lambda root: interfaces.virtual_reason("eth0", root + "/class/net", root + "/net/route"),
        lambda root: memory.read_memory(root + "/fs/cgroup", root),
        lambda root: memory.group_limit(root + "/fs/cgroup"),
        lambda root: memory.process_own_bytes(7, root),
        lambda root: cpu.read_cpu(root, root),
    ],
)
def test_no_reader_waits_for_a_pipe_or_takes_a_large_file_for_a_small_one(odd, read):
    tracemalloc.start()
    try:
        deadline.within(5, lambda: read(odd))
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()
