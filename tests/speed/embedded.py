# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is the chosen split the fastest? All splits of one model over the embedded pool, one worker slowed down, measured.

The pool's own server is stopped meanwhile; ``make demo`` starts it again.
"""

from __future__ import annotations

from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.module_utils.gguf_info import gguf_facts
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan

from tests.integration.conftest import CACHE, write_tiny_model
from tests.speed.machines import ENDPOINTS, HOST, WORKERS, on, seconds_per_token, server, slowed
from tests.speed.splits import N_LAYER, Split, by_default, chosen, every, request

MODEL = f"speed-{N_LAYER}l.gguf"
ON_HOST = f"/srv/models/{MODEL}"
# Of its time; with what stopping costs, that is about a third of its speed.
SHARE = 0.29
# From these the time of a layer on each machine follows.
CALIBRATION = (Split(N_LAYER - 1, 1, 0), Split(1, N_LAYER - 1, 0), Split(1, 0, N_LAYER - 1))
SCREENING_TOKENS, TOKENS, LEADERS = 16, 64, 4
DEFAULT = "llama.cpp's default"


def model() -> dict[str, Any]:
    """Random weights: what is said does not matter for how long it takes."""
    path = CACHE / "demo" / "models" / MODEL
    if not path.exists():
        part = path.with_suffix(".part")
        write_tiny_model(part, N_LAYER, 768, 2304, 300, False)
        part.replace(path)
    return {**gguf_facts(str(path)), "path": ON_HOST}


def measure(args: list[str], tokens: int) -> float:
    """Seconds per token."""
    with server(args):
        return seconds_per_token(tokens)


def round_trips() -> dict[str, float]:
    """Of a TCP connection from the host to each worker, as the facts measure them."""
    code = """if True:
        import socket, sys, time
        best = 9.0
        for _try in range(7):
            started = time.perf_counter()
            socket.create_connection((sys.argv[1], 22), 2).close()
            best = min(best, time.perf_counter() - started)
        print(best)
    """
    return {
        name: float(on(HOST, "python3", "-c", code, endpoint.split(":")[0]))
        for name, endpoint in zip(WORKERS, ENDPOINTS)
    }


def bandwidths(gguf: Mapping[str, Any], rtts: Mapping[str, float]) -> dict[str, float]:
    """Bytes per second with which each machine reads weights."""
    layer = gguf["tensors"]["blocks"][0]
    names = (HOST, *WORKERS)
    times = {split: min(measure(split.args(ON_HOST), TOKENS) for _try in range(2)) for split in CALIBRATION}
    hop = {split: sum(rtts[name] for name, count in zip(WORKERS, split[1:]) if count) for split in CALIBRATION}
    # Three equations, three unknowns; the one layer elsewhere is put right in a few rounds.
    seconds = {name: (times[split] - hop[split]) / N_LAYER for name, split in zip(names, CALIBRATION)}
    for _round in range(20):
        for index, (name, split) in enumerate(zip(names, CALIBRATION)):
            others = sum(seconds[other] * count for other, count in zip(names, split) if other != name)
            seconds[name] = (times[split] - hop[split] - others) / split[index]
    return {name: layer / value for name, value in seconds.items()}


def measured_splits(rounds: int) -> bool:
    """Measure, and say it; False when a split is faster than the chosen one by more than 3 percent.

    What counts of the last comparison is the best of its rounds: everything else on the machine only slows down.
    """
    gguf = model()
    on(HOST, "systemctl", "stop", "relay-llama", check=False)
    with slowed(WORKERS[1], SHARE):
        rtts = round_trips()
        rates = bandwidths(gguf, rtts)
        print("read at:", ", ".join(f"{name} {rate / 1e9:.2f} GB/s" for name, rate in rates.items()))
        print("round trips:", ", ".join(f"{name} {rtt * 1e6:.0f} us" for name, rtt in rtts.items()))
        asked = request(gguf, rates, rtts)
        plan = make_plan(asked)
        ours, splits = chosen(plan), list(every(asked))
        print(f"planned: {tuple(ours)}; {len(splits)} splits fit", flush=True)
        screened = {}
        for split in splits:
            screened[split] = measure(split.args(ON_HOST), SCREENING_TOKENS)
            print(f"  {tuple(split)}: {1 / screened[split]:.2f} tokens/s", flush=True)
        leaders = sorted(splits, key=screened.__getitem__)[:LEADERS]
        compared = {str(tuple(split)): split.args(ON_HOST) for split in dict.fromkeys([ours, *leaders])}
        compared[DEFAULT] = by_default(ON_HOST)
        times: dict[str, list[float]] = {name: [] for name in compared}
        for number in range(rounds):
            for name in list(compared)[:: -1 if number % 2 else 1]:
                times[name].append(measure(compared[name], TOKENS))
    for name, values in times.items():
        print(f"{name}: {1 / min(values):.2f} tokens/s ({', '.join(f'{1 / value:.2f}' for value in values)})")
    mine, default = min(times[str(tuple(ours))]), min(times[DEFAULT])
    best = min(min(values) for name, values in times.items() if name != DEFAULT)
    print(f"planned/best: {best / mine:.3f}; planned/{DEFAULT}: {default / mine:.3f}; ", end="")
    print(f"predicted {plan['predicted']['tokens_per_second']}, measured {1 / mine:.2f} tokens/s")
    return best / mine >= 0.97
