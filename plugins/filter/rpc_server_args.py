# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/server/command_line.py``: ggml-rpc-server."""

from __future__ import annotations

DOCUMENTATION = r"""
name: rpc_server_args
short_description: Options of ggml-rpc-server as an argument list
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Writes the arguments of C(ggml-rpc-server), the program's name excluded.
  - C(--threads) reaches CPU devices only, so it is printed for them alone.
options:
  _input:
    description: A dictionary with the keys C(host), C(port), C(devices) (list), C(threads) and C(cache) (boolean).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the command line
  ansible.builtin.debug:
    msg: "{{ {'host': '10.0.0.24', 'port': 50052, 'devices': ['CUDA0']} | relay.pool.rpc_server_args | join(' ') }}"
"""

RETURN = r"""
_value:
  description: The arguments after the program's name.
  type: list
  elements: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.server import command_line


def rpc_server_args(options):
    """Return the arguments as a list of strings."""
    if not isinstance(options, dict):
        raise AnsibleFilterError("relay.pool.rpc_server_args: the input must be a dictionary of options.")
    try:
        return command_line.rpc_server_args(options)
    except PoolError as exc:
        raise AnsibleFilterError(f"relay.pool.rpc_server_args: {exc}.") from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"rpc_server_args": rpc_server_args}
