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
    target = str(gguf_factory.model("target.gguf", keys=keys, tokens="abcdefghi"))
    draft = str(gguf_factory.model("draft.gguf", keys=keys, tokens="abcdefghx"))
    for options in (
        {"path": target, "compare_with": draft},
        {"path": draft, "compare_with": target, "compare_as": "target"},
    ):
        _status, answer = run(**options)
        assert answer["gguf"]["path"] == options["path"]
        assert answer["gguf"]["comparison"] == {
            "compatible": False,
            "reason": "token",
            "first_difference": "token 8 is 'i' in the target and 'x' in the draft",
            "notes": [],
        }


def test_what_a_web_server_has_is_compared_with_its_target(gguf_factory, site, run):
    keys = [("add_string", "tokenizer.ggml.model", "llama")]
    target = str(gguf_factory.model("target.gguf", keys=keys, tokens="abcdefghi"))
    draft = site.add("/d.gguf", gguf_factory.model("draft.gguf", keys=keys, tokens="abcdefghx").read_bytes())
    comparison = run(url=draft, compare_with=target, compare_as="target")[1]["gguf"]["comparison"]
    assert comparison["first_difference"] == "token 8 is 'i' in the target and 'x' in the draft"


def test_warns_of_a_vocabulary_that_llama_cpp_does_not_load(gguf_factory, run):
    keys = [("add_string", "tokenizer.ggml.model", "llama")]
    path = gguf_factory.model("m.gguf", keys=keys, tokens=["a"] * 9)
    status, answer = run(path=str(path))
    assert (status, answer["warned"]) == (
        0,
        f"{path} has a text that occurs twice among its tokens, and llama-server ends while it loads it: convert the "
        "model again.",
    )


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


def test_reads_over_http_and_keeps_the_headers_to_itself(gguf_factory, new_site, run):
    home, other = new_site(), new_site()
    content = gguf_factory.model(tensors=TENSORS).read_bytes()
    url = home.add("/m.gguf", content, login="Bearer a-secret-of-mine")
    draft = other.add("/d.gguf", content)
    status, answer = run(url=url, compare_with=draft, headers={"Authorization": "Bearer a-secret-of-mine"})
    assert status == 0, answer
    assert answer["gguf"]["path"] == url
    assert answer["gguf"]["files"] == [{"path": url, "size_bytes": len(content)}]
    assert answer["gguf"]["comparison"]["reason"] == "type"
    assert "a-secret-of-mine" not in json.dumps(answer)
    assert not any("authorization" in sent for _path, sent in other.requests)


@pytest.mark.parametrize("headers", [{"DNT": "1"}, {"DNT": 1}, {"X-Client": "llama"}])
def test_a_short_value_of_a_header_is_not_blotted_out_of_the_facts(gguf_factory, site, run, headers):
    path = gguf_factory.model(tensors=TENSORS)
    url = site.add("/m.gguf", path.read_bytes())
    gguf = run(url=url, headers=headers)[1]["gguf"]
    assert (gguf["architecture"], gguf["size_bytes"]) == ("llama", path.stat().st_size)
    assert gguf["files"] == [{"path": url, "size_bytes": path.stat().st_size}]


def test_no_answer_repeats_a_login(gguf_factory, site, run):
    url = site.add("/m.gguf", gguf_factory.model(tensors=TENSORS).read_bytes()).replace("//", "//me:secret@")
    status, answer = run(url=url, compare_with=url, headers={"X-Key": "mine"}, _ansible_inject_invocation=True)
    assert status == 0
    assert answer["invocation"]["module_args"]["headers"] is None
    assert "secret" not in json.dumps(answer)


def test_a_draft_elsewhere_gets_the_headers_when_the_model_is_a_file(gguf_factory, site, run):
    path = gguf_factory.model(tensors=TENSORS)
    draft = site.add("/d.gguf", path.read_bytes(), login="Bearer x")
    status, answer = run(path=str(path), compare_with=draft, headers={"Authorization": "Bearer x"})
    assert status == 0, answer
    assert run(path=str(path), compare_with=draft)[1]["msg"].startswith(f"{draft}: the server answers 401")


def test_a_path_may_be_written_as_users_write_it(gguf_factory, run, monkeypatch):
    path = gguf_factory.model(tensors=TENSORS)
    monkeypatch.setenv("HOME", str(path.parent))
    monkeypatch.setenv("MODELS", str(path.parent))
    assert run(path="~/m.gguf", compare_with="$MODELS/m.gguf")[0] == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "one of the following is required: path, url"),
        ({"path": "/m.gguf", "url": "http://h/m.gguf"}, "mutually exclusive: path|url"),
        ({"url": "/m.gguf"}, "url is /m.gguf: it must begin with http:// or https://"),
        ({"url": "ftp://h/m.gguf"}, "url is ftp://h/m.gguf: it must begin with http:// or https://"),
        ({"path": "https://h/m.gguf"}, "path is https://h/m.gguf: the address of a web server is given as url."),
        ({"url": "http://h/m.gguf", "timeout": 0}, "timeout is 0: it must be more than 0"),
        ({"url": "http://h/m.gguf", "headers": {"X": "a\nb"}}, "headers: the value of X holds what HTTP cannot carry"),
    ],
)
def test_options_that_cannot_be(run, options, sentence):
    status, answer = run(**options)
    assert status == 1
    assert sentence in answer["msg"]


@pytest.mark.parametrize(
    ("option", "address", "shown"),
    [
        ("url", "ftp://me:secret@h/m.gguf", "url is ftp://h/m.gguf: it must begin with"),
        ("url", "http:/me:secret@h/m.gguf", "url is http:/h/m.gguf: it must begin with"),
        ("url", "http://me:secret/1@h/m.gguf", "http://h/m.gguf: this is no URL: correct it, in a login / ? # and @"),
        ("path", "http://me:secret@h/m.gguf", "path is http://h/m.gguf: the address of a web server is given as url."),
        ("path", "s3://me:secret@h/m.gguf", "path is s3://h/m.gguf: of addresses only those with http:// or"),
        ("compare_with", "ftp://me:secret@h/m.gguf", "compare_with is ftp://h/m.gguf: of addresses only those with"),
    ],
)
def test_an_address_that_cannot_be_used_is_named_without_its_login(gguf_factory, run, option, address, shown):
    path = {} if option in ("url", "path") else {"path": str(gguf_factory.model(tensors=TENSORS))}
    status, answer = run(**path, **{option: address})
    assert status == 1
    assert answer["msg"].startswith(shown)
    assert "secret" not in answer["msg"]


def test_a_server_that_is_slow_is_given_up(site, run):
    url = site.add("/m.gguf", b"GGUF", silent=5)
    assert "could not be read within 0.2 s" in run(url=url, timeout=0.2)[1]["msg"]
