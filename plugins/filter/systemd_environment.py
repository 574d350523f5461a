# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/server/systemd.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: systemd_environment
short_description: Variables as a value of Environment
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Writes environment variables as one value of C(Environment=), so that the service sees exactly these values.
options:
  _input:
    description: Values by name.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show a line of a unit
  ansible.builtin.debug:
    msg: "Environment={{ {'CUDA_VISIBLE_DEVICES': '0,1'} | relay.pool.systemd_environment }}"
"""

RETURN = r"""
_value:
  description: The value, one line, sorted by name.
  type: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.server.systemd import environment


def systemd_environment(variables):
    """Return the variables as one string."""
    if not isinstance(variables, dict):
        raise AnsibleFilterError("relay.pool.systemd_environment: the input must be a dictionary of values by name.")
    try:
        return environment(variables)
    except PoolError as exc:
        raise AnsibleFilterError(f"relay.pool.systemd_environment: {exc}.") from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"systemd_environment": systemd_environment}
