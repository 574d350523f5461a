# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command, llama_binary

from tests import builds

HELP = (Path(__file__).parent / "fixtures" / "llama_server_help.txt").read_text()
SPEC_TYPES = ["none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark"]
SPEC_TYPES += ["ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 0.6.0-dev (build 11434, commit abc)\nbuilt with GNU\n", ("0.6.0-dev", 11434, "abc")),
        ("ggml_cuda_init: found 1\nversion: 9002 (457e2288c)\n", ("9002", 9002, "457e2288c")),
        ("version: 0 (unknown)\n", ("0", 0, "unknown")),
        (builds.VERSIONS[builds.MARCH], ("1", 1, "f49e917")),
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
# llama_model_loader, RPC server version mismatch
"""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("-c, --ctx-size N   size\n                (env: LLAMA_ARG_CTX_SIZE)\n", ["LLAMA_ARG_CTX_SIZE"]),
        ("--slots, --no-slots   slots (env: LLAMA_ARG_SLOTS)\n", ["LLAMA_ARG_NO_SLOTS", "LLAMA_ARG_SLOTS"]),
        ("--draft-max N   the argument has been removed (env: LLAMA_ARG_DRAFT_MAX)\n", ["LLAMA_ARG_DRAFT_MAX"]),
        ("-hft, --hf-token T   token (env: HF_TOKEN)\n", []),
        # the name of 2025
        ("-lv, --verbosity N   level (env: LLAMA_LOG_VERBOSITY)\n", ["LLAMA_LOG_VERBOSITY"]),
        ("--api-key KEY   key (env: LLAMA_API_KEY)\n", []),
    ],
)
def test_environment_names(text, names):
    assert llama_binary.environment_names(llama_binary.parse_help(text)) == names


# Variables that stop the start of the build they were removed from, or that it takes a draft from.
DRAFT_VARIABLES = {"LLAMA_ARG_DRAFT_MAX", "LLAMA_ARG_DRAFT_MIN", "LLAMA_ARG_SPEC_TYPE", "LLAMA_ARG_RPC"}


@pytest.mark.parametrize("build", builds.BUILDS)
def test_variables_of_real_builds(build):
    names = set(builds.facts_of(build)["environment"])
    assert names >= DRAFT_VARIABLES
    model = "LLAMA_ARG_MODEL_DRAFT" if build == builds.MARCH else "LLAMA_ARG_SPEC_DRAFT_MODEL"
    level = "LLAMA_ARG_LOG_VERBOSITY" if build == builds.TODAY else "LLAMA_LOG_VERBOSITY"
    assert names >= {model, level, "LLAMA_ARG_NO_JINJA", "LLAMA_ARG_DEVICE", "LLAMA_ARG_TENSOR_SPLIT"}


REMOVED_FLAGS = ("--draft", "--draft-n", "--draft-max", "--draft-min", "--draft-n-min", "--spec-ngram-size-m")


@pytest.mark.parametrize("flag", [*REMOVED_FLAGS, "--mlock", "--no-mmap"])
def test_flags_that_were_removed_are_known_to_the_build_before_only(flag):
    assert flag in builds.facts_of(builds.MARCH)["flags"]
    assert flag not in builds.facts_of(builds.TODAY)["flags"]


@pytest.mark.parametrize("build", builds.BUILDS)
@pytest.mark.parametrize("flag", ["--draft-model", "--draft-n-max"])
def test_flags_that_never_were(build, flag):
    assert flag not in builds.facts_of(build)["flags"]


def test_values_of_real_builds():
    today, march = (builds.facts_of(build)["flag_values"] for build in (builds.TODAY, builds.MARCH))
    assert today["--log-verbosity"]["words"] == ["generic", "error", "warning", "info", "trace", "debug"]
    assert march["--log-verbosity"]["words"] == ["generic", "error", "warning", "info", "debug"]
    assert (today["--draft-p-min"]["default"], march["--draft-p-min"]["default"]) == ("0.00", "0.75")
    assert today["--n-gpu-layers"] == march["--n-gpu-layers"] == {"words": ["auto", "all"], "default": "auto"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        # August 2025
        ("-fa, --flash-attn   enable Flash Attention (default: disabled)\n", {"words": [], "default": "disabled"}),
        ("-fa, --flash-attn FA   set it ('on', 'off', or 'auto')\n", {"words": ["on", "off", "auto"], "default": None}),
        ("-fa, --flash-attn [on|off]\n   whether\n", {"words": ["on", "off"], "default": None}),
    ],
)
def test_values_of_one_option(text, told):
    assert llama_binary.differing_values(llama_binary.parse_help(text)) == {"--flash-attn": told}


@pytest.mark.parametrize(
    ("content", "devices", "graphs", "rows"),
    [
        (
            b"llama_model_loader\0ggml_backend_rpc_add_server\0graph_recompute\0n_outputs_max = %u",
            "numbered",
            True,
            True,
        ),
        (b"llama_model_loader\0ggml_backend_rpc_add_server\0graph_recompute\0", "numbered", True, False),
        (b"llama_model_loader\0ggml_backend_rpc_add_device\0", "by_endpoint", False, False),
        (b"llama_model_loader", None, False, False),
        # a script that starts it
        (b"#!/bin/sh", None, None, None),
        # it cannot be mapped
        (b"", None, None, None),
    ],
)
def test_what_no_help_tells(tmp_path, content, devices, graphs, rows):
    (tmp_path / "llama-server").write_bytes(content)
    found = llama_binary.facts_in_texts(str(tmp_path), str(tmp_path / "llama-server"))
    assert found == {"rpc_devices": devices, "rpc_reuses_graphs": graphs, "bounds_output_rows": rows}


def test_it_may_be_in_a_library(tmp_path):
    server = Path(build(tmp_path / "bin", "llama-server")) / "llama-server"
    build(tmp_path / "bin", "libggml-cuda.so", script="graph_recompute is said by another library only")
    build(tmp_path / "lib", "libllama-common.so.0", script="llama_model_loader ggml_backend_rpc_add_server")
    found = llama_binary.facts_in_texts(str(tmp_path / "bin"), str(server))
    assert (found["rpc_devices"], found["rpc_reuses_graphs"]) == ("numbered", False)
    build(tmp_path / "lib", "libggml-rpc.so", "libllama.so", script="graph_recompute n_outputs_max")
    found = llama_binary.facts_in_texts(str(tmp_path / "bin"), str(server))
    assert (found["rpc_reuses_graphs"], found["bounds_output_rows"]) == (True, True)


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("llama_model_loader --fit-print", True),
        ("llama_model_loader --fit", False),
        ("exec llama-fit-params.real", True),
    ],
)
def test_a_program_that_cannot_print_what_it_measures_is_none(tmp_path, text, there):
    folder = build(tmp_path, "llama-fit-params", script=text)
    assert (llama_binary.fit_params(folder) is not None) == there


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
        "flag_values": {"--flash-attn": {"words": ["on", "off", "auto"], "default": None}},
        "rpc_devices": None,
        "rpc_reuses_graphs": False,
        "bounds_output_rows": False,
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
