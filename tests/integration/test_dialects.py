# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two real builds, today's and one of spring 2026: each gets a command line that it starts with, and drafts."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from ansible_collections.relay.pool.plugins.module_utils import llama_binary, llama_log, llama_server
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import gguf_facts
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.server.command_line import llama_server_args
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import NGRAM_LENGTHS, TYPES, dialect
from ansible_collections.relay.pool.plugins.plugin_utils.server.lossless import differences
from ansible_collections.relay.pool.plugins.plugin_utils.server.proof import prove

from tests import older
from tests.integration.conftest import LOOPBACK, START_SECONDS, Server, free_port, missing, stop
from tests.integration.test_memory import node

STRETCH = Path(__file__).resolve().parent.parent.parent / "inventories" / "demo" / "stretch_model.py"
PROMPT = "The sea is"
N_TOKENS = 32
# The token "a" of a tiny model.
LETTER = 260


@dataclass(frozen=True)
class Build:
    """A directory of programs, and what llama_info says of it."""

    bin_dir: Path
    facts: dict


def older_bin() -> Path:
    given = os.environ.get("RELAY_OLDER_LLAMA_BIN")
    if given:
        if not (Path(given) / "llama-server").is_file():
            pytest.fail(f"RELAY_OLDER_LLAMA_BIN={given} holds no llama-server", pytrace=False)
        return Path(given)
    found = older.bin_dir()
    if found is None:
        missing(f"no {older.build_dir()}: run `make older` once, or set RELAY_OLDER_LLAMA_BIN to a directory")
    return found


@pytest.fixture(scope="module", params=["older", "today"])
def build(request, llama_bin) -> Build:
    folder = older_bin() if request.param == "older" else llama_bin
    return Build(folder, llama_binary.describe(str(folder)))


@pytest.fixture(scope="module")
def old() -> Build:
    folder = older_bin()
    return Build(folder, llama_binary.describe(str(folder)))


class Programs:
    """Starts the programs of a plan with its own words."""

    def __init__(self, env: dict[str, str], folder: Path):
        self.env = env
        self.folder = folder
        self.running: list[subprocess.Popen] = []
        self.number = itertools.count()

    def start(self, program, args) -> tuple[subprocess.Popen, Path]:
        log_path = self.folder / f"{next(self.number)}-{Path(program).name}.log"
        with open(log_path, "wb") as log:
            process = subprocess.Popen(
                [str(program), *map(str, args)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env,
                restore_signals=False,
            )  # fmt: skip
        self.running.append(process)
        return process, log_path

    def workers(self, facts, plan) -> list[subprocess.Popen]:
        started = [self.start(facts["rpc_server"], worker["args"]) for worker in plan["workers"]]
        for worker, (process, log_path) in zip(plan["workers"], started):
            wait_for_port(worker["address"], worker["port"], process, log_path)
        return [process for process, _log_path in started]

    @contextlib.contextmanager
    def server(self, facts, args, port):
        process, log_path = self.start(facts["server"], args)
        running = Server(process, f"http://{LOOPBACK}:{port}", log_path)
        try:
            running.wait()
            yield running
        finally:
            stop(process)


def wait_for_port(address, port, process, log_path) -> None:
    """Until the port is bound, without connecting: a worker serves one client at a time."""
    want = f"{int.from_bytes(socket.inet_aton(address), 'little'):08X}:{port:04X}"
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        fields = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        if any(line[1] == want and line[3] == "0A" for line in fields):
            return
        time.sleep(0.02)
    raise RuntimeError(f"no worker on {address}:{port}: {log_path.read_text(errors='replace')}")


@pytest.fixture
def programs(llama_env, tmp_path):
    started = Programs(llama_env, tmp_path)
    yield started
    for process in started.running:
        stop(process)


@pytest.fixture(scope="module")
def long_model(real_model, tmp_path_factory) -> Path:
    """The real model with twice its layers, which says the same: it is larger than its draft."""
    path = tmp_path_factory.mktemp("stretched") / "long.gguf"
    subprocess.run([sys.executable, str(STRETCH), str(real_model), str(path), "60"], check=True)
    return path


def sharded_plan(facts, model_path, host_mib=None, **options) -> dict:
    """Two workers and the host's CPU, on addresses of the loopback network. host_mib: MiB that are free on the host."""
    names = ("host", "worker1", "worker2")
    free = (host_mib or (198 if options.get("draft") else 70), 90, 95)
    nodes = {name: node(number, mib) for number, (name, mib) in enumerate(zip(names, free))}
    for facts_of_node in nodes.values():
        # more threads than the machine has cores would wait for one another, spinning
        facts_of_node["cpu"]["physical_cores"] = 1
    return make_plan(
        Request(
            model=gguf_facts(str(model_path)), host="host", workers=names[1:], nodes=nodes, llama=facts,
            allow_cpu=True, reserve_bytes=0, ctx_size=1024, ubatch_size=64, threads=1, rpc_cache=False,
            rpc_port=free_port(), server_host=LOOPBACK, server_port=free_port(), **{"parallel": 1, **options},
        )
    )  # fmt: skip


def port_of(plan) -> int:
    args = plan["server_args"]
    return int(args[args.index("--port") + 1])


def probed(running) -> dict:
    """As relay.pool.llama_probe has it, with the log in the place of the journal."""
    found = llama_server.probe(llama_server.Client(running.url, timeout=120), PROMPT, N_TOKENS)
    deadline = time.monotonic() + 10
    # The older builds write it from a thread of its own.
    while not (log := llama_log.parse(running.log)).complete and time.monotonic() < deadline:
        time.sleep(0.05)
    assert log.complete
    found.update({name: getattr(log, name) for name in ("buffers", "layers", "spec_types", "spec_error")})
    return found


def own_draft(model_path, **options) -> dict:
    """A draft whose proposals are right."""
    return {"draft": gguf_facts(str(model_path)), "draft_path": str(model_path), "draft_max": 8, **options}


def test_a_plan_starts_as_it_is_written_and_drafts(build, programs, long_model, real_model):
    plan = sharded_plan(build.facts, long_model, **own_draft(real_model))
    assert (plan["kind"], plan["draft"]["reason"], len(plan["workers"])) == ("sharded", "enabled", 2)
    workers = programs.workers(build.facts, plan)
    with programs.server(build.facts, plan["server_args"], port_of(plan)) as running:
        drafted = probed(running)
        # what people ask is none of the journal's business
        assert PROMPT not in running.log
    assert drafted["draft_n_accepted"] > 4
    assert all_proven(plan, drafted) == 4
    targets = [buffer for buffer in drafted["buffers"] if buffer["model"] == "target"]
    assert {buffer["kind"] for buffer in targets} >= {"weights", "kv", "compute"}
    assert {buffer["endpoint"] for buffer in targets} == {None, *plan["rpc_backends"]}
    drafts = {(buffer["kind"], buffer["endpoint"]) for buffer in drafted["buffers"] if buffer["model"] == "draft"}
    assert {kind for kind, _endpoint in drafts} == {"weights", "kv", "compute", "output"}
    assert {endpoint for _kind, endpoint in drafts} == {None}
    assert [process.poll() for process in workers] == [None, None]

    alone = sharded_plan(build.facts, long_model)
    programs.workers(build.facts, alone)
    with programs.server(build.facts, alone["server_args"], port_of(alone)) as running:
        plain = probed(running)
    assert plain["speculative"] is False
    assert all_proven(alone, plain) == 2
    n_max = plan["predicted"]["draft_tokens"]
    assert (plain["tokens"], plain["tokens_unsent"]) == (N_TOKENS, 0)
    assert differences([PROMPT], [drafted], [plain], n_max) == []
    # The older build ends this text early, and today's must not.
    exact = dialect(build.facts).bounds_output_rows
    assert (drafted["tokens_unsent"] == 0) == exact
    assert (differences([PROMPT], [drafted], [plain]) == []) == exact


def all_proven(plan, probe) -> int:
    """How many things are proven; nothing may differ or be left unseen."""
    proof = prove(plan, probe)
    assert (proof.differences, proof.unproven) == ([], [])
    return len(proof.proven)


def test_the_proof_adds_up_the_contexts_of_several_slots(build, programs, long_model, real_model):
    plan = sharded_plan(build.facts, long_model, host_mib=500, **own_draft(real_model, parallel=2, draft_scope="any"))
    assert (plan["kind"], plan["draft"]["reason"]) == ("replica", "enabled")
    with programs.server(build.facts, plan["server_args"], port_of(plan)) as running:
        assert all_proven(plan, probed(running)) == 4


def test_a_draft_on_the_targets_worker_is_sound_or_said_not_to_be(build, programs, long_model, real_model):
    plan = sharded_plan(build.facts, long_model, **own_draft(real_model))
    found = dialect(build.facts)
    device = found.spelling["--spec-draft-device"]
    args = list(plan["server_args"])
    args[args.index(device) + 1] = "RPC0"
    workers = programs.workers(build.facts, plan)
    with programs.server(build.facts, args, port_of(plan)) as running:
        try:
            sound = running.complete(PROMPT, N_TOKENS)["timings"]["draft_n_accepted"] > 4
        except OSError:
            sound = False
    assert [process.poll() is None for process in workers] == [sound, True]
    assert (found.rpc_draft_crash is None) == sound


@pytest.mark.parametrize("kind", [*NGRAM_LENGTHS, "ngram-cache"])
def test_n_grams_without_a_draft_model(build, programs, tiny_model, kind):
    found = dialect(build.facts)
    port = free_port()
    options = {
        "model": tiny_model(2, n_embd=128), "host": LOOPBACK, "port": port, "parallel": 1, "n_gpu_layers": "all",
        "ctx_size": 1024, "flash_attn": True, "cache_type_k": "q8_0", "cache_type_v": "q8_0",
        "draft": {"type": found.type_name(kind), "n_max": 64 if kind == "ngram-mod" else 48, "scope": "any"},
    }  # fmt: skip
    assert found.lacks(kind) == ()
    with programs.server(build.facts, llama_server_args(found.worded(options, 2)), port) as running:
        (slot,) = running.request("/slots")
        assert slot["speculative"] is True
        # Random weights say nothing that repeats, so they are made to say one letter only.
        answer = running.complete("a" * 100, 150, logit_bias=[[LETTER, 1000]])
    assert set(answer["content"]) == {"a"}
    # ngram-simple wants something to follow the last match
    assert kind == "ngram-simple" or answer["timings"]["draft_n_accepted"] > 0


def test_the_older_build_is_told_apart(old, llama_bin):
    found = dialect(old.facts)
    assert found.lacks("draft-simple") == ()
    assert found.type_name("draft-simple") is None
    assert found.lacks("draft-mtp") == ("--spec-type draft-mtp",)
    assert Path(old.facts["rpc_server"]).name == "rpc-server"
    today = dialect(llama_binary.describe(str(llama_bin)))
    assert (today.type_name("draft-simple"), today.rpc_draft_crash) == ("draft-simple", None)
    assert today.decisions(*TYPES) == dialect(None).decisions(*TYPES)
