# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The best plan of a small pool, found by trying every placement: what the planner must agree with.

Nothing here is shared with the planner but the ledger's numbers and what a hop costs.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Iterator, NamedTuple

from ansible_collections.relay.pool.plugins.plugin_utils.layouts.hops import hop_seconds
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger, model_ledger, whole_model
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import model_shape
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

RAM_RESERVE, GPU_RESERVE = 256 << 20, 512 << 20
# Bytes per second where none of the kind is known.
CARD, DESKTOP = 300 * 10**9, 50 * 10**9
# Sums of floats that are equal but for their order are so when rounded to these.
PICO = 10**12


class Memory(NamedTuple):
    """A device: bytes that may be used, bytes per second, and the link to it."""

    host: str
    name: str
    usable: int
    speed: int | None
    shared: bool
    link: dict[str, Any]


class Best(NamedTuple):
    """kind, host, devices and seconds of the best plan; the seconds are those of one token.

    drafts: machine and device of the draft, None without.
    """

    kind: str
    host: str
    devices: int
    seconds: float
    drafts: str | None


class Charge(NamedTuple):
    """Bytes of a draft on a device and in the RAM of the server; device is None for its CPU.

    beside: only where the host holds layers of the target.
    """

    on_device: int
    in_ram: int
    device: tuple[str, str] | None
    beside: bool

    def at(self, device: Memory) -> int:
        """Bytes on that device."""
        return self.on_device if self.device == (device.host, device.name) else 0


def place_of(charge: Charge, server: str) -> str:
    """Machine and device of a draft."""
    return " ".join(charge.device or (server, "CPU"))


class Brute:
    """A request, asked by trying everything."""

    def __init__(self, request: Request, limit: int = 15) -> None:
        self.request, self.limit = request, limit
        self.names = [request.host, *request.workers]
        links = {link["name"]: link for link in reversed(request.nodes[request.host].get("links") or [])}
        self.gpus: dict[str, list[Memory]] = {}
        self.ram: dict[str, Memory | None] = {}
        for name in self.names:
            node, link = request.nodes[name], links.get(name) or {}
            reserve = request.reserve_bytes
            self.gpus[name] = [
                Memory(
                    name,
                    gpu["device"],
                    max(gpu["memory_free_bytes"] - (GPU_RESERVE if reserve is None else reserve), 0),
                    gpu["bandwidth_bytes_per_second"],
                    bool(gpu.get("unified_memory")),
                    link,
                )
                for gpu in node["gpus"]
            ]
            memory = node["memory"]
            free = memory["available_bytes"]
            self.ram[name] = None
            if free is not None:
                usable = max(free - (RAM_RESERVE if reserve is None else reserve), 0)
                self.ram[name] = Memory(name, "CPU", usable, memory["bandwidth_bytes_per_second"], False, link)
        holders = [device for name in self.names for device in self.holders(name)]
        self.unknown_speed = {}
        for is_cpu, ordinary in ((False, CARD), (True, DESKTOP)):
            known = [device.speed for device in holders if device.speed and (device.name == "CPU") is is_cpu]
            self.unknown_speed[is_cpu] = sum(known) // len(known) if known else ordinary
        self.plain = model_ledger(request.model, request.target_spec())
        self.drafting = model_ledger(request.model, request.target_spec(request.draft_max))

    def holders(self, name: str) -> list[Memory]:
        """The devices of a machine that may hold layers."""
        ram = self.ram[name]
        return self.gpus[name] or ([ram] if ram and self.request.allow_cpu else [])

    # -- one device ----------------------------------------------------------------------------------------------

    def seconds(self, ledger: Ledger, device: Memory, first: int, end: int) -> float:
        """Time to read items first..end-1."""
        size = sum(ledger.reads[first : min(end, ledger.n_layer)])
        size += ledger.output_reads if end > ledger.n_layer else 0
        return size / (device.speed or self.unknown_speed[device.name == "CPU"])

    def hop(self, ledger: Ledger, device: Memory, before: Memory | None, output: bool) -> float:
        """Time on the network; between two devices of one machine the activations stay there."""
        linked = Device(
            device.host, device.name, 0, 0, rtt_seconds=device.link.get("rtt_seconds"),
            speed_mbps=device.link.get("speed_mbps") or None,
        )  # fmt: skip
        beside = before is not None and before.host == device.host
        hop = hop_seconds(linked, 0 if beside else ledger.shape.n_embd)
        # From the output's device the logits come back in place of the activations.
        hop += (
            hop_seconds(linked, 0, ledger.shape.n_vocab) - hop_seconds(linked, 0, ledger.shape.n_embd) if output else 0
        )
        return hop

    def fits(self, ledger: Ledger, device: Memory, first: int, end: int, pipelined: bool, beside: int) -> bool:
        """Whether items first..end-1 and so many bytes beside them fit."""
        last, gpu = min(end, ledger.n_layer), device.name != "CPU"
        need = sum(ledger.weights[first:last]) + sum(ledger.kv[first:last]) + sum(ledger.recurrent[first:last])
        need += sum(ledger.weights_pad[first:last]) if gpu else 0
        need += ledger.output_weights(gpu) if end > ledger.n_layer else 0
        need += ledger.device_bytes(first == 0, pipelined, end > ledger.n_layer, (first, last), gpu)
        return need + ledger.per_device + beside <= device.usable

    # -- all splits ----------------------------------------------------------------------------------------------

    def splits(
        self,
        ledger: Ledger,
        devices: list[Memory],
        server: str,
        pipelined: bool,
        charge: Any,
        first: int,
        most: int,
        abroad: int,
        n_items: int | None = None,
    ) -> Iterator[tuple[float, tuple[tuple[Memory, int, int], ...]]]:
        """(seconds, segments) of every feasible split of the items from first on over at most so many devices.

        abroad: items that are placed at most when the last device of another machine is filled.
        """  # fmt: skip
        n_items = ledger.n_layer + 1 if n_items is None else n_items
        known: dict[tuple[int, int, int], bool] = {}

        def fit(place: int, start: int, end: int) -> bool:
            key = (place, start, end)
            if key not in known:
                device = devices[place]
                beside = charge.at(device) if charge else 0
                if device.host == server and device.shared:
                    beside += ledger.input + ledger.host_bytes(False, pipelined) + (charge.in_ram if charge else 0)
                known[key] = self.fits(ledger, device, start, end, pipelined, beside)
            return known[key]

        def go(place: int, start: int, seconds: float, chosen: tuple) -> Iterator[tuple[float, tuple]]:
            if start == n_items:
                yield seconds, chosen
                return
            if len(chosen) == most:
                return
            for following in range(place, len(devices)):
                device = devices[following]
                remote = device.host != server
                before = chosen[-1][0] if chosen else None
                for end in range(start + 1, min(abroad if remote else n_items, n_items) + 1):
                    if fit(following, start, end):
                        hop = self.hop(ledger, device, before, end > ledger.n_layer) if remote else 0
                        time = seconds + hop + self.seconds(ledger, device, start, end)
                        yield from go(following + 1, end, time, (*chosen, (device, start, end)))

        return go(0, first, 0.0, ())

    def ram_holds(self, ledger: Ledger, server: str, pipelined: bool, charge: Any) -> bool:
        """Whether what always lies in the server's RAM fits there; unknown RAM is trusted."""
        ram = self.ram[server]
        need = ledger.input + ledger.host_bytes(False, pipelined) + (charge.in_ram if charge else 0)
        return ram is None or need <= ram.usable

    def offloaded(
        self, ledger: Ledger, devices: list[Memory], server: str, charge: Any, abroad: int
    ) -> Iterator[tuple[float, tuple]]:
        """Everything on devices: one of them, or a pipeline of several."""
        for pipelined in (False, True):
            if self.ram_holds(ledger, server, pipelined, charge):
                most = self.limit if pipelined else 1
                for seconds, chosen in self.splits(ledger, devices, server, pipelined, charge, 0, most, abroad):
                    if (len(chosen) > 1) == pipelined:
                        yield seconds, chosen

    # -- replica and sharded -------------------------------------------------------------------------------------

    def replica(self, ledger: Ledger, name: str, charge: Any, on_cpu: bool) -> tuple[int, float] | None:
        """(devices, seconds) of the best replica on the GPUs, or on the CPU, of a machine."""
        gpus, ram = self.gpus[name], self.ram[name]
        if bool(gpus) is on_cpu:
            return None
        if gpus:
            found = self.offloaded(ledger, gpus, name, charge, 0)
            return min(((len(chosen), seconds) for seconds, chosen in found), default=None)
        if not self.request.allow_cpu or ram is None:
            return None
        need = ledger.input + sum(ledger.weights) + ledger.per_device + ledger.output_weights(False, on_cpu=True)
        need += sum(ledger.kv) + sum(ledger.recurrent) + ledger.host_bytes(True, False, True)
        need += charge.in_ram if charge else 0
        return (1, self.seconds(ledger, ram, 0, ledger.n_layer + 1)) if need <= ram.usable else None

    def sharded(self, ledger: Ledger, charge: Any, host_layers: bool) -> tuple[float, int, int] | None:
        """(seconds, devices, layers on the host) of the best split over the pool."""
        host = self.request.host
        local = self.gpus[host]
        remote = [device for name in self.request.workers for device in self.holders(name)]
        n_layer = ledger.n_layer
        limits = [n_layer - 1] if local and host_layers else [n_layer, n_layer + 1] if local else [n_layer + 1]
        for abroad in limits:
            found = []
            if local or not host_layers:
                for seconds, chosen in self.offloaded(ledger, [*remote, *local], host, charge, abroad):
                    layers = sum(min(end, n_layer) - first for device, first, end in chosen if device.host == host)
                    found.append((seconds, len(chosen), layers))
            ram = self.ram[host]
            if not local and ram and self.request.allow_cpu:
                for on_cpu in range(1, n_layer + 1):
                    need = ledger.input + sum(ledger.weights[:on_cpu]) + ledger.per_device
                    need += sum(ledger.kv[:on_cpu]) + sum(ledger.recurrent[:on_cpu]) + ledger.host_bytes(True, False)
                    if need + (charge.in_ram if charge else 0) > ram.usable:
                        break
                    start = self.seconds(ledger, ram, 0, on_cpu)
                    splits = self.splits(ledger, remote, host, False, charge, on_cpu, self.limit, n_layer + 1)
                    found += [(start + seconds, len(chosen) + 1, on_cpu) for seconds, chosen in splits]
                    # The output may stay behind as well.
                    need += ledger.host_bytes(True, False, True) - ledger.host_bytes(True, False)
                    need += ledger.output_weights(False, on_cpu=True)
                    if (
                        on_cpu < n_layer
                        and ledger.output_apart
                        and need + (charge.in_ram if charge else 0) <= ram.usable
                    ):
                        start += self.seconds(ledger, ram, n_layer, n_layer + 1)
                        splits = self.splits(ledger, remote, host, False, charge, on_cpu, self.limit, n_layer, n_layer)
                        found += [(start + seconds, len(chosen) + 1, on_cpu) for seconds, chosen in splits]
            if found:
                return min(found, key=lambda split: (round(split[0] * PICO), *split[1:]))
        return None

    # -- the draft -----------------------------------------------------------------------------------------------

    def charges(self, server: str) -> list[Charge]:
        """Every place where the draft alone would fit, the first choice first."""
        request, host = self.request, self.request.host
        wanted, gpus = request.draft_device, self.gpus[server]
        roomiest = sorted(gpus, key=lambda gpu: -gpu.usable)[:1]
        places: list[Memory | None] = [None]
        if wanted == "auto":
            places = [*roomiest, None] if gpus or request.allow_cpu else []
        elif wanted == server:
            places = [*roomiest, None]
        elif wanted in request.workers:
            ram, away = self.ram[wanted], self.gpus[wanted]
            places = sorted(away, key=lambda gpu: -gpu.usable)[:1]
            places += [ram] if ram and not any(gpu.shared for gpu in away) else []
        elif wanted != "none":
            if wanted not in {gpu.name for name in (host, server) for gpu in self.gpus[name]}:
                raise ValueError(wanted)
            places = [gpu for gpu in gpus if gpu.name == wanted]
        found = []
        ledger = model_ledger(request.draft, request.draft_spec())
        for place in places:
            device, ram = whole_model(ledger, place is not None, -1, place is None or place.name != "CPU")
            there = (place.host, place.name) if place else None
            charge = Charge(device.total, ram.total, there, wanted == "auto" and server == host)
            own = self.ram[server]
            if (place is None or charge.on_device <= place.usable) and (own is None or charge.in_ram <= own.usable):
                found.append(charge)
        return found

    def drafted(self) -> tuple[tuple[float, int, int], Charge] | None:
        """The best split with the draft at the first place where there is one."""
        for charge in self.charges(self.request.host):
            best = self.sharded(self.drafting, charge, False)
            if charge.beside and (best is None or not best[2]):
                best = self.sharded(self.drafting, charge, True)
            if best and (best[2] or not charge.beside):
                return best, charge
        return None

    # -- the plan ------------------------------------------------------------------------------------------------

    def best(self) -> Best | None:
        """What the planner must find; None when there is no plan."""
        request = self.request
        wanted = bool(request.draft) and not model_shape(request.model).hybrid
        plain = self.sharded(self.plain, None, False)
        for on_cpu, names in product((False, True), ([request.host], list(request.workers))):
            found = [
                (*replica, index, name)
                for index, name in enumerate(names)
                if (replica := self.replica(self.plain, name, None, on_cpu))
            ]
            if found:
                count, seconds, _index, name = min(found, key=lambda one: (one[0], round(one[1] * PICO), one[2]))
                if on_cpu and any(self.gpus.values()) and plain and round((plain[0] - seconds) * PICO) < 0:
                    break
                for charge in self.charges(name) if wanted and request.draft_scope == "any" else []:
                    with_draft = self.replica(self.drafting, name, charge, on_cpu)
                    if with_draft:
                        return Best("replica", name, *with_draft, place_of(charge, name))
                return Best("replica", name, count, seconds, None)
        drafted = self.drafted() if wanted and request.draft_reserve else None
        if drafted:
            (seconds, count, _layers), charge = drafted
            return Best("sharded", request.host, count, seconds, place_of(charge, request.host))
        return plain and Best("sharded", request.host, plain[1], plain[0], None)

    def seconds_of(self, plan: dict[str, Any]) -> float:
        """The time per token of a plan, by its stages."""
        ledger, total, before = self.plain, 0.0, None
        for stage in plan["stages"]:
            if not stage["n_layers"] and not stage["has_output"]:
                continue
            known = [*self.gpus[stage["host"]], self.ram[stage["host"]]]
            device = next(entry for entry in known if entry and entry.name == stage["device"])
            first, n_layer = stage["first_layer"], ledger.n_layer
            total += self.seconds(ledger, device, first, first + stage["n_layers"])
            total += self.seconds(ledger, device, n_layer, n_layer + 1) if stage["has_output"] else 0
            if stage["transport"] == "rpc":
                total += self.hop(ledger, device, before, stage["has_output"])
            before = device
        return total
