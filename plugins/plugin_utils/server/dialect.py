# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which flags a given ``llama-server`` understands, from the facts of llama_info.

Old builds spell the draft's flags differently and lack ``--spec-type``; a flag that the binary has removed is not in
its list, and one that it lacks would stop it at start. Without facts (llama.cpp is not installed yet) today's
spelling is assumed.
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


@dataclass(frozen=True)
class Dialect:
    """How to talk to one binary."""

    name: str
    missing: tuple[str, ...] = ()
    missing_sharded: tuple[str, ...] = ()
    rpc: bool = True
    optional: tuple[str, ...] = OPTIONAL
    spelling: dict[str, str] = field(default_factory=dict)
    spec_type: str | None = "draft-simple"
    draft_missing: tuple[str, ...] = ()
    draft_optional_missing: tuple[str, ...] = ()
    assumed: bool = False
    backends: tuple[str, ...] = ()
    rpc_draft_crash: str | None = None

    def type_name(self, kind: str) -> str | None:
        """The value for --spec-type; None: not written."""
        return self.spec_type if kind == "draft-simple" else kind

    def lacks(self, kind: str) -> tuple[str, ...]:
        """What of a type of speculation the binary does not know."""
        return self.draft_missing

    def worded(self, options: Mapping[str, Any], n_layer: int) -> Mapping[str, Any]:
        """The options in the build's words."""
        return options

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

    def decisions(self) -> dict[str, Any]:
        """What of the binary decides the command line; equal decisions give equal plans."""
        return {
            "optional": sorted(self.optional),
            "spelling": {key: value for key, value in sorted(self.spelling.items()) if key != value},
            "spec_type": self.spec_type,
            "draft_missing": sorted(self.draft_missing),
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

    def lacking(wanted: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(flag for flag in wanted if flag not in flags and flag not in spelling)

    types = list(llama.get("spec_types") or [])
    draft_missing = lacking(DRAFT_FLAGS)
    spec_type = None
    if "--spec-type" in flags:
        known_types = [kind for kind in ("draft-simple", "draft") if kind in types]
        if known_types:
            spec_type = known_types[0]
        else:
            draft_missing += ("--spec-type draft-simple",)
    backends = tuple(llama.get("backends") or ())
    return Dialect(
        name=name,
        missing=lacking(REQUIRED),
        missing_sharded=lacking(REQUIRED_SHARDED),
        rpc="RPC" in backends if backends else bool(llama.get("rpc_protocol") or llama.get("rpc_server")),
        optional=tuple(flag for flag in OPTIONAL if not lacking((flag,))),
        spelling=spelling,
        spec_type=spec_type,
        draft_missing=draft_missing,
        draft_optional_missing=lacking(DRAFT_OPTIONAL),
        backends=backends,
    )
