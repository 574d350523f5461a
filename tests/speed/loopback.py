# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner takes for granted of llama.cpp over RPC, measured with workers behind links of known speed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Iterator, Mapping, Sequence

from tests.integration.conftest import CACHE, Server, Worker, clean_environment, free_port, stop, write_tiny_model

BINARIES = sorted((CACHE / "llama.cpp").glob("*/bin"))[-1]
STRETCHED, DRAFT = (CACHE / "demo" / "models" / name for name in ("smollm2-135m-120l.gguf", "smollm2-135m.gguf"))


@contextlib.contextmanager
def pool(count: int, rtt: float, mbps: float) -> Iterator[tuple[Path, str]]:
    """(a folder for files, --rpc) of so many workers, each behind a link of its own."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        ports = []
        for _number in range(count):
            worker = Worker(BINARIES / "ggml-rpc-server", folder, clean_environment(folder))
            stack.callback(stop, worker.process)
            worker.wait()
            ports.append(free_port())
            words = [ports[-1], worker.port, rtt / 2, mbps]
            link = subprocess.Popen([sys.executable, str(Path(__file__).with_name("link.py")), *map(str, words)])
            stack.callback(stop, link)
        time.sleep(1)
        yield folder, ",".join(f"127.0.0.1:{port}" for port in ports)


def ask(folder: Path, args: Sequence[str], prompt: Sequence[int], tokens: int) -> dict[str, float]:
    """``timings`` of a completion by a server with these arguments: of a short prompt the quickest of three."""
    port, log_path = free_port(), folder / "server.log"
    command = [
        str(BINARIES / "llama-server"), "--host", "127.0.0.1", "--port", str(port), "--parallel", "1", "--threads", "1",
        "--fit", "off", "--cache-ram", "0", *args,
    ]  # fmt: skip
    with open(log_path, "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=clean_environment(folder))
    try:
        server = Server(process, f"http://127.0.0.1:{port}", log_path)
        server.wait()
        body = {"prompt": list(prompt), "temperature": 0, "cache_prompt": False, "ignore_eos": True}
        server.request("/completion", {**body, "prompt": list(prompt[:8]), "n_predict": 4}, 300)
        tries = 3 if len(prompt) < 100 else 1
        asked = [server.request("/completion", {**body, "n_predict": tokens}, 300)["timings"] for _try in range(tries)]
        return min(asked, key=lambda timings: timings["predicted_ms"] + timings["prompt_ms"])
    finally:
        stop(process)


def hops() -> None:
    """How much a device over RPC adds to a token, in round trips of 20 ms."""
    rtt = 0.02
    for count in (1, 2, 3):
        with pool(count, rtt, 10_000) as (folder, endpoints):
            model = folder / "model.gguf"
            write_tiny_model(model, 12, 64, 128, 300, False)
            names = ",".join(f"RPC{number}" for number in range(count))
            common = ["--model", str(model), "--rpc", endpoints, "--device", names, "--ctx-size", "512"]
            for label, ngl in (("first layers on the host", str(4 * min(count, 2))), ("all on workers", "all")):
                args = [*common, "--tensor-split", ",".join(["4"] * count), "--n-gpu-layers", ngl]
                timings = ask(folder, args, [1, 2, 3], 16)
                trips = timings["predicted_per_token_ms"] / 1000 / rtt
                print(f"{count} devices, {label}: {trips:.2f} round trips per token", flush=True)


def compared(label: str, variants: Mapping[str, Sequence[str]], folder: Path, prompt: Sequence[int]) -> None:
    """Each variant three times in turns, and its best figures."""
    best: dict[str, tuple[float, float]] = dict.fromkeys(variants, (0.0, 0.0))
    for _round in range(3):
        for name, args in variants.items():
            timings = ask(folder, args, prompt, 32)
            rates = (timings["prompt_per_second"], timings["predicted_per_second"])
            best[name] = tuple(map(max, zip(best[name], rates)))  # type: ignore[assignment]
    for name, (prompts, tokens) in best.items():
        print(f"{label}, {name}: prompt {prompts:.1f}, generation {tokens:.1f} tokens/s", flush=True)


def output() -> None:
    """Whether a host without a GPU should compute the output itself, so that no logits cross the network."""
    on_host = ["--override-tensor", r"^(output|token_embd)\.=CPU"]
    draft = [
        "--spec-draft-model", str(DRAFT), "--spec-draft-n-max", "16", "--spec-draft-device", "none", "--spec-type",
        "draft-simple",
    ]  # fmt: skip
    for mbps in (10_000, 1_000, 100):
        with pool(2, 0.0003, mbps) as (folder, endpoints):
            base = [
                "--model", str(STRETCHED), "--rpc", endpoints, "--device", "RPC0,RPC1", "--tensor-split", "39,32",
                "--n-gpu-layers", "71", "--ctx-size", "512",
            ]  # fmt: skip
            variants = {
                "on the worker": base,
                "on the host": base + on_host,
                "on the worker, draft": base + draft,
                "on the host, draft": base + on_host + draft,
            }
            compared(f"{mbps} Mbit/s, output", variants, folder, [1, 2, 3])


def pipeline() -> None:
    """What pipeline parallelism brings over RPC; a rule for tensors that matches none turns it off."""
    prompt = [100 + number % 500 for number in range(1024)]
    with pool(2, 0.0003, 1_000) as (folder, endpoints):
        for ubatch in ("128", "512"):
            base = [
                "--model", str(STRETCHED), "--rpc", endpoints, "--device", "RPC0,RPC1", "--tensor-split", "60,61",
                "--n-gpu-layers", "all", "--ctx-size", "2048", "--ubatch-size", ubatch,
            ]  # fmt: skip
            variants = {"with": base, "without": [*base, "--override-tensor", "^$=CPU"]}
            compared(f"micro batch {ubatch}, pipeline parallelism", variants, folder, prompt)
