# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter face of ``plugin_utils/memory/ledger.py``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: memory_estimate
short_description: Memory a model needs, before any device is chosen
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Computes what llama.cpp allocates for a model and a context, layer by layer and without devices.
  - Weights, KV cache and recurrent state are exact unless C(assumptions) says otherwise; the compute buffers are an
    upper bound with flash attention.
positional: ctx_size, parallel
options:
  _input:
    description: The model, as M(relay.pool.gguf_info) returns it.
    type: dict
    required: true
  ctx_size:
    description: Context of all slots together, in tokens.
    type: int
    default: 16384
  parallel:
    description: Slots.
    type: int
    default: 1
  cache_type_k:
    description: Type of the K cache.
    type: str
    default: f16
  cache_type_v:
    description: Type of the V cache. By default that of the K cache.
    type: str
  ubatch_size:
    description: Physical batch size in tokens.
    type: int
    default: 512
"""

EXAMPLES = r"""
- name: How much would 32768 tokens take?
  ansible.builtin.debug:
    msg: "{{ (model.gguf | relay.pool.memory_estimate(ctx_size=32768)).total_bytes | human_readable }}"
"""

RETURN = r"""
_value:
  description: The ledger, all sizes in bytes.
  type: dict
  contains:
    architecture:
      description: Architecture of the model.
      type: str
    n_layer:
      description: Repeating layers.
      type: int
    ctx_size:
      description: Context that llama.cpp really allocates.
      type: int
    ctx_size_per_slot:
      description: The same for one slot.
      type: int
    layers:
      description: C(weights_bytes), C(kv_bytes) and C(recurrent_bytes) of each layer.
      type: list
      elements: dict
    input_bytes:
      description: The token embedding and what else llama.cpp keeps on the host's CPU.
      type: int
    output_bytes:
      description: The output stage; for a tied model a copy of the token embedding.
      type: int
    weights_bytes:
      description: All weights.
      type: int
    kv_bytes:
      description: The KV cache.
      type: int
    recurrent_bytes:
      description: The recurrent state.
      type: int
    compute_bytes:
      description: Compute buffer of a single GPU.
      type: int
    host_compute_bytes:
      description: Compute and logits buffers of the host.
      type: int
    total_bytes:
      description: Everything.
      type: int
    assumptions:
      description: Sentences on what is charged on the safe side because neither the file nor a measurement says less.
      type: list
      elements: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory import ledger


def memory_estimate(gguf, ctx_size=16384, parallel=1, cache_type_k="f16", cache_type_v=None, ubatch_size=512):
    """Return the ledger as a dictionary."""
    if not isinstance(gguf, dict):
        raise AnsibleFilterError("relay.pool.memory_estimate: the input must be a result of relay.pool.gguf_info.")
    numbers = {}
    for name, value in (("ctx_size", ctx_size), ("parallel", parallel), ("ubatch_size", ubatch_size)):
        try:
            numbers[name] = int(value)
        except (TypeError, ValueError, OverflowError):
            numbers[name] = 0
        if numbers[name] < 1:
            raise AnsibleFilterError(
                f"relay.pool.memory_estimate: {name} is {value}: it must be an integer of at least 1."
            )
    spec = ledger.ContextSpec(
        ctx_size=numbers["ctx_size"],
        parallel=numbers["parallel"],
        cache_type_k=cache_type_k,
        cache_type_v=cache_type_v or cache_type_k,
        ubatch_size=numbers["ubatch_size"],
        n_outputs=numbers["parallel"],
    )
    try:
        return ledger.memory_estimate(gguf, spec)
    except PoolError as exc:
        raise AnsibleFilterError(f"relay.pool.memory_estimate: {exc}.") from None


class FilterModule:
    """Filters of this file."""

    def filters(self):
        """Return the filters by name."""
        return {"memory_estimate": memory_estimate}
