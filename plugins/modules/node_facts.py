#!/usr/bin/python
# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_facts
short_description: Facts about a machine that matter for a pool of llama.cpp
version_added: 0.1.0
description:
  - Reads GPUs, memory, CPU, addresses, units and listeners of a machine into RV(ansible_facts.relay_node).
  - A number that cannot be read is null with a reason. A probe that breaks becomes an entry in
    RV(ansible_facts.relay_node.errors), never a failed task.
  - Needs no root. Without it, the process behind another user's socket stays null, and the connections of units are
    empty.
author:
  - relay.pool contributors (@relay-pool)
extends_documentation_fragment:
  - relay.pool.attributes
  - relay.pool.attributes.facts
options:
  ports:
    description: TCP ports for which to say who listens on them.
    type: list
    elements: int
    default: []
  units:
    description: systemd units to look at. Memory that their processes hold counts as the pool's own.
    type: list
    elements: str
    default: [relay-rpc.service, relay-llama.service]
  rpc_address:
    description: IPv4 address of this machine that RPC traffic takes. It must be one that the machine has.
    type: str
    default: ''
  rpc_interface:
    description: Interface whose IPv4 address RPC traffic takes.
    type: str
    default: ''
  rpc_subnet:
    description: IPv4 network such as V(10.10.0.0/24) in which the address must lie.
    type: str
    default: ''
  route_to:
    description:
      - IPv4 address of the machine that is talked to. RPC traffic takes the source address of the route there.
      - Not used when O(rpc_address), O(rpc_interface) or O(rpc_subnet) is given.
    type: str
    default: ''
  overrides:
    description:
      - What is known better than any probe can tell, with the keys V(memory), V(cpu) and V(gpus).
      - V(memory) takes C(total_bytes), C(available_bytes) and C(bandwidth_bytes_per_second).
      - V(cpu) takes C(model), C(threads) and C(physical_cores).
      - V(gpus) is a list whose entries hold C(index) and any field of a GPU. An index that no probe found adds a GPU.
      - An override of free memory says what the pool may use in all, so its own share of that memory is reported as 0.
    type: dict
    default: {}
  timeout:
    description: Seconds that each tool may take.
    type: float
    default: 10
seealso:
  - module: relay.pool.llama_info
  - module: relay.pool.rpc_ping
"""

EXAMPLES = r"""
- name: Read the machine, with the address that routes to the pool's host
  relay.pool.node_facts:
    ports: [50052]
    route_to: 10.0.0.1

- name: Let the pool use at most 8 GiB of RAM here, and leave the display's GPU alone
  relay.pool.node_facts:
    rpc_subnet: 10.10.0.0/24
    overrides:
      memory:
        available_bytes: 8589934592
      gpus:
        - index: 1
          placeable: false
"""

RETURN = r"""
ansible_facts:
  description: Facts for the host.
  returned: always
  type: dict
  contains:
    relay_node:
      description: The machine.
      returned: always
      type: dict
      contains:
        gpus:
          description:
            - One entry per GPU with C(index), C(vendor), C(name), C(uuid), C(bus_id), C(device) (as llama.cpp names
              it), C(driver), C(memory_total_bytes), C(memory_free_bytes), C(memory_own_bytes), C(unified_memory),
              C(integrated), C(placeable), C(reason) and C(bandwidth_bytes_per_second).
            - C(reason) says why a number is null or why nothing may be placed there.
          returned: always
          type: list
          elements: dict
        memory:
          description:
            - C(total_bytes) and C(available_bytes) of RAM, limited by control groups, C(own_bytes) that the units hold
              in anonymous and shared memory, and C(bandwidth_bytes_per_second), which only an override gives.
          returned: always
          type: dict
        cpu:
          description: C(model), C(threads) and C(physical_cores).
          returned: always
          type: dict
        addresses:
          description: IPv4 addresses with C(interface), C(address), C(prefix) and C(speed_mbps), without loopback.
          returned: always
          type: list
          elements: dict
        address:
          description: The address that RPC traffic takes, or null.
          returned: always
          type: str
          sample: 10.0.0.24
        address_reason:
          description: Why there is no RV(ansible_facts.relay_node.address).
          returned: always
          type: str
        hostname:
          description: Name of the machine.
          returned: always
          type: str
        machine_id:
          description: Content of C(/etc/machine-id), or null.
          returned: always
          type: str
        architecture:
          description: Machine architecture.
          returned: always
          type: str
          sample: x86_64
        gathered_at:
          description: When the facts were read, in UTC.
          returned: always
          type: str
          sample: '2026-11-29T15:00:00Z'
        python_version:
          description: Version of the Python that read them.
          returned: always
          type: str
        units:
          description:
            - Units that exist, each with C(name), C(active), C(sub_state), C(main_pid), C(argv), C(n_restarts),
              C(started_before_unit_file) (the process is older than the unit file or one of its drop-ins) and
              C(established) (other ends of its TCP connections).
          returned: always
          type: list
          elements: dict
        listeners:
          description: Who listens on O(ports), with C(address), C(port), C(pid), C(command) and C(unit).
          returned: always
          type: list
          elements: dict
        overrides:
          description: Paths of the facts that O(overrides) set.
          returned: always
          type: list
          elements: str
          sample: [memory.available_bytes, gpus.1.placeable]
        errors:
          description: What went wrong, with C(probe) and C(message).
          returned: always
          type: list
          elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.relay.pool.plugins.module_utils import deadline, node


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "list", "elements": "int", "default": []},
            "units": {"type": "list", "elements": "str", "default": list(node.DEFAULT_UNITS)},
            "rpc_address": {"type": "str", "default": ""},
            "rpc_interface": {"type": "str", "default": ""},
            "rpc_subnet": {"type": "str", "default": ""},
            "route_to": {"type": "str", "default": ""},
            "overrides": {"type": "dict", "default": {}},
            "timeout": {"type": "float", "default": 10},
        },
        supports_check_mode=True,
    )
    try:
        deadline.check_timeout(module.params["timeout"])
        facts = node.gather(node.Options(**module.params))
    except ValueError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, ansible_facts={"relay_node": facts})


if __name__ == "__main__":
    main()
