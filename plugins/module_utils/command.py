# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a tool of the machine so that it cannot hold up the play.

A tool such as ``nvidia-smi`` may hang in the driver, and may leave a child that keeps the pipe open after the
tool itself is gone; ``subprocess.run(timeout=)`` then blocks on that pipe. Here the tool gets its own process
group, is killed as a group, and the caller is back within ``timeout`` plus one second whatever happens.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Sequence

# How long to go on reading after the tool has ended while something still holds its pipe.
PIPE_GRACE_SECONDS = 0.3
# How long to wait for the kernel to hand over a killed process; one stuck in a driver never comes.
REAP_SECONDS = 0.5
POLL_SECONDS = 0.05
DEFAULT_MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Result:
    """What came of a command. ``error`` is None when the tool ran and ended with 0."""

    rc: int | None
    stdout: str
    stderr: str
    error: str | None
    truncated: bool = False

    @property
    def ok(self) -> bool:
        return self.error is None


def clean_environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """The environment for a tool whose output is parsed: English, no pager, no llama.cpp options."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_ARG_")}
    env.update({"LC_ALL": "C", "LANG": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"})
    env.update(extra or {})
    return env


def first_line(*texts: str) -> str:
    """The first line that says something, from the texts in their order."""
    for text in texts:
        for line in text.splitlines():
            if line.strip():
                return line.strip()
    return ""


def _kill_group(process: subprocess.Popen) -> None:
    # The group id is the leader's pid. While the leader is not reaped, or a member lives, nobody else can have it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _reap(process: subprocess.Popen) -> int | None:
    try:
        return process.wait(timeout=REAP_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _read(process: subprocess.Popen, deadline: float, max_bytes: int):
    """Read both pipes until they close, the deadline passes or enough is read."""
    chunks: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    size = 0
    truncated = False
    timed_out = False
    grace_until: float | None = None
    with selectors.DefaultSelector() as selector:
        for name in chunks:
            stream = getattr(process, name)
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, name)
        while selector.get_map() and not truncated:
            now = time.monotonic()
            if now >= deadline:
                timed_out = process.poll() is None
                break
            if grace_until is None and process.poll() is not None:
                grace_until = now + PIPE_GRACE_SECONDS
            if grace_until is not None and now >= grace_until:
                break
            for key, _events in selector.select(min(POLL_SECONDS, deadline - now)):
                try:
                    data = os.read(key.fd, 65536)
                except BlockingIOError:
                    continue
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                chunks[key.data].append(data)
                size += len(data)
                truncated = size >= max_bytes
        held = bool(selector.get_map())
    texts = {name: b"".join(parts).decode("utf-8", "replace") for name, parts in chunks.items()}
    return texts, held, timed_out, truncated


def run(
    argv: Sequence[str],
    timeout: float = 10.0,
    env: dict[str, str] | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Result:
    """Run ``argv`` for at most ``timeout`` seconds and read at most ``max_bytes`` of its output.

    Output beyond ``max_bytes`` ends the tool and sets ``truncated``; that is no error.
    """
    name = os.path.basename(argv[0])
    deadline = time.monotonic() + timeout
    try:
        # AnsibleModule.run_command has neither a timeout nor a process group of its own.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment() if env is None else env,
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        # ValueError: an argument holds a NUL byte.
        why = getattr(exc, "strerror", None) or exc
        if isinstance(exc, FileNotFoundError) and os.path.isfile(argv[0]):
            why = f"the interpreter that the first line of {argv[0]} names is not there, or its loader"
        return Result(None, "", "", f"{name} cannot be started: {why}")
    try:
        texts, held, timed_out, truncated = _read(process, deadline, max_bytes)
        if not held and not timed_out:
            # Both pipes are closed; the tool itself may still be busy until the deadline.
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                timed_out = True
        if held or timed_out or truncated:
            _kill_group(process)
        rc = _reap(process)
    finally:
        process.stdout.close()
        process.stderr.close()
    out, err = texts["stdout"], texts["stderr"]
    if timed_out:
        return Result(None, out, err, f"{name} gave no answer within {round(timeout, 2):g} s and was killed", truncated)
    if truncated:
        return Result(rc, out, err, None, True)
    if rc is None:
        return Result(None, out, err, f"{name} was killed and has not ended")
    if rc < 0:
        return Result(rc, out, err, f"{name} was ended by signal {abs(rc)}: {first_line(err, out)}".rstrip(": "))
    if rc > 0:
        return Result(rc, out, err, f"{name} ended with {rc}: {first_line(out, err)}".rstrip(": "))
    return Result(rc, out, err, None)
