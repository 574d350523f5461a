# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between the inputs of two plans, in words that an operator can act on."""

from __future__ import annotations

from typing import Any, Collection, Iterator, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.units import mib

# Options of the planner whose variable is not just relay_ and the name.
VARIABLES = {
    "cache_type_k": "relay_kv_cache_type",
    "cache_type_v": "relay_kv_cache_type",
    "server_host": "relay_host_address",
    "server_port": "relay_host_port",
    "draft_path": "relay_draft_model",
    "api_key_file": "relay_api_key",
}
# Options that no variable sets.
UNNAMED = frozenset(("batch_size", "rpc_cache", "metrics", "log_verbosity"))
# Parts of a machine, which every device of it repeats.
MACHINE_PARTS = {"address": "the address of", "threads": "the number of physical cores of"}
MAX_CHARACTERS = 120


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """A phrase for everything that differs between two results of ``deciding_inputs``; empty when they are equal.

    :raises: one of ``errors.UNREADABLE`` where ``before`` comes from a file that was edited.
    """
    found = [
        *_members(before, after),
        *_devices(before["devices"], after["devices"], _machines(before) & _machines(after)),
        *_model(before["model"], after["model"]),
        *_draft(before, after),
        *_options(before["options"], after["options"]),
        *_dialect(before["dialect"], after["dialect"]),
    ]
    known = {"host", "workers", "devices", "model", "draft", "options", "dialect", "draft_reason"}
    if not found and before["draft_reason"] != after["draft_reason"]:
        found.append(_was("draft.reason", before["draft_reason"], after["draft_reason"]))
    found += [
        _was(name, before.get(name), after.get(name))
        for name in sorted((set(before) | set(after)) - known)
        if before.get(name) != after.get(name)
    ]
    return list(dict.fromkeys(found))


def _shown(value: Any) -> str:
    """A value as the user writes it, not longer than people read."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        value = " ".join(map(str, value))
    text = {None: "unset", "": "empty"}.get(value) if value in (None, "") else str(value)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 3] + "..."


def _was(name: str, before: Any, after: Any) -> str:
    return f"{name} was {_shown(before)} and is {_shown(after)}"


def _machines(inputs: Mapping[str, Any]) -> set[str]:
    return {inputs["host"], *inputs["workers"]}


def _members(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    was, now = _machines(before), _machines(after)
    if before["host"] != after["host"]:
        yield _was("the host", before["host"], after["host"])
    for name in sorted(was - now):
        yield f"{name} is gone from the pool"
    for name in sorted(now - was):
        yield f"{name} is new in the pool"
    if was == now and before["host"] == after["host"] and before["workers"] != after["workers"]:
        yield f"the workers were {', '.join(before['workers'])} and are {', '.join(after['workers'])}"


def _label(device: Mapping[str, Any]) -> str:
    uuid = f" ({device['uuid']})" if device["uuid"] else ""
    return f"{device['device']}{uuid}"


def _devices(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], machines: set[str]
) -> Iterator[str]:
    """What is another device, or another value of the same one, on the machines that are in both."""

    def by_identity(devices: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Mapping[str, Any]]:
        return {(entry["host"], entry["uuid"] or entry["device"]): entry for entry in devices}

    was, now = by_identity(before), by_identity(after)
    for key, device in was.items():
        if key[0] in machines and key not in now:
            ram = device["device"] == "CPU"
            yield f"the free RAM of {key[0]} is unknown" if ram else f"{key[0]} {_label(device)} is gone"
    for key, device in now.items():
        if key[0] not in machines:
            continue
        if key not in was:
            ram = device["device"] == "CPU"
            yield f"the free RAM of {key[0]} was unknown" if ram else f"{key[0]} has a new GPU {_label(device)}"
        else:
            yield from _parts(was[key], device)


def _parts(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    label = f"{after['host']} {after['device']}"
    for part in dict.fromkeys((*before, *after)):
        was, now = before.get(part), after.get(part)
        if was == now:
            continue
        if part == "device":
            yield f"{after['uuid']} of {after['host']} was {was} and is {now}"
        elif part in MACHINE_PARTS:
            was, now = ("unknown" if value is None else value for value in (was, now))
            yield _was(f"{MACHINE_PARTS[part]} {after['host']}", was, now)
        elif part == "bandwidth":
            yield _was(f"the bandwidth of {label}", _gb_per_second(was), _gb_per_second(now))
        elif part == "capacity_bytes":
            was, now = ("not stated" if size is None else mib(size) for size in (was, now))
            yield _was(f"the memory of {label} in relay_overrides", was, now)
        else:
            yield _was(f"{part} of {label}", was, now)


def _gb_per_second(bandwidth: int | None) -> str:
    return "unknown" if bandwidth is None else f"{bandwidth / 10**9:g} GB/s"


def _file(file: Mapping[str, Any]) -> str:
    size = "of unknown size" if file["size_bytes"] is None else mib(file["size_bytes"])
    return f"{size}, digest {file['digest']}"


def _model(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if before["path"] != after["path"]:
        yield _was("relay_model", before["path"], after["path"])
    if before["digest"] != after["digest"]:
        yield f"the model file is another one (it had {_file(before)}, and has {_file(after)})"


def _draft(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What lies under the same path; another path is among the options."""
    if before["options"]["draft_path"] != after["options"]["draft_path"]:
        return
    was, now = before["draft"], after["draft"]
    if was and not now:
        yield f"there is no draft model {was['path']}"
    elif now and not was:
        yield f"there was no draft model {now['path']}"
    elif was and now and was["digest"] != now["digest"]:
        yield f"the draft file is another one (it had {_file(was)}, and has {_file(now)})"


def _options(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield _was(
                name if name in UNNAMED else VARIABLES.get(name, f"relay_{name}"), before.get(name), after.get(name)
            )


def _dialect(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if "spec_types" in before and set(before["spec_types"]) != set(after["spec_types"]):
        # Another speculation is asked for, which is said elsewhere: only what both are about tells builds apart.
        both = set(before["spec_types"]) & set(after["spec_types"])
        before, after = _without_speculation(before, both), _without_speculation(after, both)
    if before == after:
        return
    changed = set(before["optional"]) ^ set(after["optional"])
    changed |= {flag for flag, _name in set(before["spelling"].items()) ^ set(after["spelling"].items())}
    missing, missing_now = before.get("draft_missing") or {}, after.get("draft_missing") or {}
    if isinstance(missing, Mapping):
        for type in set(missing) & set(missing_now):
            changed |= set(missing[type]) ^ set(missing_now[type])
    changed |= {"--spec-type"} if before.get("spec_types") != after.get("spec_types") else set()
    # What else decides may be told apart one day, and then has no flag.
    which = f", which differs in {', '.join(sorted(changed))}" if changed else ""
    yield f"llama.cpp is another build{which}"


def _without_speculation(decided: Mapping[str, Any], types: Collection[str]) -> dict[str, Any]:
    """The decisions of a build, of speculation only what each of these types has of its own."""
    common = {key: value for key, value in decided.items() if key not in ("p_min", "rpc_draft_crash")}
    spelling = {flag: name for flag, name in decided["spelling"].items() if not flag.startswith("--spec-")}
    own = {
        key: {type: value for type, value in (decided.get(key) or {}).items() if type in types}
        for key in ("spec_types", "draft_missing")
    }
    return {**common, "spelling": spelling, **own}
