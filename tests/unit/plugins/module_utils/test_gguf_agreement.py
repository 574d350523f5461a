# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reader against the reader of the gguf package, on whatever the writer of the gguf package can write."""

from __future__ import annotations

import itertools
import struct
import tempfile
from pathlib import Path

import numpy
from ansible_collections.relay.pool.plugins.module_utils.gguf import ARRAY, STRING, ArrayListener, read_header
from ansible_collections.relay.pool.plugins.module_utils.gguf_files import read_files
from gguf import (
    GGML_QUANT_SIZES,
    GGMLQuantizationType,
    GGUFEndian,
    GGUFReader,
    GGUFValueType,
    GGUFWriter,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Of a block of Q8_1 the package thinks that it has 40 bytes, while it has 36 in ggml-common.h. No file has this type.
TYPES = sorted(set(GGML_QUANT_SIZES) - {GGMLQuantizationType.Q8_1})

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=15)


def is_free(name):
    """Whether a key may have any value."""
    return name != "general.alignment" and not name.startswith("split.")


def whole(bits, signed):
    return st.integers(-(2 ** (bits - 1)) if signed else 0, 2 ** (bits - signed) - 1)


VALUES = {
    GGUFValueType.UINT8: whole(8, False),
    GGUFValueType.INT8: whole(8, True),
    GGUFValueType.UINT16: whole(16, False),
    GGUFValueType.INT16: whole(16, True),
    GGUFValueType.UINT32: whole(32, False),
    GGUFValueType.INT32: whole(32, True),
    GGUFValueType.FLOAT32: st.floats(width=32, allow_nan=False),
    GGUFValueType.BOOL: st.booleans(),
    GGUFValueType.STRING: TEXT,
    GGUFValueType.UINT64: whole(64, False),
    GGUFValueType.INT64: whole(64, True),
    GGUFValueType.FLOAT64: st.floats(allow_nan=False),
}
# The writer finds out the type of what is in an inner array, and knows these; the reader takes all for the first one's.
INNER = (GGUFValueType.INT32, GGUFValueType.FLOAT32, GGUFValueType.BOOL, GGUFValueType.STRING)


@st.composite
def entries(draw):
    """(value, type, type of the elements) of one key."""
    kind = draw(st.sampled_from([*VALUES, GGUFValueType.ARRAY]))
    if kind != GGUFValueType.ARRAY:
        return draw(VALUES[kind]), kind, None
    element = draw(st.sampled_from([*VALUES, GGUFValueType.ARRAY]))
    if element == GGUFValueType.ARRAY:
        innermost = st.lists(VALUES[draw(st.sampled_from(INNER))], min_size=1, max_size=4)
        nested = st.lists(innermost, min_size=1, max_size=3)
        return draw(st.one_of(nested, st.lists(nested, min_size=1, max_size=2))), kind, None
    return draw(st.lists(VALUES[element], min_size=1, max_size=20)), kind, element


@st.composite
def tensors(draw):
    """(type, shape with the row first) of one tensor."""
    kind = draw(st.sampled_from(TYPES))
    row = GGML_QUANT_SIZES[kind][0] * draw(st.integers(1, 3))
    return kind, [row, *draw(st.lists(st.integers(1, 4), max_size=3))]


MODELS = st.fixed_dictionaries(
    {
        "keys": st.dictionaries(NAMES.filter(is_free), entries(), max_size=12),
        "tensors": st.dictionaries(NAMES, tensors(), max_size=8),
        "big": st.booleans(),
        "version": st.sampled_from([2, 3]),
        "alignment": st.sampled_from([None, 8, 16, 32, 64, 4096]),
        "split": st.sampled_from([0, 0, 1, 3]),
    }
)


def write(folder, keys, tensors, big, version, alignment, split):
    """The files of a model, the first shard first."""
    order = GGUFEndian.BIG if big else GGUFEndian.LITTLE
    writer = GGUFWriter(None, "llama", endianess=order, split_max_tensors=split)
    if alignment and not split:  # the writer tells it to the first shard only, and cannot read the others then
        writer.add_custom_alignment(alignment)
    for key, (value, kind, element) in keys.items():
        writer.add_key_value(key, value, kind, element)
    for name, (kind, shape) in tensors.items():
        block_elements, block_bytes = GGML_QUANT_SIZES[kind]
        data = numpy.zeros((*reversed(shape[1:]), shape[0] // block_elements * block_bytes), dtype=numpy.uint8)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file(folder / "m.gguf")
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    paths = sorted(folder.iterdir())
    for path in paths:
        with path.open("r+b") as handle:
            handle.seek(4)
            handle.write(struct.pack(">I" if big else "<I", version))
    return paths


class Texts(ArrayListener):
    """Keeps an array of texts."""

    def __init__(self):
        self.kept = []

    def feed(self, values):
        self.kept += [text.decode() for text in values.texts()] if hasattr(values, "texts") else values


def flat(value):
    """A list without lists in it, as the package gives it."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return flat(list(itertools.chain.from_iterable(value)))
    return value


def check_file(path, big, version):
    oracle = GGUFReader(path)
    expected = {key: field for key, field in oracle.fields.items() if not key.startswith("GGUF.")}
    listeners = {
        key: Texts() for key, field in expected.items() if field.types == [GGUFValueType.ARRAY, GGUFValueType.STRING]
    }
    header = read_header(str(path), listeners)
    assert (header.version, header.byte_order) == (version, "big" if big else "little")
    assert list(header.value_types) == list(expected)
    for key, field in expected.items():
        kind, element = header.value_types[key]
        assert kind == field.types[0]
        if kind == ARRAY:
            assert element == field.types[1]
        if (kind, element) == (ARRAY, STRING):
            assert header.array_lengths[key] == len(field.data)
            assert listeners[key].kept == field.contents()
        else:
            ours = flat(header.metadata[key])
            assert ours == field.contents()
            assert {type(value) for value in (ours if isinstance(ours, list) else [ours])} == {
                type(value) for value in (field.contents() if kind == ARRAY else [field.contents()])
            }
    assert [
        (tensor.name, list(tensor.shape), tensor.type_number, tensor.size_bytes, header.data_offset + tensor.offset)
        for tensor in header.tensors
    ] == [(t.name, t.shape.tolist(), int(t.tensor_type), int(t.n_bytes), int(t.data_offset)) for t in oracle.tensors]
    assert [tensor.elements for tensor in header.tensors] == [int(t.n_elements) for t in oracle.tensors]
    return header


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(MODELS)
def test_both_readers_see_the_same(model):
    with tempfile.TemporaryDirectory() as name:
        paths = write(Path(name), **model)
        headers = [check_file(path, model["big"], model["version"]) for path in paths]
        files = read_files(str(paths[-1]))
        assert [header.path for header in files.headers] == [str(path) for path in paths]
        assert files.tensors == [tensor for header in headers for tensor in header.tensors]
        assert files.size_bytes == sum(path.stat().st_size for path in paths)


def test_every_type_of_the_package_is_among_them():
    assert set(VALUES) == set(GGUFValueType) - {GGUFValueType.ARRAY}
    with tempfile.TemporaryDirectory() as name:
        known = {kind.name: (kind, [GGML_QUANT_SIZES[kind][0], 2]) for kind in TYPES}
        paths = write(Path(name), {}, known, big=False, version=3, alignment=None, split=0)
        assert len(check_file(paths[0], False, 3).tensors) == len(GGMLQuantizationType) - 1
