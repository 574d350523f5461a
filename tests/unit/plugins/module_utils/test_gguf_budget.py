# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What reading the largest vocabulary of today costs a machine, and that every Python reads the same."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import describe

COLLECTIONS = Path(__file__).resolve().parents[4] / ".collections"
N_TOKENS = 248_320
MOST_SECONDS = 0.25
MOST_BYTES = 25 << 20
LEAST_RATIO = 40
# The peak of this process alone: ru_maxrss begins with that of the process that started it.
MEASURE = """
import json, sys, time
def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
"""
EMPTY = MEASURE + "print(json.dumps([time.process_time(), peak()]))"
OURS = (
    MEASURE
    + """
sys.path.insert(0, sys.argv[1])
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import describe
facts = describe(sys.argv[2])
print(json.dumps([time.process_time(), peak(), facts]))
"""
)
PACKAGE = """
import json, sys, time
from gguf import GGUFReader
start = time.process_time()
GGUFReader(sys.argv[1])
print(json.dumps(time.process_time() - start))
"""
OVER_HTTP = """
import json, sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.relay.pool.plugins.module_utils.gguf_http import Session, web_opener
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import describe
from ansible_collections.relay.pool.plugins.module_utils.gguf_range import make_opener
for place in sys.argv[2:]:
    print(json.dumps(describe(place, None, make_opener(Session(web_opener(), 20, home=place)))))
"""


def text(raw: bytes) -> bytes:
    return struct.pack("<Q", len(raw)) + raw


def key(name: str, value_type: int) -> bytes:
    return text(name.encode()) + struct.pack("<I", value_type)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """The path of a vocabulary as Qwen3.5 has it: tokens, their types, merges, a chat template."""
    tokens = [b"t%d" % number + b"x" * (number % 10) for number in range(N_TOKENS - 243)]
    tokens += [b"[PAD%d]" % number for number in range(N_TOKENS - 243, N_TOKENS)]
    merges = [token[:5] + b" " + token[-4:] for token in tokens[:-733]]
    pairs = [
        key("general.architecture", 8) + text(b"qwen35"),
        key("tokenizer.ggml.model", 8) + text(b"gpt2"),
        key("tokenizer.ggml.pre", 8) + text(b"qwen35"),
        key("tokenizer.ggml.tokens", 9) + struct.pack("<IQ", 8, N_TOKENS) + b"".join(map(text, tokens)),
        key("tokenizer.ggml.token_type", 9) + struct.pack("<IQ", 5, N_TOKENS) + struct.pack("<i", 1) * N_TOKENS,
        key("tokenizer.ggml.merges", 9) + struct.pack("<IQ", 8, len(merges)) + b"".join(map(text, merges)),
        key("tokenizer.chat_template", 8) + text(b"{{ x }}" * 1000),
    ]
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs))
    return path


def run(script, *arguments, python=sys.executable, options=("-I", "-S")):
    command = [python, *options, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_the_largest_vocabulary_costs_little(vocabulary, capsys):
    empty = [json.loads(run(EMPTY)) for _attempt in range(3)]
    ours = [json.loads(run(OURS, COLLECTIONS, vocabulary)) for _attempt in range(3)]
    seconds = min(row[0] for row in ours) - min(row[0] for row in empty)
    n_bytes = max(row[1] for row in ours) - min(row[1] for row in empty)
    package = json.loads(run(PACKAGE, vocabulary, options=()))
    with capsys.disabled():
        print(
            f"\n{N_TOKENS} tokens, {vocabulary.stat().st_size / 1e6:.1f} MB: {seconds:.3f} s and {n_bytes / 2**20:.1f}"
            f" MiB more than an empty Python, GGUFReader {package:.1f} s: {package / seconds:.0f} times as long"
        )
    facts = ours[0][2]
    assert facts["tokenizer"]["n_tokens"] == N_TOKENS
    assert len(json.dumps(facts)) < 20_000
    assert seconds <= MOST_SECONDS
    assert n_bytes <= MOST_BYTES
    assert package / seconds >= LEAST_RATIO


def find_interpreter(version):
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    places = [str(path.parent) for path in sorted(pyenv.glob(f"{version}.*/bin/python{version}"))]
    return shutil.which(f"python{version}", path=os.pathsep.join([*places, "/usr/bin", "/usr/local/bin"]))


@pytest.mark.parametrize("version", [f"3.{minor}" for minor in range(8, 15)])
def test_every_python_reads_the_same(version, vocabulary, site, gguf_factory):
    python = find_interpreter(version)
    if python is None:
        pytest.skip(f"this machine has no python{version}")
    tensors = (("blk.0.attn_q.weight", (64, 3), "Q8_0"), ("token_embd.weight", (64, 9), "F16"))
    keys = (("add_float32", "x.scale", 0.1), ("add_array", "x.heads", [0, 8]), ("add_bool", "x.flag", True))
    path = gguf_factory.model(tensors=tensors, keys=keys, big=True)
    ranged = site.add("/a.gguf", vocabulary.read_bytes())
    unranged = site.add("/b.gguf", path.read_bytes(), ranges=False)
    lines = run(OVER_HTTP, COLLECTIONS, path, vocabulary, ranged, unranged, python=python).splitlines()
    expected = [describe(str(path)), describe(str(vocabulary))]
    for facts, url in ((expected[1], ranged), (expected[0], unranged)):
        files = [{**facts["files"][0], "path": url}]
        expected.append({**facts, "path": url, "files": files})
    assert [json.loads(line) for line in lines] == expected
