# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The best layout on given devices: the one that decodes a token in the least time, every device within its memory.

Time is what a token reads of every stage over the stage's bandwidth, and the hops of the devices that are reached over
RPC. A host with a GPU keeps the output there, so that its logits do not cross the network. One without a GPU computes
the output itself where that takes less time than the logits would on their way.

A layout has one of three forms, which differ in what llama.cpp allocates, so each is searched apart and the best of
the three is the best of all: one device with everything; several in a pipeline, which keeps copies of its buffers; and
the first layers on the CPU of a host without a GPU, with which there is no pipeline. Devices are used in llama.cpp's
order: RPC devices, then the host's own GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.layouts import search
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.costs import Costs, Nominal
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import DraftCharge, Layout, stages
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.search import PARTS_PER_MILLION, Segment, Slot
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.split import MAX_DEVICES
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger


@dataclass(frozen=True)
class Problem:
    """What a layout is wanted for: the machine that serves, and the devices that it may reach over RPC, in order.

    draft: what speculation takes beside it. allow_cpu: a server without a GPU may hold the first layers.
    few_devices: the number of devices weighs more than time. host_layers: the server must hold at least one repeating
    layer, and with a GPU then the output as well. output_anywhere: the output may leave a server that has a GPU.
    """

    server: Machine
    rpc: Sequence[Device]
    draft: DraftCharge | None = None
    allow_cpu: bool = False
    few_devices: bool = False
    host_layers: bool = False
    output_anywhere: bool = False


class Arrangement:
    """Finds layouts of one ledger.

    limit: devices that a layout may use. overrides: llama-server can be told to keep a tensor away from the device of
    its layer.
    """

    def __init__(self, ledger: Ledger, nominal: Nominal, limit: int = MAX_DEVICES, overrides: bool = True) -> None:
        self.ledger, self.costs, self.limit, self.overrides = ledger, Costs(ledger, nominal), limit, overrides
        self._host_output = (False, True) if overrides and ledger.output_apart else (False,)

    def best(self, problem: Problem) -> Layout | None:
        """The best layout, or None."""
        found = [
            self._on_one_device(problem),
            self._in_a_pipeline(problem),
            self._behind_host_cpu(problem) if problem.allow_cpu else None,
        ]

        def order(layout: Layout) -> tuple[int, ...]:
            time, count, full = layout.key
            return (count, time, full) if problem.few_devices else layout.key

        return min((layout for layout in found if layout), key=order, default=None)

    def feasible(self, problem: Problem) -> bool:
        """Whether best() finds anything for a problem without host_layers; much quicker."""
        if self._on_one_device(problem):
            return True
        _devices, slots = self._pipeline(problem)
        if self._server_ram_fits(problem, True) and search.feasible(slots, self.costs.n_items, self.limit):
            return True
        return problem.allow_cpu and any(
            search.feasible(slots, n_items, self.limit + 1, first_required=True)
            for slots, n_items, _output in self._host_cpu_first(problem)
        )

    def filled(self, problem: Problem) -> set[Device]:
        """Devices of the server and others on which the model fits if each is filled; none where that does not do."""
        found: set[Device] = set()
        devices, slots = self._pipeline(problem)
        found.update(devices[segment.slot] for segment in search.reach(slots, self.costs.n_items, self.limit) or ())
        if problem.allow_cpu:
            for slots, n_items, _output in self._host_cpu_first(problem):
                segments = search.reach(slots, n_items, self.limit + 1, first_required=True) or ()
                found.update(problem.rpc[segment.slot - 1] for segment in segments if segment.slot)
        return found

    def on_cpu(self, server: Machine, draft: DraftCharge | None = None) -> Layout | None:
        """The whole model in the server's RAM, or None."""
        if server.ram is None:
            return None
        key = (self.costs.times(server.ram)[self.costs.n_items], 1, 0)
        layout = Layout(server, self.ledger, self.ledger.n_layer, (), False, draft, key)
        memory = stages(layout)[0]["memory"]
        return layout if memory["left_bytes"] >= 0 else None

    # -- the three forms -------------------------------------------------------------------------------------

    def _on_one_device(self, problem: Problem) -> Layout | None:
        server, draft = problem.server, problem.draft
        if not self._server_ram_fits(problem, False):
            return None
        costs, n_items, best = self.costs, self.costs.n_items, None
        elsewhere = () if problem.host_layers or (server.gpus and not problem.output_anywhere) else problem.rpc
        for device, remote in [(device, True) for device in elsewhere] + [(device, False) for device in server.gpus]:
            room = self._room(device, remote, False, draft)
            need = costs.needs(not device.is_cpu, False).size(0, n_items)
            if need > room:
                continue
            time = costs.hop(device) + costs.rpc_times(device)[-1] if remote else costs.times(device)[-1]
            full = (need + device.capacity_bytes - room) * PARTS_PER_MILLION // device.capacity_bytes
            if best is None or (time, 1, full) < best.key:
                best = Layout(server, self.ledger, 0, ((device, 0, n_items),), False, draft, (time, 1, full))
        return best

    def _in_a_pipeline(self, problem: Problem) -> Layout | None:
        server = problem.server
        if problem.host_layers and not server.gpus:
            return None
        if len(problem.rpc) + len(server.gpus) < 2 or not self._server_ram_fits(problem, True):
            return None
        devices, slots = self._pipeline(problem)
        found = search.search(slots, self.costs.n_items, self.limit, few_devices=problem.few_devices)
        # One device alone is no pipeline and needs less: where it fits here, _on_one_device() has it.
        if found is None or len(found.segments) < 2:
            return None
        return Layout(server, self.ledger, 0, _placed(devices, found.segments), True, problem.draft, found.key)

    def _behind_host_cpu(self, problem: Problem) -> Layout | None:
        server, layouts = problem.server, []
        for slots, n_items, output in self._host_cpu_first(problem):
            # The CPU is none of the devices that llama.cpp counts.
            found = search.search(slots, n_items, self.limit + 1, first_required=True)
            if found and server.ram:
                cpu, *others = found.segments
                times = self.costs.times(server.ram)
                time, count, full = found.key
                key = (time + (times[-1] - times[-2] if output else 0), count, full)
                placed = _placed([server.ram, *problem.rpc], others)
                layouts.append(Layout(server, self.ledger, cpu.end, placed, False, problem.draft, key, output))
        return min(layouts, key=lambda layout: layout.key, default=None)

    # -- devices as the search sees them ---------------------------------------------------------------------

    def _pipeline(self, problem: Problem) -> tuple[list[Device], list[Slot]]:
        """The devices of a pipeline in their order, and their slots."""
        local, last = problem.server.gpus, self.costs.n_items
        if local and problem.host_layers:
            last -= 2
        elif local and not problem.output_anywhere:
            last -= 1
        slots = [self._slot(device, True, True, problem.draft, last) for device in problem.rpc]
        slots += [self._slot(device, False, True, problem.draft, self.costs.n_items) for device in local]
        return [*problem.rpc, *local], slots

    def _host_cpu_first(self, problem: Problem) -> Iterator[tuple[list[Slot], int, bool]]:
        """(slots, items, whether the CPU has the output) with the first layers on the CPU of a server without a GPU."""
        server = problem.server
        if server.gpus or server.ram is None or not problem.rpc:
            return
        for output in self._host_output:
            n_items = self.costs.n_items - output
            slots = [self._slot(device, True, False, problem.draft, n_items) for device in problem.rpc]
            yield [self._host_cpu_slot(server.ram, problem.draft, output), *slots], n_items, output

    def _slot(self, device: Device, remote: bool, pipelined: bool, draft: DraftCharge | None, last: int) -> Slot:
        costs, room = self.costs, self._room(device, remote, pipelined, draft)
        return Slot(
            needs=costs.needs(not device.is_cpu, pipelined),
            room=room,
            taken=device.capacity_bytes - room,
            capacity=max(device.capacity_bytes, 1),
            time=costs.rpc_times(device) if remote else costs.times(device),
            hop=costs.hop(device) if remote else 0,
            near_hop=costs.near_hop(device) if remote else 0,
            machine=device.host,
            last=last,
        )

    def _host_cpu_slot(self, ram: Device, draft: DraftCharge | None, output: bool) -> Slot:
        room = ram.usable_bytes - (draft.ram.total if draft else 0)
        return Slot(
            needs=self.costs.host_needs(output),
            room=room,
            taken=ram.capacity_bytes - room,
            capacity=max(ram.capacity_bytes, 1),
            time=self.costs.times(ram),
            hop=0,
            near_hop=0,
            machine=ram.host,
            # With the output, too, it would be no split.
            last=self.ledger.n_layer - output,
            first_only=True,
        )

    # -- memory beside the items -----------------------------------------------------------------------------

    def _room(self, device: Device, remote: bool, pipelined: bool, draft: DraftCharge | None) -> int:
        """Bytes for items: all but the draft, and but what llama-server keeps in RAM where the GPU's memory is RAM."""
        room = device.usable_bytes - (draft.on(device) if draft else 0)
        if device.shared and not remote:
            room -= self.ledger.input + self.ledger.host_bytes(layers=False, pipelined=pipelined)
            room -= draft.ram.total if draft else 0
        return room

    def _server_ram_fits(self, problem: Problem, pipelined: bool) -> bool:
        """The token embedding and the host's buffers always live in the server's RAM; unknown RAM is trusted."""
        ram, draft = problem.server.ram, problem.draft
        if ram is None:
            return True
        need = self.ledger.input + self.ledger.host_bytes(layers=False, pipelined=pipelined)
        return need + (draft.ram.total if draft else 0) <= ram.usable_bytes


def _placed(devices: Sequence[Device], segments: Sequence[Segment]) -> tuple[tuple[Device, int, int], ...]:
    return tuple((devices[segment.slot], segment.first, segment.end) for segment in segments)
