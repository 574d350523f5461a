# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an installed llama.cpp itself says that a model takes, per device: its ``llama-fit-params --fit-print on``.

The program reads the header of the model, asks the workers how large each buffer would be, allocates none of them and
prints a line per device, the host's RAM last (common_fit_print, common/fit.cpp)::

    RPC0 158 0 38
    Host 92 45 104

Name, weights, context (KV cache and recurrent state) and compute buffer, in MiB rounded down. It hangs where a worker
is busy, and it asserts where a model is odd, so nothing that it does or says is a reason to fail.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Callable, Dict, Sequence

from ansible_collections.relay.pool.plugins.module_utils import command
from ansible_collections.relay.pool.plugins.module_utils.sizes import MIB

HOST = "Host"
# llama.cpp applies it before the command line, and no option of the program turns that off (common/arg.cpp).
CONFIG_FILES = ("/etc/llama.cpp/config.ini",)
# It may end before everything that it says is written.
ATTEMPTS = 3
MAX_BYTES = MIB
_ROW = re.compile(r"(\S+) +([0-9]{1,12}) +([0-9]{1,12}) +([0-9]{1,12}) *\Z")

Devices = Dict[str, Dict[str, int]]


def parse(text: str) -> Devices | None:
    """Bytes per device from what the program printed, or None when that is not what it is known to print."""
    found: Devices = {}
    for line in text.splitlines():
        row = _ROW.match(line)
        if row is None:
            continue
        if row.group(1) in found or HOST in found:
            return None
        weights, context, compute = (int(number) * MIB for number in row.groups()[1:])
        found[row.group(1)] = {"weights_bytes": weights, "context_bytes": context, "compute_bytes": compute}
    return found if HOST in found else None


def _as_user(user: str, groups: Sequence[str]) -> list[str]:
    """The words before a command that is to run as somebody else."""
    if not user:
        return []
    return ["runuser", "-u", user, *(word for group in groups for word in ("-G", group)), "--"]


def environment(given: dict[str, Any]) -> dict[str, str]:
    """Nothing of whoever runs this, as for a service, but the search path and what is given.

    Raises ValueError for what is no text or number.
    """
    for name, value in given.items():
        if value is None or isinstance(value, (bool, dict, list)):
            raise ValueError(f"environment.{name} is no text: write its value in quotes, or leave it out")
    clean = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "LANG": "C", "HOME": "/nonexistent"}
    # A configuration file of a user would change what is measured.
    clean.update({"XDG_CONFIG_HOME": "/nonexistent", "GGML_NO_BACKTRACE": "1"})
    clean.update({str(name): str(value) for name, value in given.items()})
    return clean


def measure(
    program: str,
    args: Sequence[str],
    timeout: float,
    user: str = "",
    groups: Sequence[str] = (),
    env: dict[str, str] | None = None,
    run: Callable[..., command.Result] = command.run,
    config_files: Sequence[str] = CONFIG_FILES,
) -> dict[str, Any]:
    """``{"devices": bytes per device or None, "error": why not or None}``; ``timeout`` is in seconds, for all attempts.

    The program and all that it started are killed when the time is up.
    """
    name = os.path.basename(program)
    present = [path for path in config_files if os.path.lexists(path)]
    if present:
        return _unknown(f"{present[0]} of the machine would change what {name} measures, which the services do not see")
    argv = [*_as_user(user, groups), program, *args, "--fit-print", "on"]
    end = time.monotonic() + timeout
    result = None
    for _attempt in range(ATTEMPTS):
        left = end - time.monotonic()
        if left <= 0:
            break
        result = run(argv, timeout=left, env=environment({}) if env is None else env, max_bytes=MAX_BYTES)
        devices = parse(result.stdout)
        if result.ok and devices:
            return {"devices": devices, "error": None}
        if not result.ok:
            break
    return _unknown(_why(name, result))


def _why(name: str, result: command.Result | None) -> str:
    if result is None:
        return f"{name} was given no time"
    if result.ok:
        said = command.first_line(result.stdout, result.stderr)
        return f"{name} printed no table of devices, but {_short(said)!r}" if said else f"{name} printed nothing"
    # What it complains of stands last, after its own progress.
    telling = [line for line in result.stderr.splitlines() if re.search(r"error|fail|abort|assert", line, re.I)]
    last = f" ({_short(telling[-1].strip())})" if telling and telling[-1].strip() not in str(result.error) else ""
    error = str(result.error)
    if error.startswith("runuser ") and not error.startswith("runuser cannot be started"):
        # named by what was run, not by how
        error = name + error[len("runuser") :]
    return _short(error) + last


def _short(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text[:300])


def _unknown(error: str) -> dict[str, Any]:
    return {"devices": None, "error": error}
