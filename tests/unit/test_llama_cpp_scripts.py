# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scripts of role llama_cpp: what they leave is whole, or not there."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

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
