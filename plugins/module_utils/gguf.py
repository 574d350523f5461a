# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the header of one GGUF file: metadata, tensor list, and the sizes that follow from them.

Versions 2 and 3, both byte orders. Tensor data is never read, and the long arrays of the vocabulary are stepped over,
or handed piece by piece to a listener, so the memory that is needed does not grow with the file.
Every count and length is held against the bytes that are left in the file before it is used.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

from ansible_collections.relay.pool.plugins.module_utils.ggml_types import REMOVED, TYPES
from ansible_collections.relay.pool.plugins.module_utils.gguf_foreign import describe_foreign
from ansible_collections.relay.pool.plugins.module_utils.gguf_reader import GgufError, Reader

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
# The limits of llama.cpp (GGML_MAX_NAME, GGML_MAX_DIMS); a file beyond them does not load there.
MAX_NAME_BYTES = 64
MAX_DIMENSIONS = 4
# What is kept in memory; everything longer is stepped over.
MAX_KEPT_TEXT_BYTES = 65536
MAX_KEPT_ELEMENTS = 4096
# No key and no vocabulary comes near; a number beyond is a damaged file.
MAX_KEY_BYTES = 65535
MAX_ARRAY_TEXTS = 1 << 21
# How many elements a listener gets at once.
BATCH_TEXTS = 4096
BATCH_NUMBERS = 65536

STRING, ARRAY = 8, 9
# value type -> (struct code, bytes)
SCALARS = {
    0: ("B", 1), 1: ("b", 1), 2: ("H", 2), 3: ("h", 2), 4: ("I", 4), 5: ("i", 4), 6: ("f", 4), 7: ("B", 1),
    10: ("Q", 8), 11: ("q", 8), 12: ("d", 8),
}  # fmt: skip
BOOL, INT32, UINT32 = 7, 5, 4


@dataclass(frozen=True)
class Tensor:
    """One entry of the tensor list; ``shape`` is in llama.cpp's order, the row length first."""

    name: str
    shape: tuple
    type_number: int
    offset: int
    size_bytes: int

    @property
    def elements(self) -> int:
        """How many numbers the tensor holds."""
        count = 1
        for length in self.shape:
            count *= length
        return count


@dataclass
class Header:
    """What one GGUF file says about itself."""

    path: str
    size_bytes: int
    version: int = 0
    byte_order: str = "little"
    metadata: dict = field(default_factory=dict)
    value_types: dict = field(default_factory=dict)
    array_lengths: dict = field(default_factory=dict)
    tensors: list = field(default_factory=list)
    data_offset: int = 0

    def integer(self, key: str, default=None):
        """The value of ``key`` when it is an integer, else ``default``."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def text(self, key: str, default=None):
        """The value of ``key`` when it is text, else ``default``."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else default


class ArrayListener:
    """Hears one array of the header while it is read: ``begin`` once, then ``feed`` for each piece."""

    def begin(self, value_type: int, count: int) -> None:
        """The array is about to come: its element type and length. May raise ValueError to refuse it."""

    def feed(self, values) -> None:
        """The next elements: a list of bytes for texts, an ``array.array`` for numbers."""


def _read_array(reader: Reader, header: Header, key: str, listener) -> None:
    value_type = reader.u32(f"'{key}'")
    count = reader.u64(f"'{key}'")
    if value_type == ARRAY:
        raise reader.fail(f"'{key}' is an array of arrays, which llama.cpp does not load: convert the model again")
    if value_type != STRING and value_type not in SCALARS:
        raise reader.fail(f"'{key}' is an array of the unknown value type {value_type}: the file is damaged or too new")
    code, width = SCALARS.get(value_type, ("", 8))
    if count * width > reader.remaining or (value_type == STRING and count > MAX_ARRAY_TEXTS):
        raise reader.fail(
            f"'{key}' claims {count} entries, but only {reader.remaining} bytes follow: the download is cut or"
            " the file is damaged, fetch it again"
        )
    header.value_types[key] = (ARRAY, value_type)
    header.array_lengths[key] = count
    if listener is not None:
        try:
            listener.begin(value_type, count)
        except ValueError as exc:
            raise reader.fail(f"'{key}' {exc}") from exc
    if value_type == STRING:
        if listener is None:
            reader.texts(count, key, keep=False)
            return
        for start in range(0, count, BATCH_TEXTS):
            listener.feed(reader.texts(min(BATCH_TEXTS, count - start), key, keep=True))
    elif listener is not None:
        for start in range(0, count, BATCH_NUMBERS):
            listener.feed(reader.numbers(code, width, min(BATCH_NUMBERS, count - start), key))
    elif count <= MAX_KEPT_ELEMENTS and not key.startswith("tokenizer."):
        values = reader.numbers(code, width, count, key)
        header.metadata[key] = [bool(value) for value in values] if value_type == BOOL else list(values)
    else:
        reader.skip(count * width, f"'{key}'")


def _read_metadata(reader: Reader, header: Header, count: int, listeners: dict) -> None:
    for _index in range(count):
        key = reader.short_text("a metadata key", MAX_KEY_BYTES)
        if not key:
            raise reader.fail(f"a metadata key before offset {reader.position} is empty: the file is damaged")
        if key in header.value_types:
            raise reader.fail(f"the metadata key '{key}' stands there twice: the file is damaged")
        value_type = reader.u32(f"'{key}'")
        if value_type == ARRAY:
            _read_array(reader, header, key, listeners.get(key))
            continue
        header.value_types[key] = (value_type, None)
        if value_type == STRING:
            length = reader.u64(f"'{key}'")
            if length > MAX_KEPT_TEXT_BYTES:
                reader.skip(length, f"'{key}'")  # a chat template or a licence, of no use to a plan
            else:
                header.metadata[key] = reader.take(length, f"'{key}'").decode("utf-8", "replace")
        elif value_type in SCALARS:
            value = reader.number(*SCALARS[value_type], what=f"'{key}'")
            header.metadata[key] = bool(value) if value_type == BOOL else value
        else:
            raise reader.fail(f"'{key}' has the unknown value type {value_type}: the file is damaged or too new")


def _read_tensor_list(reader: Reader, count: int) -> list:
    """The raw entries (name, shape, type number, offset)."""
    entries, seen = [], set()
    for _index in range(count):
        name = reader.short_text("a tensor name", MAX_NAME_BYTES - 1)
        if name in seen:
            raise reader.fail(f"the tensor '{name}' stands there twice: the file is damaged")
        seen.add(name)
        n_dims = reader.u32(f"tensor '{name}'")
        if n_dims > MAX_DIMENSIONS:
            raise reader.fail(f"tensor '{name}' has {n_dims} dimensions, at most {MAX_DIMENSIONS} are possible")
        shape = tuple(reader.u64(f"tensor '{name}'") for _dim in range(n_dims)) or (1,)
        elements = 1
        for length in shape:
            elements *= max(length, 1)
        if elements > 2**63 - 1:
            raise reader.fail(f"tensor '{name}' has the impossible shape {list(shape)}: the file is damaged")
        type_number = reader.u32(f"tensor '{name}'")
        entries.append((name, shape, type_number, reader.u64(f"tensor '{name}'")))
    return entries


def _known_size_bytes(reader: Reader, name: str, shape: tuple, type_number: int):
    """Bytes of a tensor of a known type, None for a type that is not known yet."""
    if type_number in REMOVED:
        old, new = REMOVED[type_number]
        raise reader.fail(
            f"tensor '{name}' has the type {old} ({type_number}), which llama.cpp removed: quantise the model again"
            f" as {new}"
        )
    kind = TYPES.get(type_number)
    if kind is None:
        return None
    if shape[0] % kind.block_elements:
        raise reader.fail(
            f"tensor '{name}' of type {kind.name} has rows of {shape[0]} elements, no multiple of"
            f" {kind.block_elements}: the file is damaged"
        )
    size_bytes = kind.row_bytes(shape[0])
    for length in shape[1:]:
        size_bytes *= length
    return size_bytes


def _place_tensors(reader: Reader, header: Header, entries: list, alignment: int) -> None:
    """Sizes from types or, for an unknown type, from the offsets; refuses what does not lie in the file."""
    header.data_offset = -(-reader.position // alignment) * alignment
    available = header.size_bytes - header.data_offset
    expected = 0
    for index, (name, shape, type_number, offset) in enumerate(entries):
        if offset != expected:
            raise reader.fail(
                f"tensor '{name}' lies at offset {offset} of the data, where llama.cpp wants {expected}: the file is"
                " damaged, fetch or convert it again"
            )
        size_bytes = _known_size_bytes(reader, name, shape, type_number)
        if size_bytes is None:
            # An unknown type reaches to where the next tensor begins, or to the end of the file.
            following = entries[index + 1][3] if index + 1 < len(entries) else max(available, offset)
            if following < offset:
                raise reader.fail(f"tensor '{name}' ends before it begins: the file is damaged")
            size_bytes, expected = following - offset, following
        else:
            expected = offset + -(-size_bytes // alignment) * alignment
        if offset + size_bytes > available:
            raise reader.fail(
                f"the file has {header.size_bytes} bytes, but tensor '{name}' ends at"
                f" {header.data_offset + offset + size_bytes}: the download is cut, fetch it again"
            )
        header.tensors.append(Tensor(name, shape, type_number, offset, size_bytes))


def _read_version(reader: Reader, header: Header) -> None:
    raw = reader.take(4, "the version")
    # The byte order is written nowhere; a small number in one order is a huge one in the other.
    little = int.from_bytes(raw, "little")
    header.byte_order = reader.order = "little" if little & 0xFFFF else "big"
    header.version = int.from_bytes(raw, reader.order)
    if header.version not in VERSIONS:
        hint = "convert the model again" if header.version < min(VERSIONS) else "the file is damaged or too new"
        raise reader.fail(f"GGUF version {header.version} is not one of {VERSIONS[0]} and {VERSIONS[1]}: {hint}")


def _read(reader: Reader, header: Header, listeners: dict) -> Header:
    foreign = describe_foreign(reader.handle.read(512), header.size_bytes)
    if foreign:
        raise reader.fail(foreign)
    reader.handle.seek(0)
    reader.take(len(MAGIC), "the magic")
    _read_version(reader, header)
    n_tensors = reader.u64("the tensor count")
    n_keys = reader.u64("the key count")
    # The shortest key-value pair is 13 bytes, the shortest tensor entry 24.
    if n_keys * 13 + n_tensors * 24 > reader.remaining:
        raise reader.fail(
            f"the header claims {n_keys} keys and {n_tensors} tensors, but only {reader.remaining} bytes follow: the"
            " download is cut or the file is damaged, fetch it again"
        )
    _read_metadata(reader, header, n_keys, listeners)
    alignment = header.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if header.value_types.get("general.alignment", (UINT32, None)) != (UINT32, None) or (
        alignment <= 0 or alignment & (alignment - 1)
    ):
        raise reader.fail(f"general.alignment is {alignment}, no power of two: the file is damaged")
    entries = _read_tensor_list(reader, n_tensors)
    if entries:
        _place_tensors(reader, header, entries, alignment)
    return header


def read_header(path: str, listeners=None) -> Header:
    """Reads the header of the GGUF file ``path``.

    ``listeners`` maps metadata keys to :class:`ArrayListener` objects that hear those arrays.
    Raises :class:`GgufError` for anything that is no usable GGUF file.
    """
    try:
        try:
            info = os.stat(path)
        except ValueError as exc:  # a NUL byte, or half a character
            raise GgufError(f"{path!r} is no path: {exc}.") from exc
        if not stat.S_ISREG(info.st_mode):
            kind = "a directory" if stat.S_ISDIR(info.st_mode) else "no regular file"
            raise GgufError(f"{path}: this is {kind}: give the path of a .gguf file.")
        with open(path, "rb") as handle:
            header = Header(path=path, size_bytes=info.st_size)
            return _read(Reader(handle, info.st_size, path), header, listeners or {})
    except OSError as exc:
        hint = "check the path" if isinstance(exc, FileNotFoundError) else "check its permissions and its disk"
        raise GgufError(f"{path}: {exc.strerror or exc}: {hint}.") from exc
