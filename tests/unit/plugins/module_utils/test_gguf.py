# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The header reader: against the gguf package on good files, and by tables on bad ones."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc

import pytest
from ansible_collections.relay.pool.plugins.module_utils import gguf, gguf_reader
from ansible_collections.relay.pool.plugins.module_utils.gguf import ArrayListener, read_header
from ansible_collections.relay.pool.plugins.module_utils.gguf_source import GgufError, open_local
from gguf import GGUFReader, GGUFValueType

EVERY_TYPE = (
    ("add_uint8", "t.uint8", 200),
    ("add_int8", "t.int8", -100),
    ("add_uint16", "t.uint16", 60000),
    ("add_int16", "t.int16", -30000),
    ("add_uint32", "t.uint32", 4000000000),
    ("add_int32", "t.int32", -2000000000),
    ("add_float32", "t.float32", 0.5),
    ("add_bool", "t.bool", True),
    ("add_string", "t.string", "ä text"),
    ("add_uint64", "t.uint64", 2**63 + 5),
    ("add_int64", "t.int64", -(2**62)),
    ("add_float64", "t.float64", 1e300),
    ("add_array", "t.ints", [1, -2, 3]),
    ("add_array", "t.floats", [0.25, -8.0]),
    ("add_array", "t.bools", [True, False]),
)
TENSORS = (
    ("token_embd.weight", (64, 10), "Q8_0"),
    ("blk.0.attn_q.weight", (256, 3), "Q4_K"),
    ("blk.0.ffn_exps.weight", (32, 5, 2), "MXFP4"),
    ("blk.0.norm.weight", (7,), "F32"),
    ("output.weight", (128, 4), "Q1_0"),
)


class Collector(ArrayListener):
    """Remembers what it hears."""

    def __init__(self):
        self.announced = None
        self.values = []

    def begin(self, value_type, count):
        self.announced = (value_type, count)

    def feed(self, values):
        self.values.extend(values.texts() if self.announced[0] == GGUFValueType.STRING else values)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


@pytest.mark.parametrize("big", [False, True])
def test_reads_what_the_gguf_package_reads(gguf_factory, big):
    path = gguf_factory.model(tensors=TENSORS, keys=EVERY_TYPE, tokens=["a", "bc", ""], big=big)
    header = read_header(str(path))
    oracle = GGUFReader(path)
    expected = {
        key: value.contents() for key, value in oracle.fields.items() if not key.startswith(("GGUF.", "tokenizer."))
    }
    assert header.metadata == expected
    assert header.array_lengths["tokenizer.ggml.tokens"] == 3
    assert header.byte_order == ("big" if big else "little")
    assert header.version == 3
    assert [
        (tensor.name, list(tensor.shape), tensor.type_number, tensor.size_bytes, header.data_offset + tensor.offset)
        for tensor in header.tensors
    ] == [(t.name, t.shape.tolist(), int(t.tensor_type), int(t.n_bytes), int(t.data_offset)) for t in oracle.tensors]
    assert [tensor.elements for tensor in header.tensors] == [int(t.n_elements) for t in oracle.tensors]


def test_reads_version_2_and_refuses_others(gguf_factory):
    path = gguf_factory.model(tensors=TENSORS, keys=EVERY_TYPE)
    data = bytearray(path.read_bytes())
    for version in (1, 2, 4):
        struct.pack_into("<I", data, 4, version)
        path.write_bytes(data)
        if version == 2:
            assert len(read_header(str(path)).tensors) == len(TENSORS)
        else:
            with pytest.raises(GgufError, match=f"GGUF version {version} is not"):
                read_header(str(path))


@pytest.mark.parametrize("alignment", [8, 256])
def test_obeys_the_alignment(gguf_factory, alignment):
    body = text("general.alignment") + struct.pack("<II", 4, alignment)
    for offset, name in ((0, "a"), (alignment * -(-28 // alignment), "b")):
        body += text(name) + struct.pack("<IQIQ", 1, 7, 0, offset)
    start = 24 + len(body)
    data_offset = -(-start // alignment) * alignment
    path = gguf_factory.raw(body + bytes(data_offset - start + 2 * max(alignment, 32)), 2, 1)
    assert read_header(str(path)).data_offset == data_offset


@pytest.mark.parametrize("value", [struct.pack("<II", 4, 0), struct.pack("<II", 4, 48), struct.pack("<IQ", 10, 32)])
def test_refuses_an_impossible_alignment(gguf_factory, value):
    path = gguf_factory.raw(text("general.alignment") + value, n_keys=1)
    with pytest.raises(GgufError, match=r"general\.alignment"):
        read_header(str(path))


def test_long_arrays_and_texts_are_stepped_over(gguf_factory):
    keys = (
        ("add_array", "t.long", list(range(5000))),
        ("add_array", "t.texts", ["x" * 70000, "y"]),
        ("add_string", "t.licence", "z" * 70000),
        ("add_uint32", "t.last", 7),
    )
    header = read_header(str(gguf_factory.model(keys=keys)))
    assert set(header.metadata) == {"general.architecture", "t.last"}
    assert header.metadata["t.last"] == 7
    assert header.array_lengths == {"t.long": 5000, "t.texts": 2}


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("window", [16, 64, 1 << 20])
def test_listeners_hear_whole_arrays_whatever_the_window(gguf_factory, monkeypatch, big, window):
    monkeypatch.setattr(gguf_reader, "WINDOW_BYTES", window)
    monkeypatch.setattr(gguf, "BATCH_TEXTS", 7)
    monkeypatch.setattr(gguf, "BATCH_NUMBERS", 5)
    tokens = ["t" * (number % 90) for number in range(200)]
    keys = (("add_array", "t.texts", ["one", "two"]), ("add_uint32", "t.last", 9))
    path = gguf_factory.model(tokens=tokens, types=list(range(-100, 100)), keys=keys, tensors=TENSORS, big=big)
    heard, types = Collector(), Collector()
    header = read_header(str(path), {"tokenizer.ggml.tokens": heard, "tokenizer.ggml.token_type": types})
    assert heard.announced == (int(GGUFValueType.STRING), 200)
    assert heard.values == [token.encode() for token in tokens]
    assert types.announced == (int(GGUFValueType.INT32), 200)
    assert types.values == list(range(-100, 100))
    assert header.metadata["t.last"] == 9
    assert len(header.tensors) == len(TENSORS)


def test_memory_does_not_grow_with_the_vocabulary(gguf_factory):
    path = gguf_factory.model(tokens=[f"token{number}" for number in range(40000)])
    tracemalloc.start()
    read_header(str(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * gguf_reader.WINDOW_BYTES


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n", "Git LFS pointer to 123 bytes"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"\n <HTML><head>", "web page"),
        (b'{"error":"Invalid credentials"}', "JSON text"),
        (struct.pack("<Q", 20) + b'{"a":{"dtype":"F16"}}' + bytes(20), "safetensors"),
        (b"PK\x03\x04" + bytes(40), "compressed archive"),
        (b"tjgg" + bytes(40), "before GGUF"),
        (bytes(4096), "zero bytes"),
        (b"GGU", "begins with b'GGU'"),
        (b"whatever", "begins with b'what'"),
    ],
)
def test_names_what_is_no_gguf_file(tmp_path, content, named):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(GgufError) as failure:
        read_header(str(path))
    assert named in str(failure.value)
    assert str(failure.value).startswith(f"{path}: ")


def test_names_a_path_that_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    for name, named in (("none.gguf", "No such file"), (".", "a directory"), ("pipe.gguf", "no regular file")):
        with pytest.raises(GgufError, match=named):
            read_header(str(tmp_path / name))


def test_every_cut_is_an_error(gguf_factory):
    path = gguf_factory.model(tensors=TENSORS, keys=EVERY_TYPE, tokens=["a", "bc"], types=[1, 1])
    whole = path.read_bytes()
    header = read_header(str(path))
    last = header.tensors[-1]
    needed = header.data_offset + last.offset + last.size_bytes
    for length in [*range(0, header.data_offset), needed - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(GgufError):
            read_header(str(path))
    path.write_bytes(whole[:needed])  # the padding behind the last tensor may be missing
    assert read_header(str(path)).tensors[-1] == last


def test_a_cut_in_the_data_names_both_sizes(gguf_factory):
    path = gguf_factory.model(tensors=TENSORS)
    whole = path.read_bytes()
    path.write_bytes(whole[:-600])
    with pytest.raises(GgufError, match=rf"has {len(whole) - 600} bytes, but tensor '.*' ends at \d+: .*fetch"):
        read_header(str(path))


HUGE = struct.pack("<Q", 2**60)


@pytest.mark.parametrize(
    ("body", "n_tensors", "n_keys"),
    [
        (bytes(64), 0, 2**60),
        (bytes(64), 2**60, 0),
        (HUGE + bytes(64), 0, 1),
        (text("k") + struct.pack("<I", 8) + HUGE + bytes(64), 0, 1),
        (text("k") + struct.pack("<II", 9, 8) + HUGE + bytes(64), 0, 1),
        (text("k") + struct.pack("<II", 9, 4) + HUGE + bytes(64), 0, 1),
        (text("k") + struct.pack("<IIQ", 9, 8, 1) + HUGE + bytes(64), 0, 1),
        (HUGE + bytes(64), 1, 0),
        (text("t") + struct.pack("<IQQIQ", 2, 2**60, 2**60, 0, 0) + bytes(64), 1, 0),
        (text("t") + struct.pack("<IQIQ", 1, 2**60, 0, 0) + bytes(64), 1, 0),
        (text("t") + struct.pack("<I", 2**31) + bytes(64), 1, 0),
    ],
)
def test_a_hostile_count_is_refused_at_once(gguf_factory, body, n_tensors, n_keys):
    path = gguf_factory.raw(body, n_tensors, n_keys)
    started = time.monotonic()
    with pytest.raises(GgufError):
        read_header(str(path))
    assert time.monotonic() - started < 0.5


def test_a_hostile_count_in_a_file_of_holes_is_refused_at_once(gguf_factory):
    path = gguf_factory.raw(text("k") + struct.pack("<IIQ", 9, 8, 2**30), n_keys=1)
    os.truncate(path, 2**40)
    with pytest.raises(GgufError, match="claims 1073741824 entries"):
        read_header(str(path))


@pytest.mark.parametrize(
    ("body", "n_tensors", "n_keys", "named"),
    [
        (text("k") + struct.pack("<I", 13) + bytes(8), 0, 1, "unknown value type 13"),
        (text("k") + struct.pack("<IIQ", 9, 99, 1) + bytes(8), 0, 1, "unknown value type 99"),
        (text("") + struct.pack("<II", 4, 1), 0, 1, "is empty"),
        ((text("k") + struct.pack("<II", 4, 1)) * 2, 0, 2, "'k' stands there twice"),
        ((text("t") + struct.pack("<IQIQ", 1, 8, 0, 0)) * 2 + bytes(99), 2, 0, "'t' stands there twice"),
        (text("t") + struct.pack("<IQIQ", 1, 8, 0, 64) + bytes(199), 1, 0, "lies at offset 64"),
        (text("t") + struct.pack("<IQIQ", 1, 33, 8, 0) + bytes(99), 1, 0, "no multiple of 32"),
        (text("t") + struct.pack("<I", 5) + bytes(99), 1, 0, "5 dimensions"),
        (text("t") + struct.pack("<IQQIQ", 2, 0, 2**63, 0, 0) + bytes(99), 1, 0, "impossible shape"),
        (text("n" * 64) + bytes(99), 1, 0, "at most 63"),
    ],
)
def test_refuses_what_llama_cpp_refuses(gguf_factory, body, n_tensors, n_keys, named):
    with pytest.raises(GgufError, match=named):
        read_header(str(gguf_factory.raw(body, n_tensors, n_keys)))


@pytest.mark.parametrize("name", ["blk.0.attn_q.weight", "output.weight"])
def test_an_unknown_type_is_sized_by_offsets(gguf_factory, name):
    path = gguf_factory.model(tensors=TENSORS)
    before = {tensor.name: tensor for tensor in read_header(str(path)).tensors}
    gguf_factory.set_type(path, name, 43)
    after = {tensor.name: tensor for tensor in read_header(str(path)).tensors}
    assert after[name].type_number == 43
    # Up to the next tensor, so with the padding to 32 bytes.
    assert after[name].size_bytes == -(-before[name].size_bytes // 32) * 32
    assert {key: value.size_bytes for key, value in after.items() if key != name} == {
        key: value.size_bytes for key, value in before.items() if key != name
    }


@pytest.mark.parametrize(
    ("number", "name", "instead"), [(31, "Q4_0_4_4", "Q4_0"), (38, "IQ4_NL_8_8", "IQ4_NL"), (4, "Q4_2", "Q4_0")]
)
def test_a_removed_type_is_named(gguf_factory, number, name, instead):
    path = gguf_factory.model(tensors=TENSORS)
    gguf_factory.set_type(path, "token_embd.weight", number)
    with pytest.raises(GgufError, match=rf"'token_embd.weight' has the type {name} \({number}\).*as {instead}"):
        read_header(str(path))


@pytest.mark.parametrize("path", ["/models/a\0b.gguf", "/models/\ud800.gguf"])
def test_names_what_is_no_path(path):
    with pytest.raises(GgufError, match="is no path"):
        read_header(path)


def many(count, make):
    return b"".join(make(number) for number in range(count))


def pair(number, value):
    return text(f"k{number}") + value


@pytest.mark.parametrize(
    ("body", "n_tensors", "n_keys", "named"),
    [
        (text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 1 << 22), 0, 1, "claims 4194304 entries"),
        # two arrays of which each may be
        (
            many(2, lambda number: text(f"k{number}") + struct.pack("<IIQ", 9, 8, 1_100_000) + bytes(8 * 1_100_000)),
            0,
            2,
            "'k1' claims 1100000 entries, at most 997152 are possible",
        ),
        (text("tokenizer.ggml.token_type") + struct.pack("<IIQ", 9, 5, 1 << 22), 0, 1, "claims 4194304 entries"),
        (
            many(200, lambda n: pair(n, struct.pack("<IQ", 8, 65536) + bytes(65536))),
            0,
            200,
            "metadata up to 'k127' takes",
        ),
        (many(9000, lambda n: pair(n, struct.pack("<IIQ16I", 9, 4, 16, *range(16)))), 0, 9000, "the metadata up to"),
        (many(33000, lambda n: pair(n, struct.pack("<IB", 0, 1))), 0, 33000, "the metadata up to"),
        (text("k") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 9, 1) * 9, 0, 1, "more than 4 deep"),
        (text("k") + struct.pack("<IIQ", 9, 9, 1 << 20), 0, 1, "the metadata up to"),
        (b"", 1 << 16, 0, "claims 65536 tensors"),
    ],
    ids=["tokens", "two arrays", "types", "texts", "numbers", "keys", "depth", "arrays", "tensors"],
)
def test_more_than_any_model_has_is_refused_at_once(gguf_factory, body, n_tensors, n_keys, named):
    path = gguf_factory.raw(body, n_tensors, n_keys)
    os.truncate(path, 1 << 40)
    started = time.process_time()
    with pytest.raises(GgufError) as failure:
        read_header(str(path), {f"tokenizer.ggml.{name}": ArrayListener() for name in ("tokens", "token_type")})
    assert named in str(failure.value)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("text_bytes", "named"),
    [
        (2000, "4096 entries of 'tokenizer.ggml.tokens' take"),
        (1990, "the vocabulary up to 'tokenizer.ggml.tokens' takes"),
    ],
)
def test_a_vocabulary_that_is_too_long_is_refused(gguf_factory, monkeypatch, text_bytes, named):
    monkeypatch.setattr(gguf_reader, "MAX_RUN_BYTES", 4096 * 2000)
    monkeypatch.setattr(gguf, "MAX_HEARD_BYTES", 3 * 4096 * 2000)
    token = struct.pack("<Q", text_bytes) + bytes(text_bytes)
    path = gguf_factory.raw(text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 20000) + token * 20000, n_keys=1)
    started = time.process_time()
    with pytest.raises(GgufError) as failure:
        read_header(str(path), {"tokenizer.ggml.tokens": ArrayListener()})
    assert named in str(failure.value)
    assert time.process_time() - started < 0.5


def test_a_file_that_shrinks_while_it_is_read(gguf_factory):
    path = gguf_factory.model(tensors=TENSORS)

    def shrinking(name):
        source = open_local(name)
        source.size_bytes += 100
        return source

    with pytest.raises(GgufError, match="became shorter while it was read"), shrinking(str(path)) as source:
        gguf_reader.Reader(source).take(source.size_bytes, "all")


def test_a_text_that_is_no_token_is_named(gguf_factory):
    body = text("tokenizer.ggml.tokens") + struct.pack("<IIQQ", 9, 8, 1, 70000) + bytes(70000)
    with pytest.raises(GgufError, match=r"an entry of 'tokenizer\.ggml\.tokens' at offset \d+ claims 70000 bytes"):
        read_header(str(gguf_factory.raw(body, n_keys=1)), {"tokenizer.ggml.tokens": ArrayListener()})


def test_a_message_holds_nothing_that_a_terminal_obeys(gguf_factory):
    name = "\x1b[2J" + "k" * 60000
    with pytest.raises(GgufError) as failure:
        read_header(str(gguf_factory.raw(text(name) + struct.pack("<I", 13) + bytes(8), n_keys=1)))
    assert f"'?[2J{'k' * 196}...' has the unknown value type 13" in str(failure.value)


def test_arrays_in_arrays_are_read(gguf_factory):
    keys = (("add_array", "t.nested", [[[1, -2], [3]], [[4]]]), ("add_array", "t.texts", [["a", "ä"]]))
    header = read_header(str(gguf_factory.model(keys=keys)))
    assert header.metadata["t.nested"] == [[[1, -2], [3]], [[4]]]
    assert header.metadata["t.texts"] == [["a", "ä"]]
