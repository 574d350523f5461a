# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The embedded pool as a bench: its workers' services as they were deployed, and a llama-server of our own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent.parent
PODMAN = ROOT / "inventories" / "demo" / "bin" / "podman"
HOST, WORKERS = "relay-demo-host", ("relay-demo-worker1", "relay-demo-worker2")
ADDRESSES = ("10.89.77.11", "10.89.77.12")
ENDPOINTS = tuple(f"{address}:50052" for address in ADDRESSES)
BIN = "/opt/relay-pool/llama.cpp/current/bin"
PORT = 18384
URL = f"http://10.89.77.10:{PORT}"
READY_SECONDS = 120


def on(machine: str, *argv: str, check: bool = True) -> str:
    """Run a command on a machine, and what it says."""
    done = subprocess.run(
        [str(PODMAN), "exec", machine, *argv], capture_output=True, text=True, timeout=120, check=check
    )
    return done.stdout.strip()


def _ask(path: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def seconds_per_token(tokens: int, repeats: int = 3) -> float:
    """Of the server that runs; the quickest of a few completions, as the machine does other things too."""
    body = {"prompt": "hello", "n_predict": tokens, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
    _ask("/completion", {**body, "n_predict": 2})
    return min(_ask("/completion", body)["timings"]["predicted_per_token_ms"] for _try in range(repeats)) / 1000


@contextlib.contextmanager
def server(args: Sequence[str]) -> Iterator[None]:
    """A llama-server on the host with these arguments; the address is added."""
    command = [str(PODMAN), "exec", HOST, f"{BIN}/llama-server", *args, "--host", "0.0.0.0", "--port", str(PORT)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + READY_SECONDS
            while True:
                with contextlib.suppress(urllib.error.URLError, OSError):
                    if _ask("/health").get("status") == "ok":
                        break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"llama-server did not start: {' '.join(args)}")
                time.sleep(0.1)
            yield
        finally:
            on(HOST, "pkill", "-KILL", "-f", f"port {PORT}", check=False)
            process.wait()


@contextlib.contextmanager
def slowed(machine: str, share: float) -> Iterator[None]:
    """The worker's ggml-rpc-server has only this share of its time."""
    pid = on(machine, "systemctl", "show", "--property", "MainPID", "--value", "relay-rpc")
    source = Path(__file__).with_name("throttle.py").read_text(encoding="utf-8")
    command = [str(PODMAN), "exec", machine, "python3", "-c", source, pid, str(share)]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            on(machine, "pkill", "-TERM", "-f", "SIGSTOP", check=False)
            process.wait()
