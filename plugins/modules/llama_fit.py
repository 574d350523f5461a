#!/usr/bin/python
# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: llama_fit
short_description: What a model takes per device, by llama.cpp itself
version_added: 0.1.0
description:
  - Runs C(llama-fit-params) of an installed llama.cpp, which measures a model without loading it, and returns the
    bytes of weights, context and compute buffers per device.
  - A program that is missing, hangs, crashes or prints something else is no failure. RV(fit.error) then says why
    nothing is known.
  - A worker serves one client at a time, and the program waits for a busy one without an end. Ask
    M(relay.pool.rpc_ping) first, and use this module with idle workers only.
  - The program is killed when the time is up. A C(ggml-rpc-server) that does not ignore SIGPIPE, as the units of this
    collection have it, may end then.
  - The program reserves an output row for every token of a micro batch where a server reserves one per slot, so its
    compute buffer on the device with the output is larger than that of a server.
author:
  - relay.pool contributors (@relay-pool)
attributes:
  check_mode:
    description: Can run in check mode and say what would change without changing it.
    support: full
    details:
      - Is skipped in check mode, since it would occupy workers.
  diff_mode:
    description: Can show what changes, or would change, as a difference.
    support: N/A
    details:
      - This module changes nothing.
options:
  program:
    description: Path of C(llama-fit-params). Empty means that the build has none.
    type: str
    default: ''
  args:
    description: Arguments as for C(llama-server), without those that only a server has.
    type: list
    elements: str
    default: []
  user:
    description: The user as which the program runs. By default the one who runs the module. Only root may be another.
    type: str
    default: ''
  groups:
    description: Groups that the program has besides those of O(user), for example those that own the devices of GPUs.
    type: list
    elements: str
    default: []
  environment:
    description:
      - Environment variables of the program, which gets no others but a search path.
      - The machine logs the options of a module, so put no secrets here.
    type: dict
    default: {}
  timeout:
    description: Seconds that the program has.
    type: float
    default: 120
seealso:
  - module: relay.pool.rpc_ping
  - module: relay.pool.llama_info
"""

EXAMPLES = r"""
- name: Measure a model on two idle workers
  relay.pool.llama_fit:
    program: /opt/relay-pool/llama.cpp/current/bin/llama-fit-params
    args:
      - --model
      - /srv/models/model.gguf
      - --rpc
      - 10.0.0.24:50052,10.0.0.25:50052
      - --device
      - RPC0,RPC1
      - --tensor-split
      - 20,29
      - --n-gpu-layers
      - all
      - --ctx-size
      - "16384"
    user: relay-pool
  register: measured
"""

RETURN = r"""
fit:
  description: What was measured.
  returned: success
  type: dict
  contains:
    devices:
      description:
        - C(weights_bytes), C(context_bytes) (KV cache and recurrent state) and C(compute_bytes) by llama.cpp's name of
          a device, C(Host) being RAM. Whole MiB, rounded down. Null if nothing is known.
      returned: success
      type: dict
      sample: {"RPC0": {"weights_bytes": 165675008, "context_bytes": 47185920, "compute_bytes": 39845888}}
    error:
      description: Why nothing is known. Null if something is.
      returned: success
      type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.relay.pool.plugins.module_utils import deadline, llama_fit


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "program": {"type": "str", "default": ""},
            "args": {"type": "list", "elements": "str", "default": []},
            "user": {"type": "str", "default": ""},
            "groups": {"type": "list", "elements": "str", "default": []},
            "environment": {"type": "dict", "default": {}},
            "timeout": {"type": "float", "default": 120},
        },
        supports_check_mode=True,
    )
    options = module.params
    if module.check_mode:
        fit = {"devices": None, "error": "nothing is measured in check mode"}
        module.exit_json(changed=False, skipped=True, fit=fit)
    if not options["program"]:
        module.exit_json(changed=False, fit={"devices": None, "error": "the build has no llama-fit-params"})
    try:
        deadline.check_timeout(options["timeout"])
        env = llama_fit.environment(options["environment"])
    except ValueError as exc:
        module.fail_json(msg=str(exc))
    fit = llama_fit.measure(
        options["program"], options["args"], options["timeout"], options["user"], options["groups"], env
    )
    module.exit_json(changed=False, fit=fit)


if __name__ == "__main__":
    main()
