# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine that is listed twice: which two entries it is, among many."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.machines.members import check_members


@pytest.mark.parametrize(
    ("change", "first", "shared"),
    [
        ({"machine_id": "id-3"}, "c", "machine_id id-3"),
        ({"gpus": [{"uuid": "GPU-3-1"}, {"uuid": "GPU-3-0"}]}, "c", "GPU GPU-3-0"),
        ({"address": "10.0.0.3"}, "c", "address 10.0.0.3"),
        # Of several machines that it could be the first, whatever they share.
        ({"machine_id": "id-3", "address": "10.0.0.2"}, "b", "address 10.0.0.2"),
        ({"machine_id": "id-3", "address": "10.0.0.3"}, "c", "machine_id id-3"),
    ],
)
def test_the_machine_that_another_one_is_is_named(world, change, first, shared):
    nodes = {name: world.node(number, [1, 1]) for number, name in enumerate("abcd", 1)}
    nodes["d"] = {**nodes["d"], **change}
    with pytest.raises(PoolError, match=f"^{first} and d are one machine .{shared}.: list it once"):
        check_members(nodes, "a", ["b", "c", "d"], ("127.0.0.1", 8384), 50052, False)
    members = check_members(nodes, "a", ["b", "c", "d"], ("127.0.0.1", 8384), 50052, True)
    assert (members.workers, [entry["host"] for entry in members.refused]) == (["b", "c"], ["d"])


def test_what_is_unknown_makes_no_twins(world):
    nodes = {name: world.node(number, [1], machine_id=None) for number, name in enumerate("abc", 1)}
    for node in nodes.values():
        node["gpus"][0]["uuid"] = None
    assert check_members(nodes, "a", ["b", "c"], ("127.0.0.1", 8384), 50052, False).workers == ["b", "c"]
