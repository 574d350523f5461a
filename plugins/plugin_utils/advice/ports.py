# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the kernel may give the port of a service to an outgoing connection before the service takes it."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple


class Service(NamedTuple):
    """A program of the pool, and the variable that sets its port."""

    program: str
    variable: str


WORKER = Service("ggml-rpc-server", "relay_rpc_port")
SERVER = Service("llama-server", "relay_host_port")


def port_advice(
    nodes: Mapping[str, Mapping[str, Any]], machines: Iterable[str], port: int, service: Service
) -> list[str]:
    """One line for all machines on which the port of the service lies in the ephemeral range and is not reserved.

    A program that finds its port taken ends, and is started again until it is free.
    """
    exposed = [name for name in machines if _is_exposed(nodes[name].get("ports") or {}, port)]
    if not exposed:
        return []
    first, last = nodes[exposed[0]]["ports"]["range"]
    return [
        f"port {port} on {', '.join(exposed)} lies in the range of outgoing connections ({first}-{last}), one of which "
        f"may hold it when {service.program} starts: reserve it there with the sysctl "
        f"net.ipv4.ip_local_reserved_ports, or choose a {service.variable} outside of the range"
    ]


def _is_exposed(ports: Mapping[str, Any], port: int) -> bool:
    span = ports.get("range") or ()
    inside = len(span) == 2 and None not in span and span[0] <= port <= span[1]
    return inside and not any(
        len(pair) == 2 and None not in pair and pair[0] <= port <= pair[1] for pair in ports.get("reserved") or ()
    )
