# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From facts to a plan: a replica wherever the model fits one machine, else the fastest feasible split."""

from __future__ import annotations

from typing import Any, Collection, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.advice.advice import advice, warnings
from ansible_collections.relay.pool.plugins.plugin_utils.advice.better_host import better_host
from ansible_collections.relay.pool.plugins.plugin_utils.advice.unused import unused
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import Verdict
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.vocabulary import fault
from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE, PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.arrangement import Arrangement
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.best import pool_replica
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import Layout
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device
from ansible_collections.relay.pool.plugins.plugin_utils.machines.members import (
    Refusal,
    check_clients_address,
    check_members,
    check_server_port,
)
from ansible_collections.relay.pool.plugins.plugin_utils.machines.pool import Pool, read_pool
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger
from ansible_collections.relay.pool.plugins.plugin_utils.planner.render import rendered
from ansible_collections.relay.pool.plugins.plugin_utils.planner.speculation import Chosen, Speculator
from ansible_collections.relay.pool.plugins.plugin_utils.planner.sticky import (
    deciding_gpus,
    deciding_inputs,
    kept_plan,
    other_build,
    same_inputs,
)
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.server.command_line import check_extra_args
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import Dialect, dialect
from ansible_collections.relay.pool.plugins.plugin_utils.ways_out.infeasible import explain


class Planner:
    """One request, its facts read once; with ``keep``, for the GPUs of the previous plan where there is a choice."""

    def __init__(self, request: Request, keep: bool = False) -> None:
        check_extra_args(request.extra_args, (request.llama or {}).get("flags") or ())
        self.request = request
        self.dialect: Dialect = dialect(request.llama)
        self.refused: list[Refusal] = []
        self.pool = self._pool(deciding_gpus(request.previous) if keep else {})
        self.speculator = Speculator(request, self.dialect, self.pool)
        wrong = fault(request.model)
        if wrong:
            raise PoolError(
                f"{request.model.get('path')} {wrong}, and llama-server ends while it loads it: convert the model "
                "again, or use another file"
            )

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

    @property
    def verdict(self) -> Verdict:
        """What can be said of a draft before any device is chosen."""
        return self.speculator.verdict

    @property
    def ledger(self) -> Ledger:
        """Of the target without speculation."""
        return self.plain.ledger

    @property
    def plain(self) -> Arrangement:
        """Of the target without speculation."""
        return self.speculator.plain

    def choose(self) -> Chosen:
        """The layout of the plan; raises when there is none."""
        speculator = self.speculator
        replica = pool_replica(self.plain, self.pool, self.request.allow_cpu, lambda: speculator.split)
        chosen = speculator.chosen(replica)
        if chosen is None:
            raise PoolError(explain(self.request, self.plain, self.pool, self.refused))
        return chosen

    def restored(self, previous: Mapping[str, Any]) -> Chosen:
        """What the previous plan describes; raises one of UNREADABLE when that is no layout of this request."""
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
        verdict, speculation, charge = self.speculator.restored(previous, server, self._device)
        ledger = self.speculator.arrangement(speculation).ledger
        pipelined = len(segments) > 1 and not cpu["n_layers"]
        layout = Layout(server, ledger, cpu["n_layers"], tuple(segments), pipelined, charge, (0, 0, 0), keeps_output)
        chosen = Chosen(layout, verdict, speculation)
        if not self.speculator.possible(chosen):
            raise ValueError("a draft that is not this one")
        return chosen

    def all_refused(self, layout: Layout) -> list[Refusal]:
        """What cannot be used, and what the layout does without."""
        draft = layout.remote_draft
        # A CPU may not hold layers unless that is allowed, and a draft where it is named.
        drafting = draft.host if draft and draft.is_cpu else None
        refused = [entry for entry in self.refused if (entry["host"], entry["reason"]) != (drafting, "no_gpu")]
        return [*refused, *unused(self.pool.machines(), layout, self.refused, self.request.allow_cpu)]

    def _device(self, host: str, name: str) -> Device:
        member = next(member for member in self.pool.machines() if member.host == host)
        return next(device for device in member.devices if device.name == name)


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
    plan = rendered(request, planner.dialect, *chosen)
    plan["refused"] = planner.all_refused(layout)
    plan["warnings"] = warnings(request, planner.dialect, *chosen)
    plan["advice"] = [
        *advice(request, planner.dialect, *chosen),
        *better_host(planner.plain, planner.pool, layout, request.allow_cpu),
    ]
    plan["inputs"] = _inputs(request, planner)
    plan["kept"] = False
    return plan


def _check(request: Request, planner: Planner, layout: Layout) -> None:
    """Raise when the machines or the binary cannot run this layout."""
    asked = (("--api-key-file", request.api_key_file), ("--threads", request.threads))
    wanted = [flag for flag, value in asked if value]
    over_rpc = bool(layout.exposed)
    planner.dialect.check(over_rpc, wanted)
    if over_rpc:
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
        if other_build(previous, request.llama) and planner.speculator.build_dropped(chosen):
            return None
        kept = kept_plan(previous, rendered(request, planner.dialect, *chosen))
        before = _machines(kept["refused"]) if kept else set()
    except UNREADABLE:
        return None
    if kept:
        _check(request, planner, chosen.layout)
        if kept["llama"] != previous.get("llama"):
            kept["warnings"] = warnings(request, planner.dialect, *chosen)
        refused = planner.all_refused(chosen.layout)
        if before != _machines(refused):
            kept["refused"] = refused
    return kept


def _machines(refused: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The machines that are left out, and why. Which devices are may change with what is free, and moves nothing."""
    return {(entry["host"], entry["reason"]) for entry in refused if entry["device"] is None}
