# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one error class of the planner, and what reading a plan may raise."""

from __future__ import annotations


class PoolError(ValueError):
    """A plan, a command line or a model that cannot be; the message names the thing, the numbers and a way out."""


# What a plan that was edited by hand, cut short or written by something else raises when it is read.
UNREADABLE = (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError)
