# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the parts of the HTML file are made with."""

from __future__ import annotations

from typing import Mapping
from xml.etree.ElementTree import Element, SubElement


def add(parent: Element, tag: str, text: str | None = None, attributes: Mapping[str, str] | None = None) -> Element:
    """A new last child. Its text and attributes are escaped when the tree is serialised."""
    child = SubElement(parent, tag, dict(attributes or {}))
    child.text = text
    return child


def spaced(number: str) -> str:
    """A number of MiB, its digits in threes, apart by a narrow space at which no line breaks."""
    return "unknown" if number == "?" else f"{int(number):,}".replace(",", "\u202f")
