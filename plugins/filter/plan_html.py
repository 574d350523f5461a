# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/views/html.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_html
short_description: A plan as a picture, in one HTML file
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Draws the memory of every device that the plan uses, all on one scale, as a bar of weights, KV cache with recurrent
    state, compute buffers, draft, reserve and what is left, with the same numbers as text.
  - A bar that is narrower than a sixteenth of the full width is drawn a second time, magnified. Of RAM that holds no
    layers, what is left is cut off where the scale ends. Both are said beside the bars.
  - Beside the bars stand the layers, the names over RPC, endpoints and links, the state of the draft, the estimates,
    the warnings, what was refused, the advice and the command lines.
  - The file needs no scripts and nothing else. It follows the light or dark setting of the reader, can be printed
    without colours, and fits a screen of 400 pixels.
options:
  _input:
    description: The plan, as M(relay.pool.placement) returns it.
    type: dict
    required: true
seealso:
  - plugin: relay.pool.plan_table
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Draw the plan
  ansible.builtin.copy:
    content: "{{ relay_plan | relay.pool.plan_html }}"
    dest: plan.html
    mode: "0644"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
_value:
  description: The text of the file.
  type: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import UNREADABLE
from ansible_collections.relay.pool.plugins.plugin_utils.views import html


def plan_html(plan):
    """Return the plan as HTML."""
    if not isinstance(plan, dict) or "stages" not in plan:
        raise AnsibleFilterError("relay.pool.plan_html: the input must be a plan of relay.pool.placement.")
    try:
        return html.plan_html(plan)
    except UNREADABLE as exc:
        raise AnsibleFilterError(
            f"relay.pool.plan_html: the plan lacks something or was edited by hand ({exc}): plan again."
        ) from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"plan_html": plan_html}
