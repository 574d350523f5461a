# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The usable machines of a request, read once from their facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import (
    Device,
    Machine,
    rpc_devices,
    rpc_refusals,
)
from ansible_collections.relay.pool.plugins.plugin_utils.machines.links import links_of, with_link
from ansible_collections.relay.pool.plugins.plugin_utils.machines.members import Members, Refusal
from ansible_collections.relay.pool.plugins.plugin_utils.machines.nodes import machine
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request


@dataclass(frozen=True)
class Pool:
    """The usable machines; rpc: the devices of the workers, in the order of the inventory."""

    host: Machine
    workers: tuple[Machine, ...]
    rpc: tuple[Device, ...]

    def machines(self) -> tuple[Machine, ...]:
        """Host first."""
        return (self.host, *self.workers)

    def holders(self, allow_cpu: bool) -> list[Device]:
        """Every device that may hold layers."""
        return [device for member in self.machines() for device in member.holders(allow_cpu)]


def read_pool(
    request: Request,
    members: Members,
    host_backends: Sequence[str],
    refused: list[Refusal],
    before: Mapping[str, Collection[str]],
) -> Pool:
    """The machines with their devices; what cannot be used is appended to refused.

    :param host_backends: those of the host's llama.cpp; empty if unknown.
    :param before: by machine, the GPUs with which the last plan was made.
    """

    def member(name: str) -> Machine:
        node = request.nodes[name]
        # Machines of another kind have another build, with other back ends, than the host.
        build = host_backends if name == request.host else node.get("backends") or ()
        return machine(name, node, request.reserve_bytes, refused, build, before.get(name) or ())

    host = member(request.host)
    links = links_of(request.nodes[request.host])
    workers = tuple(with_link(member(name), links.get(name)) for name in members.workers)
    refused.extend(rpc_refusals(workers, request.allow_cpu))
    return Pool(host, workers, tuple(rpc_devices(workers, request.allow_cpu)))
