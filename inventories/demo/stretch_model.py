# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a deeper GGUF model that says the same: stretch_model.py SOURCE DESTINATION LAYERS.

A transformer layer adds what its attention output and its FFN down projection give to the stream that passes through.
Where both matrices are zero the layer adds nothing, but it is loaded, computed and kept in the KV cache as any other.
So the stretched model is a target that is slow and large enough to be worth sharding and drafting for, and the model
it was made from is a perfect draft.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter

BLOCK_TENSOR = re.compile(r"blk\.(\d+)\.(.+)")

# All-zero bytes are zeros in the types that keep a block as scale times integer (plus minimum), so these matrices
# need no dequantising.
SILENCED = ("attn_output.weight", "ffn_down.weight")


def layer_plan(layers: int, wanted: int) -> list[tuple[int, bool]]:
    """For each layer of the stretched model: the layer it is made from, and whether it is silenced.

    The silenced ones are spread evenly, so that every machine of a pool gets both kinds.
    """
    if wanted < layers:
        raise ValueError(f"the model has {layers} layers already, which is more than {wanted}")
    plan = []
    added = 0
    for layer in range(layers):
        plan.append((layer, False))
        due = (wanted - layers) * (layer + 1) // layers
        plan.extend((layer, True) for _copy in range(due - added))
        added = due
    return plan


def copy_metadata(reader: GGUFReader, writer: GGUFWriter, replaced: dict[str, object]) -> None:
    """Every key of the source, with the values in `replaced` instead of its own."""
    for key, field in reader.fields.items():
        # The writer makes the header fields and the architecture itself.
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = replaced.get(key, field.contents())
        kind = field.types[0]
        if kind == GGUFValueType.ARRAY:
            writer.add_key_value(key, value, kind, sub_type=field.types[-1])
        else:
            writer.add_key_value(key, value, kind)


def stretch(source: Path, destination: Path, wanted: int) -> None:
    """Writes `source` with `wanted` layers to `destination`, which appears only when it is whole."""
    reader = GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    block_count = f"{architecture}.block_count"
    plan = layer_plan(reader.fields[block_count].contents(), wanted)

    partial = destination.with_name(destination.name + ".partial")
    writer = GGUFWriter(partial, architecture)
    copy_metadata(reader, writer, {block_count: wanted})

    blocks: dict[int, dict] = {}
    for tensor in reader.tensors:
        match = BLOCK_TENSOR.fullmatch(tensor.name)
        if match:
            blocks.setdefault(int(match[1]), {})[match[2]] = tensor
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    for index, (layer, silenced) in enumerate(plan):
        for name, tensor in blocks[layer].items():
            data = np.zeros_like(tensor.data) if silenced and name in SILENCED else tensor.data
            writer.add_tensor(f"blk.{index}.{name}", data, raw_dtype=tensor.tensor_type)

    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(partial, destination)
    finally:
        partial.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("destination", type=Path)
    parser.add_argument("layers", type=int)
    options = parser.parse_args()
    try:
        stretch(options.source, options.destination, options.layers)
    except (OSError, ValueError) as error:
        sys.exit(f"stretch_model.py: cannot stretch {options.source} to {options.layers} layers: {error}")


if __name__ == "__main__":
    main()
