# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""plan.yml for models that are not on the host yet: a URL, a path on the controller, or one of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
KEYS = (
    ("add_uint32", "llama.block_count", 2),
    ("add_uint32", "llama.context_length", 4096),
    ("add_uint32", "llama.embedding_length", 64),
    ("add_uint32", "llama.feed_forward_length", 128),
    ("add_uint32", "llama.attention.head_count", 4),
    ("add_uint32", "llama.attention.head_count_kv", 2),
    ("add_string", "tokenizer.ggml.model", "llama"),
)
NAMES = {"attn_norm": (64,), "attn_q": (64, 64), "attn_k": (64, 32), "attn_v": (64, 32), "attn_output": (64, 64),
         "ffn_norm": (64,), "ffn_gate": (64, 128), "ffn_up": (64, 128), "ffn_down": (128, 64)}  # fmt: skip


@pytest.fixture
def models(gguf_factory):
    """The paths of a model and of one that can be its draft."""

    def make(name, n_blocks):
        tensors = [("token_embd.weight", (64, 40), "F16"), ("output_norm.weight", (64,), "F32")]
        for block in range(n_blocks):
            tensors += [(f"blk.{block}.{part}.weight", shape, "F16") for part, shape in NAMES.items()]
        keys = (("add_uint32", "llama.block_count", n_blocks), *KEYS[1:])
        return gguf_factory.model(name, tensors=tensors, keys=keys, tokens=[f"t{number}" for number in range(40)])

    return {"model": make("model.gguf", 6), "draft": make("draft.gguf", 1)}


@pytest.fixture
def plan(tmp_path):
    """Runs plan.yml for a pool of this machine alone, and gives the exit status, the output and the plan."""
    inventory = {
        "all": {
            "vars": {
                "ansible_connection": "local",
                "ansible_python_interpreter": sys.executable,
                "ansible_become": False,
                "relay_allow_cpu": True,
                "relay_ctx_size": 512,
                "relay_parallel": 1,
                "relay_draft_scope": "any",
                "relay_config_dir": str(tmp_path / "etc"),
                "relay_llama_cpp_root": str(tmp_path / "llama"),
                "relay_plan_output": str(tmp_path / "plan.json"),
            },
            "children": {"relay_pool": {"children": {"relay_host": {"hosts": {"box": {}}}, "relay_workers": {}}}},
        }
    }
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(inventory))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "ANSIBLE_"))},
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
        "ANSIBLE_HOME": str(tmp_path / "ansible"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "no_proxy": "127.0.0.1",
    }

    def run(*arguments, playbook=ROOT / "playbooks" / "plan.yml", **variables):
        command = [Path(sys.prefix) / "bin" / "ansible-playbook", "-i", tmp_path / "inventory.yml", *arguments]
        command += [playbook, "-e", json.dumps(variables)]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        written = tmp_path / "plan.json"
        return done.returncode, done.stdout, json.loads(written.read_text()) if written.exists() else None

    return run


def test_what_is_not_there_is_planned_from_its_source(models, site, plan, tmp_path):
    places = {"model": str(models["model"]), "draft": site.add("/draft.gguf", models["draft"].read_bytes())}
    status, said, planned = plan(
        relay_model="/not/there/m.gguf",
        relay_model_source=places["model"],
        relay_draft_model="/not/there/d.gguf",
        relay_draft_model_source=places["draft"],
    )
    assert status == 0, said
    assert planned["model"]["path"] == "/not/there/m.gguf"
    assert (planned["draft"]["reason"], planned["draft"]["path"]) == ("enabled", "/not/there/d.gguf")
    assert sum(stage["n_layers"] for stage in planned["stages"]) == 6
    for name, path in (("model", "m"), ("draft", "d")):
        assert f"absent   /not/there/{path}.gguf is not on box yet, it is planned from {places[name]}" in said
    assert not (tmp_path / "etc").exists()
    assert len(site.requests) > 0


def test_a_dry_run_reads_the_source_too_and_a_draft_without_one_is_named(models, site, plan, tmp_path):
    url = site.add("/model.gguf", models["model"].read_bytes())
    status, said, _planned = plan(
        "--check",
        relay_model="/not/there/m.gguf",
        relay_model_source=url,
        relay_draft_model="/not/there/d.gguf",
        relay_draft_model_source=site.url("/none.gguf"),
    )
    assert status == 0, said
    assert "absent   /not/there/m.gguf is not on box yet, it is planned from" in said
    assert "and its source cannot be read:" in said
    assert "the server answers 404" in said
    assert "draft    off (not_found)" in said
    assert list(tmp_path.glob("plan.*")) == []


def test_a_plan_shows_no_login(models, site, plan):
    content = models["model"].read_bytes()
    url = site.add("/model.gguf", content, login="Basic bWU6c2VjcmV0")
    status, said, _planned = plan(
        relay_model="/not/there/m.gguf",
        relay_model_source=url.replace("http://", "HTTP://me:secret@"),
        relay_draft_model="/not/there/d.gguf",
        relay_draft_model_source=url.replace("//", "//me:secret@"),
    )
    assert status == 0, said
    assert f"m.gguf is not on box yet, it is planned from {url.replace('http', 'HTTP')} (" in said
    assert f"d.gguf is not on box yet, it is planned from {url}" in said
    assert "secret" not in said


def test_a_source_that_nothing_can_be_fetched_from_is_refused_by_name(plan):
    status, said, planned = plan(
        relay_model="/not/there/m.gguf",
        relay_model_source="ftp://me:secret@h/m.gguf",
        relay_draft_model_source="s3://h/d.gguf",
    )
    assert status != 0
    assert planned is None
    said = " ".join(said.split())
    for variable, address in (("relay_model_source", "ftp://h/m.gguf"), ("relay_draft_model_source", "s3://h/d.gguf")):
        assert f"{variable} is {address}, but must be a URL with http:// or https://, or a path on" in said
    assert "secret" not in said


def test_a_split_model_is_planned_but_not_fetched_in_part(models, site, plan, gguf_factory, tmp_path):
    gguf_factory.model("split.gguf", tensors=[(f"blk.0.x{number}.weight", (64,), "F32") for number in range(2)],
                       keys=KEYS[:1], split=1)  # fmt: skip
    for number in (1, 2):
        name = f"split-0000{number}-of-00002.gguf"
        url = site.add(f"/{name}", (tmp_path / name).read_bytes())
    steps = [{"ansible.builtin.include_role": {"name": "relay.pool.relay", "tasks_from": step, "public": True}}
             for step in ("check", "gather", "inspect", "sources")]  # fmt: skip
    play = {"hosts": "relay_pool", "gather_facts": False, "tasks": steps}
    (tmp_path / "sources.yml").write_text(yaml.safe_dump([play]))
    options = {"playbook": tmp_path / "sources.yml", "relay_model": "/not/there/m.gguf"}
    status, said, _planned = plan(**options, relay_model_source=url)
    assert status != 0
    said = " ".join(said.split())
    assert f"relay_model_source is {url}, one of 2 files of a split model, but only one file is fetched" in said
    assert "put all of them on box yourself" in said
    status, said, _planned = plan(**options, relay_model_source=str(models["model"]))
    assert status == 0, said


def test_a_deployment_plans_before_it_downloads():
    """A model of 40 GB that does not fit is not to be downloaded first."""
    (play,) = yaml.safe_load((ROOT / "playbooks" / "deploy.yml").read_text())
    names = [task["name"] for task in play["tasks"]]
    order = [
        "Plan",
        "Check the sources of the models",
        "Put the models in place",
        "Look at the models that are in place",
        "Apply the plan",
    ]
    assert [name for name in names if name in order] == order


def test_the_picture_is_written_beside_the_plan_once(models, plan, tmp_path):
    steps = [{"ansible.builtin.include_role": {"name": "relay.pool.relay", "tasks_from": step, "public": True}}
             for step in ("check", "gather", "inspect", "plan", "plan", "plan")]  # fmt: skip
    steps[-1]["vars"] = {"relay_plan_output": str(tmp_path / "alone.json"), "relay_plan_html": ""}
    applied = {"content": "{{ relay_plan | to_json | b64encode }}"}
    steps.insert(4, {"ansible.builtin.set_fact": {"relay_applied": applied}})
    (tmp_path / "twice.yml").write_text(
        yaml.safe_dump([{"hosts": "relay_pool", "gather_facts": False, "tasks": steps}])
    )
    options = {"playbook": tmp_path / "twice.yml", "relay_model": str(models["model"])}
    status, said, _planned = plan("--diff", **options)
    assert status == 0, said
    # The plan and its picture the first time, nothing the second, the plan alone the third.
    assert "changed=3 " in said
    assert "placement kept" in said
    assert sorted(path.name for path in tmp_path.glob("*.html")) == ["plan.html"]
    assert (tmp_path / "alone.json").read_text() == (tmp_path / "plan.json").read_text()
    written = (tmp_path / "plan.html").read_text()
    assert written.startswith("<!DOCTYPE html>")
    assert "<h1>model</h1>" in written
    assert "<html" not in said
    status, said, _planned = plan(**options, relay_plan_html=str(tmp_path / "plan.json"))
    assert status != 0
    assert "plan.json, but must be another file than relay_plan_output, or empty" in " ".join(said.split())
