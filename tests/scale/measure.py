# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Large pools, and what planning over them takes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

from tests.scale.pools import CARDS, MIB, random_links, random_node

ROOT = Path(__file__).resolve().parent.parent.parent
MACHINES = (10, 20, 50, 100, 200, 500, 1000)
GPUS = 8
# Free MiB of usual cards.
SIZES = (7600, 11600, 15600, 23600)
# The shape of a dense model with 70 billion parameters, four bits each.
LAYERS, LAYER_MIB, EMBEDDING_MIB = 80, 490, 820


@dataclass(frozen=True)
class Case:
    """A kind of answer. share: of the usual sizes, what every GPU has free; host: whether the host has GPUs."""

    name: str
    answer: str
    share: float
    host: bool = True
    draft: bool = False


CASES = (
    Case("replica on the host", "replica", 1.0),
    Case("replica on a worker", "replica", 0.55, host=False),
    Case("sharded", "sharded", 0.25),
    Case("sharded, with a draft", "sharded", 0.25, draft=True),
    Case("sharded, host without GPU", "sharded", 0.25, host=False),
    Case("just too small", "none", 0.172),
    Case("far too small", "none", 0.06),
)
FLEETS = ("usual", "random")


@dataclass(frozen=True)
class Cost:
    """Seconds of processor time of the plan and of the same question while it runs, and the process's peak in MiB."""

    answer: str
    seconds: float
    again_seconds: float
    peak_mib: float


def model(path: str, layers: int, layer_mib: int, embedding_mib: int) -> dict[str, Any]:
    """A dense model as gguf_info returns it."""
    keys = {
        "block_count": layers,
        "context_length": 131072,
        "embedding_length": 8192,
        "feed_forward_length": 28672,
        "attention.head_count": 64,
        "attention.head_count_kv": 8,
    }
    return {
        "path": path,
        "size_bytes": (layers * layer_mib + 2 * embedding_mib) * MIB,
        "architecture": "llama",
        "role": "model",
        "metadata": {f"llama.{key}": value for key, value in keys.items()},
        "tensors": {
            "blocks": [layer_mib * MIB] * layers,
            "token_embd_bytes": embedding_mib * MIB,
            "output_bytes": embedding_mib * MIB,
            "output_norm_bytes": 32768,
            "input_bytes": embedding_mib * MIB,
        },
        "tokenizer": {"type": "BPE", "n_tokens": 128256, "digest": "same"},
    }


def request(machines: int, fleet: str, case: Case) -> Request:
    """Over that many machines: usual cards, or GPUs of which no two have the same memory and bandwidth."""
    rng = Random(f"{machines} {fleet}")
    nodes = {}
    for number in range(machines):
        usual = fleet == "usual"
        one, kind = rng.choice(SIZES), rng.random()
        # Some machines have equal cards, some have what was there.
        sizes = [one if kind < 0.5 else rng.choice(SIZES) for _gpu in range(GPUS)]
        sizes = sizes if usual else [rng.uniform(0.65, 1.0) * size for size in sizes]
        here = [int(size * case.share) for size in sizes] if number or case.host else []
        name = f"gpu{number}"
        nodes[name] = random_node(rng, number + 1, here, 65536, known=1.0)
        for gpu in nodes[name]["gpus"]:
            speed = rng.choice(CARDS) if usual else rng.uniform(200, 3500)
            gpu["bandwidth_bytes_per_second"] = int(speed * 10**9)
            gpu["memory_free_bytes"] += 0 if usual else rng.randrange(MIB)
    names = list(nodes)
    nodes[names[0]]["links"] = random_links(rng, names[1:])
    draft = model("/models/draft.gguf", 16, 8, 40) if case.draft else None
    return Request(
        model=model("/models/target.gguf", LAYERS, LAYER_MIB, EMBEDDING_MIB),
        draft=draft,
        draft_path=draft and draft["path"],
        host=names[0],
        workers=tuple(names[1:]),
        nodes=nodes,
    )


def measure(machines: int, fleet: str, case: Case) -> Cost:
    """In this process, whose peak is only its own when nothing ran before."""
    asked = request(machines, fleet, case)
    start = time.process_time()
    try:
        plan = make_plan(asked)
        answer = plan["kind"]
    except PoolError:
        plan, answer = None, "none"
    seconds = time.process_time() - start
    again = 0.0
    if plan:
        running = replace(asked, previous=json.loads(json.dumps(plan)))
        start = time.process_time()
        if not make_plan(running)["kept"]:
            raise AssertionError("a running pool lost its plan")
        again = time.process_time() - start
    return Cost(answer, seconds, again, _peak_mib())


def _peak_mib() -> float:
    """Of this process since it began to run Python; getrusage() counts that of its parent, too."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


def measure_apart(machines: int, fleet: str, case: Case) -> Cost:
    """In a process of its own."""
    paths = [str(ROOT / ".collections"), str(ROOT)]
    code = (
        f"import sys; sys.path[:0] = {paths!r}\n"
        "import dataclasses, json\nfrom tests.scale import measure\n"
        f"case = next(case for case in measure.CASES if case.name == {case.name!r})\n"
        f"print(json.dumps(dataclasses.asdict(measure.measure({machines}, {fleet!r}, case))))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return Cost(**json.loads(done.stdout))
