# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/server/fit.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_fit
short_description: Compare a plan with what the installed llama.cpp measures
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Says of which devices the installed C(llama-fit-params) measures more than the plan keeps free there.
  - The program reserves an output row for every token of a micro batch. What that makes of the compute buffers is
    computed from the headers of the models, and taken off.
positional: target, draft, model, draft_model
options:
  _input:
    description: The plan, as M(relay.pool.placement) returns it.
    type: dict
    required: true
  target:
    description: C(fit) of the target, as M(relay.pool.llama_fit) returns it.
    type: dict
    required: true
  draft:
    description: C(fit) of the draft, or null where the plan has none.
    type: dict
  model:
    description: The target, as M(relay.pool.gguf_info) returns it.
    type: dict
    required: true
  draft_model:
    description: The draft, as M(relay.pool.gguf_info) returns it, or null.
    type: dict
"""

EXAMPLES = r"""
- name: Stop before a server is started that would need more than was planned
  ansible.builtin.assert:
    that: fit.exceeded | length == 0
    fail_msg: "{{ fit.exceeded | join(' ') }}"
  vars:
    fit: "{{ relay_plan | relay.pool.plan_fit(measured.fit, none, relay_model_info.gguf, none) }}"
"""

RETURN = r"""
_value:
  description: What was found.
  type: dict
  contains:
    exceeded:
      description: A sentence per device with too small a plan, with both numbers and those of each part.
      type: list
      elements: str
    agreed:
      description: What was compared and is as planned, or less.
      type: list
      elements: str
    unchecked:
      description: What could not be compared, a sentence each.
      type: list
      elements: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE, PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.planner.output_rows import output_rows
from ansible_collections.relay.pool.plugins.plugin_utils.server.fit import check_result, judge


def plan_fit(plan, target, draft, model, draft_model):
    """Return the sentences as a dictionary."""
    if not isinstance(plan, dict) or "stages" not in plan:
        raise AnsibleFilterError("relay.pool.plan_fit: the input must be a plan of relay.pool.placement.")
    try:
        check_result(target)
        rows = output_rows(plan, model, draft_model)
        return judge(plan, target, draft if draft is None else check_result(draft), rows)._asdict()
    except PoolError as exc:
        raise AnsibleFilterError(f"relay.pool.plan_fit: {exc}.") from None
    except UNREADABLE as exc:
        raise AnsibleFilterError(
            f"relay.pool.plan_fit: the plan or a model lacks something or was edited by hand ({exc}): deploy again."
        ) from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"plan_fit": plan_fit}
