# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two renderers: options in, argv after the program's name out. They decide nothing."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError

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
        "--n-cpu-moe", "-nkvo", "--no-kv-offload", "-kvo", "--kv-offload", "--swa-full", "-md", "--model-draft", "-hf",
        "-hfr", "--hf-repo", "-hfd", "-hfrd", "--hf-repo-draft", "-mu", "--model-url", "-devd", "-ngld", "-td", "-ctkd",
        "-ctvd", "-otd", "-cmoed", "-ncmoed", "-cd", "--list-devices",
    )
)  # fmt: skip


def check_extra_args(extra_args: Sequence[str]) -> None:
    """Raise when an extra argument belongs to the plan or would show a secret to every user of the machine."""
    for argument in extra_args:
        text = str(argument)
        if not text.startswith("-"):
            continue
        name = text.split("=", 1)[0].replace("_", "-")
        if name == "--api-key":
            raise PoolError(
                "extra argument --api-key would show the key to every user of the machine: use api_key_file"
            )
        if name in OWNED or name.startswith(("--spec-", "--draft")) or name.endswith("-draft"):
            raise PoolError(f"extra argument {text} belongs to the plan: set the relay_* variable for it instead")
        if "=" in text and name.startswith("--"):
            raise PoolError(
                f"extra argument {text} cannot be read: llama-server takes option and value as two arguments"
            )


def _joined(values: Sequence[Any] | None) -> str | None:
    return ",".join(str(value) for value in values) if values else None


def llama_server_args(options: Mapping[str, Any]) -> list[str]:
    """argv of llama-server; an option that is absent or empty prints nothing.

    Order: --rpc registers devices at once and llama-server reads from left to right, so it precedes --device.
    """
    spelling = options.get("spelling") or {}
    argv: list[str] = []

    def put(flag: str, value: Any) -> None:
        if value is None or value == "":
            return
        argv.extend((spelling.get(flag, flag), str(value)))

    rpc_backends = options.get("rpc_backends")
    put("--model", options.get("model"))
    put("--rpc", _joined(rpc_backends))
    put("--device", _joined(options.get("devices")))
    put("--tensor-split", _joined(options.get("tensor_split")))
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
    argv.extend(str(argument) for argument in options.get("extra") or [])
    draft = options.get("draft") or {}
    if draft.get("model") and (rpc_backends or draft.get("scope") == "any"):
        put("--spec-draft-model", draft["model"])
        put("--spec-draft-n-max", draft.get("n_max"))
        put("--spec-draft-n-min", draft.get("n_min") or None)
        put("--spec-draft-ngl", draft.get("gpu_layers"))
        put("--spec-draft-p-min", draft.get("p_min") or None)
        put("--spec-draft-device", draft.get("device"))
        put("--spec-type", draft.get("type"))
    return argv


def rpc_server_args(options: Mapping[str, Any]) -> list[str]:
    """argv of ggml-rpc-server; --threads only reaches CPU devices, so it is printed for them alone."""
    argv: list[str] = []
    devices = options.get("devices") or []
    for flag, value in (
        ("--host", options.get("host")),
        ("--port", options.get("port")),
        ("--device", _joined(devices)),
    ):
        if value is not None and value != "":
            argv.extend((flag, str(value)))
    if options.get("threads") and (not devices or "CPU" in devices):
        argv.extend(("--threads", str(options["threads"])))
    if options.get("cache"):
        argv.append("--cache")
    return argv
