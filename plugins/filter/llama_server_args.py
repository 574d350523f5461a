# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/server/command_line.py``: llama-server."""

from __future__ import annotations

DOCUMENTATION = r"""
name: llama_server_args
short_description: Options of llama-server as an argument list
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Writes the arguments of C(llama-server), the program's name excluded, in a fixed order. It decides nothing.
  - An option that is absent or empty prints nothing; C(--cont-batching) and C(--jinja) are always there.
  - The flags of speculation come last, and only when there are RPC back ends or its scope is V(any).
options:
  _input:
    description:
      - The options, a dictionary.
      - Its keys are C(model), C(rpc_backends) (list), C(devices) (list), C(tensor_split) (list), C(host), C(port),
        C(parallel), C(n_gpu_layers), C(ctx_size), C(alias), C(cache_type_k), C(cache_type_v), C(flash_attn) (value
        or boolean), C(extra) (list), C(spelling) and C(draft).
      - C(spelling) is a dictionary from today's flags to what an older build calls them. A flag whose name is empty is
        left out.
      - C(draft) is a dictionary of C(model), C(n_max), C(n_min), C(gpu_layers), C(p_min), C(device), C(type), C(scope)
        and C(limits_ngrams).
      - Without C(model), C(type) C(draft-mtp) writes C(n_max), C(n_min) and C(p_min), since the target's own layers
        propose the tokens; a type that begins with C(ngram-) writes how many tokens it proposes at most, C(n_max); any
        other writes nothing.
      - C(limits_ngrams) is for builds whose number of draft tokens limits n-grams, too.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the command line
  ansible.builtin.debug:
    msg: "{{ options | relay.pool.llama_server_args | join(' ') }}"
  vars:
    options:
      model: /models/qwen2.5-coder-14b-q3_k_m.gguf
      host: 127.0.0.1
      port: 8384
      parallel: 2
      n_gpu_layers: all
      ctx_size: 16384

- name: Show it with n-grams, which need no draft model
  ansible.builtin.debug:
    msg: "{{ options | relay.pool.llama_server_args | join(' ') }}"
  vars:
    options:
      model: /models/qwen2.5-coder-14b-q3_k_m.gguf
      host: 127.0.0.1
      port: 8384
      draft:
        type: ngram-mod
        n_max: 64
        scope: any
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


def llama_server_args(options):
    """Return the arguments as a list of strings."""
    if not isinstance(options, dict):
        raise AnsibleFilterError("relay.pool.llama_server_args: the input must be a dictionary of options.")
    try:
        return command_line.llama_server_args(options)
    except PoolError as exc:
        raise AnsibleFilterError(f"relay.pool.llama_server_args: {exc}.") from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"llama_server_args": llama_server_args}
