# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs shapes over arrangements, a few at a time."""

from __future__ import annotations

import os
import queue
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from ansible_collections.relay.pool.plugins.module_utils.gguf_info import gguf_facts
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError

from tests.integration.conftest import CACHE
from tests.memory.grid import Run
from tests.memory.headers import write_header
from tests.memory.parts import Shape
from tests.memory.prediction import Prediction, arguments, is_planned, predict
from tests.memory.report import Outcome, Row
from tests.memory.truth import Aborted, Pool, Refused, ask


def binaries() -> Path:
    """Where llama-server, llama-fit-params and ggml-rpc-server are, as for the integration tests."""
    given = os.environ.get("RELAY_LLAMA_BIN")
    built = sorted((CACHE / "llama.cpp").glob("*/bin/llama-server"), key=lambda path: path.stat().st_mtime)
    if given:
        return Path(given)
    if not built:
        raise SystemExit(f"no llama.cpp in {CACHE}/llama.cpp: run `make demo` once, or set RELAY_LLAMA_BIN")
    return built[-1].parent


def check(
    shapes: Sequence[Shape],
    runs: Sequence[Run],
    temporary: Path,
    keep: Path | None = None,
    jobs: int = 2,
    progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> list[Outcome]:
    """One outcome per shape; the headers lie in ``temporary`` for as long as they are needed, or in ``keep``."""
    programs = binaries()
    made = [Pool(programs, temporary / f"pool{number}") for number in range(jobs)]
    pools: queue.Queue[Pool] = queue.Queue()
    for pool in made:
        pools.put(pool)

    def task(outcome: Outcome, facts: Mapping[str, Any], run: Run) -> Callable[[], None]:
        pool = pools.get()
        try:
            return compare(outcome, facts, run, pool)
        finally:
            pools.put(pool)

    outcomes = []
    try:
        with ThreadPoolExecutor(jobs) as executor:
            for number, shape in enumerate(shapes):
                outcome = Outcome(shape)
                facts = written(shape, keep or temporary)
                tasks = [executor.submit(task, outcome, facts, run) for run in runs if is_planned(facts, run)]
                # in the order of the runs, whichever ended first
                for done in tasks:
                    done.result()()
                outcomes.append(outcome)
                if not keep:
                    Path(facts["path"]).unlink()
                progress(shape.name, number + 1, len(shapes))
    finally:
        for pool in made:
            pool.close()
    return outcomes


def written(shape: Shape, folder: Path) -> dict[str, Any]:
    """What gguf_info reads of the shape's header, written into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{shape.name}.gguf"
    write_header(shape, path)
    return gguf_facts(str(path))


def compare(outcome: Outcome, facts: Mapping[str, Any], run: Run, pool: Pool) -> Callable[[], None]:
    """Ask both; the result, when called, adds to the outcome what they said."""
    shape = outcome.shape
    predicted: Prediction | None = None
    ledger_says = ""
    try:
        predicted = predict(facts, run)
    except PoolError as exc:
        ledger_says = str(exc)
    endpoints = pool.endpoints(run.devices.count)
    try:
        truth = ask(pool, run, arguments(facts["path"], shape.n_layer, run, endpoints), endpoints)
    except Aborted as exc:
        said = str(exc)
        return lambda: outcome.aborted.append((run, said))
    except Refused as exc:
        said = str(exc)
        return lambda: outcome.refusals.append((run, ledger_says, said))
    if predicted is None:
        return lambda: outcome.refusals.append((run, ledger_says, ""))
    if set(predicted) != set(truth.devices):
        raise RuntimeError(f"{shape.name} {run.label}: {sorted(truth.devices)} measured, {sorted(predicted)} planned")
    rows = [Row(shape, run, device, predicted[device], measured) for device, measured in truth.devices.items()]

    def add() -> None:
        outcome.rows.extend(rows)
        outcome.truths.append((run, truth))

    return add
