#!/usr/bin/python
# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rpc_ping
short_description: State of a llama.cpp RPC worker
version_added: 0.1.0
description:
  - Says whether an RPC worker is idle or busy, and what an idle one offers. It never harms the worker.
  - A worker to which this machine already holds a connection is reported as busy without touching it, so the
    machine that runs C(llama-server) is the best place to ask from.
  - A worker that is held by another machine is asked with a single byte. Each such question takes a place in its
    queue of two until it is idle again, so do not ask a busy worker in a loop.
author:
  - relay.pool contributors (@relay-pool)
extends_documentation_fragment:
  - relay.pool.attributes
  - relay.pool.attributes.info_module
options:
  endpoint:
    description: IPv4 address or name, and port, such as V(10.0.0.24:50052).
    type: str
    required: true
  timeout:
    description: Seconds that the whole question may take.
    type: float
    default: 2
seealso:
  - module: relay.pool.llama_probe
"""

EXAMPLES = r"""
- name: Is the worker there?
  relay.pool.rpc_ping:
    endpoint: 10.0.0.24:50052
  register: ping
  until: ping.rpc.state in ['idle', 'busy']
  retries: 30
  delay: 1
"""

RETURN = r"""
rpc:
  description: The worker.
  returned: success
  type: dict
  contains:
    state:
      description:
        - V(idle), V(busy), V(unreachable) or V(not_rpc).
        - A service of another kind that accepts connections and waits is reported as V(busy).
      returned: success
      type: str
    protocol:
      description: RPC protocol of an idle worker.
      returned: success
      type: str
      sample: 7.0.0
    devices:
      description: C(memory_total_bytes) and C(memory_free_bytes) of each device. A CPU device reports all RAM as free.
      returned: success
      type: list
      elements: dict
    rtt_seconds:
      description: Median time of a TCP connect, null when no connection was made.
      returned: success
      type: float
    error:
      description: What is wrong, or null.
      returned: success
      type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.relay.pool.plugins.module_utils import rpc


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "endpoint": {"type": "str", "required": True},
            "timeout": {"type": "float", "default": 2},
        },
        supports_check_mode=True,
    )
    try:
        found = rpc.ping(module.params["endpoint"], module.params["timeout"])
    except ValueError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, rpc=found)


if __name__ == "__main__":
    main()
