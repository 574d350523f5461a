# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/server/proof.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_proof
short_description: Compare a plan with what runs
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Says whether a running C(llama-server) is what the plan has, in sentences.
  - It compares the slots and their context, whether every slot speculates, by which type, and whether tokens were
    proposed, and the bytes of weights and KV cache per device, those of the draft too, to the MiB.
positional: probe
options:
  _input:
    description: The plan, as M(relay.pool.placement) returns it.
    type: dict
    required: true
  probe:
    description: The probe, as M(relay.pool.llama_probe) returns it.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Fail when something else runs
  ansible.builtin.assert:
    that: proof.differences | length == 0
    fail_msg: "{{ proof.differences | join(' ') }}"
  vars:
    proof: "{{ relay_plan | relay.pool.plan_proof(seen.probe) }}"
"""

RETURN = r"""
_value:
  description: What was found.
  type: dict
  contains:
    differences:
      description: What runs otherwise than planned, a sentence each. Empty if the plan runs.
      type: list
      elements: str
    draft_differences:
      description: Those of the differences that are about speculation alone.
      type: list
      elements: str
    proven:
      description: What was proven, a sentence each.
      type: list
      elements: str
    unproven:
      description: What could not be looked at, a sentence each.
      type: list
      elements: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE
from ansible_collections.relay.pool.plugins.plugin_utils.server.proof import prove


def plan_proof(plan, probe):
    """Return the proof as a dictionary."""
    if not isinstance(plan, dict) or "stages" not in plan:
        raise AnsibleFilterError("relay.pool.plan_proof: the input must be a plan of relay.pool.placement.")
    if not isinstance(probe, dict) or "healthy" not in probe:
        raise AnsibleFilterError("relay.pool.plan_proof: the argument must be the probe of relay.pool.llama_probe.")
    try:
        return prove(plan, probe)._asdict()
    except (*UNREADABLE, ZeroDivisionError) as exc:
        raise AnsibleFilterError(
            f"relay.pool.plan_proof: the plan or the probe lacks something or was edited by hand ({exc}): deploy again."
        ) from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"plan_proof": plan_proof}
