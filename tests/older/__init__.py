# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An older llama.cpp for the tests of dialects: spring 2026, when a draft ran by ``--model-draft`` alone.

Its source is in the sdist of llama-cpp-python, pinned by hash in downloads.txt. It is built once, into the user's
cache, by the script and with the options of role ``llama_cpp``.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import yaml

VERSION = "0.3.20"
DOWNLOADS = Path(__file__).resolve().parent / "downloads.txt"
ROLE = Path(__file__).resolve().parent.parent.parent / "roles" / "llama_cpp"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relay-pool" / "older"


def options() -> list[str]:
    """cmake's options: the role's, and no libcurl, which this source still asks for."""
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))
    return [*defaults["llama_cpp_cmake_options"], "-DLLAMA_CURL=OFF"]


def build_dir() -> Path:
    """Where the build is, or will be: another one for other sources or options."""
    decides = json.dumps([DOWNLOADS.read_text(encoding="utf-8"), options()])
    return CACHE / f"{VERSION}-{hashlib.sha256(decides.encode()).hexdigest()[:8]}"


def bin_dir() -> Path | None:
    """The directory of ``llama-server`` and ``rpc-server``; None where they have not been built."""
    build = build_dir()
    return build / "bin" if (build / "complete").is_file() else None
