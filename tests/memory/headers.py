# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a GGUF whose header is that of a real model and whose weights are a hole in a sparse file.

There is mostly no vocabulary in it, only its size: llama.cpp reads such a file, and two hundred thousand tokens would
take longer than everything else. A server that is to answer wants one.
"""

from __future__ import annotations

import math
from pathlib import Path

import gguf
import numpy

from tests.memory.parts import Shape
from tests.tiny.writer import Vocabulary, put, put_vocabulary

ALIGNMENT = 32
# What llama-quantize leaves in 32 bits, by a part of the name; vectors and norms are left as well.
LEFT = (
    "norm", "ffn_gate_inp", "conv", "ssm_a", "ssm_d", "ssm_x", "ssm_dt", "lerp", "time_mix_w0", "time_mix_a0", "rope_",
    "time_mix_first", "altup", "laurel", "inp_gate", "sinks", "position_embd", "hc_", "time_mix_w1", "time_mix_w2",
    "time_mix_a1", "time_mix_a2", "time_mix_v1", "time_mix_v2", "time_mix_g1", "time_mix_g2", "time_mix_r_k", "k_k",
)  # fmt: skip
FALLBACK = {"Q4_K": "Q5_0", "Q6_K": "Q8_0", "MXFP4": "F16"}


def tensor_type(shape: Shape, name: str, dims: tuple[int, ...]) -> gguf.GGMLQuantizationType:
    """The type that a file of four bits per weight has for this tensor."""
    if len(dims) == 1 or any(part in name for part in LEFT):
        return gguf.GGMLQuantizationType.F32
    wanted = shape.quantised
    if name in ("token_embd.weight", "output.weight", "per_layer_token_embd.weight"):
        wanted = "Q6_K"
    elif wanted == "MXFP4" and "_exps" not in name:
        wanted = "Q8_0"
    for choice in (wanted, FALLBACK.get(wanted, "F16"), "F16"):
        found = gguf.GGMLQuantizationType[choice]
        if dims[0] % gguf.GGML_QUANT_SIZES[found][0] == 0:
            return found
    raise ValueError(f"{name} has rows of {dims[0]} values, for which there is no type")


def write_header(shape: Shape, path: Path, vocabulary: Vocabulary | None = None) -> None:
    """Write the file; it takes no more room on the disk than its header."""
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_name(shape.name)
    if vocabulary:
        put_vocabulary(writer, vocabulary)
    else:
        writer.add_tokenizer_model("no_vocab")
        writer.add_vocab_size(shape.vocab)
    for key, value in shape.keys.items():
        put(writer, f"{shape.architecture}.{key}", value)
    total = 0
    for name, dims in shape.tensors.items():
        kind = tensor_type(shape, name, dims)
        per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        size = math.prod(dims) // per_block * block_bytes
        rows = tuple(reversed(dims))
        if name == "d2t":
            size = math.prod(dims) * 8
            writer.add_tensor_info(name, rows, numpy.dtype(numpy.int64), size)
        elif kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
            dtype = numpy.dtype(numpy.float32 if kind == gguf.GGMLQuantizationType.F32 else numpy.float16)
            writer.add_tensor_info(name, rows, dtype, size)
        else:
            # the library wants the shape in bytes
            in_bytes = (*rows[:-1], dims[0] // per_block * block_bytes)
            writer.add_tensor_info(name, in_bytes, numpy.dtype(numpy.uint8), size, raw_dtype=kind)
        total += -(-size // ALIGNMENT) * ALIGNMENT
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with open(path, "r+b") as file:
        header = -(-path.stat().st_size // ALIGNMENT) * ALIGNMENT
        file.truncate(header + total)
