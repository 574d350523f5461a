# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A GGUF file on a web server, of which only the header is fetched: in ranges of bytes that grow.

A server that knows no ranges sends the whole file. Then it is read as far as the header goes, and the connection is
closed. What a hostile or broken server can cost is bounded: the bytes and requests per file here, the time by
the session.
"""

from __future__ import annotations

import http.client
import re

from ansible_collections.relay.pool.plugins.module_utils.gguf_foreign import describe_foreign
from ansible_collections.relay.pool.plugins.module_utils.gguf_http import Session
from ansible_collections.relay.pool.plugins.module_utils.gguf_source import WEB_ADDRESS, GgufError, open_local

# The first range holds the header of a shard without vocabulary, the largest bounds what is fetched in vain.
FIRST_RANGE_BYTES = 1 << 18
MAX_RANGE_BYTES = 1 << 22
PIECE_BYTES = 1 << 16
# The longest headers have about 20 MB.
MAX_FETCHED_BYTES = 1 << 27
MAX_REQUESTS = 1024
# Answers without a single byte, one after the other.
MAX_EMPTY_ANSWERS = 3
HEAD_BYTES = 512

CONTENT_RANGE = re.compile(r"^\s*bytes\s+([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)\s*$", re.I)
EMPTY_RANGE = re.compile(r"^\s*bytes\s+\*/0\s*$", re.I)
LENGTH = re.compile(r"^\s*([0-9]{1,19})\s*$")


class _Part:
    """An answer that is being read: the bytes from ``position`` to ``end`` of the file."""

    def __init__(self, answer, position: int, end: int, whole: bool) -> None:
        self.answer = answer
        self.position = position
        self.end = end
        self.whole = whole


class RangeFile:
    """One file on a web server."""

    def __init__(self, session: Session, url: str) -> None:
        self.path = session.without_login(url)
        self.size_bytes = None
        self._session = session
        self._tag = None
        self._part = None
        self._range_bytes = FIRST_RANGE_BYTES
        self._fetched = self._requests = 0
        session.within(self.path, self._begin)

    def __enter__(self) -> RangeFile:
        return self

    def __exit__(self, *_exc) -> None:
        self._close()

    def _close(self) -> None:
        # When the time is over a thread may still wait for bytes, and closing would wait for it.
        if self._part is not None and not self._session.is_over:
            self._part.answer.close()
        self._part = None

    def _fail(self, what: str) -> GgufError:
        self._close()
        return GgufError(f"{self.path}: {what}.")

    def _begin(self) -> None:
        self._ask(0, self._range_bytes)

    def read(self, position: int, at_least: int, at_most: int) -> bytes:
        """See ``gguf_source.py``."""
        return self._session.within(self.path, lambda: self._read(position, at_least, at_most))

    def _read(self, position: int, at_least: int, at_most: int) -> bytes:
        data = bytearray()
        empty = 0
        while len(data) < at_least:
            piece = self._piece(position + len(data), at_least - len(data), at_most - len(data))
            data += piece
            empty = 0 if piece else empty + 1
            if empty >= MAX_EMPTY_ANSWERS:
                raise self._fail("the server breaks off again and again: try again")
        # The rest of a range that was asked for is on its way already.
        while self._part is not None and not self._part.whole and len(data) < at_most:
            data += self._receive(at_most - len(data))
        return bytes(data)

    def _piece(self, position: int, at_least: int, at_most: int) -> bytes:
        """Some bytes from ``position`` on, none when an answer ended too early."""
        part = self._part
        if part is None or not part.position <= position < part.end:
            self._close()
            self._range_bytes = min(2 * self._range_bytes, MAX_RANGE_BYTES)
            self._ask(position, max(self._range_bytes, at_least))
            part = self._part
        while part.position < position:  # what comes before is thrown away
            if not self._receive(position - part.position):
                return b""
        return self._receive(at_most)

    def _receive(self, at_most: int) -> bytes:
        """The next bytes of the answer, none at its end, which closes it."""
        part = self._part
        self._session.seconds_left(self.path)
        try:
            piece = part.answer.read1(min(at_most, part.end - part.position, PIECE_BYTES))
        except http.client.IncompleteRead as exc:
            piece = exc.partial
        part.position += len(piece)
        self._fetched += len(piece)
        if self._fetched > MAX_FETCHED_BYTES:
            raise self._fail(f"its header takes more than {MAX_FETCHED_BYTES} bytes: the file is damaged")
        if not piece or part.position >= part.end:
            self._close()
        return piece

    def _ask(self, position: int, n_bytes: int) -> None:
        """Opens the answer that has the bytes from ``position`` on, or the whole file."""
        self._requests += 1
        if self._requests > MAX_REQUESTS:
            raise self._fail(
                f"the server gives too little at once, {MAX_REQUESTS} requests were not enough: take the file from"
                " another place"
            )
        end = position + n_bytes if self.size_bytes is None else min(position + n_bytes, self.size_bytes)
        answer = self._session.get(self.path, f"{position}-{end - 1}")
        self._part = _Part(answer, 0, 0, whole=answer.status == 200)
        encoding = (answer.headers.get("Content-Encoding") or "identity").strip().lower()
        if answer.status == 416:
            self._part.whole = True  # without a byte
            if not EMPTY_RANGE.match(answer.headers.get("Content-Range") or ""):
                raise self._fail(
                    f"the server has no bytes from {position} on (416): the file was replaced, try again"
                    if position
                    else "the server answers 416 to a request for the beginning: take the file from another place"
                )
            size = 0
        elif encoding != "identity":
            if "html" in (answer.headers.get("Content-Type") or "").lower():
                raise self._fail(describe_foreign(b"<html", 1, self.path))
            raise self._fail(
                f"the server sends the file compressed ({encoding[:20]}), so no part of it can be read: take the file"
                " from another place"
            )
        elif answer.status == 206:
            size = self._take_range(answer, position, end)
        else:
            size = self._take_whole(answer)
        tag = (answer.headers.get("ETag") or "").strip()
        tag = tag[2:] if tag.startswith("W/") else tag
        if self.size_bytes is None:
            self.size_bytes, self._tag = size, tag
        elif size != self.size_bytes or (tag and self._tag and tag != self._tag):
            raise self._fail("the file was replaced while it was read: try again")

    def _take_range(self, answer, position: int, end: int) -> int:
        match = CONTENT_RANGE.match(answer.headers.get("Content-Range") or "")
        first, last = (int(match.group(1)), int(match.group(2))) if match else (-1, -1)
        if first != position or last < first:
            raise self._fail("the server sends other bytes than it was asked for: take the file from another place")
        self._part.position, self._part.end = position, min(last + 1, end)
        size = match.group(3)
        if size == "*":
            size = self.size_bytes if self.size_bytes is not None else self._size_of_whole()
        if int(size) <= last:
            raise self._fail(f"the server sends bytes up to {last} of a file of {int(size)}: it is damaged")
        return int(size)

    def _size_of_whole(self) -> int:
        answer = self._session.get(self.path, "")
        answer.close()
        match = LENGTH.match(answer.headers.get("Content-Length") or "")
        if answer.status != 200 or match is None:
            raise self._fail("the server does not say how large the file is: take it from another place")
        return int(match.group(1))

    def _take_whole(self, answer) -> int:
        match = LENGTH.match(answer.headers.get("Content-Length") or "")
        if match:
            self._part.end = int(match.group(1))
            return self._part.end
        # As pages that a server makes up: their beginning says what they are.
        head = b""
        while len(head) < HEAD_BYTES:
            self._session.seconds_left(self.path)
            piece = answer.read1(HEAD_BYTES - len(head))
            if not piece:
                break
            head += piece
        foreign = describe_foreign(head, len(head), self.path)
        raise self._fail(foreign or "the server does not say how large the file is: take it from another place")


def make_opener(session: Session):
    """An opener of paths of this machine and of URLs, which the session asks for."""
    return lambda path: RangeFile(session, path) if WEB_ADDRESS.match(path) else open_local(path)
