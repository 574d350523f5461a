# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What llama.cpp itself says of one run.

Both programs measure a model without allocating it and log the result as JSON. llama-server does so before it loads
(``--fit on``; nothing is changed, as every size is given) and is ended there: its figures are those of the plan's own
command line, with as many output rows as a server reserves. llama-fit-params reserves a row for every token of a micro
batch and ends by itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.conftest import Worker, clean_environment, stop
from tests.memory.grid import Run

SECONDS = 120
ATTEMPTS = 20
# What the server's command line has and llama-fit-params does not take.
SERVER_ONLY = frozenset(("--cont-batching", "--jinja"))
COMPUTE = re.compile(r"sched_reserve: +(\S+) compute buffer size = +([0-9.]+) MiB")
KV = re.compile(r"llama_kv_cache\w*: size = +([0-9.]+) MiB \( *(\d+) cells, +(\d+) layers")
STATE = re.compile(r"llama_memory_recurrent: size = +([0-9.]+) MiB")
TELLING = re.compile(r"error|missing|wrong shape|failed|GGML_ASSERT|unknown model|invalid|not found", re.I)
BUILD = re.compile(r"build (\d+)")
COPIES = re.compile(r"sched copies = (\d+)")


class Refused(Exception):
    """llama.cpp does not load the model, or not in this way."""


class Aborted(Refused):
    """llama.cpp ends with a signal while it measures, as it would while it serves."""


@dataclass(frozen=True)
class Measured:
    """One device in MiB: weights and context rounded down, as llama.cpp prints them; compute to a hundredth.

    parts: how many rounded figures were summed. The CPU's weights may lie in several kinds of buffer.
    """

    weights: int
    context: int
    compute: float
    parts: int = 1


@dataclass
class Truth:
    """All devices, "Host" being the CPU; the rest is over all devices.

    kv: (MiB, cells, layers) of each cache. recurrent: MiB. copies: what pipeline parallelism keeps of an input.
    build: llama.cpp's number of itself.
    """

    devices: dict[str, Measured] = field(default_factory=dict)
    kv: list[tuple[float, int, int]] = field(default_factory=list)
    recurrent: float = 0.0
    copies: int = 0
    build: str = ""


class Pool:
    """Workers for one run at a time; a worker that died is replaced."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.binaries, self.folder = binaries, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.env = clean_environment(folder)
        self.workers: list[Worker] = []

    def endpoints(self, count: int) -> list[str]:
        """The addresses of that many live workers."""
        self.workers = [worker for worker in self.workers if worker.process.poll() is None]
        while len(self.workers) < count:
            worker = Worker(self.binaries / "ggml-rpc-server", self.folder, self.env)
            self.workers.append(worker)
            worker.wait()
        return [worker.endpoint for worker in self.workers[:count]]

    def close(self) -> None:
        """End them."""
        for worker in self.workers:
            stop(worker.process)
        self.workers = []


def ask(pool: Pool, run: Run, args: list[str], endpoints: list[str]) -> Truth:
    """llama.cpp's figures; raises Refused or Aborted with its own words."""
    for _attempt in range(ATTEMPTS):
        said, rows, status = _call(pool, _command(pool.binaries, run, args))
        # llama-fit-params may end before its log is written to the end
        if rows is not None or status != 0:
            break
    if rows is not None:
        return _truth(said, rows, endpoints)
    raise (Aborted if status < 0 or status > 128 else Refused)(_reason(said))


def _command(binaries: Path, run: Run, args: list[str]) -> list[str]:
    if run.program == "server":
        words = ["llama-server", *args, "--fit", "on", "--no-warmup", "--host", "127.0.0.1", "--port", "0"]
    else:
        words = ["llama-fit-params", *(word for word in args if word not in SERVER_ONLY), "--fit-print", "on"]
    return [str(binaries / words[0]), *words[1:], "--verbosity", "5", "--log-jsonl"]


def _call(pool: Pool, command: list[str]) -> tuple[str, list[dict] | None, int]:
    """(what it said, the measurement or None, its exit status)."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=pool.env, text=True,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        try:
            said, rows = _listen(process)
            if rows is not None:
                # a server would now load the weights
                process.kill()
            process.wait()
        finally:
            timer.cancel()
            process.kill()
            process.wait()
            process.stdout.close()
        errors.seek(0)
        return said + errors.read().decode("utf-8", "replace"), rows, process.returncode


def _listen(process: subprocess.Popen) -> tuple[str, list[dict] | None]:
    """Everything that was logged until the measurement, and the measurement."""
    said = []
    for line in process.stdout:
        try:
            entry = json.loads(line)
        except ValueError:
            said.append(line)
            continue
        if not isinstance(entry, dict):
            continue
        if entry.get("type") == "fit_memory_breakdown":
            return "".join(said), entry["data"]["rows"]
        said.append(str(entry.get("msg", "")) + "\n")
    return "".join(said), None


def _reason(said: str) -> str:
    """Its complaints, which stand among thousands of lines."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if TELLING.search(line) and "loading tensor" not in line]
    return " | ".join((telling or lines)[:3]) or "it said nothing"


def _truth(said: str, rows: list[dict], endpoints: list[str]) -> Truth:
    compute: dict[str, float] = {}
    for name, size in COMPUTE.findall(said):
        # a remote buffer is named after the device inside its worker, so only the endpoint tells them apart
        remote = re.match(r"RPC\d+\[(.+)\]$", name)
        compute[f"RPC{endpoints.index(remote.group(1))}" if remote else "Host"] = float(size)
    sums: dict[str, list[int]] = {}
    parts: dict[str, int] = {}
    for row in rows:
        # weights that the CPU keeps in another order lie in a buffer type of their own
        name = row["name"] if row["kind"] == "device" else "Host"
        sums.setdefault(name, [0, 0, 0])
        parts[name] = parts.get(name, 0) + 1
        for index, column in enumerate(("model", "context", "compute")):
            sums[name][index] += row[column]
    truth = Truth(
        kv=[(float(size), int(cells), int(layers)) for size, cells, layers in KV.findall(said)],
        recurrent=sum(float(size) for size in STATE.findall(said)),
        copies=int((COPIES.findall(said) or [0])[-1]),
        build=(BUILD.findall(said) or [""])[0],
    )
    for name, (weights, context, whole) in sums.items():
        exact = compute.get(name, 0.0)
        if abs(int(exact) - whole) > 1:
            raise Refused(f"{name} has a compute buffer of {exact} MiB in the log and of {whole} MiB in the table")
        truth.devices[name] = Measured(weights, context, exact, parts[name])
    return truth
