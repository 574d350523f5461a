# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real llama.cpp binaries on the loopback: workers, a server, tiny models.

Looked for in this order: ``RELAY_LLAMA_BIN`` (a directory), then the newest build in the cache of role ``llama_cpp``.
Without them the tests are skipped with that reason; with ``RELAY_REQUIRE_BINARIES=1`` they fail instead, so that a
complete run cannot pass by skipping.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.tiny.writer import spm, write_llama

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relay-pool"
START_SECONDS = 60
LOOPBACK = "127.0.0.1"


def pytest_collection_modifyitems(items):
    """Everything in this folder needs the binaries."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.pool)


def missing(what: str) -> None:
    """Skip, or fail where nothing may be skipped."""
    if os.environ.get("RELAY_REQUIRE_BINARIES") == "1":
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def clean_environment(empty: Path) -> dict[str, str]:
    """An environment in which nothing but the command line decides what llama.cpp does."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LLAMA_", "GGML_"))}
    env.update(XDG_CONFIG_HOME=str(empty), XDG_CACHE_HOME=str(empty), GGML_NO_BACKTRACE="1")
    return env


def free_port() -> int:
    """A TCP port below the range that the kernel gives to outgoing connections: none of those takes it in between."""
    rng = random.SystemRandom()
    for _attempt in range(200):
        port = rng.randrange(20000, 32768)
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        return port
    raise RuntimeError(f"no free TCP port on {LOOPBACK} from 20000 to 32767")


def stop(process: subprocess.Popen) -> None:
    """End a process that the tests started, politely first."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Worker:
    """One ``ggml-rpc-server`` with one CPU device. A ``brittle`` one ends when it writes to a client that is gone."""

    def __init__(self, program: Path, folder: Path, env: dict[str, str], brittle: bool = False):
        self.port = free_port()
        self.endpoint = f"{LOOPBACK}:{self.port}"
        self.log_path = folder / f"worker-{self.port}.log"
        with open(self.log_path, "wb") as log:
            # SIGPIPE is ignored, as Python has it, unless brittle: a client that hangs up early would kill the worker
            self.process = subprocess.Popen(
                [str(program), "--host", LOOPBACK, "--port", str(self.port), "--device", "CPU", "--threads", "1"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, restore_signals=brittle,
            )  # fmt: skip

    def wait(self) -> None:
        """Until the port is bound, without connecting: a worker serves one client at a time."""
        want = f"{int.from_bytes(socket.inet_aton(LOOPBACK), 'little'):08X}:{self.port:04X}"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            if any(fields[1] == want and fields[3] == "0A" for fields in sockets):
                return
            time.sleep(0.02)
        raise RuntimeError(f"worker {self.endpoint} did not start: {self.log_path.read_text(errors='replace')}")


class Server:
    """A running ``llama-server``: its log, and its API over HTTP."""

    def __init__(self, process: subprocess.Popen, url: str, log_path: Path):
        self.process = process
        self.url = url
        self.log_path = log_path

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def request(self, path: str, body: dict | None = None, timeout: float = 120):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)

    def complete(self, prompt: str, max_tokens: int, **options) -> dict:
        """A greedy completion: the same prompt gives the same text."""
        body = {"prompt": prompt, "n_predict": max_tokens, "temperature": 0, "cache_prompt": False, **options}
        return self.request("/completion", body)

    def layers(self) -> list[str]:
        """Device of each layer, the output last, as the first model that was loaded got them (needs ``-lv 5``)."""
        devices: list[str] = []
        for match in re.finditer(r"load_tensors: layer +(\d+) assigned to device (\S+),", self.log):
            if int(match.group(1)) != len(devices):
                break
            devices.append(match.group(2))
        return devices

    def wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(urllib.error.URLError, OSError):
                if self.request("/health", timeout=5).get("status") == "ok":
                    return
            time.sleep(0.05)
        raise RuntimeError(f"llama-server did not become ready (exit code {self.process.poll()}): {self.log[-3000:]}")


@pytest.fixture(scope="session")
def llama_bin() -> Path:
    """The directory of llama-server, ggml-rpc-server and llama-fit-params."""
    given = os.environ.get("RELAY_LLAMA_BIN")
    if given:
        if not (Path(given) / "llama-server").is_file():
            pytest.fail(f"RELAY_LLAMA_BIN={given} holds no llama-server", pytrace=False)
        return Path(given)
    built = sorted((CACHE / "llama.cpp").glob("*/bin/llama-server"), key=lambda path: path.stat().st_mtime)
    if not built:
        missing(f"no llama.cpp in {CACHE}/llama.cpp: run `make demo` once, or set RELAY_LLAMA_BIN to their directory")
    return built[-1].parent


@pytest.fixture(scope="session")
def llama_env(tmp_path_factory) -> dict[str, str]:
    return clean_environment(tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="session")
def real_model() -> Path:
    """A small model that writes words: ``RELAY_TEST_MODEL``, or the draft of the demo."""
    given = os.environ.get("RELAY_TEST_MODEL")
    if given:
        if not Path(given).is_file():
            pytest.fail(f"RELAY_TEST_MODEL={given} is no file", pytrace=False)
        return Path(given)
    model = CACHE / "demo" / "models" / "smollm2-135m.gguf"
    if not model.is_file():
        missing(f"no {model}: run `make demo` once, or set RELAY_TEST_MODEL to a GGUF file")
    return model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """Factory: the path of a loadable llama model with random weights, ``n_layers`` layers and 300 tokens."""
    folder = tmp_path_factory.mktemp("models")
    made: dict[tuple, Path] = {}

    def make(n_layers: int, n_embd: int = 64, n_ff: int = 128, n_vocab: int = 300, tied: bool = False) -> Path:
        key = (n_layers, n_embd, n_ff, n_vocab, tied)
        if key not in made:
            made[key] = folder / ("tiny-" + "-".join(str(int(part)) for part in key) + ".gguf")
            write_tiny_model(made[key], *key)
        return made[key]

    return make


def write_tiny_model(path: Path, n_layers: int, n_embd: int, n_ff: int, n_vocab: int, tied: bool) -> None:
    """A llama GGUF with F32 weights: 4 heads, 2 KV heads, a byte-level SPM vocabulary."""
    pytest.importorskip("gguf")
    write_llama(path, n_layers, n_embd, n_ff, spm(n_vocab), tied)


@pytest.fixture(scope="session")
def worker_pool(llama_bin, llama_env, tmp_path_factory):
    """The workers of the session; use ``workers``."""
    folder = tmp_path_factory.mktemp("workers")
    running: list[Worker] = []

    def take(count: int) -> list[Worker]:
        running[:] = [worker for worker in running if worker.process.poll() is None]
        while len(running) < count:
            worker = Worker(llama_bin / "ggml-rpc-server", folder, llama_env)
            running.append(worker)
            worker.wait()
        return running[:count]

    yield take
    for worker in running:
        stop(worker.process)


@pytest.fixture
def workers(worker_pool):
    """``workers(n)``: n live workers on free ports. They are kept for the next test, whose server is another client."""
    return worker_pool


@pytest.fixture
def brittle_worker(llama_bin, llama_env, tmp_path):
    """A worker of the test's own that does not survive being harmed, as one that a shell has started."""
    worker = Worker(llama_bin / "ggml-rpc-server", tmp_path, llama_env, brittle=True)
    try:
        worker.wait()
        yield worker
    finally:
        stop(worker.process)


@pytest.fixture
def server(llama_bin, llama_env, tmp_path):
    """``with server(argv) as running``: a llama-server with these arguments that is ready; the address is added."""
    count = 0

    @contextlib.contextmanager
    def run(args: list[str]):
        nonlocal count
        count += 1
        port = free_port()
        log_path = tmp_path / f"server-{count}.log"
        command = [str(llama_bin / "llama-server"), *map(str, args), "--host", LOOPBACK, "--port", str(port)]
        with open(log_path, "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=llama_env)
        running = Server(process, f"http://{LOOPBACK}:{port}", log_path)
        try:
            running.wait()
            yield running
        finally:
            stop(process)

    return run
