# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The best layout on given devices: the one that decodes a token in the least time, every device within its memory.

Time is what a token reads of every stage over the stage's bandwidth, and the hops of the devices that are reached over
RPC. A host with a GPU keeps the output there, so that its logits do not cross the network. One without a GPU computes
the output itself where that takes less time than the logits would on their way.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from typing import Iterable, Iterator, NamedTuple, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.layouts import search
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import DraftCharge, Layout, stages
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.needs import HostNeeds, Needs
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.search import PARTS_PER_MILLION, Found, Slot
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.speed import hop_seconds
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import MAX_DEVICES
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger

# Bytes per second of an ordinary graphics card, and of an ordinary desktop's RAM.
NOMINAL_GPU = 300_000_000_000
NOMINAL_RAM = 50_000_000_000
# Times are integers of this many per second, so that equal plans compare as equal.
TICKS_PER_SECOND = 10**15


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


class Arrangement:
    """Finds layouts of one ledger; what it has computed of a kind of device serves for all of them."""

    def __init__(self, ledger: Ledger, nominal: Nominal, limit: int = MAX_DEVICES, overrides: bool = True) -> None:
        """overrides: llama-server can be told to keep a tensor away from the device of its layer."""
        self.ledger, self.limit = ledger, limit
        self.overrides = overrides and ledger.output_apart
        self._nominal = nominal
        self._needs: dict[tuple[bool, bool], Needs] = {}
        self._host: dict[bool, HostNeeds] = {}
        self._times: dict[int, list[int]] = {}

    @property
    def n_items(self) -> int:
        """The layers and the output."""
        return self.ledger.n_layer + 1

    def needs(self, padded: bool, pipelined: bool) -> Needs:
        """Bytes by range of items; see Needs."""
        known = self._needs.get((padded, pipelined))
        if known is None:
            known = self._needs[padded, pipelined] = Needs(self.ledger, padded, pipelined)
        return known

    def most_items(self, device: Device, pipelined: bool) -> int:
        """No range with more items than this fits the device."""
        needs = self.needs(not device.is_cpu, pipelined)
        return max(needs.row(first).longest(device.usable_bytes) for first in range(self.n_items))

    def items_on_host(self, ram: Device) -> int:
        """Layers that fit the RAM of a server without a GPU."""
        return self._host_needs(False).row(0).longest(ram.usable_bytes)

    @cached_property
    def nested(self) -> bool:
        """Whether a part of a range never needs more than the range, on any kind of device."""
        return all(self.needs(padded, pipelined).nested for padded in (False, True) for pipelined in (False, True))

    def _host_needs(self, output: bool) -> HostNeeds:
        known = self._host.get(output)
        if known is None:
            known = self._host[output] = HostNeeds(self.ledger, output)
        return known

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

    def times_abroad(self, device: Device) -> list[int]:
        """The same, with the way of the logits."""
        *layers, whole = self.times(device)
        return [*layers, whole + self.logits(device)]

    def hop(self, device: Device) -> int:
        """Ticks that a token needs to and from a device over RPC."""
        return round(hop_seconds(device, self.ledger.shape.n_embd) * TICKS_PER_SECOND)

    def logits(self, device: Device) -> int:
        """Ticks that are added where a device over RPC sends back logits, and not activations."""
        shape = self.ledger.shape
        there_and_back = hop_seconds(device, shape.n_embd, shape.n_vocab)
        return round(there_and_back * TICKS_PER_SECOND) - self.hop(device)

    def beside(self, device: Device) -> int:
        """The same when the device before it is on the same machine, where the activations stay."""
        return round(hop_seconds(device, 0) * TICKS_PER_SECOND)

    def fixed(self, device: Device, remote: bool, pipelined: bool, draft: DraftCharge | None) -> int:
        """Bytes on a device beside its items: the draft, and what llama-server keeps in RAM that is the GPU's too."""
        if remote:
            return 0
        fixed = draft.gpu.total if draft and draft.device == device.name else 0
        if device.shared:
            fixed += self.ledger.input + self.ledger.host_bytes(layers=False, pipelined=pipelined)
            fixed += draft.ram.total if draft else 0
        return fixed

    def _slot(self, device: Device, remote: bool, pipelined: bool, draft: DraftCharge | None, last: int) -> Slot:
        room = device.usable_bytes - self.fixed(device, remote, pipelined, draft)
        return Slot(
            needs=self.needs(not device.is_cpu, pipelined),
            room=room,
            taken=device.capacity_bytes - room,
            capacity=max(device.capacity_bytes, 1),
            time=self.times_abroad(device) if remote else self.times(device),
            hop=self.hop(device) if remote else 0,
            beside=self.beside(device) if remote else 0,
            machine=device.host,
            last=last,
        )

    def _cpu_slot(self, ram: Device, draft: DraftCharge | None, output: bool) -> Slot:
        room = ram.usable_bytes - (draft.ram.total if draft else 0)
        return Slot(
            needs=self._host_needs(output),
            room=room,
            taken=ram.capacity_bytes - room,
            capacity=max(ram.capacity_bytes, 1),
            time=self.times(ram),
            hop=0,
            beside=0,
            machine=ram.host,
            # With the output, too, it would be no split.
            last=self.ledger.n_layer - output,
            first_only=True,
        )

    def best(
        self,
        server: Machine,
        remote: Sequence[Device],
        draft: DraftCharge | None = None,
        allow_cpu: bool = False,
        few_devices: bool = False,
        host_layers: bool = False,
        output_anywhere: bool = False,
    ) -> Layout | None:
        """The best layout over the server's own devices and the remote ones, or None.

        host_layers: the server must hold at least one repeating layer, and with a GPU then the output as well.
        output_anywhere: the output may leave a server that has a GPU.
        """
        found = [
            self._alone(server, remote, draft, host_layers, output_anywhere),
            self._together(server, remote, draft, few_devices, host_layers, output_anywhere),
            self._behind_cpu(server, remote, draft) if allow_cpu else None,
        ]

        def order(layout: Layout) -> tuple[int, ...]:
            time, count, full = layout.key
            return (count, time, full) if few_devices else layout.key

        return min((layout for layout in found if layout), key=order, default=None)

    def feasible(self, server: Machine, remote: Sequence[Device], allow_cpu: bool = False) -> bool:
        """Whether best() finds anything without a draft, the output anywhere; much quicker."""
        if self._alone(server, remote, None, False, True):
            return True
        n_items = self.n_items
        _devices, slots = self._pipeline(server, remote, None, False, True)
        if self._server_ram_fits(server, True, None) and search.feasible(slots, n_items, self.limit):
            return True
        return allow_cpu and any(
            search.feasible(slots, n_items, self.limit + 1, first_required=True)
            for slots, n_items, _output in self._cpu_first(server, remote, None)
        )

    def filled(
        self,
        server: Machine,
        remote: Sequence[Device],
        draft: DraftCharge | None,
        allow_cpu: bool,
        host_layers: bool,
        output_anywhere: bool,
    ) -> set[Device]:
        """Devices of the server and others on which the model fits if each is filled; none where that does not do."""
        n_items, found = self.n_items, set()
        devices, slots = self._pipeline(server, remote, draft, host_layers, output_anywhere)
        for segment in search.reach(slots, n_items, self.limit) or ():
            found.add(devices[segment.slot])
        for slots, n_items, _output in self._cpu_first(server, remote, draft) if allow_cpu else ():
            for segment in search.reach(slots, n_items, self.limit + 1, first_required=True) or ():
                found.update(remote[segment.slot - 1 : segment.slot] if segment.slot else ())
        return found

    def _alone(
        self,
        server: Machine,
        remote: Sequence[Device],
        draft: DraftCharge | None,
        host_layers: bool,
        output_anywhere: bool,
    ) -> Layout | None:
        """The whole model on one device, which then needs no copies of a pipeline."""
        if not self._server_ram_fits(server, False, draft):
            return None
        n_items, best = self.n_items, None
        abroad = () if host_layers or (server.gpus and not output_anywhere) else remote
        for device, is_remote in [(device, True) for device in abroad] + [(device, False) for device in server.gpus]:
            room = device.usable_bytes - self.fixed(device, is_remote, False, draft)
            need = self.needs(not device.is_cpu, False).size(0, n_items)
            if need > room:
                continue
            time = self.times(device)[n_items]
            time += self.hop(device) + self.logits(device) if is_remote else 0
            used = (need + device.capacity_bytes - room) * PARTS_PER_MILLION // device.capacity_bytes
            if best is None or (time, 1, used) < best.key:
                best = Layout(server, self.ledger, 0, ((device, 0, n_items),), False, draft, (time, 1, used))
        return best

    def _pipeline(
        self,
        server: Machine,
        remote: Sequence[Device],
        draft: DraftCharge | None,
        host_layers: bool,
        output_anywhere: bool,
    ) -> tuple[list[Device], list[Slot]]:
        """Several devices with all layers and the output."""
        n_items, local = self.n_items, server.gpus
        last = n_items
        if local and host_layers:
            last = n_items - 2
        elif local and not output_anywhere:
            last = n_items - 1
        slots = [self._slot(device, True, True, draft, last) for device in remote]
        slots += [self._slot(device, False, True, draft, n_items) for device in local]
        return [*remote, *local], slots

    def _together(
        self,
        server: Machine,
        remote: Sequence[Device],
        draft: DraftCharge | None,
        few_devices: bool,
        host_layers: bool,
        output_anywhere: bool,
    ) -> Layout | None:
        if host_layers and not server.gpus:
            return None
        if len(remote) + len(server.gpus) < 2 or not self._server_ram_fits(server, True, draft):
            return None
        devices, slots = self._pipeline(server, remote, draft, host_layers, output_anywhere)
        found = search.search(slots, self.n_items, self.limit, few_devices=few_devices)
        # One device alone is no pipeline and needs less: where it fits here, _alone() has it.
        if found is None or len(found.segments) < 2:
            return None
        return Layout(server, self.ledger, 0, _placed(devices, found), True, draft, found.key)

    def _cpu_first(
        self, server: Machine, remote: Sequence[Device], draft: DraftCharge | None
    ) -> Iterator[tuple[list[Slot], int, bool]]:
        """(slots, items, whether the CPU has the output) with the first layers on the CPU of a server without a GPU."""
        if server.gpus or server.ram is None or not remote:
            return
        for output in (False, True) if self.overrides else (False,):
            n_items = self.n_items - output
            slots = [self._slot(device, True, False, draft, n_items) for device in remote]
            yield [self._cpu_slot(server.ram, draft, output), *slots], n_items, output

    def _behind_cpu(self, server: Machine, remote: Sequence[Device], draft: DraftCharge | None) -> Layout | None:
        """The best of these; with layers on the CPU, llama.cpp makes no pipeline."""
        layouts = []
        for slots, n_items, output in self._cpu_first(server, remote, draft):
            # The CPU is none of the devices that llama.cpp counts.
            found = search.search(slots, n_items, self.limit + 1, first_required=True)
            if found and server.ram:
                cpu, *others = found.segments
                times = self.times(server.ram)
                time, count, full = found.key
                key = (time + (times[-1] - times[-2] if output else 0), count, full)
                segments = _placed([server.ram, *remote], Found(tuple(others), found.key))
                layouts.append(Layout(server, self.ledger, cpu.end, segments, False, draft, key, output))
        return min(layouts, key=lambda layout: layout.key, default=None)

    def _server_ram_fits(self, server: Machine, pipelined: bool, draft: DraftCharge | None) -> bool:
        """The token embedding and the host's buffers always live in the server's RAM; unknown RAM is trusted."""
        if server.ram is None:
            return True
        need = self.ledger.input + self.ledger.host_bytes(layers=False, pipelined=pipelined)
        return need + (draft.ram.total if draft else 0) <= server.ram.usable_bytes

    def on_cpu(self, server: Machine, draft: DraftCharge | None = None) -> Layout | None:
        """The whole model in the server's RAM, or None."""
        if server.ram is None:
            return None
        key = (self.times(server.ram)[self.n_items], 1, 0)
        layout = Layout(server, self.ledger, self.ledger.n_layer, (), False, draft, key)
        memory = stages(layout)[0]["memory"]
        return layout if memory["left_bytes"] >= 0 else None


def _placed(devices: Sequence[Device | None], found: Found) -> tuple[tuple[Device, int, int], ...]:
    placed = ((devices[segment.slot], segment.first, segment.end) for segment in found.segments)
    return tuple((device, first, end) for device, first, end in placed if device)
