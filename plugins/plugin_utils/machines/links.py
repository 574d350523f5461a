# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network between the host and the workers of a plan: what the devices cost, and what to say about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterable, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Machine


def links_of(host: Mapping[str, Any]) -> dict[Any, Mapping[str, Any]]:
    """What the facts of the host say of the way to each other machine, the first of several."""
    return {link.get("name"): link for link in reversed(host.get("links") or [])}


def with_link(member: Machine, link: Mapping[str, Any] | None) -> Machine:
    """The machine, its devices with what the host knows of the way to it."""
    link = link or {}
    # A speed of 0 is what an interface says that has none.
    way = {"rtt_seconds": link.get("rtt_seconds"), "speed_mbps": link.get("speed_mbps") or None}
    return replace(
        member,
        ram=replace(member.ram, **way) if member.ram else None,
        gpus=tuple(replace(gpu, **way) for gpu in member.gpus),
    )


def link_advice(host: str, nodes: Mapping[str, Mapping[str, Any]], workers: Iterable[str]) -> list[str]:
    """A line for each of the workers that is reached over Wi-Fi, at either end, or could not be measured."""
    links = {link.get("name"): link for link in nodes[host].get("links") or []}
    advice = []
    for name in workers:
        if name == host:
            continue
        link = links.get(name)
        rtt = (link or {}).get("rtt_seconds")
        wireless = [_end(host, link)] if link and link.get("wireless") else []
        wireless += _own_end(name, nodes[name])
        if wireless:
            wireless.append("round trip unknown" if rtt is None else f"round trip {rtt * 1000:.1f} ms")
            advice.append(
                f"{name} is reached over Wi-Fi ({', '.join(wireless)}): every token crosses it, "
                "and a cable is faster and steadier"
            )
        elif link and rtt is None:
            why = link.get("reason") or "no reason is known"
            advice.append(f"the round trip from {host} to {name} could not be measured: {why}")
    return advice


def is_wireless(name: str, host: str, nodes: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the worker is reached over Wi-Fi, at either end."""
    link = next((entry for entry in nodes[host].get("links") or [] if entry.get("name") == name), {})
    return bool(link.get("wireless") or _own_end(name, nodes[name]))


def _end(machine: str, interface: Mapping[str, Any]) -> str:
    speed = interface.get("speed_mbps")
    return f"{interface.get('interface') or 'an interface'} of {machine}" + (f" at {speed} Mbit/s" if speed else "")


def _own_end(name: str, node: Mapping[str, Any]) -> list[str]:
    """The interface that has the worker's address, if it is wireless."""
    address = node.get("address")
    having = [entry for entry in node.get("addresses") or [] if address and entry.get("address") == address]
    # The same address may be on a cable as well, which then is the way that is taken.
    if not all(entry.get("wireless") for entry in having):
        return []
    return [_end(name, entry) for entry in having[:1]]
