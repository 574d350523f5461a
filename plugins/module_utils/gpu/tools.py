# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the vendors' tools are."""

from __future__ import annotations

import os
import shutil

# Where packages put them: of distributions, of the vendors, in containers with NVIDIA's runtime, in WSL, on NixOS.
SEARCH_PATH = (
    "/usr/bin",
    # On a Jetson, and not in everybody's PATH.
    "/usr/sbin",
    "/usr/local/bin",
    "/opt/rocm/bin",
    "/opt/xpum/bin",
    "/usr/local/nvidia/bin",
    "/usr/lib/wsl/lib",
    "/run/current-system/sw/bin",
)


def find(name: str) -> str | None:
    """Path of a tool, also where a login shell of root does not look."""
    # An empty entry of PATH means the current directory, whoever may write there.
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *SEARCH_PATH]
    return shutil.which(name, path=os.pathsep.join(folder for folder in folders if os.path.isabs(folder)))
