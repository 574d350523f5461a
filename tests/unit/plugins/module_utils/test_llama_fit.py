# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ansible_collections.relay.pool.plugins.module_utils import llama_fit

MIB = 1024 * 1024
# As llama-fit-params prints it, a space at the end of each line.
TABLE = "RPC0 158 0 38 \nRPC1 96 46 14 \nHost 92 45 104 \n"
NO_CONFIG = ("/nonexistent/config.ini",)


@pytest.fixture
def fake(tmp_path):
    """The path of a program llama-fit-params that is this shell script."""

    def write(script: str) -> str:
        path = tmp_path / "llama-fit-params"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return write


def ask(program: str, *args: str, timeout: float = 20, **options):
    return llama_fit.measure(program, args, timeout, config_files=NO_CONFIG, **options)


def bytes_of(weights: int, context: int, compute: int) -> dict[str, int]:
    return {"weights_bytes": weights * MIB, "context_bytes": context * MIB, "compute_bytes": compute * MIB}


def test_the_table(fake):
    fit = ask(fake(f"printf '{TABLE}'; echo '0.00.000.001 I something' >&2"))
    assert fit["error"] is None
    assert list(fit["devices"].items()) == [
        ("RPC0", bytes_of(158, 0, 38)),
        ("RPC1", bytes_of(96, 46, 14)),
        ("Host", bytes_of(92, 45, 104)),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "RPC0 158 0 38\n",  # ended before the host's line
        "-c 2048 -ngl 71 -ts 39,32\n",  # what it prints without --fit-print
        "RPC0 158 0\nHost 92 45\n",
        "Host 1 2 3\nRPC0 1 2 3\n",
        "RPC0 1 2 3\nRPC0 1 2 3\nHost 1 2 3\n",
        "RPC0 -1 2 3\nHost x y z\n",
        "Host 99999999999999999999 0 0\n",
    ],
)
def test_what_is_no_table(text):
    assert llama_fit.parse(text) is None


def test_lines_of_a_log_among_the_table():
    assert llama_fit.parse("build 11434\nHost 1 2 3 \nbye\n") == {"Host": bytes_of(1, 2, 3)}


def test_what_it_is_asked_with(fake, tmp_path):
    program = fake(f"printf '%s\\n' \"$@\" >{tmp_path}/argv; printf 'Host 1 2 3\\n'")
    assert ask(program, "--model", "/a b.gguf", "--device", "none")["error"] is None
    words = (tmp_path / "argv").read_text().splitlines()
    assert words == ["--model", "/a b.gguf", "--device", "none", "--fit-print", "on"]


def test_nothing_of_the_callers_environment_but_the_path(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "512")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    program = fake(f"env >{tmp_path}/env; printf 'Host 1 2 3\\n'")
    assert ask(program, env=llama_fit.environment({"CUDA_VISIBLE_DEVICES": "GPU-a", "A": 0}))["error"] is None
    seen = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["A"], seen["XDG_CONFIG_HOME"]) == ("GPU-a", "0", "/nonexistent")
    assert seen["HOME"] == "/nonexistent"
    assert "LLAMA_ARG_CTX_SIZE" not in seen


@pytest.mark.parametrize("value", [None, True, {}, []])
def test_an_environment_that_is_none(value):
    with pytest.raises(ValueError, match=r"environment\.TOKEN is no text: write its value in quotes, or leave it out"):
        llama_fit.environment({"TOKEN": value})


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("exit 0", "llama-fit-params printed nothing"),
        ("echo '{\"type\": 1}'", "llama-fit-params printed no table of devices, but '{\"type\": 1}'"),
        ("echo 'error: invalid argument: --fit-print' >&2; exit 1",
         "llama-fit-params ended with 1: error: invalid argument: --fit-print"),
        ("echo 'I loading' >&2; echo 'GGML_ASSERT(x) failed' >&2; kill -ABRT $$",
         "llama-fit-params was ended by signal 6: I loading (GGML_ASSERT(x) failed)"),
        # half a table, and then it crashes
        ("echo 'RPC0 1 2 3'; kill -SEGV $$", "llama-fit-params was ended by signal 11: RPC0 1 2 3"),
        ("printf 'Host 1 2 3\\n'; exit 3", "llama-fit-params ended with 3: Host 1 2 3"),
        ("printf '\\377\\033[2J\\n'", "llama-fit-params printed no table of devices, but '\ufffd?[2J'"),
    ],
)  # fmt: skip
def test_a_program_that_says_something_else_is_no_failure(fake, script, error):
    assert ask(fake(script)) == {"devices": None, "error": error}


def test_no_program(tmp_path):
    fit = ask(str(tmp_path / "llama-fit-params"))
    assert fit == {"devices": None, "error": "llama-fit-params cannot be started: No such file or directory"}


def test_it_is_asked_again_when_it_ended_before_its_words_were_written(fake, tmp_path):
    program = fake(f"if [ -e {tmp_path}/again ]; then printf 'Host 1 2 3\\n'; fi; touch {tmp_path}/again")
    assert ask(program)["devices"] == {"Host": bytes_of(1, 2, 3)}


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def opened(folder):
    """The folder and those above it that pytest has made: others cannot look into them."""
    made = [above for above in folder.parents if above.name.startswith(("pytest-", "popen-"))]
    return [folder, *made]


@pytest.mark.parametrize("user", ["", "nobody"])
def test_one_that_hangs_is_killed_with_its_children(fake, tmp_path, user):
    if user and os.geteuid() != 0:
        pytest.skip("only root can run it as somebody else")
    for folder in opened(tmp_path):
        folder.chmod(0o755)
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o777)
    program = fake(f"id -un >{out}/user; sleep 300 & echo $! >{out}/child; echo $$ >{out}/self; wait")
    start = time.monotonic()
    fit = ask(program, timeout=1.5, user=user)
    assert time.monotonic() - start < 4
    assert fit == {"devices": None, "error": "llama-fit-params gave no answer within 1.5 s and was killed"}
    assert not user or (out / "user").read_text().strip() == user
    assert all(gone(int((out / name).read_text())) for name in ("child", "self"))


def test_a_child_that_holds_the_pipe_holds_up_nobody(fake, tmp_path):
    program = fake(f"sleep 300 & echo $! >{tmp_path}/child; printf 'Host 1 2 3\\n'")
    start = time.monotonic()
    assert ask(program)["devices"] == {"Host": bytes_of(1, 2, 3)}
    assert time.monotonic() - start < 3
    assert gone(int((tmp_path / "child").read_text()))


def test_one_that_never_stops_talking(fake):
    start = time.monotonic()
    fit = ask(fake("exec yes 'RPC0 1 2 3'"))
    assert time.monotonic() - start < 10
    assert fit["devices"] is None


def test_a_configuration_of_the_machine_is_no_measurement(fake, tmp_path):
    config = tmp_path / "config.ini"
    config.write_text("ctx-size = 512\n")
    fit = llama_fit.measure(fake("printf 'Host 1 2 3\\n'"), [], 5, config_files=[str(config)])
    assert fit["devices"] is None
    assert fit["error"].startswith(f"{config} of the machine would change what llama-fit-params measures")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run it as somebody else")
def test_a_crash_as_somebody_else_and_a_user_that_is_none(fake, tmp_path):
    for folder in opened(tmp_path):
        folder.chmod(0o755)
    program = fake("echo 'error: out of luck' >&2; exit 5")
    assert ask(program, user="nobody")["error"] == "llama-fit-params ended with 5: error: out of luck"
    assert "no-such-user" in ask(program, user="no-such-user")["error"]


def test_groups_of_the_service():
    seen = []

    def run(argv, **options):
        seen.append(argv)
        return llama_fit.command.Result(0, "Host 1 2 3\n", "", None)

    ask("/bin/x", "-a", user="relay-pool", groups=["video", "render"], run=run)
    assert seen == [
        ["runuser", "-u", "relay-pool", "-G", "video", "-G", "render", "--", "/bin/x", "-a", "--fit-print", "on"]
    ]
