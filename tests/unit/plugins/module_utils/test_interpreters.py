# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts under every Python that a machine may have, with nothing but its standard library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COLLECTIONS = Path(__file__).resolve().parents[4] / ".collections"
# Own seconds on a machine without GPUs, all the imports included.
MOST_SECONDS = 0.3
SCRIPT = """
import json, sys, time
start = time.process_time()
sys.path.insert(0, sys.argv[1])
from ansible_collections.relay.pool.plugins.module_utils import node
facts = node.gather(node.Options(ports=[1], units=["relay-rpc.service"]))
print(json.dumps([facts, time.process_time() - start, sorted(sys.modules)]))
"""


def find_interpreter(version: str) -> str | None:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    places = [str(path.parent) for path in sorted(pyenv.glob(f"{version}.*/bin/python{version}"))]
    return shutil.which(f"python{version}", path=os.pathsep.join([*places, "/usr/bin", "/usr/local/bin"]))


@pytest.mark.parametrize("version", ["this", *(f"3.{minor}" for minor in range(8, 15))])
def test_facts_with_the_standard_library_alone(version, tmp_path):
    python = sys.executable if version == "this" else find_interpreter(version)
    if python is None:
        pytest.skip(f"this machine has no python{version}")
    runs = []
    for _attempt in range(3):
        done = subprocess.run(
            [python, "-I", "-S", "-c", SCRIPT, str(COLLECTIONS)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        runs.append(json.loads(done.stdout))
    facts, _seconds, modules = runs[0]
    assert facts["errors"] == []
    assert facts["memory"]["total_bytes"] > 0
    assert not [name for name in modules if name.split(".")[0] in ("ansible", "yaml", "jinja2", "numpy", "gguf")]
    assert min(seconds for _facts, seconds, _modules in runs) < MOST_SECONDS
