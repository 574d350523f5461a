# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user sees of the collection before running it.

Every plugin and role is documented, and the artifact builds and holds what it should. Runs ``ansible-doc`` and
``ansible-galaxy collection build`` of this environment; nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.prefix) / "bin"
# kind of ansible-doc -> folder; module_utils and plugin_utils are not for users
KINDS = {"module": "plugins/modules", "filter": "plugins/filter", "inventory": "plugins/inventory"}
REQUIRED = ("README.md", "CHANGELOG.md", "LICENSE", "MANIFEST.json", "meta/runtime.yml")
FORBIDDEN = (".venv/", ".collections/", ".git/", ".cache/", ".ansible/", ".ci/", "tests/", "extensions/molecule/")
# A collection of a few hundred kilobytes; more means that a model or a build slipped in.
LIMIT_BYTES = 2 * 1024 * 1024


def run(*command: str) -> subprocess.CompletedProcess:
    """A command in the checkout, with the collection on the path."""
    env = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(ROOT / ".collections"))
    return subprocess.run(
        command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def names(kind: str) -> list[str]:
    """Fully qualified names of the plugins of a kind, by what lies in the folder."""
    folder = ROOT / KINDS[kind]
    found = {path.stem for path in folder.glob("*.py")}
    documented = {path.stem for path in folder.glob("*.yml")}
    # a Python file may hold several filters; then each has a documentation file of its own name
    found = documented | {name for name in found if not documented or kind != "filter"}
    return [f"relay.pool.{name}" for name in sorted(found)]


def check_plugins(problems: list[str]) -> int:
    """ansible-doc knows every plugin, with description and examples."""
    count = 0
    for kind in KINDS:
        wanted = names(kind)
        if not wanted:
            continue
        result = run(str(BIN / "ansible-doc"), "--json", "--type", kind, *wanted)
        if result.returncode:
            problems.append(f"ansible-doc --type {kind}: {result.stderr.strip() or result.stdout.strip()}")
            continue
        documents = json.loads(result.stdout)
        for name in wanted:
            count += 1
            document = documents.get(name) or {}
            if not document.get("doc"):
                problems.append(f"{kind} {name} has no documentation")
                continue
            for part in ("short_description", "description", "author"):
                if not document["doc"].get(part):
                    problems.append(f"{kind} {name} documents no {part}")
            if not document.get("examples"):
                problems.append(f"{kind} {name} has no examples")
    return count


def check_roles(problems: list[str]) -> int:
    """Every role has typed and described entry points, and a README."""
    roles = sorted(path.name for path in (ROOT / "roles").glob("*") if path.is_dir())
    if not roles:
        return 0
    result = run(str(BIN / "ansible-doc"), "--json", "--type", "role", *(f"relay.pool.{role}" for role in roles))
    documents = json.loads(result.stdout) if result.returncode == 0 else {}
    if result.returncode:
        problems.append(f"ansible-doc --type role: {result.stderr.strip()}")
    for role in roles:
        entry_points = (documents.get(f"relay.pool.{role}") or {}).get("entry_points") or {}
        if not entry_points:
            problems.append(f"role {role} has no argument_specs")
        for name, spec in entry_points.items():
            for part in ("short_description", "description"):
                if not spec.get(part):
                    problems.append(f"role {role}, entry point {name}, has no {part}")
        if not (ROOT / "roles" / role / "README.md").is_file():
            problems.append(f"role {role} has no README.md")
    return len(roles)


def check_artifact(problems: list[str]) -> int:
    """The archive that ansible-galaxy builds. Returns its size in bytes."""
    with tempfile.TemporaryDirectory(prefix="relay-pool-build-") as folder:
        result = run(str(BIN / "ansible-galaxy"), "collection", "build", "--output-path", folder)
        archives = list(Path(folder).glob("*.tar.gz"))
        if result.returncode or not archives:
            problems.append(f"ansible-galaxy collection build: {result.stderr.strip() or result.stdout.strip()}")
            return 0
        size = archives[0].stat().st_size
        with tarfile.open(archives[0]) as archive:
            members = archive.getnames()
    problems += [f"the artifact lacks {name}" for name in REQUIRED if name not in members]
    problems += [f"the artifact holds {name}" for name in members if name.startswith(FORBIDDEN) or ".pyc" in name]
    if size > LIMIT_BYTES:
        problems.append(f"the artifact has {size} bytes, more than {LIMIT_BYTES}: extend build_ignore in galaxy.yml")
    return size


def main() -> int:
    problems: list[str] = []
    plugins, roles, size = check_plugins(problems), check_roles(problems), check_artifact(problems)
    for problem in problems:
        print(f"docs-check: {problem}")
    verdict = "FAILED" if problems else "passed"
    print(f"docs-check: {plugins} plugins, {roles} roles, artifact of {size // 1024} KiB: {verdict}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
