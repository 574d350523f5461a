# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/planner/guard.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_shortfalls
short_description: Compare a plan with what is free on its machines now
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Between the plan and the launch there may be hours. Says on which devices of a plan there is too little room now.
  - What the pool's own units hold counts as free, as for M(relay.pool.placement), so a pool that runs is no shortfall
    of its own. The reserve of a device is no allocation and may have shrunk.
positional: nodes
options:
  _input:
    description: The plan, as M(relay.pool.placement) returns it.
    type: dict
    required: true
  nodes:
    description: Facts by inventory name, each as M(relay.pool.node_facts) returns them, gathered just now.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Stop before anything is started that would not fit
  ansible.builtin.assert:
    that: found.target | length == 0
    fail_msg: "{{ (found.target + found.draft) | join(' ') }}"
  vars:
    facts: "{{ ansible_play_hosts | map('extract', hostvars) | map(attribute='ansible_facts.relay_node') }}"
    nodes: "{{ dict(ansible_play_hosts | zip(facts)) }}"
    found: "{{ relay_plan | relay.pool.plan_shortfalls(nodes) }}"
"""

RETURN = r"""
_value:
  description: What is missing.
  type: dict
  contains:
    target:
      description: A sentence per device that has no room for what the plan has there.
      type: list
      elements: str
    draft:
      description: A sentence per device that would have room without the draft.
      type: list
      elements: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE
from ansible_collections.relay.pool.plugins.plugin_utils.planner.guard import shortfalls


def plan_shortfalls(plan, nodes):
    """Return the sentences as a dictionary."""
    if not isinstance(plan, dict) or "stages" not in plan:
        raise AnsibleFilterError("relay.pool.plan_shortfalls: the input must be a plan of relay.pool.placement.")
    if not isinstance(nodes, dict):
        raise AnsibleFilterError("relay.pool.plan_shortfalls: the argument must be facts by the name of the machine.")
    try:
        return shortfalls(plan, nodes)._asdict()
    except UNREADABLE as exc:
        raise AnsibleFilterError(
            f"relay.pool.plan_shortfalls: the plan or the facts lack something or were edited by hand ({exc}): "
            "deploy again."
        ) from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"plan_shortfalls": plan_shortfalls}
