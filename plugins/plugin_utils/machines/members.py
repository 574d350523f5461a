# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines the plan may count on; everything that would break the pool later is said here, by name."""

from __future__ import annotations

import ipaddress
from typing import Any, Dict, Mapping, NamedTuple, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.machines.builds import build_problem
from ansible_collections.relay.pool.plugins.plugin_utils.machines.facts import check_facts
from ansible_collections.relay.pool.plugins.plugin_utils.machines.sharing import member_addresses, sharing_problem

OWN_UNITS = frozenset(("relay-rpc.service", "relay-llama.service"))
ANY_ADDRESS = frozenset(("0.0.0.0", "::", "*", ""))

Refusal = Dict[str, Any]


class Members(NamedTuple):
    """The workers that may be used and the machines that may not."""

    workers: list[str]
    refused: list[Refusal]


def refusal(host: str, device: str | None, reason: str, message: str) -> Refusal:
    """One entry of plan.refused."""
    return {"host": host, "device": device, "reason": reason, "message": message}


def check_members(
    nodes: Mapping[str, Mapping[str, Any]],
    host: str,
    workers: Sequence[str],
    server: tuple[str, int],
    rpc_port: int,
    allow_partial: bool,
    llama: Mapping[str, Any] | None = None,
) -> Members:
    """The usable workers; raises unless every member is usable or allow_partial lets workers be left out.

    llama: what llama_info says of the host's build; None if there is none yet.
    """
    names = [host] + [name for name in workers if name != host]
    absent = {name: None for name in names if not nodes.get(name)}
    if absent and (host in absent or not allow_partial):
        way_out = (
            f"make another machine the host, since the pool cannot do without {host}"
            if host in absent
            else "set relay_allow_partial to plan without the workers"
        )
        raise PoolError(
            "no facts of {}: the machine did not answer or was left out with --limit; "
            "gather facts of every member, or {}".format(", ".join(absent), way_out)
        )
    for name in names:
        if name not in absent:
            check_facts(name, nodes[name])
    refused = [refusal(name, None, "no_facts", f"{name} is left out: there are no facts of it") for name in absent]
    members = member_addresses(nodes, names)
    usable: list[str] = []
    known = _Known()
    for name in names:
        if name in absent:
            continue
        node = nodes[name]
        problem = twin = known.twin_problem(name, node)
        if name == host:
            problem = problem or _port_problem(name, node, server[0], server[1], "relay_host_port")
        else:
            problem = problem or _rpc_problem(name, node, rpc_port)
            problem = problem or _reason("other_build", build_problem(name, node, host, llama))
        problem = problem or _reason("other_pool", sharing_problem(name, node, members))
        if problem is None:
            usable.append(name)
            known.add(name, node)
        elif name == host or not allow_partial:
            # One machine under two names is a mistake in the inventory.
            partial = name != host and not twin
            raise PoolError(problem[1] + (f", or set relay_allow_partial to plan without {name}" if partial else ""))
        else:
            refused.append(refusal(name, None, problem[0], problem[1]))
    return Members([name for name in usable if name != host], refused)


def _reason(reason: str, message: str | None) -> tuple[str, str] | None:
    return (reason, message) if message else None


def check_server_port(nodes: Mapping[str, Mapping[str, Any]], name: str, server: tuple[str, int]) -> None:
    """Raise when a foreign process holds llama-server's port on that machine."""
    problem = _port_problem(name, nodes[name], server[0], server[1], "relay_host_port")
    if problem:
        raise PoolError(problem[1])


class _Known:
    """Machines by what no other machine has: which of them another entry of the inventory really is."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._places: dict[tuple[str, Any], int] = {}

    def add(self, name: str, node: Mapping[str, Any]) -> None:
        """Remember a machine."""
        for mark in _marks(node):
            self._places.setdefault(mark, len(self._names))
        self._names.append(name)

    def twin_problem(self, name: str, node: Mapping[str, Any]) -> tuple[str, str] | None:
        """(reason, sentence) when this is a machine that is known already, the first of several."""
        # Of several marks that it shares with one machine the first.
        found = min((mark for mark in _marks(node) if mark in self._places), key=self._places.__getitem__, default=None)
        if found is None:
            return None
        twin = self._names[self._places[found]]
        return "duplicate_machine", f"{twin} and {name} are one machine ({' '.join(found)}): list it once"


def _marks(node: Mapping[str, Any]) -> list[tuple[str, Any]]:
    uuids = sorted({gpu["uuid"] for gpu in node.get("gpus") or [] if gpu.get("uuid")})
    gpus = [("GPU", uuid) for uuid in uuids]
    marks = [("machine_id", node.get("machine_id")), *gpus, ("address", node.get("address"))]
    return [mark for mark in marks if mark[1]]


def _rpc_problem(name: str, node: Mapping[str, Any], rpc_port: int) -> tuple[str, str] | None:
    address = node.get("address")
    if not address:
        why = node.get("address_reason") or "it has none"
        return "no_address", (
            f"{name} has no IPv4 address for RPC ({why}): give it one, or set relay_rpc_address to one that it has"
        )
    if not _is_one_machine(address):
        return "no_address", (
            f"{name} has the RPC address {address}: ggml-rpc-server takes a dotted IPv4 address of the machine only, "
            "set relay_rpc_address to one"
        )
    return _port_problem(name, node, address, rpc_port, "relay_rpc_port")


def _is_one_machine(address: Any) -> bool:
    try:
        parsed = ipaddress.IPv4Address(str(address))
    except ValueError:
        return False
    return not (parsed.is_unspecified or parsed.is_multicast or parsed == ipaddress.IPv4Address("255.255.255.255"))


def check_clients_address(nodes: Mapping[str, Mapping[str, Any]], host: str) -> None:
    """Raise when a sharding host has no address: its workers let only this one in."""
    address = nodes[host].get("address")
    if not _is_one_machine(address):
        why = nodes[host].get("address_reason") or ("it has none" if not address else f"it is {address}")
        raise PoolError(
            f"{host} has no IPv4 address from which its workers are reached ({why}): give it one, or set "
            "relay_rpc_address to one that it has"
        )


def _port_problem(name: str, node: Mapping[str, Any], address: str, port: int, variable: str) -> tuple[str, str] | None:
    for listener in node.get("listeners") or []:
        if listener.get("port") != port or listener.get("unit") in OWN_UNITS:
            continue
        bound = str(listener.get("address") or "")
        if bound in ANY_ADDRESS or address in ANY_ADDRESS or bound == address:
            pid, command = listener.get("pid"), listener.get("command")
            holder = "pid {} ({})".format(pid if pid is not None else "unknown", command or "command unknown")
            return "port_taken", f"port {port} on {name} is taken by {holder}: stop it or choose another {variable}"
    return None
