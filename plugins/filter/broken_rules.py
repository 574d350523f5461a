# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/ranges.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: broken_rules
short_description: The variables that are not what they may be
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Checks values that may be texts, because they come from an environment variable or from the command line, and
    returns the rules that do not hold.
  - It is stricter than the filters C(int) and C(float), which make V(0) of V(abc) and V(16) of V(16.5).
options:
  _input:
    description:
      - The rules. Each has a C(name), a C(value), and one of C(whole) or C(number) (a list of the least and the most),
        C(choices), C(switch), or C(ok) with C(range) in words.
      - Besides, C(null) lets a value be null, C(what) says how a whole number is called, and C(not_above) names the
        variable that is the most.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Stop on a value that cannot be meant
  ansible.builtin.assert:
    that: broken | length == 0
    fail_msg: "{% for rule in broken %}{{ rule.name }} is {{ rule.value }}, but must be {{ rule.range }}. {% endfor %}"
  vars:
    broken: "{{ [{'name': 'relay_draft_max', 'value': '1e3', 'whole': [0, 64]}] | relay.pool.broken_rules }}"
"""

RETURN = r"""
_value:
  description: The rules that do not hold, each with C(name), C(value) as it is shown, and C(range).
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE
from ansible_collections.relay.pool.plugins.plugin_utils.ranges import broken


def broken_rules(rules):
    """Return those that do not hold."""
    if not isinstance(rules, (list, tuple)):
        raise AnsibleFilterError("relay.pool.broken_rules: the input must be a list of rules.")
    try:
        return [rule._asdict() for rule in broken(rules)]
    except UNREADABLE as exc:
        raise AnsibleFilterError(f"relay.pool.broken_rules: a rule cannot be read ({exc}).") from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"broken_rules": broken_rules}
