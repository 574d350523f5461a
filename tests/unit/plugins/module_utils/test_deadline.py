# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import time

import pytest
from ansible_collections.relay.pool.plugins.module_utils import deadline


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e10])
def test_no_time_to_wait(seconds):
    with pytest.raises(ValueError, match="timeout is"):
        deadline.check_timeout(seconds)


def test_time_to_wait():
    assert deadline.check_timeout(0.5) == 0.5


def test_what_is_in_time_comes_back():
    assert deadline.within(5, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        deadline.within(5, lambda: 1 // 0)


def test_what_is_late_is_left_alone():
    started = time.monotonic()
    with pytest.raises(deadline.DeadlineError, match=r"more than 0\.1 s"):
        deadline.within(0.1, lambda: time.sleep(5))
    assert time.monotonic() - started < 1
