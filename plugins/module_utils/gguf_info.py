# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the headers of a GGUF model to the fact ``gguf``: sizes per block, what stays on the CPU, the tokenizer.

Where llama.cpp puts a tensor follows from LLM_TENSOR_INFOS in llama-arch.cpp: the input layer stays on the CPU, the
output layer goes with the last device, everything else goes with its block. Some tensors without a block number in
their name belong to block 0 all the same.
"""

from __future__ import annotations

import math
import re

from ansible_collections.relay.pool.plugins.module_utils.ggml_types import TYPES, type_name
from ansible_collections.relay.pool.plugins.module_utils.gguf import ARRAY, Header
from ansible_collections.relay.pool.plugins.module_utils.gguf_files import ModelFiles, read_files
from ansible_collections.relay.pool.plugins.module_utils.gguf_source import GgufError, open_local, shown
from ansible_collections.relay.pool.plugins.module_utils.tokenizer import TokenizerListener, tokenizer_facts
from ansible_collections.relay.pool.plugins.module_utils.tokenizer_compare import compare_files

MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
MAX_FACT_TEXT = 4096  # characters; a longer text has no place in a fact

BLOCK_NAME = re.compile(r"^(?:enc\.|dec\.)?blk\.([0-9]+)\.")
# Matrices of all routed experts in one tensor (GGML_OP_MUL_MAT_ID in llama-arch.cpp), with their biases and scales.
EXPERT_NAME = re.compile(r"^(?:enc\.|dec\.)?blk\.[0-9]+\.ffn_(?:gate|up|gate_up|down)_(?:ch)?exps\.(\w+)$")
INPUT_NAMES = frozenset(("token_embd", "position_embd", "token_types", "per_layer_token_embd"))
# Repeating tensors without a number: llama.cpp creates them for block 0.
FIRST_BLOCK_NAMES = frozenset(
    ("token_embd_norm", "per_layer_model_proj", "per_layer_proj_norm", "conv1d", "nextn.pre_projection", "hrm_z_l_init")
)
ROPE_NAMES = frozenset(("rope_freqs", "rope_factors_long", "rope_factors_short"))
# llama.cpp has no operation for them and leaves them out.
UNUSED_NAMES = frozenset(("masked_embd_centroids", "masked_embd_ordering"))
DRAFT_HEADS = frozenset(("eagle3", "dflash", "gemma4-assistant"))
# What a file can do hangs on whether these are in it: DSpark's heads, and a table with a row for every position.
TELLING_NAMES = ("conf_proj.weight", "markov_w1.weight", "position_embd.weight")


def role_of(header: Header, names) -> str:
    """What the file is for: ``model``, ``adapter``, ``mmproj``, ``vocab`` or ``draft_head``."""
    kind = (header.text("general.type") or "").lower()
    architecture = header.text("general.architecture") or ""
    if kind == "adapter" or "adapter.type" in header.value_types or architecture == "controlvector":
        return "adapter"
    if kind == "mmproj" or architecture == "clip":
        return "mmproj"
    if not names:
        return "vocab"
    # A multi-token-prediction head in a file of its own: the blocks before it are those of its target.
    is_head = any(name.endswith(".nextn.eh_proj.weight") for name in names)
    if architecture in DRAFT_HEADS or (is_head and not any(name.startswith("blk.0.") for name in names)):
        return "draft_head"
    return "model"


def _place(name: str, architecture: str, n_blocks: int):
    """Where a tensor goes: a block number, or one of the words below."""
    match = BLOCK_NAME.match(name)
    if match and int(match.group(1)) < n_blocks:
        return int(match.group(1))
    base = re.sub(r"\.(?:weight|bias|scale|input_scale)$", "", name)
    # LFM2 calls its output norm token_embd_norm.
    if base in ("output_norm", "enc.output_norm", "dec.output_norm") or (
        base == "token_embd_norm" and architecture.startswith("lfm2")
    ):
        return "output_norm"
    if base == "output":
        return "output"
    for place, bases in (("input", INPUT_NAMES), ("rope", ROPE_NAMES), ("unused", UNUSED_NAMES)):
        if base in bases:
            return place
    if base in FIRST_BLOCK_NAMES and n_blocks:
        return 0
    return "other"


def _block_count(header: Header, names, architecture: str, path: str) -> int:
    count = header.integer(f"{architecture}.block_count")
    if count is None:
        matches = [BLOCK_NAME.match(name) for name in names]
        count = 1 + max((int(match.group(1)) for match in matches if match), default=-1)
    if not 0 <= count <= MAX_LAYERS:
        raise GgufError(f"{path}: it claims {count} blocks, llama.cpp takes at most {MAX_LAYERS}: the file is damaged.")
    return count


def _padding_bytes(tensor) -> int:
    kind = TYPES.get(tensor.type_number)
    return kind.padding_bytes(tensor.shape[0]) if kind else 0


def _expert_bytes(tensor) -> tuple:
    """(bytes of all routed experts, bytes of one of them); (0, 0) of a tensor that is not stacked by expert."""
    match = EXPERT_NAME.match(tensor.name)
    if not match:
        return 0, 0
    # The experts are the last dimension, which a file leaves out if there is one.
    last = {"weight": 2, "bias": 1}.get(match.group(1), 0)
    count = tensor.shape[last] if len(tensor.shape) > last else 1
    return tensor.size_bytes, -(-tensor.size_bytes // max(count, 1))


def tensor_facts(files: ModelFiles, architecture: str) -> dict:
    """The fact ``gguf.tensors``, all numbers in bytes and over all shards."""
    tensors = files.tensors
    names = {tensor.name for tensor in tensors}
    n_blocks = _block_count(files.first, names, architecture, files.path)
    # Encoders of the BERT family have no output matrix; everything else takes the token embedding in its place.
    tied = "output.weight" not in names and "token_embd.weight" in names and "bert" not in architecture
    blocks, padding, experts, expert = ([0] * n_blocks for _field in range(4))
    sums = dict.fromkeys(("input", "output", "output_norm", "rope", "unused", "other"), 0)
    output_padding = token_embd_bytes = output_bytes = 0
    types: dict = {}
    for tensor in tensors:
        name = type_name(tensor.type_number)
        types[name] = types.get(name, 0) + tensor.size_bytes
        if tensor.name == "output.weight":
            output_bytes = tensor.size_bytes
        place = _place(tensor.name, architecture, n_blocks)
        if isinstance(place, int):
            blocks[place] += tensor.size_bytes
            padding[place] += _padding_bytes(tensor)
            stacked, single = _expert_bytes(tensor)
            experts[place] += stacked
            expert[place] += single
        else:
            sums[place] += tensor.size_bytes
        if tensor.name == "token_embd.weight":
            token_embd_bytes = tensor.size_bytes
        if place in ("output", "output_norm", "other") or (tied and tensor.name == "token_embd.weight"):
            output_padding += _padding_bytes(tensor)
    return {
        "count": len(tensors),
        "bytes": sum(tensor.size_bytes for tensor in tensors),
        "blocks": blocks,
        "experts": experts,
        "expert": expert,
        "token_embd_bytes": token_embd_bytes,
        "input_bytes": sums["input"],
        "output_bytes": output_bytes,
        "output_norm_bytes": sums["output_norm"],
        # An output bias counts with what else lies on the output's device.
        "other_bytes": sums["other"] + sums["output"] - output_bytes,
        "rope_freqs_bytes": sums["rope"],
        "unused_bytes": sums["unused"],
        "tied": tied,
        "types": dict(sorted(types.items())),
        "unknown_types": sorted({tensor.type_number for tensor in tensors} - set(TYPES)),
        "nextn_blocks": [block for block in range(n_blocks) if f"blk.{block}.nextn.eh_proj.weight" in names],
        "telling": [name for name in TELLING_NAMES if name in names],
        "row_padding": {"512": padding, "512_output": output_padding},
    }


def _finite(value):
    """JSON has no word for infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def metadata_facts(header: Header) -> dict:
    """Every scalar and every short numeric array, without the tokenizer's."""
    facts = {}
    for key, value in header.metadata.items():
        if key.startswith("tokenizer.") or (isinstance(value, str) and len(value) > MAX_FACT_TEXT):
            continue
        facts[key] = [_finite(entry) for entry in value] if isinstance(value, list) else _finite(value)
    return facts


def gguf_facts(path: str, opener=open_local) -> dict:
    """The fact ``gguf`` of the model that ``path`` belongs to, with ``comparison`` null."""
    heard = TokenizerListener()
    files = read_files(path, heard.listeners, opener)
    header = files.first
    for key, kinds in header.value_types.items():
        if kinds == (ARRAY, ARRAY):
            raise GgufError(
                f"{header.path}: '{shown(key)}' is an array of arrays, which llama.cpp does not load: convert the model"
                " again."
            )
    architecture = header.text("general.architecture")
    if not architecture:
        kind = shown(header.text("general.type") or "unknown")
        raise GgufError(
            f"{header.path}: it names no general.architecture and is of the type '{kind}', so it is no model: give the"
            " path of a model."
        )
    tensors = files.tensors
    return {
        "path": files.path,
        "files": [{"path": entry.path, "size_bytes": entry.size_bytes} for entry in files.headers],
        "missing": list(files.missing),
        "size_bytes": files.size_bytes,
        "version": header.version,
        "byte_order": header.byte_order,
        "architecture": architecture,
        "name": header.text("general.name"),
        "role": role_of(header, {tensor.name for tensor in tensors}),
        "file_type": header.integer("general.file_type"),
        "parameters": sum(tensor.elements for tensor in tensors),
        "metadata": metadata_facts(header),
        "tensors": tensor_facts(files, architecture),
        "tokenizer": tokenizer_facts(header, heard),
        "comparison": None,
    }


def describe(path: str, compare_with=None, opener=open_local, compare_as: str = "draft") -> dict:
    """The fact ``gguf`` of ``path``; with ``compare_with``, whether that model can be its draft.

    ``compare_as``: ``target`` when it is the other way round, and ``path`` is to be the draft.
    """
    facts = gguf_facts(path, opener)
    if compare_with:
        pair = [facts, gguf_facts(compare_with, opener)]
        target, draft = pair[::-1] if compare_as == "target" else pair
        facts["comparison"] = compare_files(target, draft, opener)
    return facts
