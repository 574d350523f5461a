# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tasks after a start, run by Ansible against a server of this test that says what a case wants it to say."""

from __future__ import annotations

import http.server
import json
import re
import sys
import threading

import pytest

from tests.playing import ROOT, ansible_playbook, played

HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
CHECK = {"ansible.builtin.include_role": {"name": "relay.pool.relay", "tasks_from": "check", "public": True}}
MEMORY = {"weights_bytes": 1, "kv_bytes": 1, "total_bytes": 2}
PLAN = {
    "host": "a", "ctx_size": 512, "parallel": 1, "stages": [], "workers": [], "rpc_backends": [], "server_args": [],
    "model": {"path": "/m.gguf", "alias": "m"}, "speculation": "draft-simple",
    "draft": {"enabled": True, "reason": "enabled", "message": "/d.gguf runs on a CPU", "path": "/d.gguf", "host": "a",
              "device": "none", "memory": MEMORY},
}  # fmt: skip
NO_DRAFT = {**PLAN["draft"], "enabled": False, "reason": "not_configured", "path": None, "device": None, "memory": None}


@pytest.fixture
def server():
    """(URL, what it says, what it was asked) of a server."""
    says, asked = {"speculative": True, "draft_n": 8, "n_ctx": 512}, []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            slots = [{"id": 0, "n_ctx": says["n_ctx"], "speculative": says["speculative"]}]
            timings = {"draft_n": says["draft_n"], "draft_n_accepted": 1} if says["draft_n"] else {}
            bodies = {"/slots": slots, "/completion": {"content": "x", "timings": timings}}
            body = json.dumps(bodies.get(self.path, {})).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.answer()

        def do_POST(self):
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer()

        def log_message(self, *_args):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running.server_address[1], says, asked
    running.shutdown()
    running.server_close()


@pytest.fixture
def prove(tmp_path, server):
    """Runs tasks of playbooks/tasks over a, the host, with a plan; returns (worked, output)."""

    def run(plan, tasks="prove.yml", **variables):
        pool = {"children": {"relay_host": {"hosts": {"a": {}}}}, "vars": {**HERE, "relay_model": "/m.gguf"}}
        (tmp_path / "inventory.json").write_text(json.dumps({"relay_pool": pool}))
        facts = {"relay_plan": plan, "llama_host_restarted": False}
        imported = {"ansible.builtin.import_tasks": str(ROOT / "playbooks" / "tasks" / tasks)}
        playbook = [
            {
                "hosts": "a",
                "gather_facts": False,
                "tasks": [CHECK, {"ansible.builtin.set_fact": facts}, imported],
            }
        ]
        (tmp_path / "playbook.yml").write_text(json.dumps(playbook))
        (tmp_path / "variables.json").write_text(json.dumps({"relay_host_port": server[0], **variables}))
        return played("-i", "inventory.json", "playbook.yml", "-e", "@variables.json", cwd=tmp_path)

    return run


def test_a_plan_that_runs(prove, server):
    worked, output = prove(PLAN)
    assert worked, output
    assert "The draft is live: 8 tokens proposed, 1 accepted." in output
    assert [(body["n_predict"], body["cache_prompt"]) for body in server[2]] == [(32, False)]


def test_n_grams_are_asked_with_a_text_that_repeats_itself(prove, server):
    plan = {**PLAN, "speculation": "ngram-mod", "draft": NO_DRAFT}
    worked, output = prove(plan)
    assert worked, output
    assert "Ngram-mod is live: 8 tokens proposed" in output
    (body,) = server[2]
    # what is looked up and what is proposed at least, each in the text once before
    assert body["n_predict"] > 24 + 48
    assert len(body["prompt"].split()) + body["n_predict"] < 256
    assert body["prompt"].count("The quick brown fox jumps over the lazy dog.") == 12
    server[1]["draft_n"] = 0
    worked, output = prove(plan)
    assert worked, output
    assert "proposed nothing on this prompt" in output


DROPPED = "The plan has the draft /d.gguf but /slots says that the server does not speculate: llama.cpp dropped it."


@pytest.mark.parametrize(
    ("says", "variables", "words"),
    [
        (
            {"speculative": False, "draft_n": 0},
            {"relay_draft_required": "yes"},
            f"{DROPPED} relay_draft_required is true, so the pool does not go back to the plan without it. What was "
            "started goes on running: remove the reason, or set relay_draft_required to false.",
        ),
        (
            {"speculative": False, "draft_n": 0},
            {"__relay_plan_file": "/plan.json"},
            f"{DROPPED} A saved plan is applied as it is, or not at all, so the pool does not go back to the plan "
            "without it. What was started goes on running: make another plan with plan.yml.",
        ),
        # the rest is wrong, too, and nothing is to be had by going back
        ({"speculative": False, "n_ctx": 256}, {}, "A slot has a context of 256 tokens, planned are 512"),
    ],
)
def test_what_is_no_reason_to_go_back(prove, server, says, variables, words):
    server[1].update(says)
    worked, output = prove(PLAN, **variables)
    assert not worked
    assert words in output
    assert "Go back to the plan without the draft" not in output
    assert "goes back to" not in output


def test_speculation_that_nobody_planned_is_nothing_to_go_back_from(prove, server):
    worked, output = prove({**PLAN, "speculation": None, "draft": NO_DRAFT})
    assert not worked
    assert "The server speculates (of a type that the log does not name, 8 tokens proposed), but the plan has" in output
    assert "goes back to" not in output


def test_a_draft_that_is_not_required_is_what_the_pool_goes_back_from(prove, server):
    """As far as the machines are asked again, which there are none of here."""
    server[1].update(speculative=False, draft_n=0)
    worked, output = prove(PLAN, relay_draft_fallback="ngram-mod")
    assert not worked
    went = f"[WARNING] {DROPPED} The pool goes back to the plan without it, with ngram-mod in its place."
    assert went in output
    assert output.index(went) < output.index("Gather what the machines have now")


# ---- other arguments for a while


def test_a_server_with_other_arguments_for_a_while_runs_as_the_unit_says_the_next_time(tmp_path):
    """What a run that was broken off has left makes the next one start the server."""
    override = tmp_path / "drop-ins" / "instead.conf"
    variables = {
        "llama_host_manage_service": False, "llama_host_unit_dir": str(tmp_path), "llama_host_program": "/opt/x",
        "llama_host_config_dir": str(tmp_path), "llama_host_args": ["--spec-type", "draft-simple"],
        "llama_host_override": str(override),
    }  # fmt: skip

    def role(tasks_from):
        return {"ansible.builtin.include_role": {"name": "relay.pool.llama_host", "tasks_from": tasks_from}}

    say = {"ansible.builtin.debug": {"msg": "It starts: {{ llama_host_starts }}."}}
    leave = {"ansible.builtin.command": {"cmd": f"sh -c 'mkdir -p {override.parent}; echo [Service] >{override}'"}}
    tasks = [role("compare"), say, role("main"), role("compare"), say, leave, role("compare"), say, role("main")]
    tasks += [role("compare"), say, role("absent"), leave, role("absent")]
    playbook = tmp_path / "playbook.yml"
    playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": tasks}]))
    done = ansible_playbook("-i", "localhost,", "-c", "local", playbook, ANSIBLE_PYTHON_INTERPRETER=sys.executable)
    assert done.returncode == 0, done.stdout
    assert re.findall(r"It starts: (\w+)\.", done.stdout) == ["True", "False", "True", "False"]
    assert not override.exists()
