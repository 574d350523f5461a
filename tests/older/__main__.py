# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the older llama.cpp unless it is there: about six minutes on two cores, 70 MB to download."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.older import CACHE, DOWNLOADS, ROLE, VERSION, bin_dir, build_dir, options

NAME = f"llama_cpp_python-{VERSION}"


def source() -> Path:
    """The sdist in the cache, downloaded if it is not there."""
    path = CACHE / f"{NAME}.tar.gz"
    if path.is_file():
        return path
    print(f"downloading {path.name} (70 MB)", flush=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--requirement", str(DOWNLOADS), "--dest", folder]
        if subprocess.run(command, check=False).returncode:
            raise SystemExit(f"pip could not download what {DOWNLOADS} names: is its package index reachable?")
        # A rename, so that what has its name is whole.
        (Path(folder) / path.name).rename(path)
    return path


def main() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    # Two runs at once would build into one another.
    with open(CACHE / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if bin_dir() is None:
            archive = source()
            print(f"building llama.cpp of {NAME} (some minutes, once)", flush=True)
            command = [str(ROLE / "files" / "build.sh"), f"{build_dir()}.tar.gz", str(archive)]
            command += [f"{NAME}/vendor/llama.cpp", "0", "0", *options()]
            if subprocess.run(command, check=False).returncode:
                raise SystemExit(f"llama.cpp of {NAME} was not built: see above")
    print(bin_dir())


if __name__ == "__main__":
    main()
