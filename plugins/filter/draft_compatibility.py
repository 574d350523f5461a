# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/drafts/eligibility.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: draft_compatibility
short_description: Whether a draft model can draft for a target
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Applies llama.cpp's vocabulary rule for drafting with a separate model.
  - A mismatch does not stop C(llama-server) at its start. It drops the draft, or aborts at the first token that only
    one of the two knows, so this is asked beforehand.
positional: draft, comparison
options:
  _input:
    description: The target, as M(relay.pool.gguf_info) returns it.
    type: dict
    required: true
  draft:
    description: The draft, as M(relay.pool.gguf_info) returns it.
    type: dict
    required: true
  comparison:
    description:
      - What M(relay.pool.gguf_info) found with both files at hand.
      - Without it the digests of both are compared.
    type: dict
"""

EXAMPLES = r"""
- name: Is it a draft for this target?
  ansible.builtin.assert:
    that: verdict.compatible
    fail_msg: "{{ verdict.message }}"
  vars:
    verdict: "{{ target.gguf | relay.pool.draft_compatibility(draft.gguf) }}"
"""

RETURN = r"""
_value:
  description: The verdict.
  type: dict
  contains:
    compatible:
      description: Whether llama.cpp drafts with it and lives.
      type: bool
    reason:
      description: What differs, or V(unknown) when the vocabularies could not be compared.
      type: str
    message:
      description: The same for people.
      type: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import compatibility


def draft_compatibility(target, draft, comparison=None):
    """Return the verdict as a dictionary."""
    if not all(isinstance(value, dict) for value in (target, draft, comparison or {})):
        raise AnsibleFilterError(
            "relay.pool.draft_compatibility: target and draft must be gguf results of relay.pool.gguf_info, "
            "comparison the comparison in one."
        )
    return compatibility(target, draft, comparison)


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"draft_compatibility": draft_compatibility}
