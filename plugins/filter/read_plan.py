# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/planner/saved.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: read_plan
short_description: The plan in the text of a file
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Reads the text of a C(plan.json), and says in one sentence why it is none if it is none.
positional: name, way_out
options:
  _input:
    description: The text of the file.
    type: str
    required: true
  name:
    description: What the file is called in messages.
    type: str
    default: plan.json
  way_out:
    description: What to do about a file that is no plan.
    type: str
    default: run plan.yml again
"""

EXAMPLES = r"""
- name: Who serves in the plan of last week?
  ansible.builtin.debug:
    msg: "{{ (lookup('ansible.builtin.file', 'monday.json') | relay.pool.read_plan('monday.json')).host }}"
"""

RETURN = r"""
_value:
  description: The plan, as M(relay.pool.placement) returns it.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.planner import saved


def read_plan(text, name="plan.json", way_out="run plan.yml again"):
    """Return the plan, or fail with one sentence."""
    if not isinstance(text, str):
        raise AnsibleFilterError("relay.pool.read_plan: the input must be the text of a file.")
    try:
        return saved.read_plan(text, name, way_out)
    except PoolError as exc:
        raise AnsibleFilterError(f"{exc}.") from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"read_plan": read_plan}
