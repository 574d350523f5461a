# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""plan.yml for models that are not on the host yet: a URL, a path on the controller, or one of each."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]


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


def test_a_draft_with_other_tokens_is_refused_by_the_first_of_them(models, site, plan, tmp_path):
    """Each side under its own name, wherever the draft lies."""
    content = models["draft"].read_bytes()
    assert content.count(b"t39") == 1
    other = tmp_path / "other.gguf"
    other.write_bytes(content.replace(b"t39", b"u39"))
    places = (
        {"relay_draft_model": str(other)},
        {
            "relay_draft_model": "/not/there/d.gguf",
            "relay_draft_model_source": site.add("/draft.gguf", other.read_bytes()),
        },
    )
    for place in places:
        status, said, planned = plan(relay_model=str(models["model"]), **place)
        assert status == 0, said
        assert planned["draft"]["reason"] == "tokenizer_mismatch"
        assert "token 39 is 't39' in the target and 'u39' in the draft" in planned["draft"]["message"]


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
                       keys=(("add_uint32", "llama.block_count", 2),), split=1)  # fmt: skip
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
    assert "but must be another file than relay_plan_output, or empty" in " ".join(said.split())
