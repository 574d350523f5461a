# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which IPv4 address of the machine RPC traffic takes.

llama.cpp's RPC speaks IPv4 only. The address is never guessed: what is asked for matches one address, or the
answer is a reason in words. Bridges of containers, VPNs and the like are taken only when they are asked for, and
an interface that is down is not taken at all.
"""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Callable, Sequence

from ansible_collections.relay.pool.plugins.module_utils import interfaces
from ansible_collections.relay.pool.plugins.module_utils.network import (
    CARRIER_NAT,
    LINK_LOCAL,
    LOOPBACK,
    UNCONFIGURED,
    Address,
    abroad,
    resolve,
    route_source,
)

WAY_OUT = "set rpc_address, rpc_interface or rpc_subnet"


def _destinations(route_to: str, look_up: Callable[[str], tuple]) -> tuple[list[str], str | None]:
    """The peer's IPv4 addresses, or why there are none. Raises ValueError for what is neither address nor name."""
    if re.match(r"[0-9.]+\Z", route_to):
        return abroad(route_to, [_ipv4("route_to", route_to)])
    if ":" in route_to:
        return [], f"the other machine's address is {route_to}, and llama.cpp's RPC speaks IPv4 only"
    return look_up(route_to)


def _ipv4(name: str, value: str) -> str:
    try:
        return str(ipaddress.IPv4Address(value))
    except ValueError:
        raise ValueError(f"{name} is {value!r}: llama.cpp's RPC wants a dotted IPv4 address") from None


def _several(addresses: Sequence[Address], most: int = 8) -> str:
    shown = [str(address) for address in addresses[:most]]
    return ", ".join(shown) + (f" and {len(addresses) - most} more" if len(addresses) > most else "")


def _unique(addresses: Sequence[Address]) -> list[str]:
    return list(dict.fromkeys(address.address for address in addresses))


def _subnet(value: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(value, strict=False)
    except ValueError:
        raise ValueError(f"rpc_subnet is {value!r}: it must be an IPv4 network such as 10.10.0.0/24") from None


def _means(subnet: ipaddress.IPv4Network, address: Address) -> bool:
    """Is the subnet narrow enough to mean just the network of this address? 10.0.0.0/8 does not mean Podman's."""
    if ipaddress.IPv4Address(address.address) in CARRIER_NAT:
        return subnet.subnet_of(CARRIER_NAT)
    return subnet.subnet_of(ipaddress.IPv4Network((address.address, min(address.prefix, 24)), strict=False))


def _why_unmatched(interface: str, subnet: ipaddress.IPv4Network | None, address: str, root: str) -> str:
    """What the user may have overlooked, with the way out."""
    if interface and os.path.isdir(root):
        if not interfaces.exists(interface, root):
            return f": it has no interface {interface}"
        master = interfaces.master(interface, root)
        if master:
            return f": {interface} is part of {master}, so set rpc_interface to {master}"
        return f": {interface} {'is down and ' if interfaces.is_down(interface, root) else ''}has no IPv4 address"
    if subnet is not None and subnet.prefixlen == 32:
        return f": a network is written with its length, such as {subnet.network_address}/24"
    if address:
        return ": every machine needs its own rpc_address, or all of them one rpc_subnet"
    return ""


def _told(
    addresses: Sequence[Address],
    rpc_address: str,
    rpc_interface: str,
    rpc_subnet: str,
    routed: Callable[[], set[str]],
    root: str,
) -> tuple[str | None, str | None]:
    """The one address that fits all that was asked for. ``routed``: sources of the routes to the other machine."""
    matches = list(addresses)
    wishes = []
    subnet = None
    if rpc_address:
        wanted = _ipv4("rpc_address", rpc_address)
        if wanted.startswith("127."):
            matches.append(Address("lo", wanted, 8))
        wishes.append(f"rpc_address {wanted}")
        matches = [a for a in matches if a.address == wanted]
    if rpc_interface:
        wishes.append(f"rpc_interface {rpc_interface}")
        matches = [a for a in matches if a.interface == rpc_interface]
    if rpc_subnet:
        subnet = _subnet(rpc_subnet)
        wishes.append(f"rpc_subnet {rpc_subnet}")
        matches = [a for a in matches if ipaddress.IPv4Address(a.address) in subnet]
    asked = " and ".join(wishes)
    if not matches:
        have = _several(addresses) or "no IPv4 address"
        known = any(a.interface == rpc_interface for a in addresses)
        hint = _why_unmatched("" if known else rpc_interface, subnet, rpc_address, root)
        return None, f"{asked} matches no address of this machine, which has {have}{hint}"
    if subnet is not None and not (rpc_address or rpc_interface):
        first = matches[0]
        matches = [a for a in matches if not a.virtual or _means(subnet, a)]
        if not matches:
            way_out = f"set rpc_interface to {first.interface} if that is meant"
            return None, f"{asked} matches only {first}, {first.virtual}: {way_out}"
    up = [a for a in matches if not a.down]
    if not up:
        return None, f"{asked} matches {_several(matches)}, which is down: bring the link up, or ask for another one"
    matches = up
    # Several: the kernel's own sense of which one counts, and where the traffic goes, before giving up.
    matches = [a for a in matches if not a.virtual] or matches
    matches = [a for a in matches if not a.secondary] or matches
    if len(_unique(matches)) > 1:
        sources = routed()
        matches = [a for a in matches if a.address in sources] or matches
    unique = _unique(matches)
    if len(unique) == 1:
        return unique[0], None
    return None, f"{asked} matches {len(unique)} addresses, {_several(matches)}: set rpc_address"


def _unfit(via: Address | None, destination: str) -> str | None:
    """Why RPC traffic must not leave with this address, or None."""
    if via is None:
        return None
    if via.down:
        return f"{via}, which is down: bring the link up, or {WAY_OUT}"
    if via.virtual == LOOPBACK or (via.virtual == UNCONFIGURED and ipaddress.IPv4Address(destination) in LINK_LOCAL):
        return None  # nobody but the routing table, or the peer's own address, leads there
    return f"{via}, {via.virtual}: {WAY_OUT} if that is meant" if via.virtual else None


def _routed(
    addresses: Sequence[Address], route_to: str, destinations: Sequence[str], source_of: Callable[[str], str | None]
) -> tuple[str | None, str | None]:
    """The one source address of the routes to the other machine."""
    good: list[str] = []
    refusals = []
    for destination in destinations:
        label = route_to if route_to == destination else f"{route_to} ({destination})"
        source = source_of(destination)
        if source is None:
            refusals.append(f"there is no route to {label}: {WAY_OUT}")
            continue
        # The same address may be on two interfaces.
        having = sorted((a for a in addresses if a.address == source), key=lambda a: (a.down, a.virtual is not None))
        unfit = _unfit(having[0] if having else None, destination)
        if unfit:
            refusals.append(f"the route to {label} leaves by {unfit}")
        elif source not in good:
            good.append(source)
    if len(good) == 1:
        return good[0], None
    if good:
        return None, f"{route_to} has several addresses, whose routes leave by {' and '.join(good)}: {WAY_OUT}"
    return None, refusals[0]


def _only(addresses: Sequence[Address]) -> tuple[str | None, str | None]:
    """The machine's one address that is no virtual one."""
    if not addresses:
        return None, "the machine has no IPv4 address, and llama.cpp's RPC speaks no IPv6"
    real = [a for a in addresses if not (a.virtual or a.down or a.secondary)]
    unique = _unique(real)
    if len(unique) == 1:
        return unique[0], None
    if real:
        return None, f"the machine has {len(unique)} addresses, {_several(real)}: {WAY_OUT}"
    have = ", ".join(f"{a}, {'which is down' if a.down else a.virtual}" for a in addresses[:8])
    return None, f"the machine has only {have}: {WAY_OUT} if that is meant"


def choose_address(
    addresses: Sequence[Address],
    rpc_address: str = "",
    rpc_interface: str = "",
    rpc_subnet: str = "",
    route_to: str = "",
    source_of: Callable[[str], str | None] = route_source,
    look_up: Callable[[str], tuple] = resolve,
    root: str = interfaces.SYS_NET,
) -> tuple[str | None, str | None]:
    """(address, None) or (None, why none). What is asked for outright goes before the route to ``route_to``.

    ``route_to`` is the address or name of another machine. A name that means nothing here leaves the choice to the
    machine's only address: it may be an alias that just the controller knows.
    """
    rpc_address, rpc_interface, rpc_subnet, route_to = (
        text.strip() for text in (rpc_address, rpc_interface, rpc_subnet, route_to)
    )

    def sources() -> set[str]:
        found, _reason = _destinations(route_to, look_up) if route_to else ([], None)
        return {source for source in map(source_of, found) if source}

    try:
        if rpc_address or rpc_interface or rpc_subnet:
            return _told(addresses, rpc_address, rpc_interface, rpc_subnet, sources, root)
        if not route_to:
            return _only(addresses)
        destinations, problem = _destinations(route_to, look_up)
    except ValueError as exc:
        return None, str(exc)
    if destinations:
        return _routed(addresses, route_to, destinations, source_of)
    address, reason = _only(addresses)
    return address, reason and f"{problem}; {reason}"
