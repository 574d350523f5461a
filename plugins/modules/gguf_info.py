#!/usr/bin/python

# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describes a GGUF model file without loading it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gguf_info
short_description: Describe a GGUF model file
version_added: 0.1.0
author:
  - relay.pool contributors (@relay-pool)
description:
  - Reads the header of a GGUF file and returns what a placement needs to know about the model. The file lies on the
    machine, or on a web server that the machine reaches.
  - All shards of a split model are found from the path or URL of any of them, and their sizes are summed.
  - No tensor data is read, and no token list leaves the machine. Of a file on a web server only the header is fetched,
    by requests for ranges of bytes, a few MB at most times.
  - A file that llama.cpp would refuse, because it is cut, damaged or no GGUF file at all, fails the task with the
    cause.
options:
  path:
    description:
      - The GGUF file on the machine, or any shard of a split model.
      - Exactly one of O(path) and O(url) is given.
    type: path
  url:
    description:
      - The HTTP or HTTPS address of the GGUF file, or of any shard of a split model, for a model that nobody has
        downloaded. Proxies are taken from the environment.
      - A query such as C(?download=true) is kept for all shards.
    type: str
  compare_with:
    description:
      - A second GGUF file, path or URL, the draft model that is meant to propose tokens for O(path) or O(url), or the
        target of that with O(compare_as=target).
      - When given, RV(gguf.comparison) says whether the vocabularies fit.
    type: str
  compare_as:
    description:
      - What O(compare_with) is. With V(target), O(path) or O(url) is the draft model that is meant for it.
    type: str
    choices: [draft, target]
    default: draft
  headers:
    description:
      - Headers for the requests, for example C(Authorization).
      - They are sent to the scheme, host and port of O(url), or of O(compare_with) when O(path) is given. They are not
        sent to another server, to which a request may be redirected.
    type: dict
  timeout:
    description:
      - Seconds after which reading from web servers is given up, all requests together.
    type: float
    default: 120
  validate_certs:
    description:
      - Whether the certificates of HTTPS servers are checked.
    type: bool
    default: true
extends_documentation_fragment:
  - relay.pool.attributes
  - relay.pool.attributes.info_module
seealso:
  - module: relay.pool.placement
"""

EXAMPLES = r"""
- name: Read the model
  relay.pool.gguf_info:
    path: /models/qwen2.5-coder-14b-q3_k_m.gguf
  register: model

- name: Read a model that nobody has downloaded
  relay.pool.gguf_info:
    url: https://huggingface.co/bartowski/Qwen2.5-Coder-14B-GGUF/resolve/main/Qwen2.5-Coder-14B-Q3_K_M.gguf
    headers:
      Authorization: "Bearer {{ hugging_face_token }}"
  register: model

- name: Ask whether a small model can be its draft
  relay.pool.gguf_info:
    path: /models/qwen2.5-coder-14b-q3_k_m.gguf
    compare_with: /models/qwen2.5-0.5b-instruct-q4_k_m.gguf
  register: pair

- name: Stop when it cannot
  ansible.builtin.assert:
    that: pair.gguf.comparison.compatible
    fail_msg: "{{ pair.gguf.comparison.first_difference }}"
"""

RETURN = r"""
gguf:
  description: What the header says. All sizes are integers in bytes.
  returned: success
  type: dict
  contains:
    path:
      description: The file that llama-server is to be given, the first shard of a split model. With O(url) its address.
      type: str
    files:
      description: The files that are there, each with its C(path), which may be a URL, and C(size_bytes).
      type: list
      elements: dict
    missing:
      description: Names of the shards that are not there. Then all sums are too small.
      type: list
      elements: str
    size_bytes:
      description: Size of all files together.
      type: int
    version:
      description: GGUF version.
      type: int
    byte_order:
      description: V(little) or V(big).
      type: str
    architecture:
      description: Value of C(general.architecture).
      type: str
      sample: llama
    name:
      description: Value of C(general.name), or null.
      type: str
    role:
      description: V(model), V(adapter), V(mmproj), V(vocab) or V(draft_head).
      type: str
    file_type:
      description: Value of C(general.file_type), or null.
      type: int
    parameters:
      description: How many numbers the tensors hold.
      type: int
    metadata:
      description:
        - Every scalar and every numeric array of up to 4096 entries, by its key.
        - Keys of the tokenizer and texts of more than 4096 characters are left out. A number that is not finite is
          null.
      type: dict
    tensors:
      description: Where the bytes of the tensors go.
      type: dict
      contains:
        count:
          description: How many tensors there are.
          type: int
        bytes:
          description: Bytes of all tensors.
          type: int
        blocks:
          description: Bytes of each block, C(<architecture>.block_count) entries.
          type: list
          elements: int
        experts:
          description:
            - Bytes of the routed experts of each block, part of RV(gguf.tensors.blocks) and 0 for a block without any.
            - Shared experts, of which every token reads all, are not among them.
          type: list
          elements: int
        expert:
          description:
            - Bytes of one routed expert of each block, the share of RV(gguf.tensors.experts) that a token reads for
              each of the C(<architecture>.expert_used_count) experts that it is routed to.
          type: list
          elements: int
        input_bytes:
          description: Bytes that llama.cpp always keeps on the CPU, such as the token embedding.
          type: int
        token_embd_bytes:
          description: Bytes of the token embedding, part of RV(gguf.tensors.input_bytes).
          type: int
        output_bytes:
          description: Bytes of C(output.weight), 0 when the embedding is tied.
          type: int
        output_norm_bytes:
          description: Bytes of the output norm.
          type: int
        other_bytes:
          description: Bytes of the remaining tensors, which go with the output layer.
          type: int
        rope_freqs_bytes:
          description: Bytes of the rope factors, of which every device gets a copy.
          type: int
        unused_bytes:
          description: Bytes of tensors that llama.cpp does not load.
          type: int
        tied:
          description: Whether the token embedding serves as output matrix, so that the output's device gets a copy.
          type: bool
        types:
          description: Bytes by tensor type.
          type: dict
          sample: {"F32": 140544, "Q4_K": 66355200}
        unknown_types:
          description: Numbers of tensor types that are newer than this collection, sized from their offsets.
          type: list
          elements: int
        nextn_blocks:
          description:
            - Numbers of the blocks with a C(nextn.eh_proj.weight), those that predict more than one token (MTP).
            - A file may name such blocks in C(<architecture>.nextn_predict_layers) and not have them.
          type: list
          elements: int
        telling:
          description:
            - Which of C(conf_proj.weight), C(markov_w1.weight) and C(position_embd.weight) there are.
            - The second makes a DSpark draft of a DFlash one, the first is its confidence head. A model with the third
              ends where its last trained position is.
          type: list
          elements: str
        row_padding:
          description:
            - Bytes that a CUDA device adds because it pads quantised rows to a multiple of 512 elements.
            - C(512) has one entry per block, C(512_output) is that of the output layer.
          type: dict
    tokenizer:
      description: The vocabulary in short, null for a file without one.
      type: dict
      contains:
        model:
          description: Value of C(tokenizer.ggml.model).
          type: str
        pre:
          description: Name of the pre-tokenizer, or null.
          type: str
        type:
          description: Vocabulary type of llama.cpp, null when it is not known.
          type: str
          sample: BPE
        n_tokens:
          description: Size of the vocabulary.
          type: int
        bos_token_id:
          description: Token that begins a text, or null.
          type: int
        eos_token_id:
          description: Token that ends a text, or null.
          type: int
        mask_token_id:
          description: Token that stands for one to be guessed, or null. DFlash and DSpark drafts need it.
          type: int
        add_bos_token:
          description: Whether llama.cpp puts the first before each prompt.
          type: bool
        add_eos_token:
          description: Whether llama.cpp puts the second behind each prompt.
          type: bool
        digest:
          description: SHA-256 over the tokens from number 5 on.
          type: str
        tail_digests:
          description: Short digests over the vocabulary when it is 128 to 1 tokens shorter.
          type: list
          elements: str
        chunk_digests:
          description: Short digests of every 4096 tokens.
          type: list
          elements: str
        padding_from:
          description: Number from which on all tokens are padding, null when the last one is a real token.
          type: int
        unreachable_from:
          description:
            - Number from which on all tokens are padding that no text in a prompt becomes, null when the last one is
              not.
            - A target that has more tokens than its draft needs that, or a prompt can abort the server.
          type: int
        fault:
          description: Why llama.cpp does not load the vocabulary, or null.
          type: str
          sample: has a text that occurs twice among its tokens
    comparison:
      description: Whether the draft fits the target, see O(compare_as). Null without O(compare_with).
      type: dict
      contains:
        compatible:
          description: Whether the vocabularies fit.
          type: bool
        reason:
          description: Null, or V(type), V(bos), V(eos), V(size), V(token), V(padding) or V(fault).
          type: str
        first_difference:
          description: One sentence, or null.
          type: str
        notes:
          description: Differences that llama.cpp does not mind.
          type: list
          elements: str
"""

import sys

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.relay.pool.plugins.module_utils.deadline import check_timeout
from ansible_collections.relay.pool.plugins.module_utils.gguf_http import Session, web_opener
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import describe
from ansible_collections.relay.pool.plugins.module_utils.gguf_range import make_opener
from ansible_collections.relay.pool.plugins.module_utils.gguf_source import (
    ANY_ADDRESS,
    WEB_ADDRESS,
    GgufError,
    local_path,
    loginless,
    shown,
)

MIN_SECRET_CHARACTERS = 8


def warnings_about(gguf: dict) -> list:
    """What a user should know about a model that could be read."""
    warnings = []
    if gguf["missing"]:
        warnings.append(
            f"{gguf['path']}: shards are missing ({', '.join(gguf['missing'][:3])}):"
            " all sizes are too small and llama-server will not load the model, download them."
        )
    if gguf["tensors"]["unknown_types"]:
        numbers = ", ".join(str(number) for number in gguf["tensors"]["unknown_types"])
        warnings.append(f"{gguf['path']}: the tensor types {numbers} need a newer llama.cpp than b11434.")
    fault = (gguf["tokenizer"] or {}).get("fault")
    if fault:
        warnings.append(f"{gguf['path']} {fault}, and llama-server ends while it loads it: convert the model again.")
    if gguf["byte_order"] != sys.byteorder:
        warnings.append(
            f"{gguf['path']}: the file is {gguf['byte_order']}-endian and this machine is {sys.byteorder}-endian, so"
            " llama-server will not load it: convert it with gguf-convert-endian."
        )
    return warnings


def read(params: dict) -> dict:
    """The fact that the options ask for. Raises GgufError."""
    path, url, compare_with = (params[name] for name in ("path", "url", "compare_with"))
    if url is not None and not WEB_ADDRESS.match(url):
        raise GgufError(
            f"url is {shown(loginless(url))}: it must begin with http:// or https://, a file of the machine is a path."
        )
    if path is not None and WEB_ADDRESS.match(path):
        raise GgufError(f"path is {shown(loginless(path))}: the address of a web server is given as url.")
    for name, place in (("path", path), ("compare_with", compare_with)):
        if place and ANY_ADDRESS.match(place) and not WEB_ADDRESS.match(place):
            raise GgufError(
                f"{name} is {shown(loginless(place))}: of addresses only those with http:// or https:// are read, give"
                " one of them or the path of a file."
            )
    if compare_with and not WEB_ADDRESS.match(compare_with):
        compare_with = local_path(compare_with)
    pages = [place for place in (url, compare_with) if place and WEB_ADDRESS.match(place)]
    if not pages:
        return describe(path, compare_with, compare_as=params["compare_as"])
    session = Session(web_opener(params["validate_certs"]), params["timeout"], params["headers"], home=pages[0])
    return describe(url or path, compare_with, make_opener(session), params["compare_as"])


def without_secrets(module) -> dict:
    """The options, with what is secret in them taken out of what the module answers.

    Ansible blots out the values of the headers wherever they stand in the answer. A short one is no secret, and stands
    in every size and every path: 1, or llama.
    """
    params = dict(module.params)
    module.no_log_values = {value for value in module.no_log_values if len(value) >= MIN_SECRET_CHARACTERS}
    module.params["headers"] = None
    for name in ("path", "url", "compare_with"):
        if params[name] and ANY_ADDRESS.match(params[name]):
            module.params[name] = loginless(params[name])
    return params


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path"},
            "url": {"type": "str"},
            "compare_with": {"type": "str"},
            "compare_as": {"type": "str", "choices": ["draft", "target"], "default": "draft"},
            "headers": {"type": "dict", "no_log": True},
            "timeout": {"type": "float", "default": 120},
            "validate_certs": {"type": "bool", "default": True},
        },
        mutually_exclusive=[("path", "url")],
        required_one_of=[("path", "url")],
        supports_check_mode=True,
    )
    try:
        check_timeout(module.params["timeout"])
    except ValueError as exc:
        module.fail_json(msg=f"{exc}.")
    try:
        gguf = read(without_secrets(module))
    except GgufError as exc:
        module.fail_json(msg=str(exc))
    for warning in warnings_about(gguf):
        module.warn(warning)
    module.exit_json(changed=False, gguf=gguf)


if __name__ == "__main__":
    main()
