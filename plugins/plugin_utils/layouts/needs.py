# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes that a device needs for consecutive items: the repeating layers 0..N-1, and the output as item N.

Weights, caches, states and the compute buffer of exactly these layers. How large the buffer is may depend on which
layers they are (sliding windows, recurrent layers, embeddings for every layer), so there is a number for every range.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger


def mtp_beside(ledger: Ledger, first: int, end: int) -> int:
    """Bytes of the context of the target's own MTP layers beside layers first..end-1: it goes with the last layer."""
    return ledger.mtp_device if first < ledger.n_layer <= end else 0


class Row(NamedTuple):
    """Of the ranges that begin with one item, those that end after it, after the next one, and so on.

    sizes: bytes. floor: the least of this one and all longer ones, which never falls. rising: both are equal.
    """

    sizes: list[int]
    floor: list[int]
    rising: bool

    def longest(self, room: int) -> int:
        """Items of the longest range that fits; a shorter one may not where sizes do not rise."""
        return bisect_right(self.floor, room)


class Needs:
    """What devices of one kind need; rows are computed when they are asked for.

    padded: rows of quantised tensors are rounded up, and attention works on half floats, as on GPUs.
    """

    def __init__(self, ledger: Ledger, padded: bool, pipelined: bool) -> None:
        self._ledger, self._padded, self._pipelined = ledger, padded, pipelined
        layers = range(ledger.n_layer)
        weights = [ledger.layer_weights(i, i + 1, padded) for i in layers]
        held = [weights[i] + ledger.kv[i] + ledger.recurrent[i] + mtp_beside(ledger, i, i + 1) for i in layers]
        self._held = list(accumulate([*held, ledger.output_weights(padded)], initial=0))
        self._rows: list[Row | None] = [None] * len(held) + [None]

    def row(self, first: int) -> Row:
        """The ranges that begin with item first."""
        known = self._rows[first]
        if known is None:
            known = self._rows[first] = self._row(first)
        return known

    def size(self, first: int, end: int) -> int:
        """Bytes of items first..end-1."""
        row = self._rows[first]
        return row.sizes[end - first - 1] if row else self._size(first, end)

    @cached_property
    def least(self) -> int:
        """No device needs less for its compute buffer and what every device has a copy of, whatever it holds."""
        held = self._held
        return min(
            size - (held[first + 1 + index] - held[first])
            for first in range(len(held) - 1)
            for index, size in enumerate(self.row(first).sizes)
        )

    @cached_property
    def nested(self) -> bool:
        """A part of a range never needs more than the range."""
        rows = [self.row(first) for first in range(len(self._rows))]
        return all(row.rising for row in rows) and all(
            all(map(int.__ge__, longer.sizes[1:], shorter.sizes)) for longer, shorter in zip(rows, rows[1:])
        )

    def held(self) -> int:
        """Bytes of all items, without compute buffers."""
        return self._held[-1]

    def _size(self, first: int, end: int) -> int:
        ledger, n_layer = self._ledger, self._ledger.n_layer
        layers = (first, min(end, n_layer))
        compute = ledger.device_bytes(first == 0, self._pipelined, end > n_layer, layers, self._padded)
        return self._held[end] - self._held[first] + ledger.per_device + compute

    def _row(self, first: int) -> Row:
        if self._ledger.layers_alike and first < self._ledger.n_layer:
            beside = self._size(first, first + 1) - self._held[first + 1]
            sizes = [held + beside for held in self._held[first + 1 : -1]] + [self._size(first, len(self._held) - 1)]
        else:
            sizes = [self._size(first, end) for end in range(first + 1, len(self._held))]
        floor = list(accumulate(reversed(sizes), min))[::-1]
        return Row(sizes, sizes if sizes == floor else floor, sizes == floor)


class HostNeeds:
    """The same for the CPU of the machine that runs llama-server, which holds the first layers.

    output: it computes the output as well, which then is none of the items.
    """

    nested = True

    def __init__(self, ledger: Ledger, output: bool) -> None:
        fixed = ledger.input + ledger.per_device + ledger.host_bytes(layers=True, pipelined=False, output=output)
        fixed += ledger.output_weights(False, on_cpu=True) if output else 0
        held = [
            ledger.weights[i] + ledger.kv[i] + ledger.recurrent[i] + mtp_beside(ledger, i, i + 1)
            for i in range(ledger.n_layer)
        ]
        sizes = list(accumulate(held, initial=fixed))[1:]
        self._first = Row(sizes, sizes, True)

    def row(self, first: int) -> Row:
        """The ranges that begin with the first layer."""
        if first:
            raise ValueError("the host's CPU holds the first layers only")
        return self._first
