# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/server/systemd.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: systemd_exec
short_description: An argument list as a value of ExecStart
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Writes an argument list as one value of C(ExecStart=), so that systemd hands exactly these arguments to the program.
  - Percent and dollar signs are doubled; spaces, quotes, backslashes and control characters are quoted.
options:
  _input:
    description: The arguments; the first is the absolute path of the program.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Show a line of a unit
  ansible.builtin.debug:
    msg: "ExecStart={{ ['/opt/bin/llama-server', '--model', '/srv/my models/a.gguf'] | relay.pool.systemd_exec }}"
"""

RETURN = r"""
_value:
  description: The value, one line.
  type: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.server.systemd import exec_start


def systemd_exec(argv):
    """Return the arguments as one string."""
    if isinstance(argv, str) or not isinstance(argv, (list, tuple)):
        raise AnsibleFilterError("relay.pool.systemd_exec: the input must be a list of arguments, not a command line.")
    try:
        return exec_start(argv)
    except PoolError as exc:
        raise AnsibleFilterError(f"relay.pool.systemd_exec: {exc}.") from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"systemd_exec": systemd_exec}
