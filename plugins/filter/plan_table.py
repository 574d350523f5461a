# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/views/table.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_table
short_description: A plan as a text table
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Writes a plan for the terminal, about 100 columns wide, a line per stage and all sizes in MiB, then the draft,
    the links of the workers, the command lines, what was refused, the warnings and the advice.
options:
  _input:
    description: The plan, as M(relay.pool.placement) returns it.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the plan
  ansible.builtin.debug:
    msg: "{{ (relay_plan | relay.pool.plan_table).splitlines() }}"
"""

RETURN = r"""
_value:
  description: The table, several lines.
  type: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE
from ansible_collections.relay.pool.plugins.plugin_utils.views import table


def plan_table(plan):
    """Return the plan as text."""
    if not isinstance(plan, dict) or "stages" not in plan:
        raise AnsibleFilterError("relay.pool.plan_table: the input must be a plan of relay.pool.placement.")
    try:
        return table.plan_table(plan)
    except UNREADABLE as exc:
        raise AnsibleFilterError(
            f"relay.pool.plan_table: the plan lacks something or was edited by hand ({exc}): plan again."
        ) from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"plan_table": plan_table}
