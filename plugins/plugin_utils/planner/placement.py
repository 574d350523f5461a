# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From facts to a plan: a replica wherever the model fits one machine, else the fastest feasible split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Collection, Mapping, NamedTuple

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger, model_ledger, whole_model
from ansible_collections.relay.pool.plugins.plugin_utils.planner import draft as drafting
from ansible_collections.relay.pool.plugins.plugin_utils.planner.advice import advice, warnings
from ansible_collections.relay.pool.plugins.plugin_utils.planner.devices import (
    Device,
    Machine,
    require_devices,
    rpc_devices,
)
from ansible_collections.relay.pool.plugins.plugin_utils.planner.infeasible import explain
from ansible_collections.relay.pool.plugins.plugin_utils.planner.layout import Arrangement, DraftCharge, Layout, stages
from ansible_collections.relay.pool.plugins.plugin_utils.planner.links import with_link
from ansible_collections.relay.pool.plugins.plugin_utils.planner.members import (
    Refusal,
    check_clients_address,
    check_members,
    check_server_port,
)
from ansible_collections.relay.pool.plugins.plugin_utils.planner.nodes import machine
from ansible_collections.relay.pool.plugins.plugin_utils.planner.render import rendered
from ansible_collections.relay.pool.plugins.plugin_utils.planner.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.planner.sticky import (
    UNREADABLE,
    deciding_gpus,
    deciding_inputs,
    kept_plan,
    same_inputs,
)
from ansible_collections.relay.pool.plugins.plugin_utils.server.command_line import check_extra_args
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import Dialect, dialect
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib


@dataclass(frozen=True)
class Pool:
    """The usable machines of a request."""

    host: Machine
    workers: tuple[Machine, ...]
    rpc: tuple[Device, ...]

    def machines(self) -> tuple[Machine, ...]:
        """Host first."""
        return (self.host, *self.workers)

    def holders(self, allow_cpu: bool) -> list[Device]:
        """Every device that may hold layers."""
        return [device for member in self.machines() for device in member.holders(allow_cpu)]


class Chosen(NamedTuple):
    """The layout and what became of the draft."""

    layout: Layout
    verdict: drafting.Verdict
    warnings: list[str]


class Planner:
    """One request, its facts read once; with ``keep``, for the GPUs of the previous plan where there is a choice."""

    def __init__(self, request: Request, keep: bool = False) -> None:
        check_extra_args(request.extra_args, (request.llama or {}).get("flags") or ())
        self.request = request
        self.dialect: Dialect = dialect(request.llama)
        self.refused: list[Refusal] = []
        self.pool = self._pool(deciding_gpus(request.previous) if keep else {})
        self.ledger: Ledger = model_ledger(request.model, request.target_spec(False))
        self.ledger_drafting: Ledger = model_ledger(request.model, request.target_spec(True))
        self.verdict = self._eligibility()
        self.draft_ledger = self._draft_ledger()

    def _pool(self, before: Mapping[str, Collection[str]]) -> Pool:
        request = self.request
        members = check_members(
            request.nodes,
            request.host,
            request.workers,
            (request.server_host, request.server_port),
            request.rpc_port,
            request.allow_partial,
        )
        self.refused.extend(members.refused)

        def member(name: str) -> Machine:
            node = request.nodes[name]
            # Machines of another kind have another build, with other back ends, than the host.
            build = self.dialect.backends if name == request.host else node.get("backends") or ()
            return machine(name, node, request.reserve_bytes, self.refused, build, before.get(name) or ())

        host = member(request.host)
        workers = tuple(with_link(member(name), request.nodes[request.host]) for name in members.workers)
        require_devices(host, workers, request.allow_cpu, self.refused)
        return Pool(host, workers, tuple(rpc_devices(workers, request.allow_cpu, len(host.gpus), self.refused)))

    def _eligibility(self) -> drafting.Verdict:
        request = self.request
        if (request.draft or request.draft_path) and not request.draft_max:
            return drafting.Verdict("not_configured", "relay_draft_max is 0, so nothing would be drafted")
        verdict = drafting.eligibility(
            request.model, request.draft, request.draft_path, request.comparison, self.dialect, request.measured
        )
        wanted = (("--spec-draft-n-min", request.draft_min), ("--spec-draft-p-min", request.draft_p_min))
        missing = [flag for flag, value in wanted if value and flag in self.dialect.draft_optional_missing]
        if verdict.enabled and missing:
            return drafting.Verdict(
                "unsupported_build",
                f"{self.dialect.name} does not know {', '.join(missing)}: set relay_draft_min, relay_draft_p_min to 0",
            )
        return verdict

    def _draft_ledger(self) -> Ledger | None:
        if not self.verdict.enabled or self.request.draft is None:
            return None
        try:
            return model_ledger(self.request.draft, self.request.draft_spec())
        except PoolError as exc:
            self.verdict = drafting.Verdict("unsized", f"the draft's memory is unknown: {exc}")
            return None

    def _arrangement(self, drafts: bool) -> Arrangement:
        ledger = self.ledger_drafting if drafts else self.ledger
        return Arrangement.over(ledger, self.pool.holders(self.request.allow_cpu))

    def choose(self) -> Chosen:
        """The layout of the plan; raises when there is none."""
        layout = self._replica()
        if layout:
            return self._replica_draft(layout)
        chosen = self._sharded()
        if chosen is None:
            raise PoolError(explain(self))
        return chosen

    def again(self, previous: Mapping[str, Any]) -> Chosen:
        """What the previous plan describes; raises one of UNREADABLE when that is no layout of this request."""
        draft = previous["draft"]
        server = next(member for member in self.pool.machines() if member.host == previous["host"])
        cpu, *rows = previous["stages"]
        segments = []
        at = cpu["n_layers"]
        for row in rows:
            if row["n_layers"] or row["has_output"]:
                device = self._device(row["host"], row["device"])
                if row["first_layer"] != at or row["n_layers"] < 0:
                    raise ValueError("layers that do not follow each other")
                at += row["n_layers"] + bool(row["has_output"])
                segments.append((device, row["first_layer"], at))
        if at != self.ledger.n_layer + bool(segments):
            raise ValueError("layers that are not those of the model")
        if not isinstance(draft["message"], str):
            raise TypeError("a message that is no text")
        verdict, charge = drafting.Verdict(draft["reason"], draft["message"]), None
        if verdict.enabled:
            verdict = self.verdict
            charge = self._charge_of(
                server, None if draft["device"] == "none" else self._device(server.host, draft["device"])
            )
        ledger = self.ledger_drafting if charge else self.ledger
        pipelined = len(segments) > 1 and not cpu["n_layers"]
        layout = Layout(server, ledger, cpu["n_layers"], tuple(segments), pipelined, charge, (0, 0, 0))
        if verdict.reason not in self._possible(layout):
            raise ValueError("a draft that is not this one")
        return Chosen(layout, verdict, [])

    def _device(self, host: str, name: str) -> Device:
        member = next(member for member in self.pool.machines() if member.host == host)
        return next(device for device in (*((member.ram,) if member.ram else ()), *member.gpus) if device.name == name)

    def _possible(self, layout: Layout) -> tuple[str, ...]:
        """The reasons that a plan of this layout may give for its draft."""
        if not self.verdict.enabled:
            return (self.verdict.reason,)
        if not layout.sharded and self.request.draft_scope != "any":
            return ("replica",)
        return ("enabled",) if layout.draft else ("no_room", "no_host_stage")

    def feasible(self) -> bool:
        """True when there is a plan without a draft; what explain() asks about changed requests."""
        return bool(self._replica() or self._best_sharded(None))

    # -- replica ---------------------------------------------------------------------------------------------

    def _replica_on(self, member: Machine, charge: DraftCharge | None) -> Layout | None:
        arrangement = self._arrangement(charge is not None)
        if member.gpus:
            return arrangement.best(member, (), draft=charge, few_devices=True)
        return arrangement.on_cpu(member, charge) if self.request.allow_cpu else None

    def _replica(self) -> Layout | None:
        """On the host, else on the worker that needs the fewest devices."""
        layout = self._replica_on(self.pool.host, None)
        if layout:
            return layout
        found = [self._replica_on(member, None) for member in self.pool.workers]
        return min((layout for layout in found if layout), key=lambda layout: len(layout.segments), default=None)

    def _replica_draft(self, layout: Layout) -> Chosen:
        if not self.verdict.enabled:
            return Chosen(layout, self.verdict, [])
        if self.request.draft_scope != "any":
            message = "the whole model fits {}: a draft only pays over the network (relay_draft_scope is sharded)"
            return Chosen(layout, drafting.Verdict("replica", message.format(layout.server.host)), [])
        charge, problem = self._charge(layout.server)
        if charge is None:
            return Chosen(layout, problem, [])
        with_draft = self._replica_on(layout.server, charge)
        if with_draft is None:
            return Chosen(layout, self._no_room(charge, layout), [])
        return Chosen(with_draft, self.verdict, [])

    # -- sharded ---------------------------------------------------------------------------------------------

    def _best_sharded(self, charge: DraftCharge | None, host_layers: bool = False) -> Layout | None:
        arrangement = self._arrangement(charge is not None)
        for output_anywhere in (False, True):
            if output_anywhere and not self.pool.host.gpus:
                break
            layout = arrangement.best(
                self.pool.host,
                self.pool.rpc,
                draft=charge,
                allow_cpu=self.request.allow_cpu,
                host_layers=host_layers,
                output_anywhere=output_anywhere,
            )
            if layout:
                return layout
        return None

    def _sharded(self) -> Chosen | None:
        if not self.verdict.enabled:
            return self._without(self.verdict)
        charge, problem = self._charge(self.pool.host)
        if charge is None:
            return self._without(problem)
        if self.request.draft_reserve:
            layout = self._best_sharded(charge)
            if layout is None or not layout.server_layers:
                layout = self._best_sharded(charge, host_layers=True)
        else:
            layout = self._beside(charge)
        if layout and layout.server_layers:
            return Chosen(layout, self.verdict, [])
        base = self._best_sharded(None)
        if base is None:
            return None
        if not base.server_layers and not self._best_sharded(None, host_layers=True):
            return Chosen(base, self._no_host_stage(), [])
        if not base.server_layers and not self.request.draft_reserve:
            return Chosen(base, self._no_host_stage(), [])
        return Chosen(base, self._no_room(charge, base), [])

    def _without(self, verdict: drafting.Verdict) -> Chosen | None:
        layout = self._best_sharded(None)
        return Chosen(layout, verdict, []) if layout else None

    def _beside(self, charge: DraftCharge) -> Layout | None:
        """The plan without a draft, with the draft in what it leaves free; no layer moves."""
        base = self._best_sharded(None)
        if base is None or not base.server_layers:
            return None
        layout = Layout(
            base.server, self.ledger_drafting, base.cpu_layers, base.segments, base.pipelined, charge, base.key
        )
        fits = all(
            stage["memory"]["left_bytes"] is None or stage["memory"]["left_bytes"] >= 0 for stage in stages(layout)
        )
        return layout if fits else None

    # -- the draft -------------------------------------------------------------------------------------------

    def _charge(self, server: Machine) -> tuple[DraftCharge | None, drafting.Verdict]:
        """The draft's memory on the server: its GPU with most room, else its RAM."""
        wanted = self.request.draft_device
        device: Device | None = None
        if wanted == "auto":
            device = max(server.gpus, key=lambda gpu: gpu.usable_bytes, default=None)
        elif wanted not in ("none", "CPU"):
            device = next((gpu for gpu in server.gpus if gpu.name == wanted), None)
            if device is None:
                names = ", ".join(gpu.name for gpu in server.gpus) or "no GPU"
                raise PoolError(
                    f"draft_device is {wanted}, but {server.host} offers {names}: name one of them, auto or none"
                )
        ledger = self.draft_ledger
        if ledger is None:
            return None, self.verdict
        if not self.request.allow_cpu and not server.gpus:
            return None, self._no_host_stage()
        charge = self._charge_of(server, device)
        for where, need in ((device, charge.gpu.total), (server.ram, charge.ram.total)):
            if where and need > where.usable_bytes:
                return None, drafting.Verdict(
                    "no_room",
                    f"the draft needs {mib(need)} on {where.label}, which offers {mib(where.usable_bytes)}",
                )
        return charge, self.verdict

    def _charge_of(self, server: Machine, device: Device | None) -> DraftCharge:
        if self.draft_ledger is None or (device and device not in server.gpus):
            raise ValueError("no draft, or not on a GPU of the server")
        gpu, ram = whole_model(self.draft_ledger, on_gpu=device is not None, n_gpu_layers=self.request.draft_gpu_layers)
        return DraftCharge(device.name if device and gpu.total else "none", gpu, ram)

    def _no_host_stage(self) -> drafting.Verdict:
        host = self.pool.host
        why = "no usable GPU" if not host.gpus else "no room for a layer"
        return drafting.Verdict(
            "no_host_stage", f"{host.host} holds no layers of the target ({why}), so the draft would not run beside it"
        )

    def _no_room(self, charge: DraftCharge, layout: Layout) -> drafting.Verdict:
        at = "CPU" if charge.device == "none" else charge.device
        need = charge.ram.total if charge.device == "none" else charge.gpu.total
        left = next(
            (
                stage["memory"]["left_bytes"]
                for stage in stages(layout)
                if stage["host"] == layout.server.host and stage["device"] == at
            ),
            None,
        )
        if left is not None and need <= left:
            return drafting.Verdict(
                "no_room",
                f"the draft would fit, but {layout.server.host} has no room for the target's buffers "
                f"to check {self.request.draft_max} tokens at once: lower relay_draft_max",
            )
        have = "an unknown amount" if left is None else mib(max(left, 0))
        moved = "" if self.request.draft_reserve else " (relay_draft_reserve is off)"
        return drafting.Verdict(
            "no_room", f"the draft needs {mib(need)} on {layout.server.host} {at}, the target leaves {have}{moved}"
        )


def make_plan(request: Request) -> dict[str, Any]:
    """The plan as plain data; raises PoolError when there is none."""
    kept = _kept(request) if request.previous else None
    if kept:
        return kept
    planner = Planner(request)
    return completed(request, planner, planner.choose())


def completed(request: Request, planner: Planner, chosen: Chosen) -> dict[str, Any]:
    """The plan of a layout as plain data; raises when the machines or the binary cannot run it."""
    layout = chosen.layout
    _check(request, planner, layout)
    said = warnings(request, planner.dialect, layout, chosen.verdict)
    plan = rendered(request, planner.dialect, layout, chosen.verdict)
    plan["refused"] = planner.refused
    plan["warnings"] = said
    plan["advice"] = advice(request, layout, chosen.verdict)
    plan["inputs"] = _inputs(request, planner)
    plan["kept"] = False
    return plan


def _check(request: Request, planner: Planner, layout: Layout) -> None:
    """Raise when the machines or the binary cannot run this layout."""
    asked = (("--api-key-file", request.api_key_file), ("--threads", request.threads))
    wanted = [flag for flag, value in asked if value]
    planner.dialect.check(layout.sharded, wanted)
    if layout.sharded:
        check_clients_address(request.nodes, layout.server.host)
    if layout.server.host != request.host:
        check_server_port(request.nodes, layout.server.host, (request.server_host, request.server_port))


def _inputs(request: Request, planner: Planner) -> dict[str, Any]:
    return deciding_inputs(request, planner.pool.machines(), planner.dialect, planner.verdict.reason)


def _kept(request: Request) -> dict[str, Any] | None:
    """The previous plan, if it still is what this request would run; a file may hold anything, so it is made anew."""
    planner, previous = Planner(request, keep=True), request.previous
    if not same_inputs(previous, _inputs(request, planner)):
        return None
    try:
        chosen = planner.again(previous)
        kept = kept_plan(previous, rendered(request, planner.dialect, chosen.layout, chosen.verdict))
    except UNREADABLE:
        return None
    if kept:
        _check(request, planner, chosen.layout)
        if kept["llama"] != previous.get("llama"):
            kept["warnings"] = warnings(request, planner.dialect, chosen.layout, chosen.verdict)
    return kept
