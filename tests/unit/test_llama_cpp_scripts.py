# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scripts of role llama_cpp: what they leave is whole, or not there."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parent.parent.parent / "roles" / "llama_cpp" / "files" / "build.sh"
PACK = Path(__file__).resolve().parent.parent.parent / "roles" / "llama_cpp" / "files" / "pack.sh"


def pack(folder, prebuilt):
    return subprocess.run(
        [str(PACK), str(folder / "build.tar.gz"), str(prebuilt)], capture_output=True, text=True, check=False
    )


def programs(folder, *names):
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
    return folder


@pytest.mark.parametrize("depth", [".", "bin", "llama-b1/bin"])
def test_the_programs_are_packed_with_their_libraries_and_complete_comes_last(tmp_path, depth):
    programs(tmp_path / "made" / depth, "llama-server", "ggml-rpc-server", "libggml.so.0", "README")
    assert pack(tmp_path, tmp_path / "made").returncode == 0
    with tarfile.open(tmp_path / "build.tar.gz") as archive:
        names = archive.getnames()
        assert sorted(names[:-1]) == ["bin", "bin/ggml-rpc-server", "bin/libggml.so.0", "bin/llama-server"]
        assert names[-1] == "complete"
        assert archive.getmember("bin/llama-server").mode & 0o111


def test_an_archive_is_as_good_as_a_directory(tmp_path):
    programs(tmp_path / "made" / "bin", "llama-server")
    with tarfile.open(tmp_path / "made.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "made", "made")
    assert pack(tmp_path, tmp_path / "made.tar.xz").returncode == 0
    assert (tmp_path / "build" / "bin" / "llama-server").exists()


def test_what_holds_no_server_is_named_and_leaves_nothing(tmp_path):
    done = pack(tmp_path, programs(tmp_path / "made", "ggml-rpc-server"))
    assert done.returncode != 0
    assert f"{tmp_path / 'made'} holds no program llama-server" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made"]


# Takes the place of cmake: "--build DIR ... --target NAME..." makes an empty program of each name.
CMAKE = """#!/bin/sh
[ "$1" = --build ] || exit 0
mkdir -p "$2/bin"
while [ "$1" != --target ]; do folder=${folder:-$2}; shift; done
shift
for name in "$@"; do echo '#!/bin/sh' >"$folder/bin/$name"; done
"""


@pytest.mark.parametrize(
    ("rpc", "tools", "made"),
    [
        ("ggml-rpc-server", ("fit-params",), ["ggml-rpc-server", "llama-fit-params", "llama-server"]),
        # until the summer of 2026
        ("rpc-server", ("fit-params",), ["llama-fit-params", "llama-server", "rpc-server"]),
        ("rpc-server", (), ["llama-server", "rpc-server"]),
    ],
)
def test_older_sources_are_built_with_the_programs_that_they_have(tmp_path, rpc, tools, made):
    source = tmp_path / "llama.cpp"
    for tool in ("rpc", *tools):
        (source / "tools" / tool).mkdir(parents=True)
    (source / "CMakeLists.txt").touch()
    (source / "tools" / "rpc" / "CMakeLists.txt").write_text(f"set(TARGET {rpc})\n")
    with tarfile.open(tmp_path / "source.tar.gz", "w:gz") as archive:
        archive.add(source, "llama.cpp")
    (tmp_path / "path").mkdir()
    for name, text in (("cmake", CMAKE), ("c++", "#!/bin/sh\n")):
        (tmp_path / "path" / name).write_text(text)
        (tmp_path / "path" / name).chmod(0o755)
    done = subprocess.run(
        [str(BUILD), str(tmp_path / "build.tar.gz"), str(tmp_path / "source.tar.gz"), "", "1", "0"],
        env={**os.environ, "PATH": f"{tmp_path / 'path'}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "build" / "bin").iterdir()) == made
