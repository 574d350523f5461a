# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan's bytes beside those that the installed llama.cpp itself measures with ``llama-fit-params``.

What the program is asked with, and whether what it says is more than the plan keeps free.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import SPELLINGS
from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB, mib

HOST = "Host"
# What of llama-server's command line decides the memory and llama-fit-params takes, too.
DECIDING = frozenset(
    (
        "--model", "--rpc", "--device", "--tensor-split", *SPELLINGS["--n-gpu-layers"], "--ctx-size", "--parallel",
        "--cache-type-k", "--cache-type-v", "--flash-attn", "--batch-size", "--ubatch-size", "--override-kv",
        "--override-tensor",
    )
)  # fmt: skip
DECIDING_BARE = frozenset(("--no-repack", "-nr", "--repack", "--no-host"))
# The only kind of draft that is a model of its own.
WHOLE_MODEL = "draft-simple"
# The draft has a cache of its own, and no other device than its own.
OF_THE_DRAFT_TOO = frozenset(("--ctx-size", "--parallel", "--flash-attn", "--batch-size", "--ubatch-size"))
PARTS = ("weights", "context", "compute")

# Bytes by part, by llama.cpp's name of a device.
Measured = Mapping[str, Mapping[str, int]]


class Fit(NamedTuple):
    """What came of it: sentences in each list."""

    exceeded: list[str]
    agreed: list[str]
    unchecked: list[str]


def value_of(plan: Mapping[str, Any], flag: str, default: str = "") -> str:
    """The value of an option of the plan's llama-server in today's spelling; the last one counts."""
    names = SPELLINGS.get(flag, (flag,))
    words = plan["server_args"]
    values = [value for name, value in zip(words, words[1:]) if name in names]
    return values[-1] if values else default


def target_args(plan: Mapping[str, Any]) -> list[str]:
    """Arguments of llama-fit-params for the target."""
    words = plan["server_args"]
    found: list[str] = []
    for position, word in enumerate(words):
        if word in DECIDING:
            found += words[position : position + 2]
        elif word in DECIDING_BARE:
            found.append(word)
    return found


def draft_args(plan: Mapping[str, Any]) -> list[str]:
    """Arguments of llama-fit-params for the draft; empty without one. llama-server keeps its cache as f16.

    Empty also for what the program cannot load: layers of the target, and heads that are no whole model.
    """
    draft = plan["draft"]
    if not draft["enabled"] or plan["speculation"] != WHOLE_MODEL:
        return []
    words = plan["server_args"]
    shared = [pair for pair in zip(words, words[1:]) if pair[0] in OF_THE_DRAFT_TOO]
    layers = value_of(plan, "--spec-draft-ngl")
    # A worker's device has its name only after --rpc.
    rpc = ["--rpc", value_of(plan, "--rpc")] if draft["device"].startswith("RPC") else []
    own = ["--model", draft["path"], *rpc, "--device", draft["device"]]
    own += ["--n-gpu-layers", layers] if layers else []
    return own + [word for pair in shared for word in pair]


def judge(
    plan: Mapping[str, Any],
    target: Mapping[str, Any],
    draft: Mapping[str, Any] | None,
    rows: Mapping[str, Mapping[str, int]],
) -> Fit:
    """Whether the installed build needs more than the plan keeps free.

    :param target: ``fit`` of relay.pool.llama_fit for ``target_args``, draft: that for ``draft_args``.
    :param rows: what of the measured compute buffers a server does not have, see ``exceeded``.
    """
    measured: dict[str, Measured] = {}
    unchecked = []
    whole = plan["draft"]["enabled"] and plan["speculation"] == WHOLE_MODEL
    if plan["draft"]["enabled"] and not whole:
        what = plan["draft"]["path"] or "layers of the target"
        unchecked.append(
            f"The bytes of {plan['speculation']} ({what}) were not compared: llama-fit-params loads whole models only."
        )
    for name, fit in (("target", target), ("draft", draft if whole else None)):
        if fit is None:
            continue
        path = plan["model"]["path"] if name == "target" else plan["draft"]["path"]
        problem = fit["error"] or _other_devices(plan, name, fit["devices"])
        if problem:
            unchecked.append(
                f"The bytes of {path} were not compared with those that the installed llama.cpp measures: {problem}."
            )
        else:
            measured[name] = fit["devices"]
    if "target" not in measured:
        return Fit([], [], unchecked)
    found = exceeded(plan, measured, rows)
    names = ", ".join(measured["target"])
    with_draft = " and its draft" if "draft" in measured else ""
    agreed = (
        [] if found else [f"The installed llama.cpp measures no more than planned for the model{with_draft}: {names}."]
    )
    return Fit(found, agreed, unchecked)


def exceeded(
    plan: Mapping[str, Any],
    measured: Mapping[str, Measured],
    rows: Mapping[str, Mapping[str, int]] | None = None,
) -> list[str]:
    """A sentence per device of which the build needs more than the plan has: both numbers, and those of each part.

    Each figure is rounded down to MiB, so that much of each is forgiven. What one part has too little another may
    have too much; the device decides.

    :param measured: by ``target`` and ``draft``, the latter only where it was measured, the bytes by device.
    :param rows: by ``target`` and ``draft``, by device, what must be taken from the measured compute buffer, since
        llama-fit-params reserves an output row for every token of a micro batch. May be negative.
    """
    sentences = []
    for stage in plan["stages"]:
        name = device_name(stage)
        memory = stage["memory"]
        planned = {
            "weights": memory["weights_bytes"],
            "context": memory["kv_bytes"] + memory["recurrent_bytes"],
            "compute": memory["compute_bytes"],
        }
        real = _parts(measured, rows, "target", name)
        figures = len(real)
        if "draft" in measured:
            figures += len(PARTS) if name in measured["draft"] else 0
            planned["draft"] = memory["draft_bytes"]
            real["draft"] = sum(_parts(measured, rows, "draft", name).values())
        if not figures:
            continue
        if sum(real.values()) <= sum(planned[part] for part in real) + figures * MIB:
            continue
        sentences.append(
            f"{stage['host']} {stage['device']} would need {mib(sum(real.values()))} with the installed llama.cpp "
            f"({_listed(real)}), and the plan has {mib(sum(planned[part] for part in real))} ({_listed(planned)})."
        )
    return sentences


def device_name(stage: Mapping[str, Any]) -> str:
    """The name that llama-server's own programs give to the device of a stage."""
    return stage["rpc_device"] or (HOST if stage["device"] == "CPU" else stage["device"])


def _parts(
    measured: Mapping[str, Measured], rows: Mapping[str, Mapping[str, int]] | None, model: str, name: str
) -> dict[str, int]:
    found = measured[model].get(name)
    if found is None:
        return {}
    parts = {part: found[f"{part}_bytes"] for part in PARTS}
    parts["compute"] = max(parts["compute"] - ((rows or {}).get(model) or {}).get(name, 0), 0)
    return parts


def _other_devices(plan: Mapping[str, Any], model: str, devices: Measured) -> str | None:
    """Why what was measured is not of the plan's devices, or None."""
    if model == "target":
        wanted = [name for name in plan["devices"] if name != "none"]
        if not wanted:
            # a server with all its GPUs is not told which
            wanted = [device_name(stage) for stage in plan["stages"] if stage["n_layers"] or stage["has_output"]]
    else:
        wanted = [plan["draft"]["device"]]
    wanted = [name for name in wanted if name not in (HOST, "none", None)]
    seen = [name for name in devices if name != HOST]
    if seen == wanted and HOST in devices:
        return None
    return f"it names the devices {', '.join(devices)}, and the plan has {', '.join([*wanted, HOST])}"


def _listed(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{part} {mib(size)}" for part, size in parts.items())


def check_result(fit: Any) -> Mapping[str, Any]:
    """``fit`` of relay.pool.llama_fit as it is; raises PoolError for anything else."""
    devices = fit.get("devices") if isinstance(fit, Mapping) else None
    sound = isinstance(fit, Mapping) and (isinstance(devices, Mapping) or isinstance(fit.get("error"), str))
    if not sound:
        raise PoolError(f"{fit!r:.80} is no result of relay.pool.llama_fit")
    return fit
