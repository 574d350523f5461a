# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes for people: everything inside is integers in bytes, everything shown is MiB."""

from __future__ import annotations

MIB = 1024 * 1024


def to_mib(size_bytes: int) -> int:
    """Bytes in whole MiB, rounded up, so that a shown need is never smaller than the real one."""
    return -(-size_bytes // MIB)


def mib(size_bytes: int) -> str:
    """``12345678`` bytes as ``12 MiB``, thousands apart by a space."""
    return f"{to_mib(size_bytes):,} MiB".replace(",", " ")


def mib_free(size_bytes: int) -> str:
    """The same of what is free, rounded down, so that nothing looks roomier than it is."""
    return mib(size_bytes // MIB * MIB)
