# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks as the tests run them, with the settings and the collection of this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def ansible_playbook(*arguments: object, timeout: float = 120, cwd: Path | None = None, **environment: str):
    """The finished run, whose ``stdout`` is all that it says."""
    settings = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
        "LC_ALL": "C.UTF-8",
    }
    return subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), *map(str, arguments)],
        env={**os.environ, **settings, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
        cwd=cwd,
    )


def played(*arguments: object, **options) -> tuple[bool, str]:
    """Whether the run worked, and what it says with its lines joined."""
    done = ansible_playbook(*arguments, **options)
    return done.returncode == 0, " ".join(done.stdout.split())
