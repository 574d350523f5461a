# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Typed reading of a GGUF's metadata; a damaged file may hold anything in the place of a count."""

from __future__ import annotations

from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError

# Every count in a GGUF is a uint32.
LARGEST = 2**32


class Keys:
    """The values of ``<architecture>.<key>``; every method raises PoolError when a value is no count."""

    def __init__(self, architecture: str, metadata: Mapping[str, Any], path: str) -> None:
        self.architecture, self.metadata, self.path = architecture, metadata, path

    def raw(self, key: str) -> Any:
        """Whatever stands there, or None."""
        return self.metadata.get(f"{self.architecture}.{key}")

    def number(self, key: str, default: int | None = None) -> int:
        """A scalar, or the largest of a per-layer array."""
        value = self.raw(key)
        if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (list, tuple)):
            value = max(self._whole(key, item) for item in value)
        if value is None or isinstance(value, (list, tuple, str)):
            if default is None:
                raise PoolError(
                    f"{self.path} has no {self.architecture}.{key}: its memory cannot be computed, use a complete GGUF"
                )
            return default
        return self._whole(key, value)

    def per_layer(self, key: str, n_layer: int, default: int) -> list[int]:
        """One value per layer; a scalar counts for all of them."""
        value = self.raw(key)
        if isinstance(value, (list, tuple)):
            if len(value) < n_layer:
                raise PoolError(
                    f"{self.path} has {len(value)} values of {self.architecture}.{key} for {n_layer} layers: "
                    "get the file again"
                )
            return [self._whole(key, item) for item in value[:n_layer]]
        return [default if value is None else self._whole(key, value)] * n_layer

    def flags(self, key: str, n_layer: int) -> list[bool] | None:
        """One flag per layer from a list, which may be short: what it leaves out is false. None: there is no list."""
        value = self.raw(key)
        if not isinstance(value, (list, tuple)):
            return None
        return [bool(item) for item in value[:n_layer]] + [False] * (n_layer - len(value))

    def _whole(self, key: str, value: Any) -> int:
        if not isinstance(value, (int, float)) or not 0 <= value < LARGEST:
            raise PoolError(f"{self.path} has {self.architecture}.{key} = {value!r:.80}, no count: get the file again")
        return int(value)
