# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ``ansible-test sanity`` on a copy of the checkout.

``ansible-test`` wants the collection at ``ansible_collections/relay/pool`` and keeps its environments in the home
directory. Both live in ``$XDG_CACHE_HOME/relay-pool/sanity``; removing that removes everything. Arguments are passed
on, for example ``.venv/bin/python tests/sanity.py --test validate-modules plugins/modules/gguf_info.py``.
"""

from __future__ import annotations

import ast
import fcntl
import filecmp
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relay-pool" / "sanity"
HOME = CACHE / "home"
COPY = CACHE / "ansible_collections" / "relay" / "pool"
BIN = Path(sys.prefix) / "bin"

# Takes the place of the get-pip.py that ansible-test downloads from a server which many networks cannot reach: pip
# comes from the interpreter (ensurepip), the pinned versions from the configured index. ensurepip runs as a process of
# its own because it hides pip's configuration.
GET_PIP = """\
import subprocess
import sys

subprocess.check_call([sys.executable, "-m", "ensurepip", "--default-pip"], stdout=subprocess.DEVNULL)
args = [arg for arg in sys.argv[1:] if arg not in ("--no-setuptools", "--no-wheel")]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", "-q", *args]))
"""

# settings of pip that are about another place, or about this terminal
NOT_FOR_SANITY = ("config-file", "prefix", "quiet", "require-virtualenv", "target", "user", "verbose")


def copy_checkout() -> tuple[int, int]:
    """Bring the copy up to date with the files that git tracks or does not ignore. Returns (changed, deleted)."""
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout.decode()
    # a file that was deleted but not committed is still listed
    wanted = {name for name in listing.split("\0") if os.path.lexists(ROOT / name) and not (ROOT / name).is_dir()}
    changed = deleted = 0
    for name in sorted(wanted):
        source, target = ROOT / name, COPY / name
        if same(source, target):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target):
            target.unlink()
        shutil.copy2(source, target, follow_symlinks=False)
        changed += 1
    for folder, folders, files in os.walk(COPY, topdown=False):
        for name in files:
            path = Path(folder, name)
            if str(path.relative_to(COPY)) not in wanted:
                path.unlink()
                deleted += 1
        for name in folders:
            path = Path(folder, name)
            if not path.is_symlink() and not any(path.iterdir()):
                path.rmdir()
    return changed, deleted


def same(source: Path, target: Path) -> bool:
    """Whether the copy of a file has the content and the permissions of the original."""
    if not os.path.lexists(target) or source.is_symlink() != target.is_symlink():
        return False
    if source.is_symlink():
        return os.readlink(source) == os.readlink(target)
    return source.stat().st_mode == target.stat().st_mode and filecmp.cmp(source, target, shallow=False)


def pip_versions() -> set[str]:
    """The pip versions that ansible-test bootstraps, read from its own source."""
    import ansible_test

    source = (Path(ansible_test.__path__[0]) / "_internal" / "python_requirements.py").read_text(encoding="utf-8")
    body = re.search(r"^def get_venv_packages\(.*?(?=^def )", source, re.DOTALL | re.MULTILINE)
    return set(re.findall(r"\bpip\b['\"]?\s*[=:]\s*['\"]([0-9.]+)['\"]", body.group(0) if body else ""))


def prepare_home() -> None:
    """Make the home directory that ansible-test sees: the get-pip stand-in, and this environment's pip settings."""
    versions = pip_versions()
    if not versions:
        print("sanity: this ansible-test names no pip version where it used to; if it cannot get pip, that is why")
    for version in versions:
        script = HOME / ".ansible" / "test" / "cache" / f"get_pip_{version.replace('.', '_')}.py"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(GET_PIP, encoding="utf-8")

    # ansible-test drops PIP_* and proxy variables, and the user's own pip.conf is not in this home
    settings: dict[str, str] = {"progress-bar": "off", "quiet": "1"}
    command = [sys.executable, "-m", "pip", "config", "list"]
    for line in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        match = re.match(r"(?:global|install|:env:)\.([\w-]+)=(.*)", line)
        if match and match.group(1) not in NOT_FOR_SANITY:
            settings[match.group(1)] = str(ast.literal_eval(match.group(2)))
    proxy = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    if proxy:
        settings.setdefault("proxy", proxy)
    conf = HOME / ".config" / "pip" / "pip.conf"
    conf.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{key} = " + "\n    ".join(value.split()) for key, value in sorted(settings.items())]
    conf.write_text("\n".join(["[global]", *lines, ""]), encoding="utf-8")


def main() -> int:
    """Copy, prepare, run, and say in one line how it went."""
    CACHE.mkdir(parents=True, exist_ok=True)
    # two runs at once would make and remove the same environments
    with open(CACHE / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"sanity: waiting for another run in {CACHE}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        return check()


def check() -> int:
    """The same, alone in the cache."""
    started = time.monotonic()
    COPY.mkdir(parents=True, exist_ok=True)
    changed, deleted = copy_checkout()
    prepare_home()
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    print(f"sanity: {changed} files copied, {deleted} removed, Python {version}, in {CACHE}", flush=True)
    # without --requirements ansible-test leaves the venv of the checkout alone and makes an environment per test
    command = [str(BIN / "ansible-test"), "sanity", "--python", version, "--color", "no", *sys.argv[1:]]
    env = dict(os.environ, HOME=str(HOME), PATH=f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    for name in [name for name in env if name.startswith(("ANSIBLE_", "COVERAGE_"))]:
        del env[name]
    result = subprocess.run(command, cwd=COPY, env=env, stdin=subprocess.DEVNULL, check=False)
    print(f"sanity: {'passed' if result.returncode == 0 else 'FAILED'} in {time.monotonic() - started:.0f} s")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
