# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the variables of the pool are what they may be, before anything reads them.

A value may come from an environment variable or from the command line and is a text then. Ansible's own conversions
are not asked: they make 0 of "abc", 16 of "16.5", 8 of " 8" and 1 of true.
"""

from __future__ import annotations

import math
import re
from typing import Any, Iterable, Mapping, NamedTuple

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError

_WHOLE = re.compile(r"(?:0|-?[1-9][0-9]{0,30})\Z")
_NUMBER = re.compile(r"-?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?\Z")
# Those that both the filter `bool` and the check of a boolean option understand, in the same way.
SWITCHES = ("true", "false", "yes", "no", "on", "off", "1", "0")
MAX_SHOWN_CHARACTERS = 80


class Broken(NamedTuple):
    """A variable that is not what it may be; value: as it is shown to people."""

    name: str
    value: str
    range: str


def whole(value: Any) -> int | None:
    """The whole number that the value is or spells, None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return int(value) if isinstance(value, str) and _WHOLE.match(value) else None


def number(value: Any) -> float | None:
    """The finite number that the value is or spells, None for anything else."""
    if isinstance(value, str):
        found = float(value) if _NUMBER.match(value) else math.nan
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300:
        found = float(value)
    else:
        found = math.nan
    return found if math.isfinite(found) else None


def is_switch(value: Any) -> bool:
    """True for what means true or false wherever it is read."""
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return value in (0, 1)
    return isinstance(value, str) and value.lower() in SWITCHES


def shown(value: Any) -> str:
    """The value on one line: a text in quotes where its ends could not be seen otherwise."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if not text or text != text.strip() or not text.isprintable():
        text = repr(text)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."


def broken(rules: Iterable[Mapping[str, Any]]) -> list[Broken]:
    """The rules that do not hold.

    Each rule has ``name``, ``value`` and one of ``whole`` (list of the least and the most), ``number`` (the same),
    ``choices``, ``switch``, or ``ok`` with ``range`` in words. Besides: ``null`` (may be null), ``what`` (how a whole
    number is called), ``not_above`` (the name of the variable that is the most).
    """
    rules = list(rules)
    values = {rule["name"]: rule["value"] for rule in rules}
    return [found for found in (_broken(rule, values) for rule in rules) if found]


def _broken(rule: Mapping[str, Any], values: Mapping[str, Any]) -> Broken | None:
    value = rule["value"]
    if rule.get("null") and value is None:
        return None
    holds, words = _judged(rule, value, values)
    empty = ", or null" if rule.get("null") else ""
    return None if holds else Broken(rule["name"], shown(value), words + empty)


def _judged(rule: Mapping[str, Any], value: Any, values: Mapping[str, Any]) -> tuple[bool, str]:
    """(does it hold, what it must be in words)."""
    if "whole" in rule:
        least, most = rule["whole"]
        limit = rule.get("not_above")
        found = whole(value)
        # Where that variable itself is wrong, it is named for that.
        above = whole(values.get(limit)) if limit else None
        holds = found is not None and least <= found <= (most if above is None else max(min(most, above), least))
        return holds, f"{rule.get('what', 'a whole number')} from {least} to {limit or most}"
    if "number" in rule:
        least, most = rule["number"]
        found = number(value)
        return found is not None and least <= found <= most, f"a number from {least} to {most}"
    if "choices" in rule:
        return isinstance(value, str) and value in rule["choices"], "one of " + ", ".join(rule["choices"])
    if "switch" in rule:
        return is_switch(value), "true or false"
    if "ok" in rule and "range" in rule:
        return rule["ok"] is True, str(rule["range"])
    raise PoolError(f"the rule of {rule['name']} says nothing: give it whole, number, choices, switch, or ok and range")
