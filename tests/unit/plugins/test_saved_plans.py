# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""relay_plan_file and relay_what_if in playbooks, and what is said of a plan that changes; this machine is the pool."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PLAYBOOKS = ROOT / "playbooks"
CARD = {"name": "NVIDIA GeForce RTX 3090", "memory_total_bytes": "{{ '24 GB' | human_to_bytes }}"}


def words(said):
    """What a playbook said, as one line."""
    return " ".join(said.split())


@pytest.fixture
def apply(tmp_path, plan, models):
    """Runs deploy.yml up to its plan."""
    steps = [{"ansible.builtin.include_role": {"name": "relay.pool.relay", "tasks_from": step, "public": True}}
             for step in ("check", "saved", "gather", "inspect", "plan")]  # fmt: skip
    (tmp_path / "apply.yml").write_text(
        yaml.safe_dump([{"hosts": "relay_pool", "gather_facts": False, "tasks": steps}])
    )

    def run(*arguments, **variables):
        return plan(*arguments, playbook=tmp_path / "apply.yml", relay_model=str(models["model"]), **variables)

    return run


def test_deploy_does_the_steps_of_these_tests():
    (play,) = yaml.safe_load((PLAYBOOKS / "deploy.yml").read_text())
    roles = [task.get("ansible.builtin.include_role", {}) for task in play["tasks"]]
    steps = [role["tasks_from"] for role in roles if role.get("name") == "relay.pool.relay"]
    assert steps == ["form", "check", "saved", "gather", "inspect", "plan", "sources", "placed"]
    # Before anything is installed.
    assert roles.index({"name": "relay.pool.relay", "tasks_from": "saved"}) < roles.index(
        {"name": "relay.pool.llama_cpp"}
    )


def test_a_saved_plan_is_applied_to_the_letter_or_refused(models, plan, apply, tmp_path):
    status, said, saved = plan(relay_model=str(models["model"]))
    assert status == 0, said
    (tmp_path / "monday.json").write_text((tmp_path / "plan.json").read_text())
    monday = {"relay_plan_file": str(tmp_path / "monday.json")}
    # As deploy.yml leaves it.
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "plan.json").write_text((tmp_path / "plan.json").read_text())

    status, said, applied = apply("--diff", **monday)
    assert (status, applied) == (0, saved), said
    assert "changed=0" in said
    assert "The placement changes" not in said

    status, said, untouched = apply("--check", relay_ctx_size=1024, relay_host_port=8385, **monday)
    assert (status, untouched) == (2, saved)
    assert (
        "the saved plan does not match the pool any more: relay_ctx_size was 512 and is 1024; relay_host_port was 8384 "
        "and is 8385: run plan.yml again, or leave relay_plan_file out." in words(said)
    )

    # plan.yml is the way out, so it plans anew; and it says what changes, in words and as a difference.
    status, said, planned = plan("--diff", relay_model=str(models["model"]), relay_ctx_size=1024, **monday)
    assert (status, planned["ctx_size"]) == (0, 1024), said
    assert "The placement changes: context 512 -> 1024" in said
    assert re.search(r"-model \(llama.*context 512 in 1 slot", said)
    assert re.search(r"\+model \(llama.*context 1024 in 1 slot", said)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            None,
            "and the controller cannot read it (File not found: {0}): name a plan.json that plan.yml wrote, or leave",
        ),
        (b"GGUF\xff\xfe\x00", "relay_plan_file {0} is no JSON (line 1: Expecting value): run plan.yml again, or leave"),
    ],
)
def test_a_file_that_is_no_plan_stops_deploy_before_anything_else(plan, tmp_path, content, problem):
    path = tmp_path / "saved.json"
    if content is not None:
        path.write_bytes(content)
    status, said, _planned = plan(playbook=PLAYBOOKS / "deploy.yml", relay_model="/m.gguf", relay_plan_file=str(path))
    assert status == 2
    assert words(problem.format(path)) in words(said)
    assert said.count("[ERROR]") <= 1
    assert "Gather what the machines have" not in said


def test_verify_names_a_plan_that_cannot_be_read(plan, tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "plan.json").write_text('{"schema": 1, "sta')
    status, said, _planned = plan(playbook=PLAYBOOKS / "verify.yml", relay_model="/m.gguf")
    assert status == 2
    assert re.search(rf"{tmp_path}/etc/plan.json of box is no JSON .*: run deploy.yml again\.", words(said))


def test_verify_names_machines_of_the_plan_that_are_not_in_the_inventory(models, plan, tmp_path):
    """What is in the file is a text, whatever a template would make of it."""
    status, said, made = plan(relay_model=str(models["model"]))
    assert status == 0, said
    trap = "{{ lookup('pipe', 'touch %s') }}" % (tmp_path / "sprung")
    made.update(host=trap, advice=[trap], workers=[{"host": "elsewhere", "endpoint": trap, "args": [], "devices": []}])
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "plan.json").write_text(json.dumps(made))
    status, said, _planned = plan(playbook=PLAYBOOKS / "verify.yml", relay_model=str(models["model"]))
    assert status == 2, said
    assert "plan.json of box has elsewhere, {{ lookup('pipe'," in words(said)
    assert ", of which relay_pool knows nothing: put the machines that are missing back" in words(said)
    assert not (tmp_path / "sprung").exists()


def test_what_another_machine_would_bring(models, plan, tmp_path):
    model, small = str(models["model"]), {"memory": {"available_bytes": 264 * 1024 * 1024}}
    wish = {"gpu9": {"gpus": [CARD], "memory": {"total_bytes": "{{ '64 GB' | human_to_bytes }}"}}}
    status, said, written = plan(relay_model=model, relay_overrides=small, relay_ctx_size=65536, relay_what_if=wish)
    assert status == 0, said
    assert written is None
    said = words(said)
    assert "no plan: model needs" in said
    assert "model (llama, 1 MiB): replica on gpu9" in said
    assert "would fit, which it does not now: replica on gpu9" in said
    assert "changed=0" in said
    status, said, _written = plan(playbook=PLAYBOOKS / "deploy.yml", relay_model=model, relay_what_if=wish)
    assert status == 2
    assert "relay_what_if asks about gpu9, and deploy.yml deploys only what exists" in words(said)
    assert "Gather what the machines have" not in said
    assert not (tmp_path / "etc").exists()


def example(opening):
    """The YAML block of docs/plans.md that has this in it."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "plans.md").read_text(), re.DOTALL)
    (block,) = [block for block in blocks if opening in block]
    return block


def test_the_playbook_of_the_documentation_runs_as_written(models, site, plan, tmp_path):
    (tmp_path / "would_it_run.yml").write_text(example("hosts: localhost"))
    for model in (str(models["model"]), site.add("/model.gguf", models["model"].read_bytes())):
        status, said, _planned = plan(playbook=tmp_path / "would_it_run.yml", model=model)
        assert status == 0, said
        assert "model (llama, 1 MiB): replica on gpu1" in said
        assert "/srv/models/model.gguf" in said
        assert "speed" in said


def test_the_question_of_the_documentation_can_be_asked(models, plan, tmp_path):
    (tmp_path / "what_if.yml").write_text(
        example("relay_what_if:").replace("gpu1:", "box:").replace("  gpu2: {", "  #")
    )
    status, said, _planned = plan("-e", f"@{tmp_path / 'what_if.yml'}", relay_model=str(models["model"]))
    assert status == 0, said
    # A machine of this name and RAM would take the whole model on its card.
    assert "replica on box" in said
    assert "layers: box CPU 6 -> 0, box CUDA0 0 -> 6" in words(said)
