# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is speculation live, of the planned type, and on the planned device?

llama.cpp drops a draft, or puts it where the target is, and stays healthy. So liveness is what every slot says, what a
completion drafted, and which type the log names; the place is what the log says of the buffers.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Mapping, NamedTuple, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.server import places
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import SPELLINGS, TODAYS_NAMES
from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB

# As many layers as any draft has, see relay_draft_gpu_layers.
ALL_LAYERS = 99


class DraftProof(NamedTuple):
    """What was found: sentences in each list."""

    differences: list[str]
    proven: list[str]
    unproven: list[str]


def planned_type(plan: Mapping[str, Any]) -> str | None:
    """The type of speculation of the plan, in today's name."""
    if "speculation" in plan:
        return plan["speculation"]
    # A plan of before there were several.
    return "draft-simple" if plan["draft"]["enabled"] else None


def prove_draft(plan: Mapping[str, Any], probe: Mapping[str, Any]) -> DraftProof:
    """What of the plan's speculation runs, as far as a server that serves tells."""
    proof = DraftProof([], [], [])
    if planned_type(plan) is None:
        _none(probe, proof)
    else:
        _live(plan, probe, proof)
    if probe.get("buffers"):
        _bytes(plan, probe["buffers"], proof)
    return proof


def subject(plan: Mapping[str, Any]) -> str:
    """What proposes the tokens, for people."""
    if plan["draft"]["enabled"]:
        path = plan["draft"]["path"]
        return f"the draft {path}" if path else "the draft of the model's own MTP layers"
    return f"{planned_type(plan)}, without a draft,"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _log_types(probe: Mapping[str, Any]) -> list[str]:
    names = (str(name).replace("_", "-") for name in probe.get("spec_types") or ())
    return list(dict.fromkeys(TODAYS_NAMES.get(name, name) for name in names))


def _silent_slots(probe: Mapping[str, Any]) -> tuple[int, int] | None:
    """(slots that do not speculate, slots), None where the server does not show them."""
    slots = probe.get("slots")
    if isinstance(slots, list) and slots:
        return sum(not slot.get("speculative") for slot in slots), len(slots)
    if probe.get("speculative") is None:
        return None
    count = slots if isinstance(slots, int) else 1
    return (0 if probe["speculative"] else count), count


def _none(probe: Mapping[str, Any], proof: DraftProof) -> None:
    silent, count = _silent_slots(probe) or (0, 0)
    types = _log_types(probe)
    if silent == count and not types and not probe.get("draft_n"):
        return
    drafted = f", {probe['draft_n']} tokens proposed" if probe.get("draft_n") else ""
    proof.differences.append(
        f"The server speculates ({', '.join(types) or 'of a type that the log does not name'}{drafted}), but the plan "
        "has no draft and no other speculation."
    )


def _live(plan: Mapping[str, Any], probe: Mapping[str, Any], proof: DraftProof) -> None:
    wanted, what = planned_type(plan), subject(plan)
    slots, types = _silent_slots(probe), _log_types(probe)
    if probe.get("spec_error") and not types:
        proof.differences.append(
            f"The plan has {what} but llama.cpp dropped it, its log says: {str(probe['spec_error']).rstrip('.')}."
        )
    elif slots and slots[0]:
        which = "the server does not speculate" if slots[0] == slots[1] else f"{slots[0]} of {slots[1]} do not"
        proof.differences.append(f"The plan has {what} but /slots says that {which}: llama.cpp dropped it.")
    elif types and types != [wanted]:
        proof.differences.append(f"The plan speculates by {wanted}, but the log names {', '.join(types)}.")
    elif not probe.get("error") and not probe.get("draft_n"):
        _idle(plan, what, proof)
    elif not probe.get("error"):
        short = "The draft" if plan["draft"]["enabled"] else _capital(str(wanted))
        proof.proven.append(
            f"{short} is live: {probe.get('draft_n')} tokens proposed, {probe.get('draft_n_accepted')} accepted."
        )
    if slots is None:
        proof.unproven.append("The server does not show its slots, so whether all of them speculate was not seen.")
    # A build that needs no --spec-type for it has no other type that a draft model could be of.
    several = "--spec-type" in (plan.get("server_args") or ())
    if probe.get("buffers") and not types and several and not proof.differences:
        proof.unproven.append(f"The log of this build does not name the type of speculation, planned is {wanted}.")


def _idle(plan: Mapping[str, Any], what: str, proof: DraftProof) -> None:
    """Nothing was proposed, which is no fault where only some texts make a proposal."""
    # Builds whose default is another one are told 0.0.
    choosy = [flag for flag in ("--spec-draft-p-min", "--spec-draft-n-min") if float(_value(plan, flag) or 0)]
    if not plan["draft"]["enabled"]:
        proof.unproven.append(
            f"{_capital(what)} is loaded and proposed nothing on this prompt, as its answer did not repeat the prompt."
        )
    elif choosy:
        proof.unproven.append(
            f"{_capital(what)} is loaded and proposed nothing on this prompt, which {' and '.join(choosy)} may be for."
        )
    else:
        proof.differences.append(f"{_capital(what)} is loaded, but it proposed no token for the prompt.")


def _value(plan: Mapping[str, Any], flag: str) -> str | None:
    words = plan.get("server_args") or []
    names = SPELLINGS.get(flag, (flag,))
    return next((value for word, value in zip(words, words[1:]) if word in names), None)


def _bytes(plan: Mapping[str, Any], buffers: Sequence[Mapping[str, Any]], proof: DraftProof) -> None:
    seen: dict[tuple[places.Place, str], int] = defaultdict(int)
    mapped = False
    for buffer in buffers:
        if buffer["model"] == "draft" and buffer["kind"] in ("weights", "kv", "recurrent"):
            kind = "weights" if buffer["kind"] == "weights" else "kv"
            seen[(places.seen(buffer), kind)] += buffer["bytes"]
            mapped = mapped or buffer["device"].endswith("_Mapped")
    if not plan["draft"]["enabled"]:
        if seen:
            proof.differences.append(
                f"{sum(seen.values()) / MIB:.1f} MiB of a draft lie on {_listed(place for place, _kind in seen)}, "
                "but the plan has none."
            )
        return
    if not seen and proof.differences:
        return  # a draft that was dropped holds nothing
    before = len(proof.differences)
    where = _place(plan, seen, proof)
    _totals(plan, seen, mapped, proof)
    if len(proof.differences) == before and seen:
        proof.proven.append(f"The draft's {sum(seen.values()) / MIB:.1f} MiB lie on {where}.")


def _listed(found: Any) -> str:
    return ", ".join(dict.fromkeys(places.name(place) for place in sorted(found, key=str)))


def _place(plan: Mapping[str, Any], seen: Mapping[tuple[places.Place, str], int], proof: DraftProof) -> str:
    """Adds what lies elsewhere; returns where it belongs, for people."""
    try:
        wanted = places.of_draft(plan)
    except PoolError as exc:
        proof.differences.append(f"{_capital(str(exc))}.")
        return ""
    if wanted is None:
        # The MTP layers are the target's, and so are their devices.
        allowed = {places.planned(plan, stage) for stage in plan["stages"]}
        on_cpu: tuple[str, ...] = ("weights", "kv")
        where = "devices of the model"
    else:
        allowed = {wanted}
        layers = _value(plan, "--spec-draft-ngl")
        partly = layers is not None and layers.isdigit() and int(layers) < ALL_LAYERS
        # The token embedding of any model stays in the host's RAM, and so do layers that are to stay on the CPU.
        on_cpu = ("weights", "kv") if partly else ("weights",)
        where = f"{places.name(wanted)} of {plan['draft'].get('host') or plan['host']}"
    strays: dict[places.Place, int] = defaultdict(int)
    for (place, kind), size in seen.items():
        if place not in allowed and not (place == places.CPU and kind in on_cpu):
            strays[place] += size
    for place, size in sorted(strays.items(), key=str):
        proof.differences.append(
            f"{size / MIB:.1f} MiB of the draft lie on {places.name(place)}, planned is {where} only."
        )
    if wanted and not strays and not any(place == wanted for place, _kind in seen):
        proof.differences.append(f"Nothing of the draft lies on {where}, where it is planned.")
    return where


def _totals(
    plan: Mapping[str, Any], seen: Mapping[tuple[places.Place, str], int], mapped: bool, proof: DraftProof
) -> None:
    memory = plan["draft"].get("memory")
    if not memory:
        return
    if plan["draft"]["device"] is None:
        # MTP layers are among the target's, and the plan has their context in one piece with its buffers.
        have, most = sum(seen.values()), memory.get("total_bytes") or 0
        if have > most + MIB:
            proof.differences.append(
                f"The context of the model's MTP layers holds {have / MIB:.1f} MiB, planned are {most / MIB:.1f} MiB."
            )
        return
    for kind, words in (("weights", "weights"), ("kv", "KV cache")):
        want = memory.get(f"{kind}_bytes") or 0
        if kind == "kv":
            want += memory.get("recurrent_bytes") or 0
        have = sum(size for (_place, part), size in seen.items() if part == kind)
        if kind == "weights" and mapped and have >= want - MIB:
            continue  # a mapped file counts from its first tensor on the CPU to its last, whatever lies between
        if abs(want - have) > MIB:
            proof.differences.append(
                f"The draft holds {have / MIB:.1f} MiB of {words}, planned are {want / MIB:.1f} MiB."
            )
