# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import socket

import pytest
from ansible_collections.relay.pool.plugins.module_utils import small_files


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def make_loop(path):
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, "no regular file"),
        (os.mkdir, "Is a directory"),
        (make_socket, "No such device"),
        (lambda path: path.symlink_to("/dev/zero"), "no regular file"),
        (make_loop, "Too many levels"),
        (lambda path: path.symlink_to("/nonexistent/key"), "No such file"),
    ],
    ids=["pipe", "directory", "socket", "device", "loop", "dangling"],
)
def test_no_regular_file_is_an_error_at_once(tmp_path, make, words):
    path = tmp_path / "file"
    make(path)
    with pytest.raises(OSError, match=words):
        small_files.read_bytes(str(path))


def test_path_that_is_none():
    with pytest.raises(OSError, match="null byte"):
        small_files.read_bytes("/tmp/a\0b")


def test_regular_file_is_read_up_to_the_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    (tmp_path / "link").symlink_to(path)
    assert small_files.read_bytes(str(tmp_path / "link")) == b"12345"
    assert small_files.read_bytes(str(path), 2) == b"12"


def test_text_of_what_may_not_be_there(tmp_path):
    (tmp_path / "file").write_bytes(b"a\xffb\n")
    assert small_files.read_text(str(tmp_path), "file") == "a\ufffdb\n"
    for path in ((str(tmp_path), "none", "file"), (str(tmp_path),), ("/tmp/a\0b",)):
        assert small_files.read_text(*path) == ""
