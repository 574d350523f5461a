# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters on the planner: the two command lines word for word, and how each filter fails."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.filter.draft_compatibility import FilterModule as DraftCompatibility
from ansible_collections.relay.pool.plugins.filter.llama_server_args import FilterModule as LlamaServerArgs
from ansible_collections.relay.pool.plugins.filter.memory_estimate import FilterModule as MemoryEstimate
from ansible_collections.relay.pool.plugins.filter.plan_html import FilterModule as PlanHtml
from ansible_collections.relay.pool.plugins.filter.plan_proof import FilterModule as PlanProof
from ansible_collections.relay.pool.plugins.filter.plan_table import FilterModule as PlanTable
from ansible_collections.relay.pool.plugins.filter.rpc_server_args import FilterModule as RpcServerArgs
from ansible_collections.relay.pool.plugins.filter.systemd_environment import FilterModule as SystemdEnvironment
from ansible_collections.relay.pool.plugins.filter.systemd_exec import FilterModule as SystemdExec

FILTERS = {
    name: function
    for module in (
        DraftCompatibility,
        LlamaServerArgs,
        MemoryEstimate,
        PlanHtml,
        PlanProof,
        PlanTable,
        RpcServerArgs,
        SystemdEnvironment,
        SystemdExec,
    )
    for name, function in module().filters().items()
}
BASE = {
    "model": "/models/qwen2.5-coder-14b-q3_k_m.gguf",
    "host": "127.0.0.1",
    "port": 8384,
    "parallel": 2,
    "n_gpu_layers": "all",
    "ctx_size": 16384,
    "alias": "qwen2.5-coder-14b",
}
F16 = {"cache_type_k": "f16", "cache_type_v": "f16"}
SHARDED = {"rpc_backends": ["10.0.0.24:50052"], "devices": ["RPC0"], "tensor_split": [20, 28]}
DRAFT = {"model": "/models/qwen2.5-0.5b-instruct-q4_k_m.gguf", "n_max": 16, "n_min": 0, "gpu_layers": 99, "p_min": 0.0}


def render(**options):
    return " ".join(["llama-server", *FILTERS["llama_server_args"]({**BASE, **options})])


def test_sharded_with_a_draft_word_for_word():
    assert render(**F16, **SHARDED, draft=DRAFT) == (
        "llama-server --model /models/qwen2.5-coder-14b-q3_k_m.gguf --rpc 10.0.0.24:50052 --device RPC0 "
        "--tensor-split 20,28 --host 127.0.0.1 --port 8384 --cont-batching --parallel 2 --jinja --n-gpu-layers all "
        "--ctx-size 16384 --alias qwen2.5-coder-14b --cache-type-k f16 --cache-type-v f16 "
        "--spec-draft-model /models/qwen2.5-0.5b-instruct-q4_k_m.gguf --spec-draft-n-max 16 --spec-draft-ngl 99"
    )


@pytest.mark.parametrize("flash_attn", ["on", True])
def test_replica_with_a_quantised_cache_word_for_word(flash_attn):
    # a draft without RPC back ends prints nothing
    assert render(cache_type_k="q8_0", cache_type_v="q8_0", flash_attn=flash_attn, draft=DRAFT) == (
        "llama-server --model /models/qwen2.5-coder-14b-q3_k_m.gguf --host 127.0.0.1 --port 8384 --cont-batching "
        "--parallel 2 --jinja --n-gpu-layers all --ctx-size 16384 --alias qwen2.5-coder-14b --cache-type-k q8_0 "
        "--cache-type-v q8_0 --flash-attn on"
    )


def test_every_draft_option_and_extra_arguments_before_them():
    draft = {**DRAFT, "n_min": 2, "p_min": 0.5, "device": "none", "type": "draft-simple"}
    assert render(**F16, **SHARDED, draft=draft, extra=["--fit", "off"]).endswith(
        "--cache-type-v f16 --fit off --spec-draft-model /models/qwen2.5-0.5b-instruct-q4_k_m.gguf "
        "--spec-draft-n-max 16 --spec-draft-n-min 2 --spec-draft-ngl 99 --spec-draft-p-min 0.5 "
        "--spec-draft-device none --spec-type draft-simple"
    )


def test_absent_and_empty_options_print_nothing():
    assert FILTERS["llama_server_args"]({"alias": "", "devices": [], "port": None}) == ["--cont-batching", "--jinja"]
    assert "--spec-draft-n-max 0" in render(**SHARDED, draft={**DRAFT, "n_max": 0})


def test_scope_and_spelling():
    assert render(draft={**DRAFT, "scope": "any"}).endswith("--spec-draft-ngl 99")
    assert " -md /models/" in render(**SHARDED, draft=DRAFT, spelling={"--spec-draft-model": "-md"})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"host": "10.0.0.24", "port": 50052, "devices": ["CUDA0", "CUDA1"], "threads": 4, "cache": True},
            "--host 10.0.0.24 --port 50052 --device CUDA0,CUDA1 --cache",
        ),
        (
            {"host": "10.0.0.24", "port": 50052, "devices": ["CPU"], "threads": 4, "cache": False},
            "--host 10.0.0.24 --port 50052 --device CPU --threads 4",
        ),
        ({}, ""),
    ],
)
def test_rpc_server(options, expected):
    assert " ".join(FILTERS["rpc_server_args"](options)) == expected


def test_systemd_environment():
    assert FILTERS["systemd_environment"]({"B": "x y", "A": "100%"}) == 'A=100%% "B=x y"'


def test_systemd_exec():
    line = FILTERS["systemd_exec"](["/bin/a", "100%", "$5", "b c"])
    assert line == '/bin/a 100%% $$5 "b c"'


GGUF = {
    "path": "/m.gguf",
    "architecture": "llama",
    "metadata": {"llama.block_count": 1, "llama.embedding_length": 64, "llama.attention.head_count": 2},
    "tensors": {"blocks": [1000], "token_embd_bytes": 10, "output_bytes": 20},
}


def test_memory_estimate():
    estimate = FILTERS["memory_estimate"](GGUF, ctx_size=512, cache_type_k="q8_0")
    assert estimate["weights_bytes"] == 1030
    assert estimate["kv_bytes"] == 512 * 2 * 68


def test_draft_compatibility():
    tokens = {"tokenizer": {"type": "BPE", "n_tokens": 5}}
    assert FILTERS["draft_compatibility"](tokens, tokens)["compatible"]
    assert FILTERS["draft_compatibility"](tokens, {"tokenizer": {"type": "SPM", "n_tokens": 5}})["reason"] == "type"


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("llama_server_args", ["--model"], "dictionary of options"),
        ("rpc_server_args", ["-H"], "dictionary of options"),
        ("systemd_environment", [["A=1"]], "dictionary of values by name"),
        ("systemd_environment", [{"A B": 1}], "no name of an environment variable"),
        ("systemd_exec", ["/bin/a b"], "not a command line"),
        ("systemd_exec", [["a"]], "absolute path"),
        ("memory_estimate", ["m"], "gguf_info"),
        ("memory_estimate", [{}], "names no architecture"),
        ("memory_estimate", [GGUF, 0], "at least 1"),
        ("draft_compatibility", [{}, None], "gguf_info"),
        ("plan_html", [{}], "must be a plan"),
        ("plan_html", [{"stages": "x", "host": "a"}], "edited by hand"),
        ("plan_table", [{}], "must be a plan"),
        ("plan_table", [{"stages": "x", "host": "a"}], "edited by hand"),
        ("plan_proof", [{"stages": []}, {"healthy": True, "completion": "a"}], "edited by hand"),
        ("memory_estimate", [GGUF, "many"], "ctx_size is many"),
        ("memory_estimate", [GGUF, 512, 1, "f16", "f16", 0], "ubatch_size is 0"),
        ("draft_compatibility", [{}, {}, "same"], "comparison"),
        ("llama_server_args", [{"devices": "CUDA0"}], "devices is CUDA0: it must be a list"),
        ("llama_server_args", [{"extra": "--seed 1"}], "extra is --seed 1"),
        ("llama_server_args", [{"draft": "/d.gguf"}], "draft is /d.gguf"),
        ("rpc_server_args", [{"devices": "CPU"}], "devices is CPU"),
    ],
)
def test_each_filter_says_what_it_wants(name, arguments, text):
    with pytest.raises(AnsibleFilterError, match=text):
        FILTERS[name](*arguments)
