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

from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB

Place = tuple  # ("local", "CUDA0") | ("10.0.0.24:50052", 0)


class Proof(NamedTuple):
    """What was found: sentences in each list."""

    differences: list[str]
    proven: list[str]
    unproven: list[str]


def prove(plan: dict[str, Any], probe: dict[str, Any]) -> Proof:
    """Compare.

    :param plan: the plan of ``relay.pool.placement``.
    :param probe: the ``probe`` of ``relay.pool.llama_probe``, with ``unit`` given so that it has ``buffers``.
    :return: differences (something else runs), what was proven, and what could not be looked at.
    """
    if probe.get("error") and not probe.get("healthy"):
        return Proof([_sentence(plan, probe)], [], [])
    proof = Proof([], [], [])
    _completion(probe, proof)
    _context(plan, probe, proof)
    _speculation(plan, probe, proof)
    if probe.get("buffers"):
        _bytes(plan, probe["buffers"], proof)
        _draft_place(plan, probe["buffers"], proof)
    else:
        proof.unproven.append(
            "The journal no longer holds the buffer sizes of this start, so the bytes per device were not compared."
        )
    return proof


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


def _speculation(plan: dict[str, Any], probe: dict[str, Any], proof: Proof) -> None:
    planned = plan["draft"]["enabled"]
    if planned and not probe.get("speculative"):
        proof.differences.append(
            f"The plan has the draft {plan['draft']['path']}, but /slots says that the server does not speculate: "
            "llama.cpp dropped it."
        )
    elif planned and not probe.get("error") and not probe.get("draft_n"):
        proof.differences.append(
            f"The draft {plan['draft']['path']} is loaded, but it proposed no token for the prompt."
        )
    elif not planned and probe.get("speculative"):
        proof.differences.append("The server speculates, but the plan has no draft.")
    elif planned:
        proof.proven.append(
            f"The draft is live: {probe.get('draft_n')} tokens proposed, {probe.get('draft_n_accepted')} accepted."
        )


def _planned_place(plan: dict[str, Any], stage: dict[str, Any]) -> Place:
    if stage["transport"] == "local":
        return ("local", stage["device"])
    for worker in plan["workers"]:
        if worker["endpoint"] == stage["endpoint"]:
            return (stage["endpoint"], worker["devices"].index(stage["device"]))
    return (stage["endpoint"], 0)


def _seen_place(buffer: dict[str, Any]) -> Place:
    device = buffer["device"]
    if buffer.get("endpoint"):
        index = device.split("[")[0].replace("RPC", "")
        return (buffer["endpoint"], int(index) if index.isdigit() else 0)
    # CPU_Mapped, CPU_REPACK and the pinned host buffers of a GPU (CUDA_Host) are all the host's RAM.
    if device.startswith("CPU") or device.endswith("_Host"):
        return ("local", "CPU")
    return ("local", device)


def _name(place: Place) -> str:
    return place[1] if place[0] == "local" else f"{place[0]} device {place[1]}"


def _bytes(plan: dict[str, Any], buffers: list[dict[str, Any]], proof: Proof) -> None:
    seen: dict[tuple, int] = defaultdict(int)
    mapped: set[Place] = set()
    for buffer in buffers:
        if buffer["model"] == "target":
            place = _seen_place(buffer)
            seen[(place, buffer["kind"])] += buffer["bytes"]
            if buffer["device"].endswith("_Mapped"):
                mapped.add(place)
    planned: dict[tuple, int] = defaultdict(int)
    for stage in plan["stages"]:
        place = _planned_place(plan, stage)
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
                f"{_name(place)} holds {have / MIB:.1f} MiB of {'KV cache' if kind == 'kv' else kind}, "
                f"planned are {want / MIB:.1f} MiB."
            )
    if len(proof.differences) == before:
        proof.proven.append("Weights and KV cache lie on the devices of the plan, to the MiB.")


def _draft_place(plan: dict[str, Any], buffers: list[dict[str, Any]], proof: Proof) -> None:
    if not plan["draft"]["enabled"]:
        return
    device = plan["draft"]["device"]
    wanted: Place = ("local", "CPU" if device in (None, "none") else device)
    strays: dict[Place, int] = defaultdict(int)
    held = 0
    for buffer in buffers:
        if buffer["model"] != "draft" or buffer["kind"] not in ("weights", "kv"):
            continue
        place = _seen_place(buffer)
        # The token embedding of any model stays in the host's RAM.
        if place == wanted:
            held += buffer["bytes"]
        elif not (place == ("local", "CPU") and buffer["kind"] == "weights"):
            strays[place] += buffer["bytes"]
    for place, size in sorted(strays.items(), key=str):
        proof.differences.append(
            f"{size / MIB:.1f} MiB of the draft lie on {_name(place)}, "
            f"planned is {_name(wanted)} of {plan['host']} only."
        )
    if not strays and held:
        proof.proven.append(f"The draft's {held / MIB:.1f} MiB lie on {_name(wanted)} of {plan['host']}.")
