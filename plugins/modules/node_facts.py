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
  - Reads GPUs, memory, CPU, addresses, links, units and listeners of a machine into RV(ansible_facts.relay_node).
  - A number that cannot be read is null with a reason. A probe that breaks becomes an entry in
    RV(ansible_facts.relay_node.errors), never a failed task.
  - Needs no root. Without it, the process behind another user's socket stays null, the connections of units are
    empty, and of some GPUs neither the memory nor the pool's share of it can be read.
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
      - IPv4 address or name of the machine that is talked to. RPC traffic takes the source address of the route there.
      - Not used when O(rpc_address), O(rpc_interface) or O(rpc_subnet) is given.
    type: str
    default: ''
  overrides:
    description:
      - What is known better than any probe can tell. What is left out or null stays as it was read.
      - Free memory that is stated says what the pool may use in all, so its own share of that memory is reported as 0.
      - No more can be free than there is. Stating more is an error, and a total that is stated lowers what was read as
        free.
    type: dict
    default: {}
    suboptions:
      memory:
        description: The RAM.
        type: dict
        suboptions:
          total_bytes:
            description: Size of the RAM in bytes.
            type: int
          available_bytes:
            description: RAM that the pool may use, in bytes.
            type: int
          bandwidth_bytes_per_second:
            description: How fast the RAM is read, in bytes per second, at least 1.
            type: int
      cpu:
        description: The CPU.
        type: dict
        suboptions:
          model:
            description: Name of the CPU.
            type: str
          threads:
            description: Hardware threads, at least 1.
            type: int
          physical_cores:
            description: Cores, at least 1 and at most C(threads).
            type: int
      gpus:
        description:
          - One entry per GPU, selected by C(index), C(uuid) or C(bus_id). What selects it is not changed by the entry.
          - An entry that selects a GPU that no probe found is an error, which lists the GPUs there are. By C(index) it
            adds the GPU instead if it states C(memory_total_bytes) or C(memory_free_bytes). Without the second, all
            of the first counts as free.
        type: list
        elements: dict
        suboptions:
          index:
            description:
              - Number of the GPU among those of its vendor, as nvidia-smi, HIP or llama.cpp's SYCL back end counts.
            type: int
          vendor:
            description:
              - Vendor of the GPU, for machines on which GPUs of two vendors have the same C(index).
              - A GPU that is added is of V(nvidia) unless this says otherwise.
            type: str
            choices: [nvidia, amd, intel, apple]
          uuid:
            description: The vendor's identifier of the GPU, in quotes. It is what selects a MIG device.
            type: str
          bus_id:
            description: PCI address of the GPU, in quotes, for example V(0000:01:00.0).
            type: str
          name:
            description: Name of the GPU.
            type: str
          device:
            description:
              - The name that llama.cpp gives to the GPU, for example V(CUDA0).
              - A GPU that is added gets CUDA, ROCm, SYCL or MTL, by its vendor, and its C(index).
            type: str
          visible_devices:
            description:
              - Value of the vendor's variable (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES) in the process that uses
                the GPU.
            type: str
          driver:
            description: Version of the driver.
            type: str
          memory_total_bytes:
            description: Size of the GPU's memory in bytes.
            type: int
          memory_free_bytes:
            description: Memory of the GPU that the pool may use, in bytes.
            type: int
          memory_own_bytes:
            description:
              - Memory of the GPU that the pool's units hold, in bytes. The pool may use it besides what is free.
            type: int
          unified_memory:
            description: Whether the memory of the GPU is the machine's RAM.
            type: bool
          integrated:
            description: Whether the GPU is a part of the CPU.
            type: bool
          placeable:
            description:
              - Whether layers may be placed on the GPU. V(true) also holds for a GPU that a probe refused. If
                llama.cpp has no name for it, since it is hidden or lost, C(device) must be given too.
            type: bool
          reason:
            description: Why nothing may be placed on the GPU, for people.
            type: str
          bandwidth_bytes_per_second:
            description: How fast the memory of the GPU is read, in bytes per second, at least 1.
            type: int
  environment:
    description:
      - Environment of the pool's services on this machine. Where it sets CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES,
        HIP_VISIBLE_DEVICES or ZE_AFFINITY_MASK, a GPU that it hides is not placeable, and the others are named as these
        services see them.
    type: dict
    default: {}
  links:
    description: Machines to which the round-trip time is measured.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the machine in the inventory.
        type: str
        required: true
      address:
        description: IPv4 address of the machine.
        type: str
        required: true
      port:
        description: TCP port of the machine, from 1 to 65535.
        type: int
        required: true
  timeout:
    description: Seconds that the tools of each probe may take together.
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

- name: Say what no tool says of a GPU, and leave out another one, wherever they are plugged in
  relay.pool.node_facts:
    overrides:
      gpus:
        - uuid: GPU-5c0f4a2e-71d3-4c0b-9a5e-0b7f9c3d2e11
          memory_free_bytes: 21474836480
          bandwidth_bytes_per_second: 936000000000
        - bus_id: '0000:0a:00.0'
          placeable: false
          reason: it drives the display wall

- name: Add a GPU where nothing can be asked, as in a container without the vendor's tools
  relay.pool.node_facts:
    overrides:
      gpus:
        - index: 0
          vendor: amd
          name: AMD Radeon RX 7900 XTX
          memory_total_bytes: 25753026560

- name: Measure how far the other machines are
  relay.pool.node_facts:
    links:
      - name: gpu2
        address: 10.10.0.12
        port: 22
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
          description: The GPUs, also those on which nothing may be placed, by vendor and index.
          returned: always
          type: list
          elements: dict
          contains:
            index:
              description:
                - Number among the GPUs of the vendor, as nvidia-smi, HIP or llama.cpp's SYCL back end counts.
                - Null for a part of a GPU (MIG), and for a GPU whose number is not certain, which is not placeable.
              returned: always
              type: int
              sample: 0
            vendor:
              description: One of V(nvidia), V(amd), V(intel) and V(apple).
              returned: always
              type: str
            name:
              description: Name of the GPU.
              returned: always
              type: str
            uuid:
              description: The vendor's identifier of the GPU or of its part, or null.
              returned: always
              type: str
            bus_id:
              description: PCI address, or null.
              returned: always
              type: str
              sample: '0000:01:00.0'
            device:
              description:
                - The name that llama.cpp gives to the GPU in a process for which C(visible_devices) is set. Null if it
                  has none, since no process sees the GPU.
              returned: always
              type: str
              sample: CUDA0
            visible_devices:
              description:
                - The value of the vendor's variable (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES) for the process that
                  uses C(device). Null if the variable is left alone.
              returned: always
              type: str
            driver:
              description: Version of the driver, or its name if that is all there is, or null.
              returned: always
              type: str
            memory_total_bytes:
              description: Size of the memory in bytes, or null with a C(reason).
              returned: always
              type: int
            memory_free_bytes:
              description: Free memory in bytes, or null with a C(reason).
              returned: always
              type: int
            memory_own_bytes:
              description:
                - Memory that the pool's units hold, in bytes, which is not in C(memory_free_bytes). Null if unknown.
              returned: always
              type: int
            processes:
              description:
                - Processes that are not the pool's and use the GPU, the largest first, each with C(pid), C(name) and
                  C(memory_bytes). At most eight.
                - Null where no tool says which there are.
              returned: always
              type: list
              elements: dict
            unified_memory:
              description: Whether the memory is the machine's RAM.
              returned: always
              type: bool
            integrated:
              description: Whether the GPU is a part of the CPU.
              returned: always
              type: bool
            partition_of:
              description: The C(uuid) of the GPU of which this is a part (MIG), or null.
              returned: always
              type: str
            placeable:
              description: Whether layers may be placed on the GPU.
              returned: always
              type: bool
            reason:
              description: Why nothing may be placed there, or why a number is null. Null if there is nothing to say.
              returned: always
              type: str
            bandwidth_bytes_per_second:
              description: How fast the memory is read, in bytes per second, or null if unknown.
              returned: always
              type: int
            source:
              description:
                - The tool or the folder of C(/sys) that was read, or V(overrides) for a GPU that was added.
                - Null if nothing says more than that there is a GPU.
              returned: always
              type: str
            overridden:
              description: Names of the values that O(overrides) set.
              returned: always
              type: list
              elements: str
              sample: [memory_free_bytes]
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
          description: IPv4 addresses, without loopback.
          returned: always
          type: list
          elements: dict
          contains:
            interface:
              description: Name of the interface.
              returned: always
              type: str
            address:
              description: The address.
              returned: always
              type: str
            prefix:
              description: Length of the network's prefix in bits.
              returned: always
              type: int
            speed_mbps:
              description: Speed of the interface in Mbit/s, or null if the system does not say it.
              returned: always
              type: int
            wireless:
              description: Whether the interface is a wireless one, or stands on one.
              returned: always
              type: bool
        links:
          description: The machines in O(links).
          returned: always
          type: list
          elements: dict
          contains:
            name:
              description: Name of the machine.
              returned: always
              type: str
            address:
              description: Address to which the time was measured.
              returned: always
              type: str
            rtt_seconds:
              description: Round-trip time in seconds, or null with a C(reason).
              returned: always
              type: float
              sample: 0.00018
            interface:
              description: The interface that leads there, or null.
              returned: always
              type: str
            speed_mbps:
              description: Speed of that interface in Mbit/s, or null if the system does not say it.
              returned: always
              type: int
            wireless:
              description: Whether that interface is a wireless one, or null if it is unknown.
              returned: always
              type: bool
            reason:
              description: Why the time is null. Null if it is not.
              returned: always
              type: str
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
              C(started_before_unit_file) (the process is older than the unit file or one of its drop-ins),
              C(allowed_addresses) (addresses and networks of C(IPAddressAllow), an empty list if there are none) and
              C(established) (other ends of its TCP connections).
          returned: always
          type: list
          elements: dict
        listeners:
          description: Who listens on O(ports), with C(address), C(port), C(pid), C(command) and C(unit).
          returned: always
          type: list
          elements: dict
        ports:
          description:
            - C(range), the first and the last of the TCP ports that the kernel gives to outgoing connections
              (C(net.ipv4.ip_local_port_range)), or null where it does not say them, and C(reserved), those of which it
              gives none (C(net.ipv4.ip_local_reserved_ports)) as pairs of a first and a last one.
          returned: always
          type: dict
          sample: {"range": [32768, 60999], "reserved": [[50052, 50052]]}
        overrides:
          description:
            - Paths of the facts that O(overrides) set. A GPU stands in it as it was selected, for example C(gpus.1),
              C(gpus.amd1) or C(gpus.0000:01:00.0).
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
from ansible_collections.relay.pool.plugins.module_utils import deadline, node, overrides


def main() -> None:
    argument_spec = {
        "ports": {"type": "list", "elements": "int", "default": []},
        "units": {"type": "list", "elements": "str", "default": list(node.DEFAULT_UNITS)},
        "rpc_address": {"type": "str", "default": ""},
        "rpc_interface": {"type": "str", "default": ""},
        "rpc_subnet": {"type": "str", "default": ""},
        "route_to": {"type": "str", "default": ""},
        "overrides": overrides.argument_spec(),
        "environment": {"type": "dict", "default": {}},
        "links": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "name": {"type": "str", "required": True},
                "address": {"type": "str", "required": True},
                "port": {"type": "int", "required": True},
            },
        },
        "timeout": {"type": "float", "default": 10},
    }
    try:
        module = AnsibleModule(argument_spec=argument_spec, supports_check_mode=True)
    except TypeError:
        # A number where a dictionary belongs: ansible-core looks into it before it looks at what it is.
        module = AnsibleModule(
            argument_spec={name: {"type": "raw"} for name in argument_spec}, supports_check_mode=True
        )
        module.fail_json(msg=overrides.misplaced(module.params["overrides"]))
    try:
        deadline.check_timeout(module.params["timeout"])
        facts = node.gather(node.Options(**module.params))
    except ValueError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, ansible_facts={"relay_node": facts})


if __name__ == "__main__":
    main()
