# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All files of one model: a single GGUF file, or the shards that ``llama-gguf-split`` makes of it.

llama.cpp wants the first shard and finds the others by name, so a model is found from any of its shards here,
and described by its first one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.relay.pool.plugins.module_utils.gguf import MAX_TENSORS, Header, read_header
from ansible_collections.relay.pool.plugins.module_utils.gguf_source import (
    WEB_ADDRESS,
    GgufError,
    MissingFileError,
    base_name,
    open_local,
    shown,
)

# SPLIT_PATH_FORMAT of llama.cpp is "%s-%05d-of-%05d.gguf".
SHARD_NAME = re.compile(r"^(?P<prefix>.+)-(?P<number>[0-9]{5,10})-of-(?P<count>[0-9]{5,10})\.gguf$", re.S)
# split.count is a 16-bit number.
MAX_SHARDS = 65535


@dataclass(frozen=True)
class ModelFiles:
    """The headers of the shards that are there, the first shard first, and the names of those that are not."""

    path: str
    headers: tuple
    missing: tuple

    @property
    def first(self) -> Header:
        """The header that holds the metadata."""
        return self.headers[0]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files that are there."""
        return sum(header.size_bytes for header in self.headers)

    @property
    def tensors(self) -> list:
        """The tensors of all files."""
        return [tensor for header in self.headers for tensor in header.tensors]


def shard_match(path: str):
    """The match of :data:`SHARD_NAME` on a path, or on the path of a URL, and what follows that; (None, "") if none."""
    name, rest = path, ""
    if WEB_ADDRESS.match(path):
        name = re.split(r"[?#]", path, maxsplit=1)[0]
        rest = path[len(name) :]
    return SHARD_NAME.match(name), rest


def shard_paths(path: str, count: int) -> list:
    """The paths of all ``count`` shards, from the path of any of them; GgufError when its name is no shard's."""
    match, rest = shard_match(path)
    if match is None or int(match.group("count")) != count or not 1 <= int(match.group("number")) <= count:
        way_out = "give the URL of a file that is called" if WEB_ADDRESS.match(path) else "rename it to"
        raise GgufError(
            f"{path}: this is one of {count} shards, which llama.cpp finds by name: {way_out}"
            f" <name>-00001-of-{count:05d}.gguf with its own number."
        )
    return [f"{match.group('prefix')}-{number:05d}-of-{count:05d}.gguf{rest}" for number in range(1, count + 1)]


def _check_shard(header: Header, number: int, count: int) -> None:
    if header.integer("split.count", 0) != count or header.integer("split.no", -1) != number:
        raise GgufError(
            f"{header.path}: the file says it is shard {header.integer('split.no', -1) + 1} of"
            f" {header.integer('split.count', 0)}, its name says {number + 1} of {count}: download the shards again."
        )


def _check_whole(headers: list, path: str) -> None:
    seen = set()
    for header in headers:
        for tensor in header.tensors:
            if tensor.name in seen:
                raise GgufError(
                    f"{header.path}: tensor '{shown(tensor.name)}' is in another shard too: download them again."
                )
            seen.add(tensor.name)
    wanted = headers[0].integer("split.tensors.count")
    if wanted is not None and wanted != len(seen):
        raise GgufError(
            f"{path}: the shards hold {len(seen)} tensors, the first one promises {wanted}: download them again."
        )


def read_files(path: str, listeners=None, opener=open_local) -> ModelFiles:
    """Reads the headers of the model that ``path`` belongs to; ``listeners`` hear the arrays of the first shard."""
    match, _rest = shard_match(path)
    later = match is not None and int(match.group("number")) > 1
    # Listeners hear one file only: the first shard, or the single file whatever its name is.
    header = read_header(path, None if later else listeners, opener)
    count = header.integer("split.count", 0)
    if count <= 1:
        return ModelFiles(header.path, (read_header(path, listeners, opener) if later else header,), ())
    if count > MAX_SHARDS:
        raise GgufError(
            f"{header.path}: it claims {count} shards, at most {MAX_SHARDS} are possible: the file is damaged."
        )
    paths = shard_paths(header.path, count)
    own = int(match.group("number")) - 1
    headers, missing, n_tensors = [], [], 0
    for number, shard in enumerate(paths):
        try:
            current = header if number == own else read_header(shard, None if number else listeners, opener)
        except MissingFileError as exc:
            missing.append(base_name(shard))
            if number == 0:
                raise GgufError(
                    f"{header.path}: the first of its {count} shards is missing, {missing[0]}: put all shards into one"
                    " folder."
                ) from exc
            continue
        _check_shard(current, number, count)
        n_tensors += len(current.tensors)
        if n_tensors > MAX_TENSORS:
            raise GgufError(f"{header.path}: its shards hold more than {MAX_TENSORS} tensors: they are damaged.")
        if number:  # all that is wanted of it are its tensors
            current.metadata.clear()
            current.value_types.clear()
        headers.append(current)
    if not missing:
        _check_whole(headers, header.path)
    return ModelFiles(headers[0].path, tuple(headers), tuple(missing))
