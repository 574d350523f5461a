# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which flags a given ``llama-server`` understands, from the facts of llama_info.

A flag that the binary has removed is not in its list, and one that it lacks would stop it at start. Builds differ in
more than the names of flags: until May 2026 a draft model ran by being named, since then only where ``--spec-type``
says so; numbers such as the level of the log have other meanings. docs/speculation.md has the table. Without facts
(llama.cpp is not installed yet) today's spelling is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError

# Today's spelling first, then what older builds call the same thing.
SPELLINGS = {
    "--spec-draft-model": ("--spec-draft-model", "--model-draft", "-md"),
    "--spec-draft-n-max": ("--spec-draft-n-max", "--draft-max", "--draft-n", "--draft"),
    "--spec-draft-n-min": ("--spec-draft-n-min", "--draft-min", "--draft-n-min"),
    "--spec-draft-ngl": ("--spec-draft-ngl", "--n-gpu-layers-draft", "--gpu-layers-draft", "-ngld"),
    "--spec-draft-p-min": ("--spec-draft-p-min", "--draft-p-min"),
    "--spec-draft-device": ("--spec-draft-device", "--device-draft", "-devd"),
    "--spec-ngram-simple-size-m": ("--spec-ngram-simple-size-m", "--spec-ngram-size-m"),
    "--spec-ngram-map-k-size-m": ("--spec-ngram-map-k-size-m", "--spec-ngram-size-m"),
    "--spec-ngram-map-k4v-size-m": ("--spec-ngram-map-k4v-size-m", "--spec-ngram-size-m"),
    "--spec-ngram-mod-n-max": ("--spec-ngram-mod-n-max",),
    "--n-gpu-layers": ("--n-gpu-layers", "--gpu-layers", "-ngl"),
    "--log-verbosity": ("--log-verbosity", "--verbosity", "-lv"),
}
REQUIRED = (
    "--model", "--host", "--port", "--cont-batching", "--parallel", "--jinja", "--n-gpu-layers", "--ctx-size",
    "--alias", "--cache-type-k", "--cache-type-v", "--flash-attn",
)  # fmt: skip
REQUIRED_SHARDED = ("--rpc", "--device", "--tensor-split")
OPTIONAL = ("--fit", "--metrics", "--cache-ram", "--override-tensor", "--log-verbosity", "--api-key-file", "--threads")
# Written only when the user asks for them.
DRAFT_OPTIONAL = ("--spec-draft-n-min", "--spec-draft-p-min")
DRAFT_FLAGS = ("--spec-draft-model", "--spec-draft-n-max", "--spec-draft-ngl", "--spec-draft-device")
# The most tokens that an n-gram type proposes; ngram-cache has no flag for it.
NGRAM_LENGTHS = {
    "ngram-simple": "--spec-ngram-simple-size-m",
    "ngram-map-k": "--spec-ngram-map-k-size-m",
    "ngram-map-k4v": "--spec-ngram-map-k4v-size-m",
    "ngram-mod": "--spec-ngram-mod-n-max",
}
# Values of --spec-type as they are today, then as they were named for some days in May 2026.
TYPES = {
    "draft-simple": ("draft-simple", "draft"),
    "draft-eagle3": ("draft-eagle3", "eagle3"),
    "draft-mtp": ("draft-mtp", "mtp"),
    "draft-dflash": ("draft-dflash",),
    "draft-dspark": ("draft-dspark",),
    **{name: (name,) for name in (*NGRAM_LENGTHS, "ngram-cache")},
}
TODAYS_NAMES = {name: today for today, names in TYPES.items() for name in names}
# Before any --spec-type named a draft, a draft model ran by being named itself.
BY_MODEL_ALONE = "draft-simple"
# What a build has that is younger than llama.cpp's pull request 23273 (18 May 2026), which ended the crash of a draft
# on the target's RPC device: b9247 was there two days later, and the flag came with pull request 23287 after b9246.
SOUND_BUILD = 9247
SOUND_FLAGS = ("--spec-draft-backend-sampling", "--spec-draft-sampling")
# What --log-verbosity calls the level at which sizes of buffers are logged, and the one of single layers.
LEVELS = ("generic", "error", "warning", "info", "trace", "debug")


@dataclass(frozen=True)
class Dialect:
    """How to talk to one binary.

    types: the value of ``--spec-type`` by today's name of a type, None where nothing is to be written.
    levels: what the build calls its levels of logging, from 0. all_layers: ``--n-gpu-layers all`` is understood.
    p_min: what the build takes where no ``--spec-draft-p-min`` is given. bounds_output_rows: False where the ledger has
    an output row for each token of a batch.
    """

    name: str
    missing: tuple[str, ...] = ()
    missing_sharded: tuple[str, ...] = ()
    rpc: bool = True
    optional: tuple[str, ...] = OPTIONAL
    spelling: dict[str, str] = field(default_factory=dict)
    types: Mapping[str, str | None] = field(default_factory=lambda: {name: name for name in TYPES})
    draft_missing: tuple[str, ...] = ()
    draft_optional_missing: tuple[str, ...] = ()
    assumed: bool = False
    backends: tuple[str, ...] = ()
    numbered_devices: bool = True
    rpc_draft_crash: str | None = None
    levels: tuple[str, ...] = LEVELS
    all_layers: bool = True
    p_min: float = 0.0
    bounds_output_rows: bool = True

    @property
    def spec_type(self) -> str | None:
        """The value of ``--spec-type`` for a draft model."""
        return self.types.get(BY_MODEL_ALONE)

    def type_name(self, type: str) -> str | None:
        """The value of ``--spec-type`` for today's name of a type; None where nothing is to be written."""
        return self.types.get(type)

    def lacks(self, type: str) -> tuple[str, ...]:
        """What the build does not know and that type of speculation needs, in today's words; () when it can."""
        flags = [] if type.startswith("ngram-") else [flag for flag in self.draft_missing if " " not in flag]
        return (*flags,) if type in self.types else (*flags, f"--spec-type {type}")

    def knows(self, flag: str) -> bool:
        """True when the optional flag may be written."""
        return flag in self.optional

    def check(self, sharded: bool, wanted: Sequence[str] = ()) -> None:
        """Raise when the binary cannot run such a plan; wanted are the optional flags that the user asks for."""
        missing = self.missing + tuple(flag for flag in wanted if not self.knows(flag))
        missing += self.missing_sharded if sharded and self.rpc else ()
        if missing:
            raise PoolError(
                f"{self.name} does not know {', '.join(missing)}: install a newer llama.cpp on every machine"
            )
        if sharded and not self.rpc:
            raise PoolError(
                f"{self.name} was built without RPC: build llama.cpp with -DGGML_RPC=ON, or use a model that fits one"
            )
        if sharded and not self.numbered_devices:
            raise PoolError(
                f"{self.name} names the device of a worker by its address, as in RPC[10.0.0.2:50052], and plans are "
                "made for RPC0, RPC1 and so on: install a llama.cpp of October 2025 or later on every machine"
            )

    def worded(self, options: Mapping[str, Any], n_layer: int) -> dict[str, Any]:
        """The options of llama_server_args, whose words and numbers are today's, in those of this build.

        n_layer: of the target; one more is what ``all`` stands for, since the output counts as a layer.
        """
        worded = {**options, "spelling": self.spelling}
        if options.get("n_gpu_layers") == "all" and not self.all_layers:
            worded["n_gpu_layers"] = n_layer + 1
        worded["extra"] = self._levelled(list(options.get("extra") or ()))
        draft = dict(options.get("draft") or {})
        if draft.get("model") and self.p_min and not draft.get("p_min") and "--spec-draft-p-min" in self.spelling:
            # A text, since a number that is 0 is left out.
            draft["p_min"] = "0.0"
        if draft and self.spelling.get("--spec-draft-n-max", "").startswith("--draft"):
            # It used to limit n-grams, too.
            draft["limits_ngrams"] = True
        return {**worded, "draft": draft}

    def _levelled(self, extra: list[Any]) -> list[Any]:
        flag = self.spelling.get("--log-verbosity", "--log-verbosity")
        if flag in extra[:-1]:
            at = extra.index(flag) + 1
            extra[at] = str(self.level(int(extra[at])))
        return extra

    def level(self, today: int) -> int:
        """The level of this build that logs what today's level does, whose names are LEVELS.

        Where a build has no "trace", what today is logged there is logged as "info".
        """
        if today < 4 or self.levels == LEVELS or "info" not in self.levels:
            return today
        known = [name for name in LEVELS[: today + 1] if name in self.levels]
        return self.levels.index(known[-1]) + max(today - len(LEVELS) + 1, 0)

    def decisions(self, *types: str) -> dict[str, Any]:
        """What of the binary decides the command line and the ledger; equal decisions give equal plans.

        types: today's names of the speculation that is asked for; what the build makes of others decides nothing.
        """
        lengths = {NGRAM_LENGTHS.get(type) for type in types}
        drafting = any(not type.startswith("ngram-") for type in types)

        def asked(flag: str) -> bool:
            if flag in NGRAM_LENGTHS.values():
                return flag in lengths
            return bool(types) or not flag.startswith("--spec-")

        return {
            "optional": sorted(self.optional),
            "spelling": {key: value for key, value in sorted(self.spelling.items()) if key != value and asked(key)},
            "spec_types": {type: self.type_name(type) for type in types},
            "draft_missing": {type: sorted(self.lacks(type)) for type in types},
            "rpc_draft_crash": drafting and self.rpc_draft_crash is not None,
            "levels": list(self.levels),
            "all_layers": self.all_layers,
            "p_min": self.p_min if drafting else None,
            "bounds_output_rows": self.bounds_output_rows,
        }


def dialect(llama: Mapping[str, Any] | None) -> Dialect:
    """The dialect of a llama_info result; None stands for a current build."""
    if not llama or not llama.get("flags"):
        return Dialect(name="llama-server", assumed=True)
    name = "llama-server {}".format(llama.get("version") or "of unknown version")
    if llama.get("build"):
        name += " (build {})".format(llama["build"])
    flags = set(llama["flags"])
    spelling = {}
    for today, names in SPELLINGS.items():
        known = next((candidate for candidate in names if candidate in flags), None)
        if known:
            spelling[today] = known
        elif today in NGRAM_LENGTHS.values():
            # It is left out: the type may be there without.
            spelling[today] = ""

    def lacking(wanted: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(flag for flag in wanted if flag not in flags and flag not in spelling)

    def words(flag: str) -> list[str] | None:
        told = (llama.get("flag_values") or {}).get(flag)
        return None if told is None else list(told.get("words") or ())

    backends = tuple(llama.get("backends") or ())
    values = words("--flash-attn")
    layers = words("--n-gpu-layers")
    types = _types(llama)
    return Dialect(
        name=name,
        # A bare flag would take nothing, and "on" be an argument that is unknown.
        missing=lacking(REQUIRED) + (("--flash-attn on",) if values is not None and "on" not in values else ()),
        missing_sharded=lacking(REQUIRED_SHARDED),
        rpc="RPC" in backends if backends else bool(llama.get("rpc_protocol") or llama.get("rpc_server")),
        optional=tuple(flag for flag in OPTIONAL if not lacking((flag,))),
        spelling=spelling,
        types=types,
        draft_missing=lacking(DRAFT_FLAGS) + (() if BY_MODEL_ALONE in types else (f"--spec-type {BY_MODEL_ALONE}",)),
        draft_optional_missing=lacking(DRAFT_OPTIONAL),
        backends=backends,
        numbered_devices=llama.get("rpc_devices") != "by_endpoint",
        rpc_draft_crash=_rpc_draft_crash(name, llama),
        levels=tuple(words("--log-verbosity") or LEVELS),
        all_layers=layers is None or "all" in layers,
        p_min=_default(llama, "--draft-p-min"),
        bounds_output_rows=llama.get("bounds_output_rows") is not False,
    )


def _types(llama: Mapping[str, Any]) -> dict[str, str | None]:
    values = list(llama.get("spec_types") or ())
    types: dict[str, str | None] = {}
    for today, names in TYPES.items():
        known = next((name for name in names if name in values), None)
        if known:
            types[today] = known
    drafts = [value for value in values if value != "none" and not value.startswith("ngram")]
    # Values that could not be read say nothing about drafts.
    if not drafts and (values or "--spec-type" not in llama["flags"]):
        types[BY_MODEL_ALONE] = None
    return types


def _rpc_draft_crash(name: str, llama: Mapping[str, Any]) -> str | None:
    """What is wrong with a draft on an RPC device, or None.

    The worker keeps one graph per device. Each of the server's contexts used to remember which of its own graphs it
    had sent last, and asked for it again after another context had sent one: the worker then computes the wrong
    tensors, or ends. Sources: llama.cpp's pull requests 15405 (graphs are used again), 23273 (the end of it).
    """
    sound = (llama.get("build") or 0) >= SOUND_BUILD or set(SOUND_FLAGS) & set(llama["flags"])
    if sound or not llama.get("rpc_reuses_graphs"):
        return None
    return (
        f"{name} ends its worker, or computes nonsense, where two contexts share a device over RPC: "
        f"install llama.cpp b{SOUND_BUILD} or later on every machine, or keep the draft on the host"
    )


def _default(llama: Mapping[str, Any], flag: str) -> float:
    text = ((llama.get("flag_values") or {}).get(flag) or {}).get("default")
    try:
        return float(text) if text is not None else 0.0
    except ValueError:
        return 0.0
