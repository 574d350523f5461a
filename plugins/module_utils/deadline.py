# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An upper bound on how long something may take that has no reliable one of its own.

A timeout of a socket starts again with every byte, and looking up a name has none at all.
"""

from __future__ import annotations

import threading
from typing import Any, Callable

MAX_TIMEOUT_SECONDS = 86400.0


class DeadlineError(Exception):
    """It took too long."""


def check_timeout(seconds: float) -> float:
    """``seconds`` as it is. Raises ValueError for what is no time to wait."""
    if not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        raise ValueError(f"timeout is {seconds:g}: it must be more than 0 and at most {MAX_TIMEOUT_SECONDS:g} seconds")
    return seconds


def within(seconds: float, function: Callable[[], Any]) -> Any:
    """What ``function`` returns or raises; DeadlineError when that takes more than ``seconds``.

    A function that is late goes on in the background until this process ends, so it must not hold anything.
    """
    outcome: list[tuple[Any, Exception | None]] = []

    def work() -> None:
        try:
            outcome.append((function(), None))
        except Exception as exc:
            outcome.append((None, exc))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise DeadlineError(f"it took more than {seconds:g} s")
    value, exc = outcome[0]
    if exc is not None:
        raise exc
    return value
