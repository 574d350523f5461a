# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the bytes of a GGUF file come from: a file of this machine here, a web server in ``gguf_range.py``.

A source is a context manager with ``path``, which is the name of the file in facts and messages, ``size_bytes`` and
``read(position, at_least, at_most)``. That gives between ``at_least`` and ``at_most`` bytes from ``position`` on,
fewer only when the file ended too early. An opener makes a source from a path, and raises :class:`GgufError`.
"""

from __future__ import annotations

import os
import re
import stat

MAX_SHOWN_CHARACTERS = 200
WEB_ADDRESS = re.compile(r"^https?://", re.I)
ANY_ADDRESS = re.compile(r"^[a-z][a-z0-9+.-]*:/", re.I)


class GgufError(Exception):
    """The file cannot be used; the message names the path, what is wrong and the way out."""


class MissingFileError(GgufError):
    """There is no such file."""


def shown(text: str) -> str:
    """A text of a file or a server as a message can have it: short, and nothing that a terminal would obey."""
    short = text[:MAX_SHOWN_CHARACTERS]
    return "".join(letter if letter.isprintable() else "?" for letter in short) + (
        "..." if len(text) > len(short) else ""
    )


def loginless(text: str) -> str:
    """What may be shown of an address that cannot be used: without all that may be a user and a password."""
    return re.sub(r"^([a-z][a-z0-9+.-]*:/*|//).*@", r"\1", text, count=1, flags=re.I | re.S)


def base_name(path: str) -> str:
    """The file's own name, of a path or of a URL."""
    if WEB_ADDRESS.match(path):
        path = re.split(r"[?#]", path, maxsplit=1)[0]
    return os.path.basename(path)


def local_path(text: str) -> str:
    """A path as a user writes it, with ~ and variables of the environment."""
    return os.path.expanduser(os.path.expandvars(text))


class LocalFile:
    """A file of this machine."""

    def __init__(self, path: str, handle, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._handle = handle

    def __enter__(self) -> LocalFile:
        return self

    def __exit__(self, *_exc) -> None:
        self._handle.close()

    def read(self, position: int, at_least: int, at_most: int) -> bytes:
        del at_least  # a file gives all that is asked for
        try:
            self._handle.seek(position)
            return self._handle.read(at_most)
        except OSError as exc:
            raise _unreadable(self.path, exc) from exc


def _unreadable(path: str, exc: OSError) -> GgufError:
    if isinstance(exc, (FileNotFoundError, NotADirectoryError)):
        return MissingFileError(f"{path}: {exc.strerror or exc}: check the path.")
    return GgufError(f"{path}: {exc.strerror or exc}: check its permissions and its disk.")


def open_local(path: str) -> LocalFile:
    """Opens a file of this machine; GgufError when it is none that can be read."""
    if WEB_ADDRESS.match(path):
        raise GgufError(f"{loginless(path)}: this is the address of a web server, not a path: give it as a URL.")
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):
            kind = "a directory" if stat.S_ISDIR(info.st_mode) else "no regular file"
            raise GgufError(f"{path}: this is {kind}: give the path of a .gguf file.")
        return LocalFile(path, open(path, "rb"), info.st_size)
    except ValueError as exc:  # a NUL byte, or half a character
        raise GgufError(f"{path!r} is no path: {exc}.") from exc
    except OSError as exc:
        raise _unreadable(path, exc) from exc
