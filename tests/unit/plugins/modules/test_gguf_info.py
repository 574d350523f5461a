# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module face: options in, facts or one sentence out."""

from __future__ import annotations

import json
import sys

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.relay.pool.plugins.modules import gguf_info

TENSORS = tuple((f"blk.{number}.attn_q.weight", (64, 2), "Q8_0") for number in range(3))


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs the module in this process and returns its exit status and its answer."""

    warnings = []
    monkeypatch.setattr(gguf_info.AnsibleModule, "warn", lambda _module, text: warnings.append(text))

    def call(**options):
        warnings.clear()
        with patch_module_args(options), pytest.raises(SystemExit) as leaving:
            gguf_info.main()
        return leaving.value.code, {"warned": "".join(warnings), **json.loads(capsys.readouterr().out)}

    return call


@pytest.mark.parametrize("check_mode", [False, True])
def test_describes_and_changes_nothing(gguf_factory, run, check_mode):
    path = gguf_factory.model(tensors=TENSORS)
    status, answer = run(path=str(path), _ansible_check_mode=check_mode)
    assert status == 0
    assert answer["changed"] is False
    assert answer["gguf"]["path"] == str(path)
    assert answer["gguf"]["tensors"]["count"] == 3
    assert answer["gguf"]["comparison"] is None
    assert answer["warned"] == ""


def test_compares(gguf_factory, run):
    keys = [("add_string", "tokenizer.ggml.model", "llama")]
    target = gguf_factory.model("target.gguf", keys=keys, tokens=["a"] * 9)
    draft = gguf_factory.model("draft.gguf", keys=keys, tokens=["a"] * 8 + ["b"])
    _status, answer = run(path=str(target), compare_with=str(draft))
    assert answer["gguf"]["comparison"] == {
        "compatible": False,
        "reason": "token",
        "first_difference": "token 8 is 'a' in the target and 'b' in the draft",
        "notes": [],
    }


@pytest.mark.parametrize("option", ["path", "compare_with"])
def test_fails_with_one_sentence_about_the_file(gguf_factory, run, option):
    good = gguf_factory.model(tensors=TENSORS)
    bad = gguf_factory.folder / "page.gguf"
    bad.write_text("<!DOCTYPE html>")
    status, answer = run(**{"path": str(good), option: str(bad)})
    assert status == 1
    assert answer["failed"] is True
    assert answer["msg"] == f"{bad}: this is a web page, not the model: the download address or its login is wrong."


def test_warns_about_missing_shards(gguf_factory, run):
    gguf_factory.model(tensors=TENSORS, split=1)
    (gguf_factory.folder / "m-00002-of-00003.gguf").unlink()
    status, answer = run(path=str(gguf_factory.folder / "m-00001-of-00003.gguf"))
    assert status == 0
    assert "m-00002-of-00003.gguf" in answer["warned"]


def test_warns_about_what_llama_cpp_will_not_load(gguf_factory, run):
    path = gguf_factory.model(tensors=TENSORS)
    gguf_factory.set_type(path, "blk.0.attn_q.weight", 43)
    assert "tensor types 43 need a newer llama.cpp" in run(path=str(path))[1]["warned"]
    other = gguf_factory.model("other.gguf", tensors=TENSORS, big=sys.byteorder == "little")
    assert "llama-server will not load it" in run(path=str(other))[1]["warned"]
