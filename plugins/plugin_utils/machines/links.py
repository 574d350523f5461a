# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The links between the host and the workers, as the host measured them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping

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
