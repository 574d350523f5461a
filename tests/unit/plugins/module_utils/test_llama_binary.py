# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command, llama_binary

HELP = (Path(__file__).parent / "fixtures" / "llama_server_help.txt").read_text()
SPEC_TYPES = ["none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark"]
SPEC_TYPES += ["ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 0.6.0-dev (build 11434, commit abc)\nbuilt with GNU\n", ("0.6.0-dev", 11434, "abc")),
        ("ggml_cuda_init: found 1\nversion: 9002 (457e2288c)\n", ("9002", 9002, "457e2288c")),
        ("version: 0 (unknown)\n", ("0", 0, "unknown")),
        ("llama-server: error while loading shared libraries", None),
    ],
)
def test_version(text, expected):
    assert llama_binary.parse_version(text) == expected


@pytest.mark.parametrize(
    ("flag", "supported"),
    [
        ("-h", True),
        ("--usage", True),
        ("--version", True),
        ("-c", True),
        ("--no-perf", True),
        ("-fa", True),
        ("--rpc", True),
        ("-md", True),
        ("--spec-draft-model", True),
        ("--n-gpu-layers-draft", True),
        ("--spec-type", True),
        ("--spec-draft-n-max", True),
        # "has been removed" in the help
        ("--draft", False),
        ("--draft-max", False),
        ("--draft-n-min", False),
        ("--spec-ngram-size-n", False),
        # mentioned in a description only
        ("--spec-ngram-mod-n-match", False),
        ("-----", False),
    ],
)
def test_flags(flag, supported):
    assert (flag in llama_binary.supported_flags(llama_binary.parse_help(HELP))) is supported


def test_removal_may_be_wrapped():
    text = "--old N    the argument has been\n           removed. use --new\n--new N    fine\n"
    assert llama_binary.supported_flags(llama_binary.parse_help(text)) == ["--new"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HELP, SPEC_TYPES),
        ("--spec-type [none|ngram-cache]   type\n", ["none", "ngram-cache"]),
        ("--other X   x\n", []),
    ],
)
def test_spec_types(text, expected):
    assert llama_binary.spec_types(llama_binary.parse_help(text)) == expected


def build(folder, *names, script="#!/bin/sh\n"):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    return str(folder)


SCRIPT = f"""#!/bin/sh
case $1 in
  --version) echo 'version: 0.6.0-dev (build 11434, commit abc)' >&2 ;;
  --help) cat '{Path(__file__).parent / "fixtures" / "llama_server_help.txt"}' ;;
esac
# RPC server version mismatch
"""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("-c, --ctx-size N   size\n                (env: LLAMA_ARG_CTX_SIZE)\n", ["LLAMA_ARG_CTX_SIZE"]),
        ("--slots, --no-slots   slots (env: LLAMA_ARG_SLOTS)\n", ["LLAMA_ARG_NO_SLOTS", "LLAMA_ARG_SLOTS"]),
        ("--draft-max N   the argument has been removed (env: LLAMA_ARG_DRAFT_MAX)\n", ["LLAMA_ARG_DRAFT_MAX"]),
        ("-hft, --hf-token T   token (env: HF_TOKEN)\n", []),
    ],
)
def test_environment_names(text, names):
    assert llama_binary.environment_names(llama_binary.parse_help(text)) == names


def test_describe_through_a_link(tmp_path):
    build(tmp_path / "b1", "llama-server", script=SCRIPT)
    (tmp_path / "current").symlink_to("b1")
    assert llama_binary.describe(str(tmp_path / "current"))["server"] == str(tmp_path / "b1" / "llama-server")


def test_describe(tmp_path):
    folder = build(tmp_path / "bin", "llama-server", script=SCRIPT)
    build(tmp_path / "bin", "rpc-server")
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "ggml-rpc.h").write_text(
        "#define RPC_PROTO_MAJOR_VERSION    7\n#define RPC_PROTO_MINOR_VERSION    0\n"
    )
    found = llama_binary.describe(folder)
    flags = found.pop("flags")
    assert flags[:3] == ["-h", "--help", "--usage"]
    assert "LLAMA_ARG_CTX_SIZE" in found.pop("environment")
    assert found == {
        "bin_dir": folder,
        "version": "0.6.0-dev",
        "build": 11434,
        "commit": "abc",
        "rpc_protocol": "7.0",
        "backends": ["CPU", "RPC"],
        "spec_types": SPEC_TYPES,
        "server": f"{folder}/llama-server",
        "rpc_server": f"{folder}/rpc-server",
        "fit_params": None,
    }


def test_new_name_of_the_worker_goes_first(tmp_path):
    folder = build(tmp_path, "rpc-server", "ggml-rpc-server", "llama-fit-params")
    assert llama_binary.find(folder, llama_binary.RPC_SERVER_NAMES).endswith("/ggml-rpc-server")
    assert llama_binary.find(folder, llama_binary.FIT_PARAMS_NAMES).endswith("/llama-fit-params")


def test_not_installed(tmp_path):
    (tmp_path / "llama-server").write_text("not executable")
    assert llama_binary.describe(str(tmp_path)) is None
    assert llama_binary.describe(str(tmp_path / "missing")) is None


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\necho 'libggml.so: cannot open shared object file' >&2; exit 127\n", "cannot open shared object"),
        ("#!/bin/sh\necho hello\n", "--version does not answer as llama.cpp does: hello"),
        ("#!/bin/sh\n[ $1 = --version ] && echo 'version: 1 (a)'\n", "--help lists no options"),
    ],
)
def test_broken_binary(tmp_path, script, words):
    folder = build(tmp_path, "llama-server", script=script)
    with pytest.raises(llama_binary.LlamaBinaryError) as error:
        llama_binary.describe(folder)
    assert words in str(error.value)
    assert folder in str(error.value)


def test_options_of_the_environment_do_not_reach_it(tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMA_ARG_DRAFT_MAX", "1")
    seen = []

    def run(argv, timeout, env):
        seen.append(env)
        return command.Result(0, HELP, "version: 1 (a)", None)

    llama_binary.describe(build(tmp_path, "llama-server"), run=run)
    assert all("LLAMA_ARG_DRAFT_MAX" not in env and env["XDG_CONFIG_HOME"] == "/nonexistent" for env in seen)


def test_backends_by_libraries(tmp_path):
    build(tmp_path / "bin", "llama-server", "libggml-cpu-haswell.so", "libggml-rpc.so.0", "libggml-base.so")
    build(tmp_path / "lib", "libggml-cuda.so")
    assert llama_binary.library_backends(str(tmp_path / "bin")) == ["CPU", "CUDA", "RPC"]


def test_unreadable_protocol(tmp_path):
    (tmp_path / "ggml-rpc.h").write_text("#define RPC_PROTO_MAJOR_VERSION 7\n")
    assert llama_binary.rpc_protocol(str(tmp_path)) is None
