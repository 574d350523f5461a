# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A window of bounded size that moves over a GGUF file; every length is held against the bytes that are left."""

from __future__ import annotations

import struct
from array import array
from sys import byteorder as NATIVE_ORDER

WINDOW_BYTES = 1 << 20
# No token comes near; a length beyond is a damaged file.
MAX_ARRAY_TEXT_BYTES = 1 << 16


class GgufError(Exception):
    """The file cannot be used; the message names the path, what is wrong and the way out."""


class Reader:
    """A window of bounded size that moves over the file."""

    def __init__(self, handle, size_bytes: int, path: str) -> None:
        self.handle = handle
        self.size_bytes = size_bytes
        self.path = path
        self.base = 0  # file offset of buffer[0]
        self.buffer = b""
        self.index = 0
        self.order = "little"

    def fail(self, what: str) -> GgufError:
        return GgufError(f"{self.path}: {what}.")

    @property
    def position(self) -> int:
        return self.base + self.index

    @property
    def remaining(self) -> int:
        return self.size_bytes - self.position

    def ensure(self, n_bytes: int, what: str) -> None:
        """Makes ``n_bytes`` available in the buffer, or says that the file ends too early."""
        if len(self.buffer) - self.index >= n_bytes:
            return
        if n_bytes > self.remaining:
            raise self.fail(
                f"the header wants {n_bytes} bytes of {what} at offset {self.position}, but the file has only"
                f" {self.size_bytes} bytes: the download is cut or the file is damaged, fetch it again"
            )
        rest = self.buffer[self.index :]
        self.base += self.index
        self.index = 0
        self.buffer = rest + self.handle.read(max(WINDOW_BYTES, n_bytes) - len(rest))
        if len(self.buffer) < n_bytes:
            raise self.fail(f"the file became shorter while it was read at offset {self.base}: try again")

    def take(self, n_bytes: int, what: str) -> bytes:
        self.ensure(n_bytes, what)
        start = self.index
        self.index = start + n_bytes
        return self.buffer[start : self.index]

    def skip(self, n_bytes: int, what: str) -> None:
        if n_bytes <= len(self.buffer) - self.index:
            self.index += n_bytes
            return
        if n_bytes > self.remaining:
            self.ensure(n_bytes, what)
        self.base += self.index + n_bytes
        self.buffer, self.index = b"", 0
        self.handle.seek(self.base)

    def number(self, code: str, n_bytes: int, what: str):
        return struct.unpack(("<" if self.order == "little" else ">") + code, self.take(n_bytes, what))[0]

    def u32(self, what: str) -> int:
        return self.number("I", 4, what)

    def u64(self, what: str) -> int:
        return self.number("Q", 8, what)

    def short_text(self, what: str, max_bytes: int) -> str:
        length = self.u64(what)
        if length > max_bytes:
            raise self.fail(
                f"{what} before offset {self.position} is {length} bytes long, at most {max_bytes} are"
                " possible: the file is damaged, fetch it again"
            )
        return self.take(length, what).decode("utf-8", "replace")

    def texts(self, count: int, key: str, keep: bool) -> list:
        """Reads ``count`` texts of an array; returns them as bytes, or nothing when they are only stepped over."""
        found: list = []
        order, left = self.order, count
        from_bytes = int.from_bytes
        while left:
            buffer, index = self.buffer, self.index
            end = len(buffer)
            while left:
                start = index + 8
                if start > end:
                    break
                stop = start + from_bytes(buffer[index:start], order)
                if stop > end:
                    break
                if keep:
                    found.append(buffer[start:stop])
                index = stop
                left -= 1
            self.index = index
            if left:
                self.ensure(8, f"'{key}'")
                length = from_bytes(self.buffer[self.index : self.index + 8], order)
                if not keep:
                    self.skip(8 + length, f"'{key}'")
                    left -= 1
                    continue
                if length > MAX_ARRAY_TEXT_BYTES:
                    raise self.fail(
                        f"an entry of '{key}' at offset {self.position} claims {length} bytes, at most"
                        f" {MAX_ARRAY_TEXT_BYTES} are possible: the file is damaged, fetch it again"
                    )
                self.ensure(8 + length, f"'{key}'")
        return found

    def numbers(self, code: str, n_bytes: int, count: int, key: str) -> array:
        values = array(code)
        values.frombytes(self.take(n_bytes * count, f"'{key}'"))
        if self.order != NATIVE_ORDER:
            values.byteswap()
        return values
