# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slows a process down to a part of its time: throttle.py PID SHARE. Ends with the process, which then runs freely.

By stopping and continuing it, since quotas of control groups do not bite in the machines of the embedded pool.
"""

import contextlib
import os
import signal
import sys
import time

# Shorter than a layer takes, so that every token is slowed alike.
PERIOD_SECONDS = 0.006


def main(pid, share):
    """Until the process or this one is ended."""
    signal.signal(signal.SIGTERM, lambda *_args: sys.exit())
    try:
        while True:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(PERIOD_SECONDS * (1 - share))
            os.kill(pid, signal.SIGCONT)
            time.sleep(PERIOD_SECONDS * share)
    except ProcessLookupError:
        return
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
