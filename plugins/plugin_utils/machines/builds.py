# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a worker has the build of llama.cpp that the host has: matching protocols do not prove matching behaviour."""

from __future__ import annotations

from typing import Any, Mapping


def build_problem(name: str, node: Mapping[str, Any], host: str, llama: Mapping[str, Any] | None) -> str | None:
    """A sentence when the worker is known to have another build than the host, whose llama_info is ``llama``.

    A machine where llama.cpp is not installed yet, or does not say what it is, has no other build.
    """
    own, wanted = node.get("llama") or {}, llama or {}
    if _is_same(own, wanted):
        return None
    return (
        f"{name} has llama.cpp {_shown(own, wanted)}, {host} has {_shown(wanted, own)}, and a server may only talk to "
        "workers of its own build: deploy one build to all"
    )


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Unknown parts are no difference; a build number of 0 is an unknown one, and a commit may be cut short."""
    for key in ("version", "build"):
        if one.get(key) and other.get(key) and one[key] != other[key]:
            return False
    commits = [str(build["commit"]) for build in (one, other) if build.get("commit")]
    return len(commits) < 2 or commits[0].startswith(commits[1]) or commits[1].startswith(commits[0])


def _shown(build: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Version, number and commit, and the RPC protocol where the two differ in it."""
    parts = [f"build {build['build']}"] if build.get("build") else []
    parts += [f"commit {build['commit']}"] if build.get("commit") else []
    protocol = build.get("rpc_protocol")
    if protocol and other.get("rpc_protocol") and protocol != other["rpc_protocol"]:
        parts.append(f"RPC {protocol}")
    return f"{build.get('version') or 'of unknown version'} ({', '.join(parts) or 'no commit known'})"
