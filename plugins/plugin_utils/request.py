# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.kinds import FLAG, RATE, SIZE, TEXT, wrong
from ansible_collections.relay.pool.plugins.plugin_utils.memory.header import check_header
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import ContextSpec

# llama-server reads its numbers as int32 and has at most 256 slots (LLAMA_MAX_SEQ).
INT32_MAX = 2**31 - 1
LIMITS = (
    ("ctx_size", 1, INT32_MAX), ("parallel", 1, 256), ("ubatch_size", 1, INT32_MAX), ("batch_size", 1, INT32_MAX),
    ("draft_max", 0, INT32_MAX), ("draft_min", 0, INT32_MAX), ("draft_gpu_layers", 0, INT32_MAX),
    ("threads", 1, INT32_MAX), ("log_verbosity", 0, INT32_MAX),
)  # fmt: skip
# What is read of the results of other modules.
PARTS: dict[str, dict[str, Any]] = {
    "comparison": {"compatible": FLAG, "reason": TEXT, "first_difference": TEXT, "notes": [TEXT]},
    "llama": {
        "version": TEXT,
        "build": SIZE,
        "commit": TEXT,
        "rpc_protocol": TEXT,
        "rpc_server": TEXT,
        "backends": [TEXT],
        "flags": [TEXT],
        "spec_types": [TEXT],
        "rpc_devices": TEXT,
        "rpc_reuses_graphs": FLAG,
        "bounds_output_rows": FLAG,
        "flag_values": {
            flag: {"words": [TEXT], "default": TEXT}
            for flag in ("--flash-attn", "--n-gpu-layers", "--log-verbosity", "--draft-p-min")
        },
    },
    "measured": {"tokens_per_second": RATE, "with_draft_tokens_per_second": RATE},
}
# What becomes part of a command line.
TEXTS = (
    "host",
    "draft_path",
    "draft_error",
    "alias",
    "server_host",
    "draft_device",
    "speculation_type",
    "draft_fallback",
    "api_key_file",
)
# Each has a word of its own for nothing.
NEVER_NULL = ("host", "server_host", "draft_device", "speculation_type", "draft_fallback")


def reserved_rows(asked: int, ubatch_size: int, batch_size: int, all_rows: bool) -> int:
    """Output rows that a server reserves; all_rows: one for each token of a micro batch, asked for or not."""
    return min(max(asked, ubatch_size) if all_rows else asked, batch_size)


@dataclass(frozen=True)
class Request:
    """The options of the placement action, checked."""

    model: Mapping[str, Any]
    host: str
    nodes: Mapping[str, Mapping[str, Any]]
    workers: tuple[str, ...] = ()
    draft: Mapping[str, Any] | None = None
    draft_path: str | None = None
    draft_error: str = ""
    comparison: Mapping[str, Any] | None = None
    llama: Mapping[str, Any] | None = None
    ctx_size: int = 16384
    parallel: int = 2
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    ubatch_size: int = 512
    batch_size: int = 2048
    alias: str | None = None
    server_host: str = "127.0.0.1"
    server_port: int = 8384
    rpc_port: int = 50052
    rpc_cache: bool = True
    draft_max: int = 16
    draft_min: int = 0
    draft_gpu_layers: int = 99
    draft_p_min: float = 0.0
    draft_scope: str = "sharded"
    draft_reserve: bool = True
    draft_device: str = "auto"
    speculation_type: str = "auto"
    draft_fallback: str = "none"
    reserve_bytes: int | None = None
    allow_cpu: bool = False
    allow_partial: bool = False
    threads: int | None = None
    extra_args: tuple[str, ...] = ()
    api_key_file: str | None = None
    metrics: bool = True
    log_verbosity: int = 4
    measured: Mapping[str, Any] | None = None
    previous: Mapping[str, Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._check_kinds()
        for name, least, most in LIMITS:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise PoolError(f"{name} is {value}: it must be an integer from {least} to {most}")
        if self.draft_min > self.draft_max:
            raise PoolError(f"draft_min is {self.draft_min}: it must lie between 0 and draft_max, {self.draft_max}")
        if not self.model_path:
            raise PoolError("the model has no path: give what gguf_info read of a file on the host")
        for name in ("server_port", "rpc_port"):
            value = getattr(self, name)
            if not 1 <= value <= 65535:
                raise PoolError(f"{name} is {value}: it must lie between 1 and 65535")
        if not 0 <= self.draft_p_min <= 1:
            raise PoolError(f"draft_p_min is {self.draft_p_min}: it must lie between 0 and 1")
        if self.reserve_bytes is not None and self.reserve_bytes < 0:
            raise PoolError(f"reserve_bytes is {self.reserve_bytes}: it must be at least 0 bytes")

    def _check_kinds(self) -> None:
        """Raise for what no module returns."""
        check_header(self.model, "the model")
        if self.draft is not None:
            check_header(self.draft, "the draft model")
        problems = [wrong(name, getattr(self, name), parts) for name, parts in PARTS.items() if getattr(self, name)]
        texts = (name for name in TEXTS if getattr(self, name) is not None or name in NEVER_NULL)
        problems += [wrong(name, getattr(self, name), TEXT) for name in texts]
        problems += [wrong(name, list(getattr(self, name)), [TEXT]) for name in ("workers", "extra_args")]
        for problem in filter(None, problems):
            raise PoolError(problem)
        words = {**{name: getattr(self, name) for name in TEXTS}, "the path of the model": self.model_path}
        words.update({f"extra_args.{place}": word for place, word in enumerate(self.extra_args)})
        words["the path of the draft"] = (self.draft or {}).get("path")
        for name, word in words.items():
            if "\0" in (word or ""):
                raise PoolError(f"{name} is {word!r:.80}: it holds a NUL byte, which no program can be given")

    @property
    def model_path(self) -> str:
        """Where the target lies on the machine that serves it."""
        return str(self.model.get("path") or "")

    @property
    def served_alias(self) -> str:
        """The name that clients ask for; by default the file's name without its ending."""
        return self.alias or self.model_path.rsplit("/", 1)[-1].rsplit(".gguf", 1)[0]

    def target_spec(self, drafted: int = 0, mtp: bool = False, snapshots: int = 0) -> ContextSpec:
        """The target's context; verifying needs an output row per drafted token.

        :param drafted: tokens that a round proposes at most. mtp: the target's own MTP layers propose them.
        :param snapshots: recurrent states that are kept per slot to step back.
        """
        rows = self.parallel * (1 + drafted)
        return ContextSpec(
            ctx_size=self.ctx_size,
            parallel=self.parallel,
            cache_type_k=self.cache_type_k,
            cache_type_v=self.cache_type_v,
            ubatch_size=min(self.ubatch_size, self.batch_size),
            n_outputs=self._rows(rows),
            mtp=mtp,
            snapshots=snapshots,
        )

    def draft_spec(self) -> ContextSpec:
        """The draft's context: the target's size and slots, but always an f16 cache."""
        return ContextSpec(
            ctx_size=self.ctx_size,
            parallel=self.parallel,
            ubatch_size=min(self.ubatch_size, self.batch_size),
            # where output rows are not bounded each slot has a draft's context of its own, too
            n_outputs=self._rows(self.parallel) * (self.parallel if self._all_rows else 1),
        )

    @property
    def _all_rows(self) -> bool:
        """The installed build reserves an output row for each token of a batch."""
        return (self.llama or {}).get("bounds_output_rows") is False

    def _rows(self, asked: int) -> int:
        return reserved_rows(asked, self.ubatch_size, self.batch_size, self._all_rows)
