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
# systemd leaves out, with no more than a line in its log, a variable whose value holds one of them.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


def environment(variables: Mapping[str, object]) -> str:
    """One value of ``Environment=``, sorted by name: ``%`` doubled, ``$`` as it is, since it means nothing there.

    No message quotes a value, which may be a secret.
    """
    words: list[str] = []
    for name, value in sorted(variables.items(), key=lambda item: str(item[0])):
        if not _NAME.match(str(name)):
            raise PoolError(f"{name} is no name of an environment variable: use letters, digits and underscores")
        if value is None or isinstance(value, (bool, dict, list, tuple, set)):
            kind = "null" if value is None else "no text"
            raise PoolError(f"the environment variable {name} is {kind}: write its value in quotes, or leave it out")
        text = str(value)
        if _CONTROL.search(text):
            raise PoolError(f"the environment variable {name} holds a line break or another control character")
        words.append(_quote(f"{name}={text}".replace("%", "%%")))
    return " ".join(words)
