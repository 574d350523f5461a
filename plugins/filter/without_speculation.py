# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/server/speculation_flags.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: without_speculation
short_description: Arguments of llama-server without those of speculation
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Takes every argument that is about speculation, and its value, out of a command line of C(llama-server), in the
    spelling of any build.
options:
  _input:
    description: The arguments.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: The same server, without its draft
  ansible.builtin.debug:
    msg: "{{ relay_plan.server_args | relay.pool.without_speculation }}"
"""

RETURN = r"""
_value:
  description: The arguments that are left, in their order.
  type: list
  elements: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.server import speculation_flags


def without_speculation(argv):
    """Return the arguments that are left."""
    if not isinstance(argv, (list, tuple)) or not all(isinstance(word, str) for word in argv):
        raise AnsibleFilterError("relay.pool.without_speculation: the input must be a list of arguments.")
    return speculation_flags.without_speculation(argv)


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"without_speculation": without_speculation}
