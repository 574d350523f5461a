# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""argv as one value of ``ExecStart=``, so that systemd hands exactly this argv to the program."""

from __future__ import annotations

import re
from typing import Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./$^~-]+\Z")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _quote(text: str) -> str:
    if _PLAIN.match(text):
        return text
    inside = []
    for character in text:
        if character in _ESCAPES:
            inside.append(_ESCAPES[character])
        elif ord(character) < 32 or ord(character) == 127:
            inside.append(f"\\x{ord(character):02x}")
        else:
            inside.append(character)
    return '"' + "".join(inside) + '"'


def exec_start(argv: Sequence[str]) -> str:
    """One line: ``%`` and ``$`` doubled, everything else quoted where systemd would split or interpret it."""
    if not argv:
        raise PoolError("an empty argv cannot be started: the first item must be the path of the program")
    words: list[str] = []
    for position, item in enumerate(argv):
        text = str(item)
        if "\0" in text:
            raise PoolError(f"argument {position} holds a NUL byte: no program can receive it")
        # A specifier is expanded everywhere, a variable in every argument but the program's path.
        text = text.replace("%", "%%")
        if position == 0:
            if not text.startswith("/"):
                raise PoolError(f"{item} is no absolute path: systemd starts programs by absolute path")
        else:
            text = text.replace("$", "$$")
        words.append(_quote(text))
    return " ".join(words)


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def environment(variables: Mapping[str, object]) -> str:
    """One value of ``Environment=``, sorted by name: ``%`` doubled, ``$`` as it is, since it means nothing there."""
    words: list[str] = []
    for name, value in sorted(variables.items()):
        if not _NAME.match(str(name)):
            raise PoolError(f"{name} is no name of an environment variable: use letters, digits and underscores")
        text = str(value)
        if "\0" in text or "\n" in text:
            raise PoolError(f"the environment variable {name} holds a NUL byte or a line break: no unit can carry it")
        words.append(_quote(f"{name}={text}".replace("%", "%%")))
    return " ".join(words)
