# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Of a pool with more devices than can be compared in whole, those among which the best plan is looked for.

llama.cpp takes a few devices only, so the best plan has those that give much memory for little time. How much a byte
of memory is worth in time depends on how short the memory is; for each of several such prices the devices with the
largest gain are taken, one by one and by whole machines (a second device of a machine costs less network).
"""

from __future__ import annotations

from heapq import nlargest
from itertools import groupby
from typing import Iterable, NamedTuple, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.arrangement import Arrangement
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.costs import TICKS_PER_SECOND
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device

# So many devices are all compared, which is exact.
FEW = 160
# So many devices are tried for the output, the nearest.
NEAREST = 6


class _Offer(NamedTuple):
    """What a device gives and takes when it is full; times in ticks."""

    index: int
    host: str
    size: int
    time: float
    hop: int
    near_hop: int
    logits: int

    @property
    def price(self) -> float:
        """Ticks per byte."""
        return (self.time + self.hop) / self.size

    def gain(self, price: float, near: bool = False) -> float:
        """What it is worth when a byte of memory is worth so many ticks."""
        return price * self.size - self.time - (self.near_hop if near else self.hop)


def candidates(
    arrangement: Arrangement, devices: Sequence[Device], few: int = FEW, rpc_output: bool = False
) -> list[Device]:
    """The devices that a search should look at, in their order; all of them if they are few.

    rpc_output: one of them may have the output, and then the way of its logits may weigh more than all else.
    """
    if len(devices) <= few:
        return list(devices)
    limit, costs = arrangement.limit, arrangement.costs
    offers = [
        _Offer(
            index,
            device.host,
            device.usable_bytes,
            device.usable_bytes * TICKS_PER_SECOND / costs.bandwidth(device),
            costs.hop(device),
            costs.near_hop(device),
            costs.logits(device),
        )
        for index, device in enumerate(devices)
        if device.usable_bytes
    ]
    chosen = _chosen(limit, offers)
    if rpc_output:
        for last in _last(offers, arrangement.ledger.output_weights(True)):
            chosen |= _chosen(limit, [offer for offer in offers if offer.index <= last.index])
            chosen.add(last.index)
    return [devices[index] for index in sorted(chosen)]


def _chosen(limit: int, offers: Sequence[_Offer]) -> set[int]:
    """The largest, and at each price those with the largest gain."""
    found = _largest(limit, offers)
    for price in _prices(limit, offers):
        found += [*_gainful(limit, offers, price), *_machines(limit, offers, price)]
    return {offer.index for offer in found}


def _largest(limit: int, offers: Iterable[_Offer]) -> list[_Offer]:
    return nlargest(limit, offers, key=lambda offer: (offer.size, -offer.time - offer.hop, -offer.index))


def _last(offers: Sequence[_Offer], output_bytes: int) -> list[_Offer]:
    """Those that could hold the output and are nearer than all after them, as its device is the last that is used."""
    found: list[_Offer] = []
    for offer in reversed(offers):
        way = offer.hop + offer.logits
        if offer.size > output_bytes and (not found or way < found[-1].hop + found[-1].logits):
            found.append(offer)
    return found[-NEAREST:]


def _prices(limit: int, offers: Sequence[_Offer]) -> list[float]:
    """From one at which just enough devices are worth their time, to one at which all are."""
    prices = sorted(offer.price for offer in offers)
    position, found = limit, []
    while position < len(prices):
        found.append(prices[position])
        position *= 4
    return [*found, prices[-1]]


def _gainful(limit: int, offers: Iterable[_Offer], price: float) -> list[_Offer]:
    return nlargest(limit, offers, key=lambda offer: (offer.gain(price), -offer.index))


def _machines(limit: int, offers: Sequence[_Offer], price: float) -> list[_Offer]:
    """Devices of the machines with the largest gains, until there are enough."""
    machines: list[tuple[float, int, list[_Offer]]] = []
    for position, (_host, group) in enumerate(groupby(offers, key=lambda offer: offer.host)):
        best = nlargest(limit, group, key=lambda offer: (offer.gain(price, near=True), -offer.index))
        gain = best[0].gain(price) + sum(max(offer.gain(price, near=True), 0) for offer in best[1:])
        machines.append((gain, -position, best))
    found: list[_Offer] = []
    for _gain, _position, best in nlargest(limit, machines, key=lambda entry: entry[:2]):
        if len(found) >= limit:
            break
        found += best[: limit - len(found)]
    return found
