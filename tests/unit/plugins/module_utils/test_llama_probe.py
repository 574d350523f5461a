# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command, llama_server, llama_unit, probe, units

SHARDED = (Path(__file__).parent / "fixtures" / "llama_server_sharded_draft.txt").read_text()
INVOCATION = "ee074a1053d344db9baa3b895b9c0992"
CRASH = "/src/ggml-rpc.cpp:566: Remote RPC server crashed or returned malformed response"
SHOWN = {
    "Id": "relay-llama.service",
    "ActiveState": "active",
    "SubState": "running",
    "MainPID": "73",
    "NRestarts": "2",
    "InvocationID": INVOCATION,
}


def ok(text, truncated=False):
    return command.Result(0, text, "", None, truncated)


def test_describe_unit(monkeypatch):
    monkeypatch.setattr(units, "show", lambda *args: ([SHOWN], []))
    assert llama_unit.describe_unit("relay-llama.service", 5) == (
        {"active": True, "sub_state": "running", "main_pid": 73, "n_restarts": 2, "invocation_id": INVOCATION},
        None,
    )


@pytest.mark.parametrize("messages", [[], ["systemctl ended with 1"]])
def test_missing_unit(monkeypatch, messages):
    monkeypatch.setattr(units, "show", lambda *args: ([], messages))
    assert llama_unit.describe_unit("x.service", 5) == (None, messages[0] if messages else None)


def test_log_of_the_invocation_only():
    def run(argv, timeout, max_bytes=None):
        assert f"_SYSTEMD_INVOCATION_ID={INVOCATION}" in argv
        return ok("".join(f"line {n}\n" for n in range(100)))

    head, tail, error = llama_unit.read_log(INVOCATION, 5, run)
    assert head.startswith("line 0\n")
    assert tail.splitlines()[0] == "line 40"
    assert tail.splitlines()[-1] == "line 99"
    assert error is None


def test_long_log_is_read_at_both_ends():
    def run(argv, timeout, max_bytes=None):
        return ok("last\n") if "--lines=60" in argv else ok("first\n", truncated=True)

    assert llama_unit.read_log(INVOCATION, 5, run) == ("first\n", "last", None)


@pytest.mark.parametrize(
    ("invocation", "result", "words"),
    [
        ("", None, "no invocation yet"),
        ("x; rm", None, "no invocation yet"),
        (INVOCATION, command.Result(1, "", "no", "journalctl ended with 1: no"), "ended with 1: no"),
        (INVOCATION, ok("\n"), "not for this user"),
    ],
)
def test_log_that_cannot_be_read(invocation, result, words):
    assert words in llama_unit.read_log(invocation, 5, lambda *args, **kwargs: result)[2]


def test_error_lines():
    text = "\n".join(
        [
            "0.00.010.865 I srv  load_model: failed is only a word here",
            "0.08.618.681 E send failed (bytes_sent=0, size_to_send=8)",
            "0.08.618.700 W srv  careful",
            CRASH,
            "main: exiting due to model loading error",
            "an ordinary line",
        ]
    )
    found = llama_unit.error_lines(text)
    assert found == [
        "0.08.618.681 E send failed (bytes_sent=0, size_to_send=8)",
        "0.08.618.700 W srv  careful",
        CRASH,
        "main: exiting due to model loading error",
    ]
    assert llama_unit.error_lines(text, keep=1) == ["main: exiting due to model loading error"]


@pytest.fixture
def pool(monkeypatch):
    """A pool whose HTTP result, unit and log the test sets."""
    state = {"http": {"state": "ready", "error": None}, "unit": dict(SHOWN), "log": ("", "", None)}
    monkeypatch.setattr(llama_server, "probe", lambda *args: {**llama_server.empty(), **state["http"]})
    monkeypatch.setattr(units, "show", lambda *args: ([state["unit"]] if state["unit"] else [], []))
    monkeypatch.setattr(llama_unit, "read_log", lambda *args: state["log"])
    return state


def test_all_together(pool):
    pool["log"] = (SHARDED, "", None)
    result = probe.run(probe.Options(unit="relay-llama.service"))
    assert result["unit"]["main_pid"] == 73
    assert result["spec_types"] == ["draft-simple"]
    assert {b["model"] for b in result["buffers"]} == {"target", "draft"}
    assert len(result["layers"]) == 12
    assert (result["error"], result["log_error"], result["completion_seconds"]) == (None, None, None)


def test_without_unit(pool):
    result = probe.run(probe.Options())
    assert (result["unit"], result["buffers"], result["log_error"]) == (None, [], None)


def test_missing_unit_is_no_error_of_a_server_that_answers(pool):
    pool["unit"] = None
    result = probe.run(probe.Options(unit="x.service"))
    assert (result["unit"], result["error"]) == (None, None)
    assert result["log_error"] == "unit x.service does not exist"


@pytest.mark.parametrize(
    ("http", "unit", "tail", "words"),
    [
        (
            {"state": "down", "error": "refused"},
            {},
            "",
            "refused; relay-llama.service is running, and has not opened its port yet, restarted 2 times",
        ),
        (
            {"state": "down", "error": "refused"},
            {"ActiveState": "activating", "SubState": "auto-restart", "MainPID": "0"},
            CRASH,
            f"is not active (auto-restart), restarted 2 times; its log says: {CRASH}",
        ),
        ({"state": "failing", "error": "broke off"}, {}, CRASH, f"broke off; its log says: {CRASH}"),
    ],
)
def test_error_says_what_the_unit_says(pool, http, unit, tail, words):
    pool["http"] = http
    pool["unit"].update(unit)
    pool["log"] = ("", tail, None)
    assert probe.run(probe.Options(unit="relay-llama.service"))["error"].endswith(words)


def test_warnings_are_no_error_while_all_is_well(pool):
    pool["log"] = ("", CRASH, None)
    result = probe.run(probe.Options(unit="relay-llama.service"))
    assert result["log_tail"] == [CRASH]
    assert result["error"] is None


@pytest.mark.parametrize(
    ("content", "key", "words"),
    [
        ("\n sk-1 \nsk-2\n", "sk-1", None),
        ("\n", "", "holds no key"),
        (None, "", "cannot be read: No such file or directory"),
    ],
)
def test_key_file(tmp_path, content, key, words):
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
    found, error = probe.read_key(probe.Options(api_key_file=str(path)))
    assert found == key
    assert (error is None) if words is None else (words in error)


def test_key_file_that_is_no_text_is_not_quoted(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(b"sk-secret\xff")
    key, error = probe.read_key(probe.Options(api_key_file=str(path)))
    assert (key, error) == ("", f"api_key_file {path} cannot be read: it is no UTF-8 text")


def test_key_file_that_is_a_pipe_holds_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "key")
    key, error = probe.read_key(probe.Options(api_key_file=str(tmp_path / "key")))
    assert key == ""
    assert "no regular file" in error


def test_key_is_taken_as_given():
    assert probe.read_key(probe.Options(api_key="sk-3")) == ("sk-3", None)
    assert probe.read_key(probe.Options()) == ("", None)


def test_unreadable_key_is_said(pool, tmp_path):
    result = probe.run(probe.Options(api_key_file=str(tmp_path / "none")))
    assert "cannot be read" in result["error"]
