# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparison of texts, run by Ansible with stand-ins of systemctl and llama-server: what fails on the way, and
whether the server is as planned afterwards. tests/pool has the same with the real ones."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.server.systemd import exec_start

from tests.playing import ROOT, played
from tests.unit.test_prove_tasks import CHECK, HERE, PLAN

UNIT = "relay-llama.service"
# Serves what says.json says of a server that speculates, or of one that does not.
SERVER = """#!{python}
import http.server, json, sys
argv = sys.argv[1:]
with open({folder!r} + "/starts", "a") as handle:
    handle.write(json.dumps(sys.argv) + "\\n")
says = json.load(open({folder!r} + "/says.json"))["speculating" if "--spec-type" in argv else "plain"]
if says.get("ends"):
    sys.exit(1)

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        bodies = {{
            "/slots": [{{"id": 0, "n_ctx": 512, "speculative": "--spec-type" in argv}}],
            "/completion": {{"content": says["text"], "timings": {{"draft_n": 8, "draft_n_accepted": 1}}
                            if "--spec-type" in argv else {{}}}},
        }}
        body = json.dumps(bodies.get(self.path, {{}})).encode()
        self.send_response(500 if self.path == "/completion" and says.get("fails") else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer()

    def log_message(self, *_args):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(argv[argv.index("--port") + 1])), Handler).serve_forever()
"""
# One unit, whose last ExecStart= counts. What it runs is read as systemd would: quotes, then %% and $$.
SYSTEMCTL = """#!{python}
import json, os, pathlib, shlex, signal, subprocess, sys, time, uuid
folder = pathlib.Path({folder!r})
words = [word for word in sys.argv[1:] if not word.startswith("-")]
state = json.loads((folder / "state.json").read_text()) if (folder / "state.json").exists() else {{}}

def alive():
    try:
        os.kill(state["pid"], 0)
        return pathlib.Path("/proc/%d/stat" % state["pid"]).read_text().split()[2] != "Z"
    except (OSError, KeyError):
        return False

if words[0] == "restart":
    if (folder / "no-restart").exists():
        sys.exit("Job for {unit} failed.")
    if alive():
        os.kill(state["pid"], signal.SIGKILL)
        while alive():
            time.sleep(0.01)
    lines = [line for path in (folder / "{unit}", folder / "run" / "instead.conf") if path.exists()
             for line in path.read_text().splitlines()]
    line = [line for line in lines if line.startswith("ExecStart=") and line != "ExecStart="][-1]
    argv = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line.partition("=")[2])]
    quiet = {{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
    environment = {{**os.environ, "PYTHONHOME": sys.base_prefix, "PYTHONPATH": ""}}
    started = subprocess.Popen(
        [argv[0], *argv], executable=sys.executable, env=environment, start_new_session=True, **quiet
    )
    time.sleep(0.5)
    state = {{"pid": started.pid, "invocation": uuid.uuid4().hex, "restarts": 0 if started.poll() is None else 9}}
    (folder / "state.json").write_text(json.dumps(state))
elif words[0] == "show":
    print("Id={unit}\\nLoadState=loaded\\nActiveState=" + ("active" if alive() else "activating"))
    print("SubState=running\\nMainPID=%d\\nNRestarts=%d" % (state.get("pid", 0), state.get("restarts", 0)))
    print("InvocationID=" + state.get("invocation", ""))
elif words[0] == "is-enabled":
    print("enabled")
"""
# The readers of units ask no systemctl where systemd does not run.
SITE = """
import os
_isdir = os.path.isdir
os.path.isdir = lambda path: True if path == "/run/systemd/system" else _isdir(path)
"""


class Machine:
    """A machine with one unit, and a run of prove.yml there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.override = folder / "run" / "instead.conf"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.args = ["--port", str(self.port), "--spec-type", "draft-simple"]
        self.says = {"speculating": {"text": "x"}, "plain": {"text": "x"}}
        self.bin.mkdir()
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(SITE)
        self.program("systemctl", SYSTEMCTL)
        self.program("journalctl", "#!/bin/sh\n")
        self.server = self.program("llama-server", SERVER)
        path = f"PATH={self.bin}:$PATH PYTHONPATH={folder}/site"
        self.python = self.program("python", f'#!/bin/sh\n{path} exec {sys.executable} "$@"\n')

    def program(self, name: str, text: str) -> Path:
        path = self.bin / name
        words = {"python": sys.executable, "folder": str(self.folder), "unit": UNIT}
        path.write_text(text.format(**words) if "{python}" in text else text)
        path.chmod(0o755)
        return path

    def start(self) -> None:
        """The unit as deploy.yml has just written it, and its server."""
        (self.folder / "says.json").write_text(json.dumps(self.says))
        (self.folder / UNIT).write_text(f"[Service]\nExecStart={exec_start([str(self.server), *self.args])}\n")
        subprocess.run([self.bin / "systemctl", "restart", UNIT], check=True)
        for _attempt in range(100):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)

    @property
    def starts(self) -> list[list[str]]:
        """The argv of every start, after the program."""
        return [json.loads(line)[1:] for line in (self.folder / "starts").read_text().splitlines()]

    @property
    def programs(self) -> list[str]:
        return [json.loads(line)[0] for line in (self.folder / "starts").read_text().splitlines()]

    def prove(self, **variables):
        """(worked, output) of prove.yml after a start."""
        variables = {
            "relay_host_port": self.port, "relay_verify_lossless": True, "relay_draft_required": True,
            "llama_host_override": str(self.override), "relay_ready_timeout": 12,
            "__relay_lossless_prompts": ["Once upon a time"], **variables,
        }  # fmt: skip
        here = {**HERE, "ansible_python_interpreter": str(self.python), "relay_model": "/m.gguf"}
        pool = {"children": {"relay_host": {"hosts": {"a": {}}}}, "vars": here}
        (self.folder / "inventory.json").write_text(json.dumps({"relay_pool": pool}))
        # What was gathered before the start, of a machine without the unit.
        facts = {
            "relay_plan": {**PLAN, "server_args": self.args}, "llama_host_restarted": True,
            "relay_node": {"units": []},
        }  # fmt: skip
        imported = {"ansible.builtin.import_tasks": str(ROOT / "playbooks" / "tasks" / "prove.yml")}
        tasks = [CHECK, {"ansible.builtin.set_fact": {**facts, "cacheable": True}}, imported]
        playbook = [{"hosts": "a", "gather_facts": False, "tasks": tasks}]
        (self.folder / "playbook.yml").write_text(json.dumps(playbook))
        (self.folder / "variables.json").write_text(json.dumps(variables))
        arguments = ("-i", "inventory.json", "playbook.yml", "-e", "@variables.json")
        return played(*arguments, timeout=180, cwd=self.folder)

    def end(self) -> None:
        state = self.folder / "state.json"
        if state.exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(json.loads(state.read_text())["pid"], signal.SIGKILL)


@pytest.fixture
def machine(tmp_path):
    """What is started on it ends with the test."""
    made = Machine(tmp_path)
    yield made
    made.end()


def test_the_texts_are_compared_after_the_very_first_start(machine):
    """No fact knows the unit yet. What systemd would take apart reaches the server as it is."""
    odd = machine.bin / "a 100% $HOME 'b"
    odd.mkdir()
    machine.server = machine.server.rename(odd / "llama-server")
    machine.args += ["--alias", "100% \"of\" $HOME ${A} \\ ; 'x'", "--spec-draft-model", "/a b/%h.gguf"]
    machine.start()
    worked, output = machine.prove()
    assert worked, output
    assert "The greedy texts of 1 prompts, for which 8 tokens were proposed, are those of the same pool" in output
    plain = [*machine.args[:2], *machine.args[4:6]]
    assert machine.starts == [machine.args, plain, machine.args]
    assert set(machine.programs) == {str(machine.server)}
    assert not machine.override.exists()


def test_texts_that_differ_are_a_reason_to_stop(machine):
    machine.says["plain"]["text"] = "y"
    machine.start()
    worked, output = machine.prove()
    assert not worked
    assert "The greedy text is not that without speculation." in output
    assert "the texts part at character 1: 'x' with speculation, 'y' without." in output
    assert (machine.starts[-1], machine.override.exists()) == (machine.args, False)


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        ({"fails": True}, "does not complete every prompt, so no texts were compared (http"),
        ({"ends": True}, "does not serve as it should, so no texts were compared ("),
    ],
)
def test_a_server_that_fails_without_speculation_is_started_as_planned_again(machine, plain, words):
    machine.says["plain"].update(plain)
    machine.start()
    worked, output = machine.prove(relay_draft_required=False)
    assert not worked
    assert f"Without speculation llama-server on a {words}" in output
    assert "goes back to" not in output
    assert "did not come back" not in output
    assert (machine.starts[-1], machine.override.exists()) == (machine.args, False)


def test_a_restart_that_systemd_refuses_is_said_and_leaves_nothing(machine):
    machine.start()
    (machine.folder / "no-restart").touch()
    worked, output = machine.prove()
    assert not worked
    assert "Job for relay-llama.service failed." in output
    assert not re.search(r"is undefined|has no attribute|Traceback", output)
    assert machine.starts == [machine.args]
