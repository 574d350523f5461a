# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is it the plan that runs? Compares a plan with what ``llama_probe`` saw of the server.

llama.cpp drops a draft, moves it over the network or shrinks a context without a word, so each of these is a
difference with its own sentence. Bytes are compared to the MiB, since llama.cpp logs its buffers in hundredths of one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from ansible_collections.relay.pool.plugins.plugin_utils.server import places
from ansible_collections.relay.pool.plugins.plugin_utils.server.draft_proof import planned_type, prove_draft, subject
from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB


class Proof(NamedTuple):
    """What was found: sentences in each list.

    draft_differences: those of the differences that are about speculation alone, so that without it the rest would be
    the plan.
    """

    differences: list[str]
    draft_differences: list[str]
    proven: list[str]
    unproven: list[str]


def prove(plan: dict[str, Any], probe: dict[str, Any]) -> Proof:
    """Compare.

    :param plan: the plan of ``relay.pool.placement``.
    :param probe: the ``probe`` of ``relay.pool.llama_probe``, with ``unit`` given so that it has ``buffers``.
    :return: differences (something else runs), what was proven, and what could not be looked at.
    """
    if probe.get("error") and not probe.get("healthy"):
        return _dead(plan, probe)
    proof = Proof([], [], [], [])
    _completion(probe, proof)
    _context(plan, probe, proof)
    draft = prove_draft(plan, probe)
    proof.draft_differences.extend(draft.differences)
    proof.differences.extend(draft.differences)
    proof.proven.extend(draft.proven)
    proof.unproven.extend(draft.unproven)
    if probe.get("buffers"):
        _bytes(plan, probe["buffers"], proof)
    else:
        proof.unproven.append(
            "The journal no longer holds the buffer sizes of this start, so the bytes per device were not compared."
        )
    return proof


def _dead(plan: dict[str, Any], probe: dict[str, Any]) -> Proof:
    """Of a server that does not serve: it may be the draft that ends it, once the target is loaded."""
    sentence = _sentence(plan, probe)
    if probe.get("draft_loading") and planned_type(plan) and (probe.get("unit") or {}).get("n_restarts"):
        sentence += f" It ends each time while it loads {subject(plan)}, after the model itself was loaded."
        return Proof([sentence], [sentence], [], [])
    return Proof([sentence], [], [], [])


def _sentence(plan: dict[str, Any], probe: dict[str, Any]) -> str:
    tail = " | ".join(probe.get("log_tail") or [])
    unit = probe.get("unit") or {}
    restarts = f" after {unit['n_restarts']} restarts" if unit.get("n_restarts") else ""
    return (
        f"llama-server on {plan['host']} does not serve ({probe.get('state', 'down')}{restarts}): "
        + f"{probe['error'].rstrip('.')}."
        + (f" Its last words: {tail}" if tail else f" See journalctl -u relay-llama on {plan['host']}.")
    )


def _completion(probe: dict[str, Any], proof: Proof) -> None:
    if probe.get("error"):
        proof.differences.append(f"The server is healthy but did not complete a prompt: {probe['error'].rstrip('.')}.")
    elif not probe.get("completion"):
        proof.differences.append("The server completed a prompt with an empty text.")
    else:
        proof.proven.append(f"A prompt was completed, {probe.get('tokens_per_second') or 0:.1f} tokens per second.")


def _context(plan: dict[str, Any], probe: dict[str, Any], proof: Proof) -> None:
    slots = probe.get("slots")
    slots = len(slots) if isinstance(slots, list) else slots
    if slots is not None and slots != plan["parallel"]:
        proof.differences.append(f"The server has {slots} slots, planned are {plan['parallel']}.")
    per_slot = plan["ctx_size"] // plan["parallel"]
    if probe.get("n_ctx") is not None and probe["n_ctx"] != per_slot:
        proof.differences.append(
            f"A slot has a context of {probe['n_ctx']} tokens, planned are {per_slot} "
            "(the model may have been trained for less)."
        )


def _bytes(plan: dict[str, Any], buffers: list[dict[str, Any]], proof: Proof) -> None:
    seen: dict[tuple, int] = defaultdict(int)
    mapped: set[places.Place] = set()
    for buffer in buffers:
        if buffer["model"] == "target":
            place = places.seen(buffer)
            seen[(place, buffer["kind"])] += buffer["bytes"]
            if buffer["device"].endswith("_Mapped"):
                mapped.add(place)
    planned: dict[tuple, int] = defaultdict(int)
    for stage in plan["stages"]:
        place = places.planned(plan, stage)
        for kind in ("weights", "kv", "recurrent"):
            planned[(place, kind)] += stage["memory"].get(f"{kind}_bytes", 0)
    before = len(proof.differences)
    for key in sorted(set(planned) | {key for key in seen if key[1] in ("weights", "kv", "recurrent")}, key=str):
        place, kind = key
        want, have = planned[key], seen[key]
        if kind == "weights" and place in mapped and have >= want - MIB:
            continue  # a mapped file counts from its first tensor on the CPU to its last, whatever lies between
        if abs(want - have) > MIB:
            proof.differences.append(
                f"{places.name(place)} holds {have / MIB:.1f} MiB of {'KV cache' if kind == 'kv' else kind}, "
                f"planned are {want / MIB:.1f} MiB."
            )
    if len(proof.differences) == before:
        proof.proven.append("Weights and KV cache lie on the devices of the plan, to the MiB.")
