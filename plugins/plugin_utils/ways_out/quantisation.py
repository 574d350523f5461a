# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Smaller files of the same model, and what llama-quantize calls them."""

from __future__ import annotations

from typing import Any, Mapping

# Bits per weight of Llama 3.1 8B (tools/quantize/README.md of llama.cpp), least first; other models differ a little.
LADDER = (
    ("IQ1_S", 2.0042), ("IQ1_M", 2.1460), ("IQ2_XXS", 2.3824), ("IQ2_XS", 2.5882), ("IQ2_S", 2.7403),
    ("IQ2_M", 2.9294), ("Q2_K", 3.1593), ("IQ3_XXS", 3.2548), ("IQ3_XS", 3.4977), ("Q3_K_S", 3.6429),
    ("IQ3_S", 3.6606), ("IQ3_M", 3.7628), ("Q3_K_M", 3.9960), ("Q3_K_L", 4.2979), ("IQ4_XS", 4.4597),
    ("Q4_K_S", 4.6672), ("Q4_K_M", 4.8944), ("Q5_K_S", 5.5704), ("Q5_K_M", 5.7036), ("Q6_K", 6.5633),
    ("Q8_0", 8.5008),
)  # fmt: skip
# Without the number of weights no type can be named, and below an eighth of the file there hardly is one.
LEAST_PART = 8
_SCALED = ("token_embd_bytes", "output_bytes", "input_bytes")


def least_bytes(model: Mapping[str, Any]) -> int:
    """Size of the smallest usual file of the model."""
    weights = model.get("parameters")
    if weights:
        return int(weights * LADDER[0][1] / 8) + 1
    return int(model.get("size_bytes") or 0) // LEAST_PART


def scaled(model: Mapping[str, Any], size_bytes: int) -> dict[str, Any]:
    """The gguf_info result of a file of that size, as if every matrix shrank alike."""
    whole = int(model["size_bytes"])
    tensors = dict(model["tensors"])
    tensors["blocks"] = [block * size_bytes // whole for block in tensors["blocks"]]
    for name in _SCALED:
        if tensors.get(name):
            tensors[name] = tensors[name] * size_bytes // whole
    return {**model, "size_bytes": size_bytes, "tensors": tensors}


def described(model: Mapping[str, Any], size_bytes: int) -> str | None:
    """``4.61 bits per weight, such as Q4_K_S``, or None where the number of weights is unknown."""
    weights = model.get("parameters")
    if not weights:
        return None
    bits = size_bytes * 8 / weights
    name = next((name for name, least in reversed(LADDER) if least <= bits), None)
    # Rounded down, since it is a limit.
    return f"{int(bits * 100) / 100:.2f} bits per weight" + (f", such as {name}" if name else "")
