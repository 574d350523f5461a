# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two renderers: options in, argv after the program's name out. They decide nothing."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.server.dialect import NGRAM_LENGTHS, TYPES
from ansible_collections.relay.pool.plugins.plugin_utils.server.speculation_flags import (
    LOOKUP_CACHES,
    is_of_speculation,
)

# What llama-server takes where it is told nothing.
DEFAULT_BATCH_SIZE = 2048
DEFAULT_UBATCH_SIZE = 512
# What the plan decides or its ledger rests on; the user's extra arguments may not contradict it.
OWNED = frozenset(
    (
        "-m", "--model", "--rpc", "-dev", "--device", "-ts", "--tensor-split", "-sm", "--split-mode", "-mg",
        "--main-gpu", "-ngl", "--gpu-layers", "--n-gpu-layers", "--host", "--port", "-cb", "--cont-batching", "-nocb",
        "--no-cont-batching", "-np", "--parallel", "--jinja", "--no-jinja", "-c", "--ctx-size", "-a", "--alias", "-ctk",
        "--cache-type-k", "-ctv", "--cache-type-v", "-fa", "--flash-attn", "-fit", "--fit", "-fitt", "--fit-target",
        "-fitc", "--fit-ctx", "-b", "--batch-size", "-ub", "--ubatch-size", "-kvu", "--kv-unified", "-no-kvu",
        "--no-kv-unified", "--kv-unified-per-slot", "-t", "--threads", "-cram", "--cache-ram", "--metrics", "-lv",
        "--verbosity", "--log-verbosity", "--api-key-file", "-ot", "--override-tensor", "-cmoe", "--cpu-moe", "-ncmoe",
        "--n-cpu-moe", "-nkvo", "--no-kv-offload", "-kvo", "--kv-offload", "--swa-full", "-hf", "-hfr", "--hf-repo",
        "-mu", "--model-url", "--list-devices", "-ncffn", "--n-cpu-ffn", "-dr", "--docker-repo", "-hff", "--hf-file",
        "--models-dir", "--models-preset",
    )
)  # fmt: skip
# They name a model, and some a draft, to be loaded from the internet.
PRESETS = ("--fim-", "--gpt-oss-", "--vision-gemma-", "--embd-gemma-")
# The proof reads sizes from the journal, /slots and a completion over plain HTTP.
BLINDING = frozenset(
    (
        "-v", "--verbose", "--log-verbose", "--log-disable", "--log-file", "--log-jsonl", "--no-slots", "--api-prefix",
        "--ssl-key-file", "--ssl-cert-file", "--embedding", "--embeddings", "--rerank", "--reranking",
    )
)  # fmt: skip
# llama-server would print something and end, and systemd start it again for ever.
ENDING = frozenset(("-h", "--help", "--usage", "--version", "-cl", "--cache-list", "--completion-bash"))
READABLE_KEYS = {"--api-key": "use api_key_file", "--hf-token": "leave it out", "-hft": "leave it out"}


def check_extra_args(extra_args: Sequence[str], flags: Sequence[str] = ()) -> None:
    """Raise when an extra argument belongs to the plan or would show a secret to every user of the machine.

    :param flags: what the installed build knows; a flag that is not among them would stop the server at its start.
    """
    for argument in extra_args:
        text = str(argument)
        if not text.startswith("-"):
            continue
        name = text.split("=", 1)[0].replace("_", "-")
        if name in READABLE_KEYS:
            raise PoolError(
                f"extra argument {name} would show the key to every user of the machine: {READABLE_KEYS[name]}"
            )
        if name in ENDING:
            raise PoolError(f"extra argument {name} makes llama-server end at once: leave it out")
        if name in BLINDING:
            raise PoolError(f"extra argument {name} would hide from the proof what runs: leave it out")
        of_speculation = is_of_speculation(name) and name not in LOOKUP_CACHES
        if name in OWNED or name.startswith(PRESETS) or of_speculation:
            raise PoolError(f"extra argument {text} belongs to the plan: set the relay_* variable for it instead")
        if "=" in text and name.startswith("--"):
            raise PoolError(
                f"extra argument {text} cannot be read: llama-server takes option and value as two arguments"
            )
        # A value may be a negative number; no flag of llama-server is one.
        if flags and name.startswith("-") and not name[1:2].isdigit() and not {text, name} & set(flags):
            raise PoolError(
                f"extra argument {text} is unknown to the installed llama-server: "
                "see its --help, and correct relay_extra_args"
            )


def _list(options: Mapping[str, Any], name: str) -> list[str]:
    """The items of an option; a text would be taken apart letter by letter."""
    values = options.get(name)
    if values and not isinstance(values, (list, tuple)):
        raise PoolError(f"{name} is {values}: it must be a list")
    return [str(value) for value in values or ()]


def _joined(options: Mapping[str, Any], name: str) -> str:
    return ",".join(_list(options, name))


def llama_server_args(options: Mapping[str, Any]) -> list[str]:
    """argv of llama-server; an option that is absent or empty prints nothing.

    Order: --rpc registers devices at once and llama-server reads from left to right, so it precedes --device.
    """
    spelling = options.get("spelling") or {}
    argv: list[str] = []

    def put(flag: str, value: Any) -> None:
        name = spelling.get(flag, flag)
        # A flag that the build lacks and can do without has no name.
        if name and value is not None and value != "":
            argv.extend((name, str(value)))

    put("--model", options.get("model"))
    put("--rpc", _joined(options, "rpc_backends"))
    put("--device", _joined(options, "devices"))
    put("--tensor-split", _joined(options, "tensor_split"))
    put("--host", options.get("host"))
    put("--port", options.get("port"))
    argv.append("--cont-batching")
    put("--parallel", options.get("parallel"))
    argv.append("--jinja")
    put("--n-gpu-layers", options.get("n_gpu_layers"))
    put("--ctx-size", options.get("ctx_size"))
    put("--alias", options.get("alias"))
    put("--cache-type-k", options.get("cache_type_k"))
    put("--cache-type-v", options.get("cache_type_v"))
    flash_attn = options.get("flash_attn")
    if isinstance(flash_attn, bool):
        flash_attn = "on" if flash_attn else None
    put("--flash-attn", flash_attn)
    argv.extend(_list(options, "extra"))
    draft = options.get("draft") or {}
    if not isinstance(draft, Mapping):
        raise PoolError(f"draft is {draft}: it must be a dictionary")
    if options.get("rpc_backends") or draft.get("scope") == "any":
        for flag, value in _speculation(draft):
            put(flag, value)
    return argv


def _speculation(draft: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Flags and values of the three families: a draft model, the target's own MTP layers, n-grams."""
    kind = str(draft.get("type") or "")
    model = draft.get("model")
    if not model and kind.startswith("ngram-"):
        return [
            (NGRAM_LENGTHS.get(kind, ""), draft.get("n_max")),
            ("--spec-draft-n-max" if draft.get("limits_ngrams") else "", draft.get("n_max")),
            ("--spec-type", kind),
        ]
    if not model and kind not in TYPES["draft-mtp"]:
        return []
    # Without a file there is nothing to be put anywhere.
    return [
        ("--spec-draft-model", model),
        ("--spec-draft-n-max", draft.get("n_max")),
        ("--spec-draft-n-min", draft.get("n_min") or None),
        ("--spec-draft-ngl", draft.get("gpu_layers") if model else None),
        ("--spec-draft-p-min", draft.get("p_min") or None),
        ("--spec-draft-device", draft.get("device") if model else None),
        ("--spec-type", kind),
    ]


def rpc_server_args(options: Mapping[str, Any]) -> list[str]:
    """argv of ggml-rpc-server; --threads only reaches CPU devices, so it is printed for them alone."""
    argv: list[str] = []
    devices = _list(options, "devices")
    for flag, value in (
        ("--host", options.get("host")),
        ("--port", options.get("port")),
        ("--device", ",".join(devices)),
    ):
        if value is not None and value != "":
            argv.extend((flag, str(value)))
    if options.get("threads") and (not devices or "CPU" in devices):
        argv.extend(("--threads", str(options["threads"])))
    if options.get("cache"):
        argv.append("--cache")
    return argv
