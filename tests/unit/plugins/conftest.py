# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small GGUF files for the tests, written by the reference writer of the gguf package."""

from __future__ import annotations

import os
import struct

import numpy
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFEndian, GGUFWriter
from hypothesis import settings

# The same inputs in every run, so that a change is what turns a test red; HYPOTHESIS_PROFILE=default draws new ones.
settings.register_profile("steady", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


class GgufFactory:
    """Writes small models and damages them."""

    def __init__(self, folder) -> None:
        self.folder = folder

    def model(self, name="m.gguf", arch="llama", tensors=(), keys=(), tokens=None, types=None, big=False, split=0):
        """Writes a model. ``tensors``: (name, shape with the row first, type); ``keys``: (method, key, value)."""
        path = self.folder / name
        writer = GGUFWriter(None, arch, endianess=GGUFEndian.BIG if big else GGUFEndian.LITTLE, split_max_tensors=split)
        for method, key, value in keys:
            getattr(writer, method)(key, value)
        if tokens is not None:
            writer.add_token_list(tokens)
        if types is not None:
            writer.add_token_types(types)
        for tensor_name, shape, type_name in tensors:
            kind = GGMLQuantizationType[type_name]
            block_elements, block_bytes = GGML_QUANT_SIZES[kind]
            rows = tuple(reversed(shape[1:]))
            data = numpy.zeros((*rows, shape[0] // block_elements * block_bytes), dtype=numpy.uint8)
            writer.add_tensor(tensor_name, data, raw_dtype=kind)
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    @staticmethod
    def set_type(path, tensor, number) -> None:
        """Overwrites the type number of a tensor in a little-endian file."""
        data = bytearray(path.read_bytes())
        place = data.index(struct.pack("<Q", len(tensor)) + tensor.encode()) + 8 + len(tensor)
        n_dims = struct.unpack_from("<I", data, place)[0]
        struct.pack_into("<I", data, place + 4 + 8 * n_dims, number)
        path.write_bytes(data)

    def raw(self, body: bytes, n_tensors=0, n_keys=0, version=3, name="raw.gguf"):
        """Writes a little-endian header by hand."""
        path = self.folder / name
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_keys) + body)
        return path


@pytest.fixture
def gguf_factory(tmp_path):
    """Writes small GGUF files into the test's own folder."""
    return GgufFactory(tmp_path)
