# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gpu import amd_kfd, pci, pid_namespace

GIB = 1 << 30


def properties(simd=256, location=0x0300, domain=0, gfx=110000, unique=0, **more):
    values = {"cpu_cores_count": 0, "simd_count": simd, "gfx_target_version": gfx, "location_id": location}
    values.update(domain=domain, unique_id=unique, device_id=0x744C, **more)
    return "".join(f"{key} {value}\n" for key, value in values.items())


def bank(size, heap=2):
    return f"heap_type {heap}\nsize_in_bytes {size}\nflags 0\nwidth 384\n"


CPU = "cpu_cores_count 16\nsimd_count 0\nlocation_id 0\ngfx_target_version 0\n"


def tree(root, nodes):
    """``nodes``: number -> (gpu_id, properties, banks)."""
    for number, (gpu_id, text, banks) in nodes.items():
        folder = root / "class" / "kfd" / "kfd" / "topology" / "nodes" / str(number)
        folder.mkdir(parents=True)
        (folder / "gpu_id").write_text(f"{gpu_id}\n")
        (folder / "properties").write_text(text)
        for place, content in enumerate(banks):
            (folder / "mem_banks" / str(place)).mkdir(parents=True)
            (folder / "mem_banks" / str(place) / "properties").write_text(content)
    return str(root)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (110501, "gfx1151"),
        (100306, "gfx1036"),
        (90010, "gfx90a"),
        (90012, "gfx90c"),
        (90402, "gfx942"),
        (120001, "gfx1201"),
        (80003, "gfx803"),
        (0, None),
        (99, None),
        (119999, None),
        (10**20, None),
    ],
)
def test_gfx_name(version, name):
    assert amd_kfd.gfx_name(version) == name


@pytest.mark.parametrize(
    ("location", "domain", "address"),
    [
        (0x0300, 0, "0000:03:00.0"),
        (0xC500, 0, "0000:c5:00.0"),
        (0x0C03, 0, "0000:0c:00.3"),
        (0x0328, 2, "0002:03:05.0"),
        (0x0500, 0x10000, "10000:05:00.0"),
        (0x30000C00, 0, "0000:0c:00.0"),
    ],
)
def test_address(location, domain, address):
    assert amd_kfd.parse_node(0, 1, 5, properties(location=location, domain=domain)).address == address


def test_a_node():
    node = amd_kfd.parse_node(
        1, 2, 41214, properties(unique=0x7CB7A9A1F0BD6EA9), [bank(20 * GIB), bank(64 * GIB, heap=0)]
    )
    assert node == amd_kfd.Node(
        index=1,
        number=2,
        gpu_id=41214,
        address="0000:03:00.0",
        uuid="GPU-7cb7a9a1f0bd6ea9",
        gfx="gfx1100",
        device="744c",
        memory_total=20 * GIB,
    )
    assert pci.slot(node.address) == "0000:03:00"


def test_both_kinds_of_memory_are_the_gpus():
    assert amd_kfd.parse_node(0, 1, 5, properties(), [bank(GIB, heap=1), bank(7 * GIB)]).memory_total == 8 * GIB


@pytest.mark.parametrize("banks", [[], [""], [bank(0)], [bank(1 << 50)], ["heap_type two\nsize_in_bytes -1\n"]])
def test_memory_that_is_not_known(banks):
    assert amd_kfd.parse_node(0, 1, 5, properties(), banks).memory_total is None


@pytest.mark.parametrize(
    "text", [CPU, "", "simd_count\n", "simd_count -4\n", "simd_count 4 5\n", "\x00\xff", "x" * 999]
)
def test_what_is_no_gpu(text):
    assert amd_kfd.parse_node(0, 1, 5, text) is None


def test_a_node_that_is_not_given_to_the_container_is_none():
    assert amd_kfd.parse_node(0, 1, 0, properties()) is None


def test_order_is_that_of_the_node_numbers(tmp_path):
    root = tree(
        tmp_path,
        {
            0: (0, CPU, []),
            2: (22, properties(location=0x0300), []),
            10: (100, properties(location=0x0100), []),
            3: (33, properties(location=0x0800), []),
        },
    )
    assert [(n.index, n.number, n.address) for n in amd_kfd.read_nodes(root)] == [
        (0, 2, "0000:03:00.0"),
        (1, 3, "0000:08:00.0"),
        (2, 10, "0000:01:00.0"),
    ]


def test_the_hidden_gpu_takes_no_index(tmp_path):
    root = tree(tmp_path, {1: (11, properties(), []), 2: (22, properties(location=0x0500), [])})
    (tmp_path / "class/kfd/kfd/topology/nodes/1/gpu_id").unlink()
    assert [(n.index, n.gpu_id) for n in amd_kfd.read_nodes(root)] == [(0, 22)]


def test_no_kfd_and_kfd_without_a_gpu(tmp_path):
    assert amd_kfd.read_nodes(str(tmp_path)) is None
    assert amd_kfd.read_nodes(tree(tmp_path, {0: (0, CPU, [])})) == []


def test_an_id_of_two_gpus_is_none_of_them(tmp_path):
    root = tree(
        tmp_path,
        {
            1: (11, properties(location=0x0C00, unique=7), []),
            2: (22, properties(location=0x0C01, unique=7), []),
            3: (33, properties(location=0x2200, unique=8), []),
        },
    )
    assert [node.uuid for node in amd_kfd.read_nodes(root)] == [None, None, "GPU-0000000000000008"]


def processes(root, held, namespace=pid_namespace.INITIAL):
    for path, size in held.items():
        target = root / "sys" / "class" / "kfd" / "kfd" / "proc" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{size}\n")
    (root / "proc" / "self" / "ns").mkdir(parents=True)
    if namespace:
        (root / "proc" / "self" / "ns" / "pid").symlink_to(namespace)
    return str(root / "sys"), str(root / "proc")


HELD = {
    "70/vram_22": 5 * GIB,
    "70/vram_33": 0,
    "70/sdma_22": 17,
    "70/context_1/vram_22": GIB,
    "71/vram_22": 2 * GIB,
    "72/vram_33": 3 * GIB,
    "73/vram_22": "rubbish",
    "73/pasid": 3,
}


@pytest.mark.parametrize(
    ("pids", "held", "known"),
    [
        ((70,), {22: 6 * GIB, 33: 0}, {70}),
        ((70, 71, 71), {22: 8 * GIB, 33: 0}, {70, 71}),
        ((72, 99), {33: 3 * GIB}, {72}),
        ((73,), {}, set()),
        ((), {}, set()),
    ],
)
def test_own_bytes(tmp_path, pids, held, known):
    assert amd_kfd.own_bytes(pids, *processes(tmp_path, HELD)) == (held, known)


@pytest.mark.parametrize("namespace", ["pid:[4026532501]", None])
def test_numbers_of_another_namespace_are_not_looked_up(tmp_path, namespace):
    assert amd_kfd.own_bytes((70,), *processes(tmp_path, HELD, namespace)) == ({}, set())
