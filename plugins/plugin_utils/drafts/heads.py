# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a file fits the type of speculation and the target; what does not, llama-server exits or aborts at.

After the constructors in common/speculative.cpp and the loaders and graphs in src/models/, b11434. Every function
returns the sentence that says what is wrong, or None.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from ansible_collections.relay.pool.plugins.plugin_utils.drafts import architectures
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import (
    ASSISTANT,
    DFLASH,
    DSPARK,
    EAGLE3,
    IN_BLOCKS,
    MTP,
    SIMPLE,
    USUAL_BLOCK_SIZE,
    own_type,
    telling,
)
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory.keys import Keys
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import ModelShape, model_shape

# Layers of the target that an EAGLE-3 draft listens to.
EAGLE3_LAYERS = 3
NAMES = {EAGLE3: "an EAGLE-3", DFLASH: "a DFlash", DSPARK: "a DSpark", MTP: "an MTP"}


class Pair(NamedTuple):
    """A target and the file that is to draft for it. tables: whether architectures.py speaks of the build."""

    target: Mapping[str, Any]
    draft: Mapping[str, Any]
    tables: bool = True

    @property
    def path(self) -> str:
        """Of the draft."""
        return str(self.draft.get("path"))

    @property
    def keys(self) -> Keys:
        """Of the draft."""
        return keys_of(self.draft)

    @property
    def trunk(self) -> tuple[ModelShape, int]:
        """The target's shape and its layers without NextN layers."""
        shape = model_shape(self.target)
        return shape, shape.n_layer - shape.n_layer_nextn


def keys_of(gguf: Mapping[str, Any]) -> Keys:
    """The metadata of a file."""
    return Keys(str(gguf.get("architecture")), gguf.get("metadata") or {}, str(gguf.get("path")))


def n_nextn(gguf: Mapping[str, Any]) -> int:
    """The NextN layers that the file names."""
    if gguf.get("architecture") in architectures.ROUTED:
        return 0
    return keys_of(gguf).number("nextn_predict_layers", 0)


def wrong_kind(kind: str, draft: Mapping[str, Any]) -> str | None:
    """Why a file cannot draft as this type at all."""
    own, path = own_type(draft), str(draft.get("path"))
    if kind == own:
        return None
    if kind == MTP and own == SIMPLE and n_nextn(draft):
        return None  # a whole model whose NextN layers are to draft
    what = f"{NAMES[own]} draft" if own in NAMES else f"a plain model of architecture {draft.get('architecture')}"
    return f"{path} is {what}, not one for {kind}: set relay_speculation_type to auto or {own}"


def mtp_layers(gguf: Mapping[str, Any], tables: bool = True) -> str | None:
    """Why a file's own NextN layers cannot draft."""
    architecture, path, count = str(gguf.get("architecture")), str(gguf.get("path")), n_nextn(gguf)
    if not count:
        return f"{path} has no NextN layers, without which llama-server exits: set relay_speculation_type to auto"
    blocks = keys_of(gguf).number("block_count", 0)
    found = (gguf.get("tensors") or {}).get("nextn_blocks")
    if architecture == ASSISTANT:
        return None
    if found is not None:
        missing = [str(block) for block in range(max(blocks - count, 0), blocks) if block not in found]
        if missing:
            return (
                f"{path} names {count} NextN layers and lacks block {', '.join(missing)}, at which llama-server "
                "aborts: take a file that was converted with them"
            )
    if not tables or architecture in architectures.MTP_OF_SEVERAL:
        return None
    if architecture not in architectures.MTP_OF_ONE:
        return (
            f"llama.cpp b{architectures.BUILD} does not draft with the NextN layers of architecture {architecture}: "
            "use a draft model"
        )
    if count != 1:
        return (
            f"{path} has {count} NextN layers, and llama.cpp b{architectures.BUILD} aborts with more than 1 of "
            f"architecture {architecture}: use a draft model"
        )
    if architecture in architectures.MTP_BY_LATENT and not keys_of(gguf).number("attention.key_length_mla", 0):
        return (
            f"{path} was converted without attention.key_length_mla, which the NextN layers of {architecture} need: "
            "take a newer file"
        )
    return None


def misfit(kind: str, pair: Pair, p_min: float = 0.0) -> str | None:
    """Why a file of the right kind does not fit this target, or these settings."""
    if kind == MTP:
        return _mtp_file(pair)
    if kind == SIMPLE:
        return None
    return _listener(kind, pair) or (_block(kind, pair, p_min) if kind in IN_BLOCKS else _eagle3(pair))


def _mtp_file(pair: Pair) -> str | None:
    """An MTP draft gets a row of the target's last layer for every token."""
    own, target = pair.draft.get("architecture"), pair.target.get("architecture")
    wanted = "gemma4" if own == ASSISTANT else own
    if wanted != target:
        return f"{pair.path} drafts for targets of architecture {wanted}, and this one is {target}: {_other('an MTP')}"
    widths = [_width_out(gguf) for gguf in (pair.draft, pair.target)]
    if widths[0] != widths[1]:
        return (
            f"{pair.path} takes rows of {widths[0]} values, and the target gives {widths[1]}, at which llama-server "
            f"aborts: {_other('an MTP')}"
        )
    return mtp_layers(pair.draft, pair.tables)


def _width_out(gguf: Mapping[str, Any]) -> int:
    keys = keys_of(gguf)
    return keys.number("embedding_length_out", 0) or keys.number("embedding_length")


def _listener(kind: str, pair: Pair) -> str | None:
    """What all drafts have in common that read what goes into some layers of the target."""
    shape, n_layer = pair.trunk
    layers = _target_layers(pair)
    if not layers:
        return f"{pair.path} does not say to which layers it listens (target_layers): convert it again"
    listens = f"{pair.path} listens to the layers {', '.join(map(str, layers))}"
    if max(layers) > n_layer:
        return f"{listens}, and the target has {n_layer}, at which llama-server aborts: {_other(NAMES[kind])}"
    if not pair.tables:
        return None
    if min(layers) < n_layer and shape.architecture not in architectures.LAYER_INPUTS:
        return (
            f"llama.cpp b{architectures.BUILD} cannot listen to the layers of architecture {shape.architecture} and "
            "aborts with the first request: use a draft model"
        )
    if kind != EAGLE3 and max(layers) == n_layer and shape.architecture not in architectures.LAST_OUTPUT:
        return (
            f"{listens}, and llama.cpp b{architectures.BUILD} cannot listen to what comes out of the last of "
            f"{shape.architecture}: {_other(NAMES[kind])}"
        )
    return None


def _target_layers(pair: Pair) -> list[int]:
    value = pair.keys.raw("target_layers")
    layers = list(value) if isinstance(value, (list, tuple)) else []
    if not all(isinstance(layer, int) and not isinstance(layer, bool) and layer >= 0 for layer in layers):
        raise PoolError(f"{pair.path} has target_layers {value!r:.80}, no numbers of layers: get the file again")
    return layers


def _eagle3(pair: Pair) -> str | None:
    count, blocks = len(_target_layers(pair)), pair.keys.number("block_count")
    if count != EAGLE3_LAYERS or blocks != 1:
        return (
            f"{pair.path} has {blocks} layers and listens to {count} of the target; llama.cpp takes EAGLE-3 drafts of "
            f"1 that listen to {EAGLE3_LAYERS}: {_other('an EAGLE-3')}"
        )
    return _width(pair, pair.keys.number("target_hidden_size"), "an EAGLE-3")


def _block(kind: str, pair: Pair, p_min: float) -> str | None:
    name = NAMES[kind]
    wrong = _width(pair, pair.keys.number("embedding_length"), name)
    if wrong:
        return wrong
    tokenizer = pair.draft.get("tokenizer") or {}
    if "mask_token_id" in tokenizer and tokenizer["mask_token_id"] is None:
        return (
            f"{pair.path} names no mask token (tokenizer.ggml.mask_token_id), and llama-server aborts with the first "
            "draft: convert it again"
        )
    if block_tokens(kind, pair.draft) < 1:
        return f"{pair.path} has blocks of {block_size(pair.draft)} tokens, so nothing is drafted: {_other(name)}"
    confident = pair.keys.raw("has_confidence_head") is not False and "conf_proj.weight" in telling(pair.draft)
    if kind == DSPARK and p_min > 0 and not confident:
        return (
            f"{pair.path} has no confidence head, without which nothing is drafted at relay_draft_p_min {p_min:g}: "
            "set it to 0"
        )
    return None


def _width(pair: Pair, wanted: int, name: str) -> str | None:
    shape, _n_layer = pair.trunk
    if wanted == shape.n_embd:
        return None
    return (
        f"{pair.path} listens to layers of {wanted} values, and those of the target have {shape.n_embd}, at which "
        f"llama-server aborts: {_other(name)}"
    )


def block_size(draft: Mapping[str, Any]) -> int:
    """Tokens in a block of a DFlash or DSpark draft."""
    return keys_of(draft).number("block_size", USUAL_BLOCK_SIZE)


def block_tokens(kind: str, draft: Mapping[str, Any]) -> int:
    """Tokens that a block proposes: in DFlash, and in some DSpark drafts, its first is the last that is known."""
    anchored = kind == DSPARK and keys_of(draft).raw("sample_from_anchor") is not False
    return block_size(draft) - (0 if anchored else 1)


def _other(name: str) -> str:
    return f"use {name} draft that was made for this model, or a draft model"
