# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Speculation that is live or dropped with a reason, on three machines with systemd and real llama.cpp."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.pool

ROOT = Path(__file__).resolve().parents[2]
HOST, WORKER1, WORKER2 = "relay-demo-host", "relay-demo-worker1", "relay-demo-worker2"
BIN = "/opt/relay-pool/llama.cpp/current/bin"
DROP_IN = "/run/systemd/system/relay-llama.service.d/relay-instead.conf"
MODELS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "relay-pool" / "demo" / "models"
# What a build that is not told the type does: it loads the draft, drops it, and is healthy.
FORGETFUL = f"""#!/bin/bash
args=()
while [ $# -gt 0 ]; do
    if [ "$1" = --spec-type ]; then shift; else args+=("$1"); fi
    shift
done
exec -a "$0" {BIN}/llama-server.real "${{args[@]}}"
"""


def said(played) -> str:
    return " ".join(played.text.split())


def argv(pool) -> list[str]:
    """Of the server that runs."""
    shown = "tr '\\0' '\\n' </proc/$(systemctl show -p MainPID --value relay-llama)/cmdline"
    return pool.on(HOST, "sh", "-c", shown).splitlines()


def has_draft_flags(text: str) -> bool:
    return any(flag in text for flag in ("--spec-", "--draft", "-md "))


def unit(pool) -> str:
    return pool.on(HOST, "systemctl", "cat", "relay-llama")


def write(pool, machine: str, path: str, text: str, mode: str = "755") -> None:
    pool.on(machine, "sh", "-c", f"mkdir -p $(dirname {path}); cat >{path} <<'EOF'\n{text}EOF\nchmod {mode} {path}")


# ---- without a second model


def test_n_grams_are_live_and_lossless(pool):
    pool.settled = False
    played = pool.play("deploy.yml", relay_speculation_type="ngram-mod", relay_verify_lossless=True)
    assert played.rc == 0, played.text[-4000:]
    assert "Ngram-mod is live: " in said(played)
    assert "the service is interrupted twice now" in said(played)
    assert "The greedy texts of 5 prompts" in said(played)
    plan = pool.plan()
    assert (plan["speculation"], plan["draft"]["enabled"]) == ("ngram-mod", False)
    assert "--spec-draft-model" not in unit(pool)
    assert "ngram-mod" in argv(pool)
    # the comparison is for a start, and this one starts nothing
    again = pool.play("deploy.yml", relay_speculation_type="ngram-mod", relay_verify_lossless=True)
    assert (again.rc, again.changed) == (0, 0), again.text[-4000:]
    assert "interrupted twice" not in said(again)


# ---- a draft that the plan drops


def other_tokenizer(path: Path) -> None:
    """The demo's small model with another word for a token in the middle of its vocabulary."""
    import gguf

    def changed(key, value):
        if key == "tokenizer.ggml.tokens":
            value[1000] = "relay"
        return value

    reader = gguf.GGUFReader(MODELS / "smollm2-135m.gguf")
    writer = gguf.GGUFWriter(path, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind = field.types[0]
        array = {"sub_type": field.types[-1]} if kind == gguf.GGUFValueType.ARRAY else {}
        writer.add_key_value(key, changed(key, field.contents()), kind, **array)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def strange_draft(tmp_path):
    """A draft with another tokenizer, on the controller."""
    path = tmp_path / "strange.gguf"
    other_tokenizer(path)
    return {"relay_draft_model": "/var/lib/relay-strange.gguf", "relay_draft_model_source": str(path)}


def test_a_draft_with_another_tokenizer_is_dropped_with_its_reason(pool, strange_draft):
    pool.settled = False
    try:
        played = pool.play("deploy.yml", **strange_draft)
        assert played.rc == 0, played.text[-4000:]
        assert "no draft (tokenizer_mismatch)" in said(played)
        assert pool.plan()["draft"]["reason"] == "tokenizer_mismatch"
        assert not has_draft_flags(unit(pool))
        assert not has_draft_flags(" ".join(argv(pool)))

        before = pool.processes()
        required = pool.play("deploy.yml", relay_draft_required=True, **strange_draft)
        assert required.rc != 0
        assert (
            "relay_draft_required is true, and the plan has no live draft (tokenizer_mismatch): " in required.errors[-1]
        )
        assert "Nothing was started or restarted: " in required.errors[-1]
        assert required.changed == 0
        assert pool.processes() == before
    finally:
        pool.on(HOST, "rm", "-f", strange_draft["relay_draft_model"])


def test_a_draft_that_is_required_and_not_there_stops_the_plan_too(pool, tmp_path):
    before = pool.processes()
    output = tmp_path / "plan.json"
    played = pool.play(
        "plan.yml", relay_draft_required=True, relay_draft_model="/srv/models/none.gguf", relay_plan_output=str(output)
    )
    assert played.rc != 0
    assert "no draft (not_found)" in said(played)
    assert "relay_draft_required is true, and the plan has no live draft (not_found)" in played.errors[-1]
    assert not output.exists()
    assert pool.processes() == before


# ---- a draft that the server drops


@pytest.fixture
def forgetful(pool):
    """A llama-server on the host that never gets --spec-type, until the end of the test."""
    pool.on(HOST, "mv", f"{BIN}/llama-server", f"{BIN}/llama-server.real")
    write(pool, HOST, f"{BIN}/llama-server", FORGETFUL)
    pool.on(HOST, "systemctl", "restart", "relay-llama")
    pool.settled = False
    yield
    pool.on(HOST, "mv", f"{BIN}/llama-server.real", f"{BIN}/llama-server")
    # What goes on running is the one that forgets.
    pool.on(HOST, "systemctl", "stop", "relay-llama")
    # A draft that was dropped stays so, until the plan is made anew.
    pool.on(HOST, "rm", "-f", "/etc/relay-pool/plan.json")


def test_a_draft_that_the_server_drops_is_dropped_from_the_plan(pool, forgetful):
    planned = pool.plan()
    verified = pool.play("verify.yml")
    assert verified.rc != 0
    reason = (
        "The plan has the draft /srv/models/smollm2-135m.gguf but llama.cpp dropped it, its log says: no "
        "implementations specified for speculative decoding."
    )
    assert reason in verified.errors[-1]
    assert pool.plan() == planned

    required = pool.play("deploy.yml", relay_draft_required=True)
    assert required.rc != 0
    assert reason in required.errors[-1]
    assert "relay_draft_required is true, so the pool does not go back to the plan without it." in required.errors[-1]
    assert "What was started goes on running" in required.errors[-1]
    assert pool.ask("The sea is", 4)["content"]

    played = pool.play("deploy.yml")
    assert played.rc == 0, played.text[-4000:]
    assert f"[WARNING] {reason} The pool goes back to the plan without it." in said(played)
    plan = pool.plan()
    assert (plan["draft"]["enabled"], plan["draft"]["reason"]) == (False, "unsupported_build")
    assert "no implementations specified" in plan["draft"]["message"]
    assert [stage["n_layers"] for stage in plan["stages"]] == [stage["n_layers"] for stage in planned["stages"]]
    assert not has_draft_flags(unit(pool))
    assert pool.ask("The sea is", 4)["content"]

    again = pool.play("deploy.yml")
    assert (again.rc, again.changed) == (0, 0), again.text[-4000:]
    assert pool.play("verify.yml").rc == 0


# ---- the comparison of texts


def test_a_comparison_that_was_broken_off_is_noticed_and_undone(pool):
    pool.settled = False
    command = [
        str(ROOT / ".venv" / "bin" / "ansible-playbook"),
        "-i",
        str(ROOT / "inventories" / "demo" / "inventory.yml"),
        str(ROOT / "playbooks" / "verify.yml"),
        "-e",
        "relay_verify_lossless=true",
    ]
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
        "LC_ALL": "C.UTF-8",
    }
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as running:
        deadline = time.monotonic() + 300
        try:
            while "yes" not in pool.on(HOST, "sh", "-c", f"test -e {DROP_IN} && echo yes || echo no"):
                assert time.monotonic() < deadline
                assert running.poll() is None
                time.sleep(1)
        finally:
            # as the loss of the controller, not as an interruption that could still be answered
            os.killpg(running.pid, 9)
    verified = pool.play("verify.yml")
    assert verified.rc != 0
    assert "runs without speculation, since a run with relay_verify_lossless was broken off" in verified.errors[-1]

    played = pool.play("deploy.yml")
    assert played.rc == 0, played.text[-4000:]
    pool.settled = True
    assert "The draft is live" in said(played)
    assert "no" in pool.on(HOST, "sh", "-c", f"test -e {DROP_IN} && echo yes || echo no")
    assert "relay-instead" not in unit(pool)
    assert "--spec-type" in argv(pool)
    assert pool.play("deploy.yml").changed == 0


# ---- the environment of the machine


def test_no_variable_of_the_machine_reaches_the_server(pool):
    """Neither one that stops the start, since its option was removed, nor one that changes what was planned."""
    pool.settled = False
    variables = {
        "LLAMA_ARG_DRAFT_MAX": "8",
        "LLAMA_ARG_DRAFT_MIN": "1",
        "LLAMA_ARG_MODEL_DRAFT": "/srv/models/none.gguf",
        "LLAMA_ARG_SPEC_DRAFT_MODEL": "/srv/models/none.gguf",
        "LLAMA_ARG_SPEC_DRAFT_N_MAX": "2",
        "LLAMA_ARG_SPEC_TYPE": "ngram-mod",
        "LLAMA_ARG_SPEC_SYNTH_LEN": "4",
        "LLAMA_ARG_N_GPU_LAYERS_DRAFT": "0",
    }
    pool.on(HOST, "systemctl", "set-environment", *(f"{name}={value}" for name, value in variables.items()))
    try:
        pool.on(HOST, "systemctl", "restart", "relay-llama")
        played = pool.play("deploy.yml")
        assert played.rc == 0, played.text[-4000:]
        assert "The draft is live" in said(played)
        shown = "tr '\\0' '\\n' </proc/$(systemctl show -p MainPID --value relay-llama)/environ"
        seen = pool.on(HOST, "sh", "-c", shown)
        # the name that older builds have for the draft is none that this one looks for
        assert [line for line in seen.splitlines() if "LLAMA_ARG" in line] == [
            "LLAMA_ARG_MODEL_DRAFT=/srv/models/none.gguf"
        ]
        # and none where there is to be no speculation
        without = pool.play("deploy.yml", relay_draft_model="")
        assert without.rc == 0, without.text[-4000:]
        assert not pool.ask("The capital of France is")["timings"].get("draft_n")
    finally:
        pool.on(HOST, "systemctl", "unset-environment", *variables)
