# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rooms of docs/architecture.md import what the table there lets them, and nothing else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "ansible_collections.relay.pool."
# What lies in the folder itself every room in it may import.
COMMON = "plugins/plugin_utils"


def table():
    """By folder, the folders that it may import beside itself."""
    found = {}
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        if line.startswith("| `plugins/"):
            _empty, folders, _subject, allowed, _end = line.split("|")
            names = re.findall(r"`([^`]+)`", allowed)
            for folder in re.findall(r"`([^`]+?)/`", folders):
                found[folder] = {name if "/" in name else f"{COMMON}/{name}" for name in names}
    return found


ALLOWED = table()
FILES = [path for path in sorted((ROOT / "plugins").rglob("*.py")) if path.stem != "__init__"]


def room(path):
    return str(path.parent.relative_to(ROOT))


def imported(path):
    """The rooms from which a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PREFIX):
            module = ROOT / node.module.removeprefix(PREFIX).replace(".", "/")
            files = [module / f"{name.name}.py" for name in node.names]
            yield from map(room, files if module.is_dir() and files[0].is_file() else [module])


def test_every_folder_is_a_room():
    assert {room(path) for path in FILES} == set(ALLOWED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_what_it_may(path):
    common = {COMMON} if room(path).startswith(COMMON) else set()
    assert set(imported(path)) <= {room(path)} | ALLOWED[room(path)] | common


def test_no_two_rooms_of_the_planner_import_each_other():
    above = {name: others for name, others in ALLOWED.items() if name.startswith(f"{COMMON}/")}
    while above:
        lowest = {name for name, others in above.items() if not others & set(above)}
        assert lowest, above
        above = {name: others for name, others in above.items() if name not in lowest}
