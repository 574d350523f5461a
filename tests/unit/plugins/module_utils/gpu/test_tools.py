# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gpu import tools


def make_tool(folder, name):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return str(folder / name)


@pytest.mark.parametrize("name", ["nvidia-smi", "amd-smi", "rocm-smi", "xpu-smi"])
@pytest.mark.parametrize("path", [None, "", ":", ".", "relative", ":.:relative"])
def test_no_tool_is_taken_from_the_current_directory(tmp_path, monkeypatch, path, name):
    tool = make_tool(tmp_path, name)
    make_tool(tmp_path / "relative", name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tools, "SEARCH_PATH", ("/nonexistent",))
    if path is None:
        monkeypatch.delenv("PATH")
    else:
        monkeypatch.setenv("PATH", path)
    assert tools.find(name) is None
    monkeypatch.setattr(tools, "SEARCH_PATH", ("/nonexistent", str(tmp_path)))
    assert tools.find(name) == tool


def test_what_is_in_the_path_goes_first(tmp_path, monkeypatch):
    first, second = (make_tool(tmp_path / folder, "nvidia-smi") for folder in ("first", "second"))
    monkeypatch.setenv("PATH", str(tmp_path / "first"))
    monkeypatch.setattr(tools, "SEARCH_PATH", (str(tmp_path / "second"),))
    assert tools.find("nvidia-smi") == first
    monkeypatch.setenv("PATH", "/nonexistent")
    assert tools.find("nvidia-smi") == second


def test_tool_is_found_where_a_jetson_has_it(monkeypatch):
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setattr(tools.shutil, "which", lambda name, path: "/usr/sbin" in path.split(":"))
    assert tools.find("nvidia-smi")
