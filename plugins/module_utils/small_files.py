# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a small file: one that a user named, whatever it turns out to be, or one of the kernel."""

from __future__ import annotations

import errno
import os
import stat

MAX_BYTES = 1024 * 1024


def read_bytes(path: str, max_bytes: int = MAX_BYTES) -> bytes:
    """The first ``max_bytes`` of a regular file. Raises OSError for anything else; a pipe or a device never blocks."""
    try:
        # Opening a pipe that nobody writes to would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as exc:
        raise OSError(errno.EINVAL, str(exc)) from exc
    with os.fdopen(descriptor, "rb") as handle:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return handle.read(max_bytes)


def read_text(*path: str, max_bytes: int = MAX_BYTES) -> str:
    """The file as text, "" where it cannot be read: those of the kernel come and go, and may answer with an error."""
    try:
        return read_bytes(os.path.join(*path), max_bytes).decode("utf-8", "replace")
    except OSError:
        return ""
