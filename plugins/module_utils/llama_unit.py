# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd side of a running ``llama-server``: its unit and what it logged since it started."""

from __future__ import annotations

import re
from typing import Any, Callable

from ansible_collections.relay.pool.plugins.module_utils import command, llama_log, units
from ansible_collections.relay.pool.plugins.module_utils.sizes import digits

# A pool that has served for weeks logs much; what is read for buffers stands at the start of the invocation.
HEAD_BYTES = 8 * 1024 * 1024
TAIL_LINES = 60
TAIL_KEPT = 12
_INVOCATION = re.compile(r"^[0-9a-f]{32}$")
# "0.12.345.678 E srv  load_model: ...": the level stands between the clock and the text.
_LOG_PREFIX = re.compile(r"^\d+\.\d\d\.\d{3}\.\d{3}\s+([A-Z])\s")
_ERROR_WORDS = re.compile(
    r"\b(error|fail(ed)?|fatal|abort\w*|assert\w*|crashed|mismatch|cannot|could not|out of memory|killed|exiting)\b",
    re.IGNORECASE,
)


def describe_unit(
    name: str, timeout: float, run: Callable[..., command.Result] = command.run
) -> tuple[dict[str, Any] | None, str | None]:
    """(state of the unit or None when it does not exist, what went wrong or None)."""
    shown, messages = units.show([name], timeout, run)
    if not shown:
        return None, messages[0] if messages else None
    properties = shown[0]
    return {
        "active": properties.get("ActiveState") == "active",
        "sub_state": properties.get("SubState", ""),
        "main_pid": units.main_pid(properties),
        "n_restarts": digits(properties.get("NRestarts", "")) or 0,
        "invocation_id": properties.get("InvocationID") or None,
    }, None


def read_log(
    invocation_id: str,
    timeout: float,
    run: Callable[..., command.Result] = command.run,
) -> tuple[str, str, str | None]:
    """(first bytes, last lines, what went wrong or None) of the journal of one invocation."""
    if not _INVOCATION.match(invocation_id or ""):
        return "", "", "the unit has no invocation yet"
    base = ["journalctl", "--no-pager", "--quiet", "--output=cat", f"_SYSTEMD_INVOCATION_ID={invocation_id}"]
    head = run(base, timeout=timeout, max_bytes=HEAD_BYTES)
    tail = head
    if head.truncated:
        tail = run([*base, f"--lines={TAIL_LINES}"], timeout=timeout)
    error = head.error
    if error is None and not head.stdout.strip():
        error = "the journal holds nothing of this invocation, or is not for this user"
    return head.stdout, "\n".join(tail.stdout.splitlines()[-TAIL_LINES:]), error


def error_lines(text: str, keep: int = TAIL_KEPT) -> list[str]:
    """The last lines that look like trouble: level E or W, or words of failure where there is no level."""
    found = []
    for line in (whole[: llama_log.MAX_LINE_CHARACTERS] for whole in text.splitlines()):
        prefix = _LOG_PREFIX.match(line)
        if (prefix and prefix.group(1) in "EW") or (not prefix and _ERROR_WORDS.search(line)):
            found.append(line.strip()[:500])
    return found[-keep:]
