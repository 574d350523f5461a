# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/server/lossless.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: lossless_differences
short_description: Where texts with speculation differ from those without it
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Compares the completions of several prompts to the letter.
  - Some builds count tokens that they do not send when a text with speculation reaches its limit. Such a text may be
    shorter by as many tokens, and is otherwise compared to its end.
positional: speculating, plain, draft_max
options:
  _input:
    description: The prompts.
    type: list
    elements: str
    required: true
  speculating:
    description:
      - C(probe) of M(relay.pool.llama_probe) with speculation, in the order of the prompts.
      - Read are C(text), null where the completion failed, C(tokens) and C(tokens_unsent).
    type: list
    elements: dict
    required: true
  plain:
    description: Those without speculation.
    type: list
    elements: dict
    required: true
  draft_max:
    description: Tokens that a round proposes at most, V(0) to forgive nothing.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Fail when speculation changes a text
  ansible.builtin.assert:
    that: differences | length == 0
    fail_msg: "{{ differences | join(' ') }}"
  vars:
    differences: "{{ ['The sea is'] | relay.pool.lossless_differences([with_draft.probe], [without.probe], 16) }}"
"""

RETURN = r"""
_value:
  description: A sentence per prompt whose texts differ, with the position and both texts from there on.
  type: list
  elements: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE
from ansible_collections.relay.pool.plugins.plugin_utils.server.lossless import differences


def lossless_differences(prompts, speculating, plain, draft_max=0):
    """Return the sentences."""
    if not all(isinstance(texts, (list, tuple)) for texts in (prompts, speculating, plain)):
        raise AnsibleFilterError("relay.pool.lossless_differences: the prompts and both completions must be lists.")
    try:
        return differences(prompts, speculating, plain, int(draft_max))
    except UNREADABLE as exc:
        raise AnsibleFilterError(f"relay.pool.lossless_differences: {exc}.") from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"lossless_differences": lossless_differences}
