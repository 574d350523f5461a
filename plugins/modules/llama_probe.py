#!/usr/bin/python
# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: llama_probe
short_description: Prove what a running llama-server does
version_added: 0.1.0
description:
  - Asks a C(llama-server) for its health, its slots and one completion, and reads from its unit's journal where the
    weights, caches and layers are.
  - A health check alone proves nothing, because it stays good after an RPC worker has died; only a completion tells.
  - What is wrong is in RV(probe.error) and never fails the task.
author:
  - relay.pool contributors (@relay-pool)
extends_documentation_fragment:
  - relay.pool.attributes
  - relay.pool.attributes.info_module
options:
  url:
    description: Where the server listens.
    type: str
    default: http://127.0.0.1:8384
  prompt:
    description: Text to complete.
    type: str
    default: The capital of France is
  max_tokens:
    description: Tokens to generate at most.
    type: int
    default: 32
  temperature:
    description: Sampling temperature. V(0) always takes the likeliest token.
    type: float
    default: 0
  complete:
    description: Ask for a completion. V(false) asks only for health, slots and the unit.
    type: bool
    default: true
  api_key:
    description: API key of the server.
    type: str
  api_key_file:
    description: File on the machine whose first line is the API key.
    type: path
  timeout:
    description: Seconds that each request may take.
    type: float
    default: 60
  unit:
    description:
      - systemd unit that runs the server. Its state is returned, and the journal of its current invocation is read.
      - The server must log at C(-lv 4) for RV(probe.buffers) and at C(-lv 5) for RV(probe.layers).
    type: str
seealso:
  - module: relay.pool.rpc_ping
"""

EXAMPLES = r"""
- name: Wait until the pool serves
  relay.pool.llama_probe:
    url: http://127.0.0.1:8384
    complete: false
  register: ready
  until: ready.probe.state == 'ready'
  retries: 60
  delay: 2

- name: One answer, and where the bytes are
  relay.pool.llama_probe:
    url: http://127.0.0.1:8384
    unit: relay-llama.service
  register: proof

- name: The draft must be live
  ansible.builtin.assert:
    that:
      - proof.probe.speculative
      - proof.probe.draft_n > 0
"""

RETURN = r"""
probe:
  description: What was found.
  returned: success
  type: dict
  contains:
    state:
      description:
        - V(down) when nothing answers, V(loading) while the model loads, V(ready), or V(failing) when the server
          answers and does not do its work.
      returned: success
      type: str
    healthy:
      description: The server is ready, and the completion succeeded if one was asked for.
      returned: success
      type: bool
    completion:
      description: A completion succeeded.
      returned: success
      type: bool
    text:
      description: Text of the completion, or null.
      returned: success
      type: str
    tokens:
      description: Number of tokens of the text, or null where the server does not list them.
      returned: success
      type: int
    tokens_unsent:
      description:
        - Tokens that the server counts as generated beyond these, or null.
        - Until May 2026 llama.cpp counted all tokens of a round at once, so a draft ended a text early at the limit.
      returned: success
      type: int
    completion_seconds:
      description: Time of the completion request as seen from here, or null.
      returned: success
      type: float
    tokens_per_second:
      description: Rate of generation by the server's own timings.
      returned: success
      type: float
    prompt_tokens_per_second:
      description: Rate of prompt evaluation by the server's own timings.
      returned: success
      type: float
    draft_n:
      description: Tokens that speculation proposed during the completion, V(0) when none, null without a completion.
      returned: success
      type: int
    draft_n_accepted:
      description: Those that the target accepted.
      returned: success
      type: int
    speculative:
      description: Whether all slots speculate, null when the server does not show its slots.
      returned: success
      type: bool
    n_ctx:
      description: Context of one slot, in tokens.
      returned: success
      type: int
    slots:
      description: Slots with C(id), C(n_ctx), C(speculative) and C(is_processing).
      returned: success
      type: list
      elements: dict
    build_info:
      description: Build that the server names.
      returned: success
      type: str
    model_path:
      description: Model file that the server names.
      returned: success
      type: str
    unit:
      description:
        - C(active), C(sub_state), C(main_pid), C(n_restarts) and C(invocation_id) of O(unit).
        - Null when O(unit) was not given or does not exist.
      returned: success
      type: dict
    buffers:
      description:
        - Buffers by the log, with C(model) (V(target) or V(draft)), C(device) as llama.cpp names it, C(endpoint) of a
          worker or null, C(kind) (V(weights), V(kv), V(recurrent), V(compute) or V(output)) and C(bytes).
        - The log rounds to 0.01 MiB. A draft that was loaded and dropped again is left out.
      returned: success
      type: list
      elements: dict
    layers:
      description: Layers by the log, with C(model), C(layer), C(device) and C(endpoint). The last one is the output.
      returned: success
      type: list
      elements: dict
    spec_types:
      description: Kinds of speculation that the log says are in use.
      returned: success
      type: list
      elements: str
    spec_error:
      description: Why the log says that there is no speculation, or null.
      returned: success
      type: str
    draft_loading:
      description: Whether the log ends while the draft is loaded, after the model itself was.
      returned: success
      type: bool
    log_tail:
      description: The last lines of the log that look like trouble.
      returned: success
      type: list
      elements: str
    log_error:
      description: Why the log could not be read, or null.
      returned: success
      type: str
    error:
      description: What is wrong, in one sentence, or null.
      returned: success
      type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.relay.pool.plugins.module_utils import deadline, probe


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "default": "http://127.0.0.1:8384"},
            "prompt": {"type": "str", "default": "The capital of France is"},
            "max_tokens": {"type": "int", "default": 32, "no_log": False},
            "temperature": {"type": "float", "default": 0},
            "complete": {"type": "bool", "default": True},
            "api_key": {"type": "str", "no_log": True},
            "api_key_file": {"type": "path", "no_log": False},
            "timeout": {"type": "float", "default": 60},
            "unit": {"type": "str"},
        },
        mutually_exclusive=[("api_key", "api_key_file")],
        supports_check_mode=True,
    )
    if not module.params["url"].startswith(("http://", "https://")):
        module.fail_json(msg=f"url is {module.params['url']!r}: it must start with http:// or https://")
    if module.params["max_tokens"] < 1:
        module.fail_json(msg=f"max_tokens is {module.params['max_tokens']}: it must be at least 1")
    try:
        deadline.check_timeout(module.params["timeout"])
    except ValueError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, probe=probe.run(probe.Options(**module.params)))


if __name__ == "__main__":
    main()
