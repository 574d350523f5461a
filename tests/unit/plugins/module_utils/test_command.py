# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import time

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command


def sh(script: str, **options) -> command.Result:
    return command.run(["/bin/sh", "-c", script], **options)


def test_output_and_success():
    assert sh("echo out; echo err >&2") == command.Result(0, "out\n", "err\n", None)


@pytest.mark.parametrize(
    ("script", "rc", "error"),
    [
        ("echo 'Failed to initialize NVML'; exit 18", 18, "sh ended with 18: Failed to initialize NVML"),
        ("echo why >&2; exit 2", 2, "sh ended with 2: why"),
        ("exit 3", 3, "sh ended with 3"),
        ("kill -9 $$", -9, "sh was ended by signal 9"),
    ],
)
def test_failures_say_what_the_tool_said(script, rc, error):
    result = sh(script)
    assert (result.rc, result.error) == (rc, error)


def test_missing_tool():
    result = command.run(["/nonexistent/tool"])
    assert result.rc is None
    assert result.error == "tool cannot be started: No such file or directory"


def test_tool_whose_interpreter_is_missing(tmp_path):
    tool = tmp_path / "rocm-smi"
    tool.write_text("#!/nonexistent/python3\n")
    tool.chmod(0o755)
    result = command.run([str(tool)])
    assert result.error == (
        f"rocm-smi cannot be started: the interpreter that the first line of {tool} names is not there, or its loader"
    )


@pytest.mark.parametrize(
    ("script", "partial"),
    [
        ("echo before; sleep 30", "before\n"),
        # The tool waits for a child that holds the pipe: both must go.
        ("sleep 30 & wait", ""),
        # The pipes are closed, the tool goes on.
        ("exec >&- 2>&-; sleep 30", ""),
    ],
)
def test_timeout_kills_and_returns(script, partial):
    started = time.monotonic()
    result = sh(script, timeout=0.3)
    assert time.monotonic() - started < 1.3
    assert result.rc is None
    assert result.error == "sh gave no answer within 0.3 s and was killed"
    assert result.stdout == partial


def test_child_that_keeps_the_pipe_does_not_block():
    started = time.monotonic()
    result = sh("sleep 30 & echo $!", timeout=5)
    assert time.monotonic() - started < 1.3
    assert result.ok
    child = result.stdout.strip()
    for _attempt in range(50):
        with_child = sh(f"kill -0 {child} 2>/dev/null && grep -v 'State:.*Z' /proc/{child}/status | grep -q State:")
        if not with_child.ok:
            return
        time.sleep(0.02)
    pytest.fail("the child was not killed with its group")


def test_output_is_limited():
    result = sh("yes relay", timeout=5, max_bytes=100_000)
    assert result.truncated
    assert result.ok
    assert 100_000 <= len(result.stdout) < 300_000


def test_environment_has_no_llama_options(monkeypatch):
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "1")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert sh("echo ${LLAMA_ARG_CTX_SIZE-unset} $LC_ALL").stdout == "unset C\n"


def test_an_argument_that_no_program_can_receive():
    assert command.run(["echo", "a\0b"]).error == "echo cannot be started: embedded null byte"
