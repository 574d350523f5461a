# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to say about the links to the workers of a plan: those over Wi-Fi, and those that could not be measured."""

from __future__ import annotations

from typing import Any, Iterable, Mapping


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
