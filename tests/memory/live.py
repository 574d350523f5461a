# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger's bytes of speculation beside those of a llama-server that drafts.

``python -m tests.memory.live`` prints every device of every run; ``--only small`` the pairs whose name holds that,
``--write`` writes the part of docs/memory.md. Measuring without allocating is of no use here: a context that drafts
changes its graph after its start, and one that uses its target's output cannot be measured alone. So the server loads
the pair, whose weights are a hole that reads as zeros, answers a prompt of more than a micro batch, and is ended; what
its buffers had grown to it says then (``~llama_context`` at ``-lv 5``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.relay.pool.plugins.module_utils.gguf_info import gguf_facts
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.ledgers import draft_ledger, target_spec
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.memory.heads import output_rows
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger, model_ledger, whole_model
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

from tests.integration.conftest import free_port, stop
from tests.memory.check import binaries
from tests.memory.document import SPECULATION, markdown
from tests.memory.drafting import PAIRS, Pair
from tests.memory.headers import write_header
from tests.memory.parts import Shape
from tests.memory.truth import Pool
from tests.tiny.writer import spm

MIB = 1024 * 1024
SECONDS = 900
# malloc maps what is larger on its own, so that its size is seen (M_MMAP_THRESHOLD of glibc grows up to this).
MALLOC_MIB = 32
GROWN = re.compile(r"~llama_context: +(\S+) compute buffer size (?:is|of) +([0-9.]+) MiB")
CONTEXT = re.compile(r"(?:llama_kv_cache\w*|llama_memory_recurrent): +(\S+) (?:KV|RS) buffer size = +([0-9.]+)")
MODEL = re.compile(r"load_tensors: +(\S+) model buffer size = +([0-9.]+)")


@dataclass(frozen=True)
class Run:
    """workers: 1, or 2 that share the layers as a pipeline; the head is on the last of them."""

    workers: int
    ctx_size: int
    slots: int
    ubatch: int


RUNS = (Run(1, 2048, 1, 512), Run(1, 8192, 2, 512), Run(2, 8192, 2, 512), Run(2, 4096, 4, 128))
# Wide layers take their time on a CPU.
WIDE = (Run(1, 8192, 2, 256), Run(2, 2048, 1, 512))


@dataclass(frozen=True)
class Row:
    """One device of one context, in MiB: what the ledger says, and what the server said."""

    pair: str
    run: Run
    context: str
    device: str
    predicted: float
    measured: float

    @property
    def excess(self) -> float:
        """How much more the ledger keeps free, as a part of what is taken."""
        return self.predicted / self.measured - 1

    @property
    def wrong(self) -> bool:
        """Weights and caches are equal but for rounding; a compute buffer is never larger than predicted."""
        if self.context in ("weights", "caches", "outputs"):
            return abs(self.predicted - self.measured) > 0.05
        return self.predicted < self.measured - 0.0001

    def text(self) -> str:
        """A line for people."""
        run = self.run
        where = f"{run.workers} workers, {run.ctx_size} x{run.slots} ub{run.ubatch}"
        mark = " WRONG" if self.wrong else ""
        sizes = f"{self.predicted:.2f} for {self.measured:.2f} MiB"
        return f"{self.pair}: {where}: {self.context} on {self.device}: {sizes}{mark}"


def runs(pair: Pair) -> tuple[Run, ...]:
    """The arrangements in which that pair is run."""
    return RUNS if pair.target.keys["embedding_length"] < 4096 else WIDE


def written(shape: Shape, folder: Path) -> dict[str, Any]:
    """What gguf_info reads of that shape's file."""
    path = folder / f"{shape.name}.gguf"
    if not path.exists():
        vocabulary = spm(shape.vocab)
        if shape.architecture == "dflash":
            vocabulary = replace(vocabulary, keys={"mask_token_id": 0})
        write_header(shape, path, vocabulary)
    return gguf_facts(str(path))


def compare(pair: Pair, run: Run, pool: Pool, folder: Path) -> list[Row]:
    """Ask both; raises RuntimeError with the end of its log when the server does not come up."""
    target, head = written(pair.target, folder), written(pair.head, folder) if pair.head else None
    endpoints = pool.endpoints(run.workers)
    log, mapped = _served(pair, run, pool, _arguments(pair, run, target, head, endpoints), folder)
    predicted, measured = predict(pair, run, target, head), _measured(log, endpoints)
    rows = predicted["outputs"].get("CPU", 0.0)
    if rows > MALLOC_MIB:
        measured["outputs"] = {"CPU": min((size for size in mapped if size >= rows), default=0.0)}
    else:
        predicted["outputs"] = {}
    return list(_rows(pair, run, predicted, measured))


def _half(pair: Pair) -> int:
    return pair.target.n_layer // 2


def _arguments(
    pair: Pair, run: Run, target: Mapping[str, Any], head: Mapping[str, Any] | None, endpoints: list[str]
) -> list[str]:
    half, last = _half(pair), f"RPC{run.workers - 1}"
    words = ["--model", target["path"], "--rpc", ",".join(endpoints), "--ctx-size", run.ctx_size]
    words += ["--device", ",".join(f"RPC{number}" for number in range(run.workers)), "--n-gpu-layers", "all"]
    words += ["--tensor-split", f"{half},{pair.target.n_layer - half + 1}"] if run.workers == 2 else []
    words += ["--parallel", run.slots, "--ubatch-size", run.ubatch, "--spec-type", pair.kind]
    words += ["--spec-draft-n-max", pair.n_max]
    if head:
        words += ["--spec-draft-model", head["path"], "--spec-draft-ngl", 99, "--spec-draft-device", last]
    return [str(word) for word in words]


def _served(pair: Pair, run: Run, pool: Pool, arguments: list[str], folder: Path) -> tuple[str, list[float]]:
    """The log of a server that has answered and ended, and the MiB of its pieces of memory while it ran."""
    port = free_port()
    log = folder / f"{pair.name}-{port}.log"
    command = [str(pool.binaries / "llama-server"), *arguments, "--fit", "off", "--no-warmup", "-lv", "5"]
    command += ["--threads", "2", "--cache-ram", "0", "--host", "127.0.0.1", "--port", str(port)]
    with open(log, "wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=pool.env)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, url, log)
        prompt = [5 + number % 200 for number in range(min(run.ubatch + 8, run.ctx_size // run.slots - 20))]
        body = {"prompt": prompt, "n_predict": 4, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(url + "/completion", json.dumps(body).encode(), {"Content-Type": "text/json"})
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            drafted = json.load(answer)["timings"].get("draft_n", 0)
        if not drafted:
            raise RuntimeError(f"{pair.name} drafted nothing: {log}")
        mapped = _mapped(process.pid)
    finally:
        stop(process)
    return log.read_text(encoding="utf-8", errors="replace"), mapped


def _mapped(process: int) -> list[float]:
    """MiB of every anonymous mapping of the process."""
    lines = (line.split() for line in Path(f"/proc/{process}/maps").read_text().splitlines())
    ends = (fields[0].split("-") for fields in lines if len(fields) == 5)
    return [(int(end, 16) - int(first, 16)) / MIB for first, end in ends]


def _wait(process: subprocess.Popen, url: str, log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url + "/health", timeout=5) as answer:
            if json.load(answer).get("status") == "ok":
                return
        time.sleep(0.1)
    raise RuntimeError(f"llama-server did not start: {log.read_text(errors='replace')[-1500:]}")


Sizes = dict[str, dict[str, float]]


def _measured(log: str, endpoints: list[str]) -> Sizes:
    """MiB by kind and device; the draft's context is the first to end, and the CPU the last device of each."""

    def name(buffer: str) -> str:
        # a remote buffer is named after the device inside its worker, so only the endpoint tells them apart
        remote = re.match(r"RPC\d+\[(.+)\]$", buffer)
        return f"RPC{endpoints.index(remote.group(1))}" if remote else buffer

    sizes: Sizes = {"draft": {}, "target": {}, "weights": {}, "caches": {}}
    contexts = iter(("draft", "target"))
    context = next(contexts)
    for buffer, size in GROWN.findall(log):
        sizes[context][name(buffer)] = float(size)
        context = next(contexts, "") if buffer == "CPU" else context
    for kind, pattern in (("weights", MODEL), ("caches", CONTEXT)):
        for buffer, size in pattern.findall(log):
            if buffer.startswith("RPC"):
                sizes[kind][name(buffer)] = sizes[kind].get(name(buffer), 0) + float(size)
    return sizes


def predict(pair: Pair, run: Run, target: Mapping[str, Any], head: Mapping[str, Any] | None) -> Sizes:
    """MiB by kind and device, as a plan charges them; outputs: rows that the head gives, which no log tells."""
    snapshots = pair.n_max if pair.target.architecture == "qwen35" else 0
    speculation = Speculation(pair.kind, pair.n_max, head is not None, snapshots)
    request = Request(
        model=target, host="host", nodes={}, draft=head, ctx_size=run.ctx_size, parallel=run.slots,
        ubatch_size=run.ubatch,
    )  # fmt: skip
    ledger = model_ledger(target, target_spec(request, speculation))
    last, n_layer = f"RPC{run.workers - 1}", ledger.n_layer
    cuts = [0, _half(pair), n_layer] if run.workers == 2 else [0, n_layer]
    sizes: Sizes = {"draft": {}, "target": {}, "weights": {}, "caches": {}, "outputs": {}}
    pipelined = run.workers == 2
    for number, (first, end) in enumerate(zip(cuts, cuts[1:])):
        device, output = f"RPC{number}", end == n_layer
        sizes["target"][device] = ledger.device_bytes(first == 0, pipelined, output, (first, end))
        sizes["weights"][device] = ledger.layer_weights(first, end, False) + ledger.per_device
        sizes["weights"][device] += ledger.output_weights(False) if output else 0
        sizes["caches"][device] = sum(ledger.kv[first:end]) + sum(ledger.recurrent[first:end])
    rows = ledger.batch.n_outputs * ledger.shape.n_vocab * 4 + ledger.rows_kept
    sizes["target"]["CPU"] = ledger.host_bytes(False, pipelined) - rows
    if head:
        _charge_head(sizes, draft_ledger(request, speculation), last)
    else:
        sizes["caches"][last] += ledger.mtp.kv
        rows = output_rows(ledger.shape, run.slots)
        sizes["draft"] = {last: ledger.mtp.compute, "CPU": ledger.mtp.host - rows}
    return {kind: {device: size / MIB for device, size in devices.items()} for kind, devices in sizes.items()}


def _charge_head(sizes: Sizes, ledger: Ledger, device: str) -> None:
    gpu, ram = whole_model(ledger, on_gpu=True, padded=False)
    sizes["weights"][device] += gpu.weights
    sizes["caches"][device] += gpu.kv
    sizes["outputs"] = {"CPU": output_rows(ledger.shape, ledger.drafting.outputs)}
    sizes["draft"] = {device: gpu.compute, "CPU": ram.compute - sizes["outputs"]["CPU"]}


def _rows(pair: Pair, run: Run, predicted: Sizes, measured: Sizes) -> Iterator[Row]:
    for kind, devices in predicted.items():
        for device, size in devices.items():
            yield Row(pair.name, run, kind, device, size, measured[kind].get(device, 0.0))


def main(argv: list[str] | None = None) -> int:
    """The exit status is 1 when a row is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.memory.live", description=__doc__)
    parser.add_argument("--only", default="", help="pairs whose name holds this")
    parser.add_argument("--write", action="store_true", help=f"write {SPECULATION[3:-1]} of docs/memory.md")
    given = parser.parse_args(argv)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pool = Pool(binaries(), folder / "pool")
        try:
            for pair in PAIRS:
                for run in runs(pair) if given.only in pair.name else ():
                    found = compare(pair, run, pool, folder)
                    print("\n".join(row.text() for row in found), flush=True)
                    rows += found
        finally:
            pool.close()
    print(markdown([HEAD, *table(rows)]))
    if given.write:
        write(ROOT / "docs" / "memory.md", rows)
    return 1 if any(row.wrong for row in rows) else 0


HEAD = ("pair", "type", "devices", "weights, caches", "below", "least", "mean", "most")


def table(rows: list[Row]) -> list[list[str]]:
    """One line per pair, and the sum."""
    lines = []
    for name in [*dict.fromkeys(row.pair for row in rows), "all"]:
        mine = [row for row in rows if name in (row.pair, "all")]
        compute = [row for row in mine if row.context in ("draft", "target") and row.measured > 0]
        off = sum(row.wrong for row in mine if row.context not in ("draft", "target"))
        excess = [row.excess for row in compute]
        kind = next((pair.kind for pair in PAIRS if pair.name == name), "")
        shown = [f"{value:+.1%}" for value in (min(excess), sum(excess) / len(excess), max(excess))]
        below = sum(row.wrong for row in compute)
        lines.append([name, kind, str(len(compute)), f"{off} off" if off else "equal", str(below), *shown])
    return lines


def write(path: Path, rows: list[Row]) -> None:
    """Replace the table of that part, or append it."""
    before, _heading, rest = path.read_text(encoding="utf-8").partition(SPECULATION)
    kept = re.sub(r"\| pair \|.*?\n\n", markdown([HEAD, *table(rows)]) + "\n", rest, count=1, flags=re.DOTALL)
    path.write_text(before + SPECULATION + kept, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
