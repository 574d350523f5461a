#!/usr/bin/python
# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: llama_info
short_description: Version and dialect of an installed llama.cpp
version_added: 0.1.0
description:
  - Runs C(llama-server --version) and C(llama-server --help) of one build and says which flags it understands.
  - A flag that the help lists only to say that it has been removed is not among them.
author:
  - relay.pool contributors (@relay-pool)
extends_documentation_fragment:
  - relay.pool.attributes
  - relay.pool.attributes.info_module
options:
  bin_dir:
    description: Directory that holds C(llama-server).
    type: path
    required: true
  timeout:
    description: Seconds that each call may take. A build with a GPU backend wakes the driver first.
    type: float
    default: 30
seealso:
  - module: relay.pool.node_facts
  - module: relay.pool.rpc_ping
"""

EXAMPLES = r"""
- name: Which llama.cpp is installed?
  relay.pool.llama_info:
    bin_dir: /opt/relay-pool/llama.cpp/current/bin
  register: info

- name: Does it know speculation by the model's own layers?
  ansible.builtin.assert:
    that: "'draft-mtp' in info.llama.spec_types"
"""

RETURN = r"""
llama:
  description: The build, or null when O(bin_dir) holds no C(llama-server).
  returned: success
  type: dict
  contains:
    bin_dir:
      description: Directory of the build, links resolved.
      returned: success
      type: str
    version:
      description: Version as the build prints it.
      returned: success
      type: str
      sample: 0.6.0-dev
    build:
      description: Build number, 0 when the build does not know it.
      returned: success
      type: int
      sample: 11434
    commit:
      description: Commit as the build prints it.
      returned: success
      type: str
    rpc_protocol:
      description:
        - RPC protocol from C(ggml-rpc.h), if that lies beside the binaries or in C(../include), else null.
        - Of a running worker, M(relay.pool.rpc_ping) tells it.
      returned: success
      type: str
      sample: '7.0'
    backends:
      description: Backends in the build, by its libraries or by texts in the binary.
      returned: success
      type: list
      elements: str
      sample: [CPU, RPC]
    flags:
      description: Flags that may be given.
      returned: success
      type: list
      elements: str
    spec_types:
      description:
        - Values of C(--spec-type), empty when the build does not have it.
        - Builds of early 2026 list n-grams only, and draft with C(--model-draft) alone.
      returned: success
      type: list
      elements: str
    flag_values:
      description:
        - What the help says of options whose values or default differ between builds, by flag.
        - C(words) are the words that it takes, those of C(--log-verbosity) its levels from 0.
        - C(default) is its default as a text, or null.
      returned: success
      type: dict
      sample:
        --n-gpu-layers:
          words: [auto, all]
          default: auto
    rpc_devices:
      description:
        - V(numbered) where devices of workers are named RPC0, RPC1 and so on, V(by_endpoint) where there is one per
          worker with its address as its name (until October 2025), null where the binary says neither.
      returned: success
      type: str
      sample: numbered
    rpc_reuses_graphs:
      description:
        - Whether the build has a worker compute its last graph again without sending it (since November 2025), or null
          where the binary cannot be read.
      returned: success
      type: bool
    bounds_output_rows:
      description:
        - Whether the build reserves the output rows that a context asks for, and not one per token of a batch, which
          takes C(ubatch-size) times the vocabulary times four bytes, or null where the binary cannot be read.
      returned: success
      type: bool
    environment:
      description:
        - Environment variables that the build takes options from, those of removed options too, which stop its start.
        - The one with the API key is not among them.
      returned: success
      type: list
      elements: str
    server:
      description: Path of C(llama-server).
      returned: success
      type: str
    rpc_server:
      description: Path of C(ggml-rpc-server) or, in older builds, C(rpc-server), or null.
      returned: success
      type: str
    fit_params:
      description: Path of C(llama-fit-params), or null where it is not there or cannot print what it measures.
      returned: success
      type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.relay.pool.plugins.module_utils import deadline, llama_binary


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "bin_dir": {"type": "path", "required": True},
            "timeout": {"type": "float", "default": 30},
        },
        supports_check_mode=True,
    )
    try:
        deadline.check_timeout(module.params["timeout"])
        found = llama_binary.describe(module.params["bin_dir"], module.params["timeout"])
    except (llama_binary.LlamaBinaryError, ValueError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, llama=found)


if __name__ == "__main__":
    main()
