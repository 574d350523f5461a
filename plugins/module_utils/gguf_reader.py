# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A window of bounded size that moves over a GGUF file; every length is held against the bytes that are left."""

from __future__ import annotations

import struct
from array import array
from sys import byteorder as NATIVE_ORDER

from ansible_collections.relay.pool.plugins.module_utils.gguf_source import GgufError

WINDOW_BYTES = 1 << 20
# No token comes near; a length beyond is a damaged file.
MAX_ARRAY_TEXT_BYTES = 1 << 16
# Texts that are heard together; those of a real vocabulary take about 20 bytes each.
MAX_RUN_BYTES = 1 << 23

LENGTHS = {"little": struct.Struct("<Q"), "big": struct.Struct(">Q")}
# What follows the first byte of a length below 256.
ZEROS = bytes(7)


class TextRun:
    """Consecutive texts of an array, ``raw`` as they stand in the file: each behind its length of eight bytes.

    ``plain`` is true when the file is little-endian and no text has more than 255 bytes.
    """

    def __init__(self, raw: bytes, count: int, order: str, plain: bool) -> None:
        self.raw = raw
        self.count = count
        self.order = order
        self.plain = plain

    def is_bare(self) -> bool:
        """Whether no text is empty or has a NUL in it, so that zeros stand in the lengths only, seven in each."""
        return self.plain and self.raw.count(0) == len(ZEROS) * self.count

    def bare_texts(self) -> list:
        """The texts of a run that is bare, in half the time."""
        # Between two texts there is the first byte of a length, which is cut off here, and its zeros.
        parts = self.raw.split(ZEROS)
        return [part[:-1] for part in parts[1:-1]] + parts[-1:]

    def texts(self) -> list:
        """The texts, as bytes."""
        raw, index, found = self.raw, 0, []
        unpack = LENGTHS[self.order].unpack_from
        for _number in range(self.count):
            start = index + 8
            index = start + unpack(raw, index)[0]
            found.append(raw[start:index])
        return found


class Reader:
    """A window of bounded size that moves over the file, forwards only."""

    def __init__(self, source) -> None:
        self.source = source
        self.size_bytes = source.size_bytes
        self.path = source.path
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
        missing = n_bytes - len(rest)
        at_most = min(max(WINDOW_BYTES, missing), self.size_bytes - self.base - len(rest))
        self.buffer = rest + self.source.read(self.base + len(rest), missing, at_most)
        if len(self.buffer) < n_bytes:
            raise self.fail(f"the file became shorter while it was read at offset {self.base}: try again")

    def peek(self, n_bytes: int) -> bytes:
        """The next ``n_bytes``, or as many as there are, without a step."""
        n_bytes = min(n_bytes, self.remaining)
        self.ensure(n_bytes, "the beginning")
        return self.buffer[self.index : self.index + n_bytes]

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

    def unpack(self, code: str, what: str) -> tuple:
        """The next values, by their codes of the module struct."""
        code = ("<" if self.order == "little" else ">") + code
        return struct.unpack(code, self.take(struct.calcsize(code), what))

    def u32(self, what: str) -> int:
        return self.unpack("I", what)[0]

    def u64(self, what: str) -> int:
        return self.unpack("Q", what)[0]

    def short_text(self, what: str, max_bytes: int) -> str:
        length = self.u64(what)
        if length > max_bytes:
            raise self.fail(
                f"{what} before offset {self.position} is {length} bytes long, at most {max_bytes} are"
                " possible: the file is damaged, fetch it again"
            )
        return self.take(length, what).decode("utf-8", "replace")

    def skip_texts(self, count: int, what: str) -> None:
        """Steps over ``count`` texts of an array without looking at them."""
        unpack = LENGTHS[self.order].unpack_from
        while count:
            buffer, index, walked = self.buffer, self.index, 0
            try:
                for walked in range(count):  # noqa: B007 how far it came counts when the buffer ends
                    index += 8 + unpack(buffer, index)[0]
                walked = count
            except (struct.error, OverflowError):  # the next length is not in the buffer
                pass
            self.skip(index - self.index, what)
            count -= walked
            if count:
                self.ensure(8, what)

    def text_run(self, count: int, what: str) -> TextRun:
        """The next ``count`` texts of an array."""
        unpack = LENGTHS[self.order].unpack_from
        left, ahead, plain = count, 0, self.order == "little"
        while left and ahead <= MAX_RUN_BYTES:
            self.ensure(ahead + 8, what)
            buffer, index, walked = self.buffer, self.index + ahead, 0
            try:
                for walked in range(left):  # noqa: B007
                    length = unpack(buffer, index)[0]
                    if length > 255:
                        plain = False
                        if length > MAX_ARRAY_TEXT_BYTES:
                            raise self.fail(
                                f"an entry of {what} at offset {self.base + index} claims {length} bytes, at most"
                                f" {MAX_ARRAY_TEXT_BYTES} are possible: the file is damaged, fetch it again"
                            )
                    index += 8 + length
                walked = left
            except struct.error:  # the next length is not in the buffer
                pass
            ahead = index - self.index
            left -= walked
        if ahead > MAX_RUN_BYTES:
            raise self.fail(
                f"{count - left} entries of {what} take {ahead} bytes, at most {MAX_RUN_BYTES} are possible: the file"
                " is damaged, fetch it again"
            )
        return TextRun(self.take(ahead, what), count, self.order, plain)

    def numbers(self, code: str, n_bytes: int, count: int, what: str) -> array:
        values = array(code)
        values.frombytes(self.take(n_bytes * count, what))
        if self.order != NATIVE_ORDER:
            values.byteswap()
        return values
