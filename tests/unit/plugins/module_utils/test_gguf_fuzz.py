# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Damaged headers: a clean error or facts, in little memory and time. RELAY_FUZZ_ROUNDS says how many, else 2500."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROUNDS = int(os.environ.get("RELAY_FUZZ_ROUNDS") or 2500)
SEED = int(os.environ.get("RELAY_FUZZ_SEED") or 20260815)
MOST_BYTES = 64 << 20
MOST_SECONDS = 1.0


def test_damaged_headers(capsys):
    command = [sys.executable, "-I", "-S", str(HERE / "fuzz_gguf.py"), str(HERE.parents[3] / ".collections")]
    done = subprocess.run([*command, str(ROUNDS), str(SEED)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    with capsys.disabled():
        print(f"\n{result}")
    assert result["failures"] == []
    assert result["read"] + result["refused"] == ROUNDS
    assert min(result["read"], result["refused"]) > ROUNDS // 20  # else the damage is too small, or too large
    assert result["slowest_seconds"] < MOST_SECONDS
    assert result["peak_bytes"] < MOST_BYTES
