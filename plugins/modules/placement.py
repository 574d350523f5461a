# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The work is done on the controller by the action plugin of the same name; this file documents it.

from __future__ import annotations

DOCUMENTATION = r"""
module: placement
short_description: Decide where a model and its draft go
version_added: 0.1.0
description:
  - Decides which layers of a GGUF model go to which device of a pool, whether a draft model may be used, and writes the
    command lines of C(llama-server) and C(ggml-rpc-server) for it.
  - A model that fits the GPUs of one machine becomes a replica there, the host first. With O(allow_cpu) it may also be
    one on a CPU, unless a token takes less time on GPUs of several machines. Otherwise it is sharded.
  - Of a sharded model, the host's CPU holds the first layers if the host has no usable GPU, then come the RPC devices,
    then the host's own GPUs with the output. Where the logits would be under way for longer than they take to compute,
    the output stays on the CPU of a host without a GPU, too.
  - It runs on the controller, touches no machine and changes nothing, so use it with C(run_once=true).
  - Weights and KV cache are computed as llama.cpp allocates them; the compute buffers are an upper bound with flash
    attention.
author:
  - relay.pool contributors (@relay-pool)
attributes:
  check_mode:
    description: Can run in check mode and say what would change without changing it.
    support: full
    details:
      - The plan is the same in check mode.
  diff_mode:
    description: Can show what changes, or would change, as a difference.
    support: full
    details:
      - Shows how the plan differs from O(previous).
options:
  model:
    description: The target, as M(relay.pool.gguf_info) returns it.
    type: dict
    required: true
  draft:
    description: The draft, as M(relay.pool.gguf_info) returns it. Not given if there is none or its file is missing.
    type: dict
  draft_path:
    description: Path of the draft as configured. Without O(draft) and O(draft_error) it is a file that was not found.
    type: str
  draft_error:
    description:
      - Why the file at O(draft_path) could not be read although it is there. The draft is then C(unsized) and the
        message has the cause.
    type: str
    default: ""
  comparison:
    description:
      - What M(relay.pool.gguf_info) found on comparing the vocabularies of both files.
      - Without it the digests in O(model) and O(draft) are compared.
    type: dict
  llama:
    description:
      - The build, as M(relay.pool.llama_info) returns it.
      - Not given while llama.cpp is not installed; the flags of a current build are then assumed and a warning says so.
    type: dict
  host:
    description: Inventory name of the machine that runs C(llama-server) of a sharded plan.
    type: str
    required: true
  workers:
    description: Inventory names of the other machines, in the order in which they hold layers.
    type: list
    elements: str
    default: []
  nodes:
    description:
      - Facts by inventory name, each as M(relay.pool.node_facts) returns them. What is not known may be left out.
      - A worker may have C(backends) besides, those of its build, and C(llama) with the C(version), C(build), C(commit)
        and C(rpc_protocol) of it. For the host, those in O(llama) count.
      - By default the facts C(relay_node) of O(host) and O(workers). Give them to ask about machines that do not exist.
      - Of such a machine it is enough to name its GPUs, each with C(name) and C(memory_total_bytes), and its
        C(memory) with C(total_bytes). All memory then counts as free, the bandwidth is looked up by the name of the
        GPU, and an address stands in for the one that the machine does not have yet.
    type: dict
  ctx_size:
    description: Context of all slots together, in tokens. llama.cpp rounds that of a slot up to a multiple of 256.
    type: int
    default: 16384
  parallel:
    description: Slots, each with its share of O(ctx_size).
    type: int
    default: 2
  cache_type_k:
    description: Type of the K cache. A quantised type adds C(--flash-attn on).
    type: str
    default: f16
    choices: [f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1]
  cache_type_v:
    description: Type of the V cache. A quantised type adds C(--flash-attn on).
    type: str
    default: f16
    choices: [f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1]
  ubatch_size:
    description: Physical batch size in tokens. The compute buffers grow with it.
    type: int
    default: 512
  batch_size:
    description: Logical batch size in tokens.
    type: int
    default: 2048
  alias:
    description: Name under which the model is served. By default the file's name without its ending.
    type: str
  server_host:
    description: Address on which C(llama-server) listens.
    type: str
    default: 127.0.0.1
  server_port:
    description: Port on which C(llama-server) listens.
    type: int
    default: 8384
  rpc_port:
    description: Port on which every C(ggml-rpc-server) listens.
    type: int
    default: 50052
  rpc_cache:
    description: Whether workers keep large tensors on disk, so that the next start does not send them again.
    type: bool
    default: true
  draft_max:
    description: Tokens to draft per round at most.
    type: int
    default: 16
  draft_min:
    description: Shorter drafts are thrown away. Not written if V(0).
    type: int
    default: 0
  draft_gpu_layers:
    description: Layers of the draft that go to its GPU, the last ones first.
    type: int
    default: 99
  draft_p_min:
    description: Drafting stops below this probability. Not written if V(0).
    type: float
    default: 0.0
  draft_scope:
    description: With V(sharded) a replica never speculates, by a draft or by n-grams, with V(any) it may.
    type: str
    default: sharded
    choices: [sharded, any]
  draft_reserve:
    description: Whether layers move away from the device of the draft to make room for it, or it takes what is left.
    type: bool
    default: true
  draft_device:
    description:
      - Where the draft runs, for example V(CUDA0) for that device of the host, V(cpu) for the host's CPU, or the
        inventory name of a worker.
      - V(auto) takes a device of the host with room, else its CPU.
    type: str
    default: auto
  speculation_type:
    description:
      - How tokens are proposed, a value of today's C(--spec-type) of C(llama-server), such as V(draft-mtp).
      - V(auto) tells it from the headers of the draft and the target.
    type: str
    default: auto
  draft_fallback:
    description: What proposes tokens in the place of a draft that is dropped. V(ngram-mod) needs no second model.
    type: str
    default: none
    choices: [none, ngram-mod]
  draft_dropped:
    description:
      - Why the draft of O(previous) is dropped. The plan is then O(previous) without its draft, every layer where it
        was, and C(draft.message) says this. O(draft_fallback) takes the place of a draft.
      - Empty plans as usual.
    type: str
    default: ''
  draft_dropped_reason:
    description:
      - What C(draft.reason) is then. V(no_room) is for a draft that does not fit any more, V(unsupported_build) for one
        that was started and proved not to be live, misplaced or lossy.
    type: str
    default: no_room
    choices: [no_room, unsupported_build]
  reserve_bytes:
    description: Bytes kept free on every device. By default 512 MiB on a GPU and 256 MiB of RAM.
    type: int
  allow_cpu:
    description: Whether the CPUs of machines without a usable GPU may hold layers.
    type: bool
    default: false
  allow_partial:
    description: Whether workers that cannot be used are left out. Otherwise such a worker stops the play.
    type: bool
    default: false
  threads:
    description: Threads of C(llama-server). By default it decides itself.
    type: int
  extra_args:
    description: More arguments of C(llama-server). Those that the plan decides are refused.
    type: list
    elements: str
    default: []
  api_key_file:
    description: File on the serving machine that holds the API keys.
    type: str
  metrics:
    description: Whether C(llama-server) offers its metrics.
    type: bool
    default: true
  log_verbosity:
    description: Log level of C(llama-server). V(4) logs sizes per device, V(5) layers per device.
    type: int
    default: 4
  measured:
    description:
      - Measured rates C(tokens_per_second) and C(with_draft_tokens_per_second).
      - A draft that does not win at least 5 percent is dropped.
    type: dict
  saved:
    description:
      - The plan to apply, as it is, a dictionary or the text of C(plan.json).
      - The task fails when what decides is not what it was, when a device has less free memory than the plan needs
        there, or when the plan was edited. The message says everything that differs.
    type: raw
  what_if:
    description:
      - What would be another way, by machine. The plan is then made twice, and RV(what_if) tells the second one.
      - A machine of the pool gets the C(gpus) in the list besides those that it has, or RAM of another size
        (C(memory) with C(total_bytes)), or another C(link) to the host (C(rtt_seconds), C(speed_mbps)).
      - A machine with C(state=absent) is taken away, and so is a GPU by an entry with it and C(device) or C(uuid).
      - Any other name is a new worker.
      - A GPU has a C(memory_total_bytes), and it should have the C(name) that its vendor's tool prints, by which the
        bandwidth is looked up. C(vendor) is told by the name, and V(nvidia) if the name does not tell. It may also have
        C(memory_free_bytes), C(bandwidth_bytes_per_second), C(device), C(uuid) and C(unified_memory).
      - It is not an error if one of the two pools has no plan.
    type: dict
  previous:
    description:
      - The plan that runs. It is kept while everything that decides is the same and it still fits.
      - Free memory does not decide, as it changes while the pool runs.
      - A dictionary, or the text of C(plan.json). What cannot be read counts as no plan.
    type: raw
seealso:
  - module: relay.pool.node_facts
  - module: relay.pool.gguf_info
  - module: relay.pool.llama_info
  - plugin: relay.pool.plan_table
    plugin_type: filter
  - plugin: relay.pool.plan_html
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Where does the model go?
  relay.pool.placement:
    model: "{{ target.gguf }}"
    draft: "{{ draft.gguf }}"
    draft_path: /models/qwen2.5-0.5b-instruct-q4_k_m.gguf
    llama: "{{ info.llama }}"
    host: gpu0
    workers: [gpu1, gpu2]
    ctx_size: 16384
  run_once: true
  register: placement

- name: Show it
  ansible.builtin.debug:
    msg: "{{ (placement.plan | relay.pool.plan_table).splitlines() }}"
  run_once: true

- name: What would another card bring?
  relay.pool.placement:
    model: "{{ target.gguf }}"
    host: gpu0
    workers: [gpu1]
    what_if:
      gpu1:
        gpus:
          - name: NVIDIA GeForce RTX 3090
            memory_total_bytes: "{{ '24 GB' | human_to_bytes }}"
  run_once: true
  register: supposed

- name: Show what it would bring
  ansible.builtin.debug:
    msg: "{{ supposed.what_if.difference }}"
  run_once: true
"""

RETURN = r"""
plan:
  description:
    - The plan; all sizes are in bytes.
    - Null with O(what_if) for a pool that has none.
  returned: success
  type: dict
  contains:
    schema:
      description: Version of this structure.
      returned: success
      type: int
    kind:
      description: V(replica) or V(sharded).
      returned: success
      type: str
    host:
      description: Machine that runs C(llama-server).
      returned: success
      type: str
    model:
      description: C(path), C(alias), C(architecture) and C(size_bytes) of the target.
      returned: success
      type: dict
    ctx_size:
      description: Context that llama.cpp allocates for all slots.
      returned: success
      type: int
    parallel:
      description: Slots.
      returned: success
      type: int
    stages:
      description:
        - The devices in llama.cpp's order, each with its layers and its ledger.
        - The CPU of the serving machine comes first even if it holds no layers, since it holds the token embedding.
      returned: success
      type: list
      elements: dict
      contains:
        host:
          description: Inventory name of the machine.
          type: str
        device:
          description: llama.cpp's name of the device on that machine.
          type: str
        transport:
          description: V(local) on the serving machine, V(rpc) on a worker.
          type: str
        endpoint:
          description: Address and port of the worker. Null on the serving machine.
          type: str
        rpc_device:
          description: Name of the device at the server, for example V(RPC0). Null on the serving machine.
          type: str
        first_layer:
          description: Number of the first layer, from 0.
          type: int
        n_layers:
          description: How many layers it holds.
          type: int
        has_output:
          description: Whether it holds the output.
          type: bool
        memory:
          description:
            - What is allocated there, C(weights_bytes), C(kv_bytes), C(recurrent_bytes), C(compute_bytes) and
              C(draft_bytes), and what is kept free, C(reserve_bytes); C(total_bytes) is their sum.
            - C(free_bytes) is what the pool may use, C(left_bytes) what remains of it. Both are null if it is unknown.
          type: dict
    rpc_backends:
      description: Endpoints of the workers that hold layers or the draft.
      returned: success
      type: list
      elements: str
    devices:
      description: Value of C(--device).
      returned: success
      type: list
      elements: str
    tensor_split:
      description: Value of C(--tensor-split). The output counts as a layer of the last device.
      returned: success
      type: list
      elements: int
    n_gpu_layers:
      description: V(all), or the number of layers that are not on the host's CPU, output included.
      returned: success
      type: raw
    speculation:
      description:
        - What proposes tokens, a value of today's C(--spec-type), whether a draft, layers of the target or n-grams do.
        - Null where nothing does.
      returned: success
      type: str
    draft:
      description:
        - C(enabled), C(reason), C(message), C(path), C(host), C(device) and C(memory) of the draft.
        - C(host) is the machine on which it runs, and C(device) what C(llama-server) calls the device there, V(none)
          for its own CPU and for example V(RPC1) for a device of a worker.
        - Layers of the target that draft have neither C(path) nor C(device).
      returned: success
      type: dict
    predicted:
      description:
        - Estimates from the weights that a token reads, the memory bandwidths and the links, for one request at a time
          with an empty context. C(docs/predictions.md) has the formulas.
        - A kept plan keeps those of the day on which it was made.
      returned: success
      type: dict
      contains:
        tokens_per_second:
          description: Rate without a draft, an upper bound.
          type: float
        network_seconds:
          description: Seconds that such a token is under way between the machines.
          type: float
        reason:
          description: Why both are null, for example because a bandwidth is unknown. Otherwise null.
          type: str
        with_draft_tokens_per_second:
          description: Rate with the draft. Null if there is none, or if a CPU or an unknown bandwidth takes part.
          type: float
        break_even_acceptance:
          description: The least acceptance, from 0 to 1, at which the draft wins. Null if it never does.
          type: float
        assumed_acceptance:
          description: How likely a drafted token is taken to be accepted when those before it were.
          type: float
        draft_tokens:
          description: Tokens that are taken to be proposed in every round, mostly O(draft_max).
          type: int
        draft_reason:
          description: Why a figure with a draft is null. Otherwise null.
          type: str
    refused:
      description:
        - Every machine and device that is not used, each with C(host), C(device), C(reason) and C(message).
        - C(device) is null if the whole machine is meant, or a GPU that has no name in llama.cpp. The CPU of a machine
          with a usable GPU never holds layers, and is not named.
        - Of a device that could be used, C(reason) is V(not_needed) if the whole model fits elsewhere, V(slower) if a
          token would take as long or longer with it, V(no_room) if no layer fits what is free beside the reserve, and
          V(too_many_devices) if the plan has as many others as llama.cpp takes.
        - Of a GPU that cannot be used it is V(not_placeable), V(unknown_memory), V(no_device) without a name in
          llama.cpp, V(no_backend) if the build on its machine has no back end for it, V(same_name) or
          V(shared_memory) if it cannot be told from another one or has the memory of another one, and
          V(other_visible_devices) if it cannot be used by the process that uses the others of its machine, such as a
          second MIG device or a GPU of another vendor.
        - Of a machine it is V(no_gpu) without a usable one unless O(allow_cpu) is set, and with O(allow_partial)
          V(no_facts), V(duplicate_machine), V(no_address), V(port_taken), V(other_build) with another llama.cpp than
          O(host), or V(other_pool) if its worker works for another pool.
      returned: success
      type: list
      elements: dict
    warnings:
      description: What to look at.
      returned: success
      type: list
      elements: str
    advice:
      description:
        - What could be better, each line only where it applies.
        - A worker that is reached over Wi-Fi or by a link that is slow among the others, logits that cross the network,
          CPUs among GPUs, a device that is left almost empty, another machine that would be the better host, a
          port that outgoing connections may take.
      returned: success
      type: list
      elements: str
    server_args:
      description: Arguments of C(llama-server) after its name.
      returned: success
      type: list
      elements: str
    server_environment:
      description:
        - Environment variables under which C(llama-server) knows its GPUs by the names in the plan.
        - Empty if it needs none, because every GPU of the machine is used or it uses none.
      returned: success
      type: dict
      sample: {"CUDA_VISIBLE_DEVICES": "GPU-5ba4a0c1,GPU-71d43f02"}
    workers:
      description:
        - For each worker in use C(host), C(endpoint), C(address), C(port), C(link), C(devices), C(args) and
          C(environment).
        - C(link) is the way from the serving machine, C(rtt_seconds) and C(speed_mbps) in Mbit/s, each null if unknown.
        - C(environment) is to C(ggml-rpc-server) what RV(plan.server_environment) is to C(llama-server).
      returned: success
      type: list
      elements: dict
    llama:
      description: C(version), C(build) and C(commit) that the plan is for.
      returned: success
      type: dict
    inputs:
      description: Everything that decided.
      returned: success
      type: dict
    kept:
      description: Whether this is the previous plan.
      returned: success
      type: bool
changes:
  description: In what the placement differs from O(previous), a phrase each. Empty if it is the same or there was none.
  returned: success, without O(what_if)
  type: list
  elements: str
  sample: ["gpu1 CUDA0 20 -> 18 layers", "draft off -> on"]
difference:
  description: The lines in which the table of the plan differs from that of O(previous), as a unified diff.
  returned: success, without O(what_if)
  type: list
  elements: str
message:
  description: Why the pool as it is has no plan, null if it has one.
  returned: with O(what_if)
  type: str
what_if:
  description: The pool as it would be.
  returned: with O(what_if)
  type: dict
  contains:
    plan:
      description: As RV(plan), null if there would be none.
      returned: success
      type: dict
    message:
      description: Why there would be no plan, null if there would be one.
      returned: success
      type: str
    difference:
      description: What would be otherwise, a line each.
      returned: success
      type: list
      elements: str
"""
