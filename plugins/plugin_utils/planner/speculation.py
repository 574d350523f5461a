# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What proposes tokens in a plan, and where: a draft with a file of its own, layers of the target, or n-grams.

A draft goes to the first of its places on which a layout is found. What is dropped has a reason, and where the request
names a fallback, n-grams take its place as long as they cost the plan nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Callable, Mapping, NamedTuple

from ansible_collections.relay.pool.plugins.plugin_utils.drafts.charge import (
    FALLS_BACK,
    Place,
    charge_of,
    charge_on,
    mtp_charge,
    no_host_stage,
    no_room,
    no_room_for_rows,
    places,
    way_out,
)
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import Verdict, eligible, fallback
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.ledgers import draft_ledger, target_spec
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.arrangement import Arrangement
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.costs import nominal_bandwidth
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import DraftCharge, Layout, stages
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.replica import replica_on
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.sharded import best_sharded
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.machines.pool import Pool
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger, model_ledger
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import Dialect

# What a layout, or the start of one, can drop a draft for that nothing else speaks against.
DROPPED = ("no_room", "no_host_stage", "unsupported_build")


class Chosen(NamedTuple):
    """The layout, what became of the draft, and what proposes tokens."""

    layout: Layout
    verdict: Verdict
    speculation: Speculation | None


class Speculator:
    """Of one request and its pool; layouts of the target by what proposes tokens to it."""

    def __init__(self, request: Request, dialect: Dialect, pool: Pool) -> None:
        self.request, self.dialect, self.pool = request, dialect, pool
        self._nominal = nominal_bandwidth(pool.holders(request.allow_cpu))
        self.plain: Arrangement = self._arrangement(model_ledger(request.model, request.target_spec()))
        self._arrangements: dict[Speculation | None, Arrangement] = {None: self.plain}
        self._draft: Ledger | None = None
        self.verdict, self.wanted = eligible(request, dialect)
        if self.wanted:
            self._read(self.wanted)

    def _read(self, wanted: Speculation) -> None:
        """The ledgers of what is wanted; it is not wanted any more where there is none."""
        try:
            self._draft = draft_ledger(self.request, wanted) if wanted.own_file else None
            self.arrangement(wanted)
        except PoolError as exc:
            self.verdict, self.wanted = Verdict("unsized", f"the draft's memory is unknown: {exc}"), None

    @cached_property
    def fallback(self) -> Speculation | None:
        """What would take the place of a draft."""
        return fallback(self.request, self.dialect)

    def arrangement(self, speculation: Speculation | None) -> Arrangement:
        """Of the target that checks the tokens of that; raises PoolError where it cannot be sized."""
        known = self._arrangements.get(speculation)
        if known is None and speculation:
            ledger = model_ledger(self.request.model, target_spec(self.request, speculation))
            known = self._arrangements[speculation] = self._arrangement(ledger)
        return known or self.plain

    def _arrangement(self, ledger: Ledger) -> Arrangement:
        return Arrangement(ledger, self._nominal, overrides=self.dialect.knows("--override-tensor"))

    @cached_property
    def split(self) -> Layout | None:
        """The best layout over the pool without speculation."""
        return self._best(None, None, None)

    @cached_property
    def _split_with_host_layers(self) -> Layout | None:
        return self._best(None, None, None, host_layers=True)

    def _best(
        self,
        replica: Layout | None,
        speculation: Speculation | None,
        charge: DraftCharge | None,
        host_layers: bool = False,
    ) -> Layout | None:
        """The best layout that has all this: on the machine of the replica, else over the pool."""
        arrangement, allow_cpu = self.arrangement(speculation), self.request.allow_cpu
        if replica:
            layout = replica_on(arrangement, replica.server, allow_cpu, charge)
        else:
            layout = best_sharded(arrangement, self.pool, allow_cpu, charge, host_layers)
        # A device that the draft has for itself is none that the search looks at.
        return layout if layout and fits(layout) else None

    # -- the choice ------------------------------------------------------------------------------------------

    def chosen(self, replica: Layout | None) -> Chosen | None:
        """The plan's, on the machine of the replica where there is one; None where there is no plan at all."""
        if replica and self.request.draft_scope != "any" and self.wanted:
            message = (
                f"the whole model fits {replica.server.host}, and a draft mostly pays over the network: set "
                "relay_draft_scope to any to draft all the same"
            )
            return Chosen(replica, Verdict("replica", message), None)
        verdict = self.verdict
        if self.wanted:
            found = self._with_file(replica) if self.wanted.own_file else self._without_file(replica, self.wanted)
            if isinstance(found, Layout):
                return Chosen(found, verdict, self.wanted)
            verdict = found
        base = replica or self.split
        return self.dropped(base, verdict) if base else None

    def dropped(self, base: Layout, verdict: Verdict, move: bool = True) -> Chosen:
        """The layout without the draft, with the fallback where that costs nothing; move: another layout will do."""
        speculation = self.fallback if verdict.reason in FALLS_BACK and self._may_draft(base) else None
        if speculation is None or self.wanted == speculation:
            return Chosen(base, verdict, None)
        layout = self._at_no_cost(base, speculation, move)
        if layout:
            message = f"{verdict.message}; {speculation.type} proposes tokens instead"
            return Chosen(layout, Verdict(verdict.reason, message), speculation)
        why = self._no_rows(speculation).message
        return Chosen(base, Verdict(verdict.reason, f"{verdict.message}; nothing instead, as {why}"), None)

    def _may_draft(self, layout: Layout) -> bool:
        return layout.sharded or self.request.draft_scope == "any"

    def _at_no_cost(self, base: Layout, speculation: Speculation, move: bool) -> Layout | None:
        """The same layers with the larger buffers, else others with which a token takes no longer."""
        layout = self._in_place(base, speculation, None)
        if layout or not move:
            return layout
        other = self._best(None if base.sharded else base, speculation, None)
        cheap = other and other.key[0] <= base.key[0] and other.key[1] <= base.key[1]
        return other if cheap else None

    def _in_place(self, base: Layout, speculation: Speculation, charge: DraftCharge | None) -> Layout | None:
        """The layout with speculation in what it leaves free; no layer moves."""
        layout = replace(base, ledger=self.arrangement(speculation).ledger, draft=charge)
        return layout if fits(layout) else None

    def _no_rows(self, speculation: Speculation) -> Verdict:
        ledger = self.arrangement(speculation).ledger
        return no_room_for_rows(ledger, self.plain.ledger, speculation)

    # -- layers of the target, n-grams -----------------------------------------------------------------------

    def _without_file(self, replica: Layout | None, speculation: Speculation) -> Layout | Verdict:
        charge = self._mtp(speculation)
        if self.request.draft_reserve:
            layout = self._best(replica, speculation, charge)
        else:
            base = replica or self.split
            layout = self._in_place(base, speculation, charge) if base else None
        if layout is None:
            return self._no_rows(speculation)
        last = layout.last_layer if speculation.mtp_of_target else None
        crash = self.dialect.rpc_draft_crash
        if crash and last and last.host != layout.server.host:
            return Verdict("unsupported_build", f"{crash.rstrip('.')} ({last.label} would have both)")
        return layout

    def _mtp(self, speculation: Speculation) -> DraftCharge | None:
        return mtp_charge(self.arrangement(speculation).ledger) if speculation.mtp_of_target else None

    # -- a draft with a file of its own ----------------------------------------------------------------------

    def _with_file(self, replica: Layout | None) -> Layout | Verdict:
        server = replica.server if replica else self.pool.host
        found = places(self.request, self.pool, server, self._bound)
        if isinstance(found, Verdict):
            return found
        problems = []
        for place in found:
            outcome = self._at(place, replica, server)
            if isinstance(outcome, Layout):
                return outcome
            problems.append(outcome)
            if outcome.reason == "unsupported_build" and not self._bound:
                # Not the place is wrong, so that another one on the same machine is none that was meant.
                return outcome
        return _together(problems, f": {way_out(self.request)}")

    def _at(self, place: Place, replica: Layout | None, server: Machine) -> Layout | Verdict:
        """The layout with the draft at one place, or why there is none."""
        if self._draft is None or self.wanted is None:
            return self.verdict
        charge = charge_on(self.request, self._draft, place, server)
        if isinstance(charge, Verdict):
            return charge
        if charge.device and charge.device.host != server.host and not self.dialect.rpc:
            return Verdict(
                "unsupported_build",
                f"{self.dialect.name} was built without RPC, so the draft cannot run on {charge.device.label}: build "
                "llama.cpp with -DGGML_RPC=ON, or set relay_draft_device to auto or cpu",
            )
        beside = place.beside_target and replica is None
        layout = self._best_with(charge, replica, beside)
        if layout is None:
            return self._no_layout(charge, replica, beside)
        if charge.device and layout.shared_draft and self.dialect.rpc_draft_crash:
            crash = self.dialect.rpc_draft_crash.rstrip(".")
            return Verdict("unsupported_build", f"{crash} ({charge.device.label} would have both)")
        return self._apart(layout) or layout

    @property
    def _bound(self) -> bool:
        """The draft works with a part of the target, and must be on its device."""
        return bool(self.wanted) and (self.wanted.beside_output or self.wanted.beside_cache)

    def _apart(self, layout: Layout) -> Verdict | None:
        """Why a draft that works with a part of the target cannot be where it is; None where it can, or needs none."""
        wanted, server = self.wanted, layout.server.host
        if not wanted or not (wanted.beside_output or wanted.beside_cache):
            return None
        if wanted.beside_cache:
            last = layout.ledger.n_layer - 1
            what, parts = "the caches of the target's last layers", [layout.holder(last - 1), layout.holder(last)]
        else:
            # An output on the CPU can be used from every device.
            what, parts = "the target's output", [layout.output] if layout.output else []
        labels = list(dict.fromkeys(part.label if part else f"{server} CPU" for part in parts))
        draft = layout.draft.device if layout.draft else None
        where = draft.label if draft else f"{server} CPU"
        if set(labels) <= {where}:
            return None
        part = parts[-1]
        name = "cpu" if part is None else part.name if part.host == server else part.host
        way = f"set relay_draft_device to {name}" if len(labels) == 1 else "set relay_draft_model to nothing"
        return Verdict(
            "unsupported_build",
            f"the draft works with {what}, on {' and '.join(labels)}, and llama-server ends where the draft is on "
            f"another device ({where}): {way}",
        )

    def _best_with(self, charge: DraftCharge, replica: Layout | None, beside: bool) -> Layout | None:
        """beside: only if the host holds layers of the target."""
        if replica:
            return self._best(replica, self.wanted, charge)
        if not self.request.draft_reserve:
            possible = self.wanted and self.split and (self.split.server_layers or not beside)
            return self._in_place(self.split, self.wanted, charge) if possible else None
        layout = self._best(None, self.wanted, charge)
        if beside and (layout is None or not layout.server_layers):
            layout = self._best(None, self.wanted, charge, host_layers=True)
        return layout

    def _no_layout(self, charge: DraftCharge, replica: Layout | None, beside: bool) -> Verdict:
        base = replica or self.split
        alone = beside and base and not base.server_layers
        if base is None or (alone and not (self.request.draft_reserve and self._split_with_host_layers)):
            return no_host_stage(self.pool.host)
        return no_room(self.request, charge, base, self.wanted.n_max if self.wanted else 0)

    # -- a plan that there is already ------------------------------------------------------------------------

    def restored(
        self, previous: Mapping[str, Any], server: Machine, device: Callable[[str, str], Device]
    ) -> tuple[Verdict, Speculation | None, DraftCharge | None]:
        """What the previous plan says of its speculation; raises one of UNREADABLE where that cannot be.

        :param device: finds one by the names of machine and device.
        """
        draft, name = previous["draft"], previous["speculation"]
        if not isinstance(draft["message"], str):
            raise TypeError("a message that is no text")
        if draft["reason"] != "enabled":
            known = {None: None, **{kind.type: kind for kind in (self.fallback, self._n_grams) if kind}}
            return Verdict(draft["reason"], draft["message"]), known[name], None
        if self.wanted is None or not self.verdict.enabled:
            raise ValueError("a draft that is not this one")
        if not self.wanted.own_file:
            return self.verdict, self.wanted, self._mtp(self.wanted)
        place = None
        if draft["device"] != "none":
            rows = (row for row in previous["stages"] if row["host"] == draft["host"])
            row = next(row for row in rows if (row["rpc_device"] or row["device"]) == draft["device"])
            place = device(row["host"], row["device"])
            if place.host == server.host and place not in server.gpus:
                raise ValueError("a draft that is not on a GPU of the server")
        if self._draft is None:
            raise ValueError("no draft")
        return self.verdict, self.wanted, charge_of(self.request, self._draft, place)

    @property
    def _n_grams(self) -> Speculation | None:
        """What was asked for outright and needs no model."""
        return self.wanted if self.wanted and not self.verdict.enabled else None

    def build_dropped(self, chosen: Chosen) -> bool:
        """Whether it was the installed build that left a plan without what there would be: another may do better.

        What the build does not have by its own words is among the inputs of a plan, and no part of this.
        """
        if chosen.verdict.reason != "unsupported_build":
            return False
        dropped_too = chosen.speculation is None and self.fallback is not None
        return self.verdict.reason != "unsupported_build" or dropped_too

    def possible(self, chosen: Chosen) -> bool:
        """Whether a plan of this request may say that."""
        reason, layout = chosen.verdict.reason, chosen.layout
        speculates = chosen.speculation is not None
        if not self._may_draft(layout):
            return not speculates and reason == ("replica" if self.wanted else self.verdict.reason)
        if self.verdict.enabled:
            if reason == "enabled":
                sound = not (layout.shared_draft and self.dialect.rpc_draft_crash)
                return speculates and layout.draft is not None and sound and not self._apart(layout)
            return reason in DROPPED
        if self._n_grams:
            return reason == self.verdict.reason if speculates else reason in DROPPED
        if not speculates and self.fallback and reason == "unsupported_build":
            # It was started in the place of the draft, and proved not to be live.
            return True
        return reason == self.verdict.reason and (not speculates or reason in FALLS_BACK)


def _together(problems: list[Verdict], way: str) -> Verdict:
    """What was said of several places, as one, and the way out of all of them once."""
    *others, last = dict.fromkeys(problem.message for problem in problems)
    messages = [
        *(message[: -len(way)] if message.endswith(way) and last.endswith(way) else message for message in others),
        last,
    ]
    reasons = [problem.reason for problem in problems]
    reason = next((one for one in ("no_room", "unsupported_build") if one in reasons), reasons[0])
    return Verdict(reason, "; ".join(messages))


def fits(layout: Layout) -> bool:
    """Whether every stage has the memory that is known to be needed."""
    left = (stage["memory"]["left_bytes"] for stage in stages(layout))
    return all(size is None or size >= 0 for size in left)
