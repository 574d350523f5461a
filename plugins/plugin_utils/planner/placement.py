# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From facts to a plan: a replica wherever the model fits one machine, else the fastest feasible split."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Collection, Mapping, NamedTuple, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.advice.advice import advice, warnings
from ansible_collections.relay.pool.plugins.plugin_utils.advice.better_host import better_host
from ansible_collections.relay.pool.plugins.plugin_utils.advice.unused import unused
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.charge import (
    charge_of,
    charge_on,
    no_host_stage,
    no_room,
)
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import Verdict, eligible
from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE, PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.arrangement import Arrangement
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.best import pool_replica
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.costs import nominal_bandwidth
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import DraftCharge, Layout, stages
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.replica import replica_on
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.sharded import best_sharded
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.machines.members import (
    Refusal,
    check_clients_address,
    check_members,
    check_server_port,
)
from ansible_collections.relay.pool.plugins.plugin_utils.machines.pool import Pool, read_pool
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger, model_ledger
from ansible_collections.relay.pool.plugins.plugin_utils.planner.render import rendered
from ansible_collections.relay.pool.plugins.plugin_utils.planner.sticky import (
    deciding_gpus,
    deciding_inputs,
    kept_plan,
    same_inputs,
)
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.server.command_line import check_extra_args
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import Dialect, dialect
from ansible_collections.relay.pool.plugins.plugin_utils.ways_out.infeasible import explain


class Chosen(NamedTuple):
    """The layout and what became of the draft."""

    layout: Layout
    verdict: Verdict


class Planner:
    """One request, its facts read once; with ``keep``, for the GPUs of the previous plan where there is a choice."""

    def __init__(self, request: Request, keep: bool = False) -> None:
        check_extra_args(request.extra_args, (request.llama or {}).get("flags") or ())
        self.request = request
        self.dialect: Dialect = dialect(request.llama)
        self.refused: list[Refusal] = []
        self.pool = self._pool(deciding_gpus(request.previous) if keep else {})
        self.ledger: Ledger = model_ledger(request.model, request.target_spec())
        self.verdict, self.draft_ledger = self._draft()

    @cached_property
    def ledger_drafting(self) -> Ledger:
        """The target's when it checks the tokens of a draft."""
        return model_ledger(self.request.model, self.request.target_spec(self.request.draft_max))

    def _pool(self, before: Mapping[str, Collection[str]]) -> Pool:
        request = self.request
        members = check_members(
            request.nodes,
            request.host,
            request.workers,
            (request.server_host, request.server_port),
            request.rpc_port,
            request.allow_partial,
            request.llama,
        )
        self.refused.extend(members.refused)
        return read_pool(request, members, self.dialect.backends, self.refused, before)

    def _draft(self) -> tuple[Verdict, Ledger | None]:
        """What can be said of the draft before any device is chosen, and its ledger where it may run."""
        verdict, _speculation = eligible(self.request, self.dialect)
        if not verdict.enabled or self.request.draft is None:
            return verdict, None
        try:
            return verdict, model_ledger(self.request.draft, self.request.draft_spec())
        except PoolError as exc:
            return Verdict("unsized", f"the draft's memory is unknown: {exc}"), None

    @cached_property
    def plain(self) -> Arrangement:
        """Of the target without a draft."""
        return self._arrangement(self.ledger)

    @cached_property
    def _drafting(self) -> Arrangement:
        return self._arrangement(self.ledger_drafting)

    def _arrangement(self, ledger: Ledger) -> Arrangement:
        nominal = nominal_bandwidth(self.pool.holders(self.request.allow_cpu))
        return Arrangement(ledger, nominal, overrides=self.dialect.knows("--override-tensor"))

    def choose(self) -> Chosen:
        """The layout of the plan; raises when there is none."""
        layout = pool_replica(self.plain, self.pool, self.request.allow_cpu)
        if layout:
            return self._replica_draft(layout)
        chosen = self._sharded()
        if chosen is None:
            raise PoolError(explain(self.request, self.plain, self.pool, self.refused))
        return chosen

    def restored(self, previous: Mapping[str, Any]) -> Chosen:
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
        keeps_output = bool(segments and cpu["has_output"])
        if at != self.ledger.n_layer + bool(segments) - keeps_output or (keeps_output and not cpu["n_layers"]):
            raise ValueError("layers that are not those of the model")
        if not isinstance(draft["message"], str):
            raise TypeError("a message that is no text")
        verdict, charge = Verdict(draft["reason"], draft["message"]), None
        if verdict.enabled:
            verdict = self.verdict
            charge = self._charge_again(server, draft["device"])
        ledger = self.ledger_drafting if charge else self.ledger
        pipelined = len(segments) > 1 and not cpu["n_layers"]
        layout = Layout(server, ledger, cpu["n_layers"], tuple(segments), pipelined, charge, (0, 0, 0), keeps_output)
        if verdict.reason not in self._possible(layout):
            raise ValueError("a draft that is not this one")
        return Chosen(layout, verdict)

    def all_refused(self, layout: Layout) -> list[Refusal]:
        """What cannot be used, and what the layout does without."""
        return [*self.refused, *unused(self.pool.machines(), layout, self.refused, self.request.allow_cpu)]

    def _device(self, host: str, name: str) -> Device:
        member = next(member for member in self.pool.machines() if member.host == host)
        return next(device for device in member.devices if device.name == name)

    def _possible(self, layout: Layout) -> tuple[str, ...]:
        """The reasons that a plan of this layout may give for its draft."""
        if not self.verdict.enabled:
            return (self.verdict.reason,)
        if not layout.sharded and self.request.draft_scope != "any":
            return ("replica",)
        return ("enabled",) if layout.draft else ("no_room", "no_host_stage")

    # -- replica ---------------------------------------------------------------------------------------------

    def _replica_draft(self, layout: Layout) -> Chosen:
        if not self.verdict.enabled:
            return Chosen(layout, self.verdict)
        if self.request.draft_scope != "any":
            message = "the whole model fits {}: a draft only pays over the network (relay_draft_scope is sharded)"
            return Chosen(layout, Verdict("replica", message.format(layout.server.host)))
        charge = self._charge(layout.server)
        if isinstance(charge, Verdict):
            return Chosen(layout, charge)
        with_draft = replica_on(self._drafting, layout.server, self.request.allow_cpu, charge)
        if with_draft is None:
            return Chosen(layout, no_room(self.request, charge, layout))
        return Chosen(with_draft, self.verdict)

    # -- sharded ---------------------------------------------------------------------------------------------

    def _best_sharded(self, charge: DraftCharge | None, host_layers: bool = False) -> Layout | None:
        arrangement = self._drafting if charge else self.plain
        return best_sharded(arrangement, self.pool, self.request.allow_cpu, charge, host_layers)

    def _sharded(self) -> Chosen | None:
        if not self.verdict.enabled:
            return self._without(self.verdict)
        charge = self._charge(self.pool.host)
        if isinstance(charge, Verdict):
            return self._without(charge)
        if self.request.draft_reserve:
            layout = self._best_sharded(charge)
            if layout is None or not layout.server_layers:
                layout = self._best_sharded(charge, host_layers=True)
        else:
            layout = self._beside(charge)
        if layout and layout.server_layers:
            return Chosen(layout, self.verdict)
        base = self._best_sharded(None)
        if base is None:
            return None
        if not base.server_layers and not self._best_sharded(None, host_layers=True):
            return Chosen(base, no_host_stage(self.pool.host))
        if not base.server_layers and not self.request.draft_reserve:
            return Chosen(base, no_host_stage(self.pool.host))
        return Chosen(base, no_room(self.request, charge, base))

    def _without(self, verdict: Verdict) -> Chosen | None:
        layout = self._best_sharded(None)
        return Chosen(layout, verdict) if layout else None

    def _beside(self, charge: DraftCharge) -> Layout | None:
        """The plan without a draft, with the draft in what it leaves free; no layer moves."""
        base = self._best_sharded(None)
        if base is None or not base.server_layers:
            return None
        layout = replace(base, ledger=self.ledger_drafting, draft=charge)
        fits = all(
            stage["memory"]["left_bytes"] is None or stage["memory"]["left_bytes"] >= 0 for stage in stages(layout)
        )
        return layout if fits else None

    # -- the draft -------------------------------------------------------------------------------------------

    def _charge(self, server: Machine) -> DraftCharge | Verdict:
        if self.draft_ledger is None:
            return self.verdict
        return charge_on(self.request, self.draft_ledger, server)

    def _charge_again(self, server: Machine, name: str) -> DraftCharge:
        device = None if name == "none" else self._device(server.host, name)
        if self.draft_ledger is None or (device and device not in server.gpus):
            raise ValueError("no draft, or not on a GPU of the server")
        return charge_of(self.request, self.draft_ledger, device)


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
    plan = rendered(request, planner.dialect, layout, chosen.verdict)
    plan["refused"] = planner.all_refused(layout)
    plan["warnings"] = warnings(request, planner.dialect, layout, chosen.verdict)
    plan["advice"] = [
        *advice(request, layout, chosen.verdict),
        *better_host(planner.plain, planner.pool, layout, request.allow_cpu),
    ]
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
        chosen = planner.restored(previous)
        kept = kept_plan(previous, rendered(request, planner.dialect, chosen.layout, chosen.verdict))
    except UNREADABLE:
        return None
    if kept:
        _check(request, planner, chosen.layout)
        if kept["llama"] != previous.get("llama"):
            kept["warnings"] = warnings(request, planner.dialect, chosen.layout, chosen.verdict)
        refused = planner.all_refused(chosen.layout)
        if _machines(kept["refused"]) != _machines(refused):
            kept["refused"] = refused
    return kept


def _refused(request: Request, planner: Planner, layout: Layout) -> list[Refusal]:
    """What cannot be used, then what could be and is not."""
    return [*planner.refused, *unused(planner.pool.machines(), layout, planner.refused, request.allow_cpu)]


def _machines(refused: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The machines that are left out, and why. Which devices are may change with what is free, and moves nothing."""
    return {(entry["host"], entry["reason"]) for entry in refused if entry["device"] is None}
