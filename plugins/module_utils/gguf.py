# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the header of one GGUF file: metadata, tensor list, and the sizes that follow from them.

Versions 2 and 3, both byte orders. Tensor data is never read, and the long arrays of the vocabulary are stepped over,
or handed piece by piece to a listener, so the memory that is needed does not grow with the file.
Every count and length is held against the bytes that are left in the file before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ansible_collections.relay.pool.plugins.module_utils.ggml_types import REMOVED, TYPES
from ansible_collections.relay.pool.plugins.module_utils.gguf_foreign import describe_foreign
from ansible_collections.relay.pool.plugins.module_utils.gguf_reader import Reader
from ansible_collections.relay.pool.plugins.module_utils.gguf_source import open_local, shown

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
# The limits of llama.cpp (GGML_MAX_NAME, GGML_MAX_DIMS); a file beyond them does not load there.
MAX_NAME_BYTES = 64
MAX_DIMENSIONS = 4
# What is kept in memory; everything longer is stepped over.
MAX_KEPT_TEXT_BYTES = 65536
MAX_KEPT_ELEMENTS = 4096
# No model comes near these; what is beyond is a damaged file, or one that is made to take memory and time.
MAX_KEY_BYTES = 65535
MAX_TENSORS = 1 << 15  # llama.cpp takes 512 blocks
MAX_KEPT_BYTES = 1 << 23  # of all keys and values together
MAX_ENTRIES = 1 << 21  # of all arrays of texts together; the largest vocabularies have half a million merges
MAX_HEARD_ENTRIES = 1 << 20  # of an array that a listener hears; the largest vocabularies have 262 144 tokens
MAX_HEARD_BYTES = 1 << 26  # of all arrays that a listener hears
MAX_DEPTH = 4  # of arrays in arrays
# What a key and an element take in memory, about.
KEY_BYTES, ELEMENT_BYTES = 256, 64
# How many elements a listener gets at once.
BATCH_TEXTS = 4096
BATCH_NUMBERS = 65536

STRING, ARRAY = 8, 9
# value type -> (struct code, bytes), and the shortest an element of an array can be
SCALARS = {
    0: ("B", 1), 1: ("b", 1), 2: ("H", 2), 3: ("h", 2), 4: ("I", 4), 5: ("i", 4), 6: ("f", 4), 7: ("B", 1),
    10: ("Q", 8), 11: ("q", 8), 12: ("d", 8),
}  # fmt: skip
BOOL, INT32, UINT32 = 7, 5, 4
SHORTEST = {STRING: 8, ARRAY: 12}


class Tensor(NamedTuple):
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

    def text_runs(self, count: int):
        """In pieces of how many texts the array is wanted; they sum up to ``count``."""
        return (min(BATCH_TEXTS, count - start) for start in range(0, count, BATCH_TEXTS))

    def feed(self, values) -> None:
        """The next elements: a :class:`TextRun` for texts, an ``array.array`` for numbers."""


class _Parser:
    """Reads the metadata, and counts what that takes."""

    def __init__(self, reader: Reader, header: Header, listeners: dict) -> None:
        self.reader = reader
        self.header = header
        self.listeners = listeners
        self.kept_bytes = 0
        self.heard_bytes = 0
        self.entries = 0

    def _keep(self, n_bytes: int, what: str) -> None:
        self.kept_bytes += n_bytes
        if self.kept_bytes > MAX_KEPT_BYTES:
            raise self.reader.fail(
                f"the metadata up to {what} takes more than {MAX_KEPT_BYTES} bytes: the file is damaged, fetch it again"
            )

    def _hear(self, n_bytes: int, what: str) -> None:
        self.heard_bytes += n_bytes
        if self.heard_bytes > MAX_HEARD_BYTES:
            raise self.reader.fail(
                f"the vocabulary up to {what} takes more than {MAX_HEARD_BYTES} bytes: the file is damaged, fetch it"
                " again"
            )

    def metadata(self, count: int) -> None:
        """All ``count`` pairs of key and value, into the header."""
        reader, header = self.reader, self.header
        for _index in range(count):
            key = reader.short_text("a metadata key", MAX_KEY_BYTES)
            if not key:
                raise reader.fail(f"a metadata key before offset {reader.position} is empty: the file is damaged")
            what = f"'{shown(key)}'"
            if key in header.value_types:
                raise reader.fail(f"the metadata key {what} stands there twice: the file is damaged")
            self._keep(KEY_BYTES + len(key), what)
            value_type = reader.u32(what)
            if value_type == ARRAY:
                self._array(key, what)
                continue
            header.value_types[key] = (value_type, None)
            if value_type == STRING:
                length = reader.u64(what)
                if length > MAX_KEPT_TEXT_BYTES:
                    reader.skip(length, what)  # a chat template or a licence, of no use to a plan
                else:
                    self._keep(length, what)
                    header.metadata[key] = reader.take(length, what).decode("utf-8", "replace")
            elif value_type in SCALARS:
                value = reader.unpack(SCALARS[value_type][0], what)[0]
                header.metadata[key] = bool(value) if value_type == BOOL else value
            else:
                raise reader.fail(f"{what} has the unknown value type {value_type}: the file is damaged or too new")

    def _check_count(self, count: int, most: int, what: str) -> None:
        if count > most:
            raise self.reader.fail(
                f"{what} claims {count} entries, at most {most} are possible: the file is damaged, fetch it again"
            )

    def _array_head(self, what: str) -> tuple:
        """Element type and length of the array that begins here, of which at least the shortest form is there."""
        reader = self.reader
        value_type, count = reader.unpack("IQ", what)
        if value_type not in SHORTEST and value_type not in SCALARS:
            raise reader.fail(
                f"{what} is an array of the unknown value type {value_type}: the file is damaged or too new"
            )
        if value_type in SHORTEST:
            self.entries += count
            self._check_count(count, MAX_ENTRIES - self.entries + count, what)
        shortest = SHORTEST.get(value_type) or SCALARS[value_type][1]
        if count * shortest > reader.remaining:
            raise reader.fail(
                f"{what} claims {count} entries, but only {reader.remaining} bytes follow: the download is cut or"
                " the file is damaged, fetch it again"
            )
        return value_type, count

    def _array(self, key: str, what: str) -> None:
        reader, header, listener = self.reader, self.header, self.listeners.get(key)
        value_type, count = self._array_head(what)
        header.value_types[key] = (ARRAY, value_type)
        header.array_lengths[key] = count
        if value_type == ARRAY:
            header.metadata[key] = self._elements(value_type, count, what, 1)
        elif listener is not None:
            self._check_count(count, MAX_HEARD_ENTRIES, what)
            try:
                listener.begin(value_type, count)
            except ValueError as exc:
                raise reader.fail(f"{what} {exc}") from exc
            self._announce(listener, value_type, count, what)
        elif value_type == STRING:
            reader.skip_texts(count, what)
        elif count <= MAX_KEPT_ELEMENTS and not key.startswith("tokenizer."):
            header.metadata[key] = self._elements(value_type, count, what, 1)
        else:
            reader.skip(count * SCALARS[value_type][1], what)

    def _announce(self, listener, value_type: int, count: int, what: str) -> None:
        if value_type == STRING:
            for n_texts in listener.text_runs(count):
                run = self.reader.text_run(n_texts, what)
                self._hear(len(run.raw), what)
                listener.feed(run)
            return
        code, width = SCALARS[value_type]
        for start in range(0, count, BATCH_NUMBERS):
            n_numbers = min(BATCH_NUMBERS, count - start)
            self._hear(n_numbers * width, what)
            listener.feed(self.reader.numbers(code, width, n_numbers, what))

    def _elements(self, value_type: int, count: int, what: str, depth: int) -> list:
        """The elements of an array that is kept, lists for arrays in it."""
        reader = self.reader
        if depth > MAX_DEPTH:
            raise reader.fail(f"{what} has arrays in arrays, more than {MAX_DEPTH} deep: the file is damaged")
        self._keep(count * ELEMENT_BYTES, what)
        if value_type == ARRAY:
            return [self._elements(*self._array_head(what), what, depth + 1) for _index in range(count)]
        if value_type == STRING:
            run = reader.text_run(count, what)
            self._keep(len(run.raw), what)
            return [text.decode("utf-8", "replace") for text in run.texts()]
        values = reader.numbers(*SCALARS[value_type], count, what)
        return [bool(value) for value in values] if value_type == BOOL else list(values)


def _read_tensor_list(reader: Reader, count: int) -> list:
    """The raw entries (name, shape, type number, offset)."""
    entries, seen = [], set()
    for _index in range(count):
        name = reader.short_text("a tensor name", MAX_NAME_BYTES - 1)
        if name in seen:
            raise reader.fail(f"the tensor '{shown(name)}' stands there twice: the file is damaged")
        seen.add(name)
        what = f"tensor '{shown(name)}'"
        n_dims = reader.u32(what)
        if n_dims > MAX_DIMENSIONS:
            raise reader.fail(f"tensor '{shown(name)}' has {n_dims} dimensions, at most {MAX_DIMENSIONS} are possible")
        *lengths, type_number, offset = reader.unpack(f"{n_dims}QIQ", what)
        shape = tuple(lengths) or (1,)
        elements = 1
        for length in shape:
            elements *= max(length, 1)
        if elements > 2**63 - 1:
            raise reader.fail(f"tensor '{shown(name)}' has the impossible shape {list(shape)}: the file is damaged")
        entries.append((name, shape, type_number, offset))
    return entries


def _known_size_bytes(reader: Reader, name: str, shape: tuple, type_number: int):
    """Bytes of a tensor of a known type, None for a type that is not known yet."""
    if type_number in REMOVED:
        old, new = REMOVED[type_number]
        raise reader.fail(
            f"tensor '{shown(name)}' has the type {old} ({type_number}), which llama.cpp removed: quantise the model"
            f" again as {new}"
        )
    kind = TYPES.get(type_number)
    if kind is None:
        return None
    if shape[0] % kind.block_elements:
        raise reader.fail(
            f"tensor '{shown(name)}' of type {kind.name} has rows of {shape[0]} elements, no multiple of"
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
                f"tensor '{shown(name)}' lies at offset {offset} of the data, where llama.cpp wants {expected}: the"
                " file is damaged, fetch or convert it again"
            )
        size_bytes = _known_size_bytes(reader, name, shape, type_number)
        if size_bytes is None:
            # An unknown type reaches to where the next tensor begins, or to the end of the file.
            following = entries[index + 1][3] if index + 1 < len(entries) else max(available, offset)
            if following < offset:
                raise reader.fail(f"tensor '{shown(name)}' ends before it begins: the file is damaged")
            size_bytes, expected = following - offset, following
        else:
            expected = offset + -(-size_bytes // alignment) * alignment
        if offset + size_bytes > available:
            raise reader.fail(
                f"the file has {header.size_bytes} bytes, but tensor '{shown(name)}' ends at"
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
    foreign = describe_foreign(reader.peek(512), header.size_bytes, header.path)
    if foreign:
        raise reader.fail(foreign)
    reader.take(len(MAGIC), "the magic")
    _read_version(reader, header)
    n_tensors, n_keys = reader.unpack("QQ", "the counts of tensors and keys")
    # The shortest key-value pair is 13 bytes, the shortest tensor entry 24.
    if n_keys * 13 + n_tensors * 24 > reader.remaining:
        raise reader.fail(
            f"the header claims {n_keys} keys and {n_tensors} tensors, but only {reader.remaining} bytes follow: the"
            " download is cut or the file is damaged, fetch it again"
        )
    if n_tensors > MAX_TENSORS:
        raise reader.fail(f"the header claims {n_tensors} tensors, at most {MAX_TENSORS} are possible: it is damaged")
    _Parser(reader, header, listeners).metadata(n_keys)
    if header.value_types.get("general.alignment", (UINT32, None)) != (UINT32, None):
        raise reader.fail("general.alignment is no 32-bit number: the file is damaged")
    alignment = header.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if alignment <= 0 or alignment & (alignment - 1):
        raise reader.fail(f"general.alignment is {alignment}, no power of two: the file is damaged")
    entries = _read_tensor_list(reader, n_tensors)
    if entries:
        _place_tensors(reader, header, entries, alignment)
    return header


def read_header(path: str, listeners=None, opener=open_local) -> Header:
    """Reads the header of the GGUF file ``path``, which ``opener`` opens (see ``gguf_source.py``).

    ``listeners`` maps metadata keys to :class:`ArrayListener` objects that hear those arrays.
    Raises :class:`GgufError` for anything that is no usable GGUF file.
    """
    with opener(path) as source:
        header = Header(path=source.path, size_bytes=source.size_bytes)
        return _read(Reader(source), header, listeners or {})
