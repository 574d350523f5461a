# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything about one running ``llama-server``: HTTP, unit and log put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.relay.pool.plugins.module_utils import llama_log, llama_server, llama_unit, small_files

TOOL_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True)
class Options:
    """What to ask. ``timeout`` is in seconds and per request."""

    url: str = "http://127.0.0.1:8384"
    prompt: str = "The capital of France is"
    max_tokens: int = 32
    temperature: float = 0.0
    complete: bool = True
    api_key: str | None = None
    api_key_file: str | None = None
    timeout: float = 60.0
    unit: str | None = None


def read_key(options: Options) -> tuple[str, str | None]:
    """(key or empty, what went wrong or None)."""
    if options.api_key:
        return options.api_key, None
    if not options.api_key_file:
        return "", None
    try:
        lines = small_files.read_bytes(options.api_key_file).decode("utf-8").splitlines()
    except OSError as exc:
        return "", f"api_key_file {options.api_key_file} cannot be read: {exc.strerror or exc}"
    except UnicodeDecodeError:
        # The exception would quote the file.
        return "", f"api_key_file {options.api_key_file} cannot be read: it is no UTF-8 text"
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        return "", f"api_key_file {options.api_key_file} holds no key"
    return keys[0], None


def _add_unit(result: dict[str, Any], name: str) -> None:
    unit, message = llama_unit.describe_unit(name, TOOL_TIMEOUT_SECONDS)
    result["unit"] = unit
    if unit is None:
        result["log_error"] = message or f"unit {name} does not exist"
        return
    head, tail, result["log_error"] = llama_unit.read_log(unit["invocation_id"] or "", TOOL_TIMEOUT_SECONDS)
    log = llama_log.parse(head)
    result.update(buffers=log.buffers, layers=log.layers, spec_types=log.spec_types, spec_error=log.spec_error)
    result["draft_loading"] = log.draft_loading
    result["log_tail"] = llama_unit.error_lines(tail)
    if result["state"] == "down":
        # Connecting to the workers comes before the port opens, so a live process without a port is no dead one.
        state = "running, and has not opened its port yet" if unit["active"] else f"not active ({unit['sub_state']})"
        result["error"] = f"{result['error']}; {name} is {state}, restarted {unit['n_restarts']} times"
    if result["error"] and result["log_tail"] and result["state"] != "loading":
        result["error"] += f"; its log says: {result['log_tail'][-1]}"


def run(options: Options) -> dict[str, Any]:
    """Ask the server; what is wrong is in ``error``, nothing is raised for it."""
    key, key_error = read_key(options)
    client = llama_server.Client(options.url, key, options.timeout)
    result = llama_server.probe(client, options.prompt, options.max_tokens, options.temperature, options.complete)
    result.setdefault("completion_seconds", None)
    result.update(unit=None, buffers=[], layers=[], spec_types=[], spec_error=None, log_tail=[], log_error=None)
    result["draft_loading"] = False
    if key_error:
        result["error"] = key_error if result["error"] is None else f"{result['error']}; {key_error}"
    if options.unit:
        _add_unit(result, options.unit)
    return result
