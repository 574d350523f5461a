# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Split models: found from any shard, judged as a whole."""

from __future__ import annotations

import shutil

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gguf import ArrayListener
from ansible_collections.relay.pool.plugins.module_utils.gguf_files import read_files, shard_paths
from ansible_collections.relay.pool.plugins.module_utils.gguf_reader import GgufError

TENSORS = tuple((f"blk.{number}.attn_q.weight", (32, number + 1), "Q8_0") for number in range(3))
NAMES = [f"m-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]


@pytest.fixture
def shards(gguf_factory):
    """The folder of a model in three shards with one tensor each."""
    gguf_factory.model(tensors=TENSORS, keys=[("add_uint32", "llama.block_count", 3)], tokens=["a"] * 9, split=1)
    assert sorted(path.name for path in gguf_factory.folder.iterdir()) == NAMES
    return gguf_factory.folder


@pytest.mark.parametrize("name", NAMES)
def test_found_from_any_shard(shards, name):
    files = read_files(str(shards / name))
    assert files.path == str(shards / NAMES[0])
    assert [header.path for header in files.headers] == [str(shards / shard) for shard in NAMES]
    assert files.size_bytes == sum(path.stat().st_size for path in shards.iterdir())
    assert [tensor.name for tensor in files.tensors] == [tensor[0] for tensor in TENSORS]
    assert files.first.metadata["llama.block_count"] == 3
    assert files.missing == ()


@pytest.mark.parametrize("name", [NAMES[0], NAMES[2]])
def test_a_missing_shard_is_listed(shards, name):
    (shards / NAMES[1]).unlink()
    files = read_files(str(shards / name))
    assert files.missing == (NAMES[1],)
    assert [tensor.name for tensor in files.tensors] == [TENSORS[0][0], TENSORS[2][0]]


def test_without_the_first_shard_nothing_is_known(shards):
    (shards / NAMES[0]).unlink()
    with pytest.raises(GgufError, match=f"is missing, {NAMES[0]}"):
        read_files(str(shards / NAMES[2]))


def test_a_renamed_shard_says_how_it_must_be_called(shards):
    (shards / NAMES[0]).rename(shards / "model.gguf")
    with pytest.raises(GgufError, match=r"one of 3 shards.*<name>-00001-of-00003\.gguf"):
        read_files(str(shards / "model.gguf"))


def test_swapped_shards_are_noticed(shards):
    shutil.copy(shards / NAMES[1], shards / NAMES[2])
    with pytest.raises(GgufError, match="says it is shard 2 of 3, its name says 3 of 3"):
        read_files(str(shards / NAMES[0]))


def test_a_tensor_in_two_shards_is_noticed(shards):
    path = shards / NAMES[1]
    path.write_bytes(path.read_bytes().replace(b"blk.1.", b"blk.0."))
    with pytest.raises(GgufError, match=f"{NAMES[1]}: tensor 'blk.0.attn_q.weight' is in another shard"):
        read_files(str(shards / NAMES[0]))


def test_a_cut_shard_is_an_error(shards):
    path = shards / NAMES[2]
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(GgufError, match=NAMES[2]):
        read_files(str(shards / NAMES[0]))


def test_the_promised_number_of_tensors_must_be_there(shards, gguf_factory):
    (shards / "other").mkdir()
    gguf_factory.folder = shards / "other"
    gguf_factory.model(tensors=(*TENSORS, ("blk.2.more.weight", (32, 1), "Q8_0")), split=2, name="m.gguf")
    gguf_factory.folder = shards
    other = shards / "other" / "m-00001-of-00002.gguf"
    data = bytearray(other.read_bytes())
    place = data.index(b"split.tensors.count") + len("split.tensors.count") + 4
    assert data[place] == 4
    data[place] = 5
    other.write_bytes(data)
    with pytest.raises(GgufError, match="hold 4 tensors, the first one promises 5"):
        read_files(str(other))


@pytest.mark.parametrize("name", ["m-00002-of-00003.gguf", "plain.gguf"])
def test_a_single_file_may_have_any_name(gguf_factory, name):
    heard = []

    class Listener(ArrayListener):
        def begin(self, value_type, count):
            heard.append(count)

        def feed(self, values):
            heard.append(values.texts())

    path = gguf_factory.model(name=name, tensors=TENSORS, tokens=["a", "b"])
    files = read_files(str(path), {"tokenizer.ggml.tokens": Listener()})
    assert files.path == str(path)
    assert len(files.headers) == 1
    assert heard == [2, [b"a", b"b"]]


def test_shard_names_of_llama_cpp():
    assert shard_paths("/a b/x-00001-of-00002-00002-of-00002.gguf", 2) == [
        "/a b/x-00001-of-00002-00001-of-00002.gguf",
        "/a b/x-00001-of-00002-00002-of-00002.gguf",
    ]
    for wrong in ("/m-00003-of-00002.gguf", "/m-00000-of-00002.gguf", "/m-1-of-2.gguf", "/m-00001-of-00003.gguf"):
        with pytest.raises(GgufError):
            shard_paths(wrong, 2)


def test_more_shards_than_there_can_be_are_refused_at_once(gguf_factory):
    path = gguf_factory.model("m-0000000001-of-9999999999.gguf", keys=[("add_uint64", "split.count", 9_999_999_999)])
    with pytest.raises(GgufError, match="it claims 9999999999 shards"):
        read_files(str(path))
