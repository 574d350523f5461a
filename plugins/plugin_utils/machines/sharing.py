# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a worker works for another pool: ggml-rpc-server serves one client, and a second one would wait for ever."""

from __future__ import annotations

import ipaddress
from typing import Any, Collection, Mapping, Sequence

WORKER = "relay-rpc.service"


def member_addresses(nodes: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> frozenset[str] | None:
    """Every IPv4 address of the members; None if there are no facts of one, since an unknown address may be its own.

    Whichever member serves or served, its workers know it by one of these.
    """
    found: set[str] = set()
    for name in names:
        node = nodes.get(name)
        if not node:
            return None
        found.update(entry["address"] for entry in node.get("addresses") or [] if entry.get("address"))
        if node.get("address"):
            found.add(node["address"])
    return frozenset(found)


def sharing_problem(name: str, node: Mapping[str, Any], members: Collection[str] | None) -> str | None:
    """A sentence when the machine's running worker lets in, or is connected from, an address of no member."""
    if members is None:
        return None
    unit = next((entry for entry in node.get("units") or [] if entry.get("name") == WORKER), None)
    # What a unit that is stopped lets in keeps nobody waiting.
    if not unit or not unit.get("active"):
        return None
    peers = [str(peer).rpartition(":")[0] for peer in unit.get("established") or []]
    for addresses, how in ((peers, "is connected to"), (unit.get("allowed_addresses") or [], "is let in by")):
        for address in addresses:
            if _is_foreign(address, members):
                return (
                    f"{name} works for {address}, which {how} its {WORKER} and is no machine of this pool, and a "
                    f"worker serves one server: take {name} out of one of the pools, or run remove.yml of the other "
                    f"pool first; if that one is gone, stop {WORKER} on {name}"
                )
    return None


def _is_foreign(address: str, members: Collection[str]) -> bool:
    """Whether no member has the address, or one in the network. An IPv6 address is no server of any pool."""
    try:
        network = ipaddress.IPv4Network(address)
    except ValueError:
        return False
    if network.is_loopback:
        return False
    if network.prefixlen == 32:
        return str(network.network_address) not in members
    return not any(ipaddress.IPv4Address(member) in network for member in members if _is_ipv4(member))


def _is_ipv4(address: str) -> bool:
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return True
