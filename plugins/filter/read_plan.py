# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/planner/saved.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: read_plan
short_description: The plan in the text of a file, or why there is none
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Reads the text of a C(plan.json), and says in one sentence what is wrong if it is no plan.
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
- name: Check the plan of last week
  ansible.builtin.assert:
    that: read.problem is none
    fail_msg: "{{ read.problem | default('', true) }}"
  vars:
    read: "{{ lookup('ansible.builtin.file', 'monday.json') | relay.pool.read_plan('monday.json') }}"
"""

RETURN = r"""
_value:
  description: What was read.
  type: dict
  contains:
    plan:
      description: The plan, as M(relay.pool.placement) returns it, or null.
      type: dict
    problem:
      description: Why the text is no plan, a sentence, or null.
      type: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.planner import saved


def read_plan(text, name="plan.json", way_out="run plan.yml again"):
    """Return the plan, or what is wrong."""
    if not isinstance(text, str):
        raise AnsibleFilterError("relay.pool.read_plan: the input must be the text of a file.")
    try:
        return {"plan": saved.read_plan(text, name, way_out), "problem": None}
    except PoolError as exc:
        return {"plan": None, "problem": f"{exc}."}


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"read_plan": read_plan}
