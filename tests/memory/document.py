"""Writes docs/memory.md."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from tests.memory import report
from tests.memory.grid import Run

HEAD = """# How exact the memory ledger is

The planner computes what a model takes on every device before anything is loaded. This page puts its bytes beside
llama.cpp's own. `make memory-check` measures again and writes this page.

Nothing here was downloaded: each row is a GGUF with the header of a real model (its metadata and all its tensors, of
four bits per weight) and a hole in place of the weights. llama.cpp measures such a file without allocating it.
`llama-server` is asked with the plan's own command line and `--fit on`, which only measures because every size is
given; `llama-fit-params` is asked for some arrangements more, as it reserves an output row for every token of a micro
batch. The devices are real `ggml-rpc-server` processes with one CPU device each.

"""
MEANING = """
* **weights**, **context** (KV cache and recurrent state together): the difference farthest from 0, in MiB, and in
  brackets on how many devices it is more than 1. llama.cpp prints whole MiB, rounded down.
* **below**: devices on which llama.cpp takes a larger compute buffer than the ledger keeps free for it.
* **least**, **mean**, **most**: by how much the ledger's compute buffer exceeds llama.cpp's.

What a GPU's driver, its kernels and cuBLAS take is in neither of the two; `relay_reserve_bytes` is for that. GPUs
round the rows of quantised tensors up, which the ledger adds for them and the CPU devices here do not show.
"""
# What follows it is measured by tests.memory.live.
SPECULATION = "## Speculation\n"


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table; the first line is its head, the first two columns are text."""
    head, *rest = lines
    rule = ["---" if column < 2 else "---:" for column in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rest)) + "\n"


def text(outcomes: list[report.Outcome], runs: Sequence[Run]) -> str:
    """The page."""
    builds = sorted({truth.build for outcome in outcomes for _run, truth in outcome.truths if truth.build})
    architectures = {outcome.shape.architecture for outcome in outcomes}
    contexts = sorted({run.ctx_size for run in runs})
    slots = ", ".join(str(count) for count in sorted({run.slots for run in runs}))
    caches = " and ".join(sorted({run.cache for run in runs}))
    parts = [
        HEAD,
        f"Measured with llama.cpp b{', b'.join(builds)}: {len(outcomes)} shapes of ",
        f"{len(architectures)} architectures,\n",
        f"{len(runs)} arrangements of each: contexts of {', '.join(map(str, contexts))} tokens,\n",
        f"{slots} slots, {caches} cache; no, one, two and four workers, and two workers with a quarter of the\n",
        "layers on the host's CPU, with and without the output.\n",
        "\n## By model\n\n",
        markdown([report.HEAD, *report.table(outcomes)]),
        MEANING,
        "\n## By place\n\nWhere the compute buffers are: `host` is the CPU of the machine that runs llama-server.\n\n",
        markdown([report.WHERE, *report.places(outcomes)]),
    ]
    aborted = report.aborts(outcomes)
    if aborted:
        parts.append("\n## Not measured\n\nllama.cpp ends itself in these runs, and would while serving:\n\n")
        parts.append("".join(f"* {line.split(': ', 1)[1]}\n" for line in aborted))
    return "".join(parts)


def write(path: Path, outcomes: list[report.Outcome], runs: Sequence[Run]) -> None:
    """Replace the page, but for the part on speculation."""
    _before, heading, rest = path.read_text(encoding="utf-8").partition(SPECULATION)
    kept = f"\n{heading}{rest}" if heading else ""
    path.write_text(text(outcomes, runs) + kept, encoding="utf-8")
