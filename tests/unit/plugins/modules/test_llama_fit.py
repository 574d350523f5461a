# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.relay.pool.plugins.modules import llama_fit


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the module with options and return what it prints."""
    monkeypatch.setattr(
        llama_fit.llama_fit.measure, "__defaults__", ("", (), None, llama_fit.llama_fit.command.run, ())
    )

    def run_module(**options):
        with patch_module_args(options), pytest.raises(SystemExit):
            llama_fit.main()
        return json.loads(capsys.readouterr().out)

    return run_module


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "llama-fit-params"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nprintf 'Host 1 2 %s \\n' $2\n")
    path.chmod(0o755)
    return path


def test_what_it_returns(run, program):
    result = run(program=str(program), args=["--ctx-size", "3"])
    assert result["fit"]["error"] is None
    assert result["fit"]["devices"]["Host"]["compute_bytes"] == 3 * 2**20
    assert result["changed"] is False


def test_check_mode_touches_no_worker(run, program, tmp_path):
    result = run(program=str(program), _ansible_check_mode=True)
    assert (result["skipped"], result["changed"], result["fit"]["devices"]) == (True, False, None)
    assert not (tmp_path / "ran").exists()


def test_a_build_without_the_program(run):
    assert run(program="")["fit"] == {"devices": None, "error": "the build has no llama-fit-params"}
    assert run()["fit"]["devices"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout is 0: it must be more than 0 and at most"),
        ({"timeout": -3}, "timeout is -3: it must be more than 0 and at most"),
        ({"environment": {"A": None}}, "environment.A is no text: write its value in quotes, or leave it out"),
    ],
)
def test_options_that_cannot_be_meant(run, program, options, message):
    result = run(program=str(program), **options)
    assert result["failed"]
    assert result["msg"].startswith(message)
