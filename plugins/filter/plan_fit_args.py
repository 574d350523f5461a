# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/server/fit.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_fit_args
short_description: Arguments with which llama-fit-params measures a plan
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Takes from a plan's command line of C(llama-server) what decides the memory, for M(relay.pool.llama_fit).
options:
  _input:
    description: The plan, as M(relay.pool.placement) returns it.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Measure the target
  relay.pool.llama_fit:
    program: "{{ relay_llama_info.llama.fit_params | default('', true) }}"
    args: "{{ (relay_plan | relay.pool.plan_fit_args).target }}"
  register: measured
"""

RETURN = r"""
_value:
  description: The arguments.
  type: dict
  contains:
    target:
      description: Those for the target.
      type: list
      elements: str
    draft:
      description: Those for the draft. Empty if the plan has none.
      type: list
      elements: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE
from ansible_collections.relay.pool.plugins.plugin_utils.server.fit import draft_args, target_args


def plan_fit_args(plan):
    """Return the arguments for both models."""
    if not isinstance(plan, dict) or "server_args" not in plan:
        raise AnsibleFilterError("relay.pool.plan_fit_args: the input must be a plan of relay.pool.placement.")
    try:
        return {"target": target_args(plan), "draft": draft_args(plan)}
    except UNREADABLE as exc:
        raise AnsibleFilterError(
            f"relay.pool.plan_fit_args: the plan lacks something or was edited by hand ({exc}): deploy again."
        ) from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"plan_fit_args": plan_fit_args}
