# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the items of one model cost on each kind of device: bytes, and ticks of a token's time.

Times are integers, so that equal plans compare as equal whatever the order in which they are added up.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from typing import Iterable, NamedTuple

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.hops import hop_seconds
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.needs import HostNeeds, Needs
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger

TICKS_PER_SECOND = 10**15
# Bytes per second of an ordinary graphics card, and of an ordinary desktop's RAM.
NOMINAL_GPU = 300_000_000_000
NOMINAL_RAM = 50_000_000_000


class Nominal(NamedTuple):
    """Bytes per second of a GPU, and of RAM, whose bandwidth is unknown."""

    gpu: int
    ram: int


def nominal_bandwidth(devices: Iterable[Device]) -> Nominal:
    """The mean of the known ones of the same kind: RAM that counted as a GPU would attract layers by its size."""
    known: dict[bool, list[int]] = {True: [], False: []}
    for device in devices:
        if device.bandwidth:
            known[device.is_cpu].append(device.bandwidth)
    gpu, ram = (
        sum(values) // len(values) if values else default
        for values, default in ((known[False], NOMINAL_GPU), (known[True], NOMINAL_RAM))
    )
    return Nominal(gpu, ram)


class Costs:
    """Of one ledger; what was computed of a kind of device serves for all of that kind.

    nominal: bytes per second of a device whose bandwidth is unknown.
    """

    def __init__(self, ledger: Ledger, nominal: Nominal) -> None:
        self.ledger = ledger
        self._nominal = nominal
        self._needs: dict[tuple[bool, bool], Needs] = {}
        self._host_needs: dict[bool, HostNeeds] = {}
        self._times: dict[int, list[int]] = {}

    @property
    def n_items(self) -> int:
        """The layers and the output."""
        return self.ledger.n_layer + 1

    # -- bytes -----------------------------------------------------------------------------------------------

    def needs(self, padded: bool, pipelined: bool) -> Needs:
        """Bytes by range of items; see Needs."""
        known = self._needs.get((padded, pipelined))
        if known is None:
            known = self._needs[padded, pipelined] = Needs(self.ledger, padded, pipelined)
        return known

    def host_needs(self, output: bool) -> HostNeeds:
        """The same for the first layers on the CPU of the machine that serves; output: it computes the output too."""
        known = self._host_needs.get(output)
        if known is None:
            known = self._host_needs[output] = HostNeeds(self.ledger, output)
        return known

    @cached_property
    def nested(self) -> bool:
        """Whether a part of a range never needs more than the range, on any kind of device."""
        return all(self.needs(padded, pipelined).nested for padded in (False, True) for pipelined in (False, True))

    def most_items(self, device: Device, pipelined: bool) -> int:
        """No range with more items than this fits the device."""
        needs = self.needs(not device.is_cpu, pipelined)
        return max(needs.row(first).longest(device.usable_bytes) for first in range(self.n_items))

    def most_host_layers(self, ram: Device) -> int:
        """Layers that fit the RAM of a server without a GPU."""
        return self.host_needs(False).row(0).longest(ram.usable_bytes)

    # -- time ------------------------------------------------------------------------------------------------

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """Bytes that a token reads of each item."""
        return (*self.ledger.reads, self.ledger.output_reads)

    @cached_property
    def read_once(self) -> bool:
        """Whether no item is read more than what it holds."""
        held = (*self.ledger.weights, self.ledger.output_weights(False))
        return all(read <= size for read, size in zip(self.reads, held))

    def bandwidth(self, device: Device) -> int:
        """Bytes per second, also of a device where it is unknown."""
        return device.bandwidth or (self._nominal.ram if device.is_cpu else self._nominal.gpu)

    def times(self, device: Device) -> list[int]:
        """Ticks to read the first items of the model, by how many."""
        bandwidth = self.bandwidth(device)
        known = self._times.get(bandwidth)
        if known is None:
            ticks = (size * TICKS_PER_SECOND // bandwidth for size in self.reads)
            known = self._times[bandwidth] = list(accumulate(ticks, initial=0))
        return known

    def rpc_times(self, device: Device) -> list[int]:
        """The same on a device over RPC, from which the logits have to come back."""
        *layers, whole = self.times(device)
        return [*layers, whole + self.logits(device)]

    def hop(self, device: Device) -> int:
        """Ticks that a token needs to and from a device over RPC."""
        return round(hop_seconds(device, self.ledger.shape.n_embd) * TICKS_PER_SECOND)

    def near_hop(self, device: Device) -> int:
        """The same when the device before it is on the same machine, where the activations stay."""
        return round(hop_seconds(device, 0) * TICKS_PER_SECOND)

    def logits(self, device: Device) -> int:
        """Ticks that are added where a device over RPC sends back logits, and not activations."""
        shape = self.ledger.shape
        there_and_back = hop_seconds(device, shape.n_embd, shape.n_vocab)
        return round(there_and_back * TICKS_PER_SECOND) - self.hop(device)
