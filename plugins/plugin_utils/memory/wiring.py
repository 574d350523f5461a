# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the layers of an architecture are wired, as far as it decides which activations live together.

Read in build_arch_graph of each architecture (src/models/*.cpp, b11434) and in build_ffn and build_moe_ffn
(src/llama-graph.cpp). An architecture that stands in no table is taken for the kind that needs most.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.relay.pool.plugins.plugin_utils.memory.keys import Keys

# The architectures of which llama.cpp's own numbers have been compared with these; any other gets a surcharge.
MEASURED = frozenset(
    (
        "bailingmoe2", "bloom", "cohere2", "command-r", "deepseek2", "dots1", "ernie4_5", "ernie4_5-moe", "exaone4",
        "falcon", "gemma", "gemma2", "gemma3", "gemma3n", "gemma4", "glm4", "glm4moe", "gpt-oss", "gpt2", "gptneox",
        "granite", "granitemoe", "hunyuan-dense", "hunyuan-moe", "internlm2", "llama", "llama4", "minicpm3",
        "minimax-m2", "mistral3", "nemotron", "olmo2", "olmoe", "phi2", "phi3", "qwen2", "qwen2moe", "qwen2vl", "qwen3",
        "qwen3moe", "qwen3vl", "qwen3vlmoe", "seed_oss", "smollm3", "stablelm", "starcoder2",
    )
)  # fmt: skip
# Two matrices per feed forward and an activation that works in place: build_ffn is called without a gate.
UNGATED = frozenset(
    (
        "arcee", "bloom", "codeshell", "falcon", "gpt2", "gptneox", "jais2", "mpt", "nemotron", "phi2", "plm",
        "starcoder", "starcoder2",
    )
)  # fmt: skip
# Attention and feed forward read the same norm, so the attention's output waits for the feed forward.
PARALLEL = frozenset(("cohere2", "cohere2moe", "command-r", "falcon", "gptneox", "phi2", "plamo"))
# No norm before the attention: only the residual crosses from one device to the next.
NO_FIRST_NORM = frozenset(("exaone4", "olmo2"))
# Learned positions are added to the embedding on the host (LLM_TENSOR_POS_EMBD is an input tensor).
LEARNED_POSITIONS = frozenset(("bert", "gpt2", "mpt", "starcoder"))
# The routed experts' input is repeated for each of them and weighted (weight_before_ffn).
WEIGHTED_INPUT = frozenset(("llama4",))
# A matrix of the same layer follows the routed experts, although no key speaks of shared experts.
FOLLOWED_EXPERTS = frozenset(("gemma4", "llama4"))
# Every layer has routed experts, whatever feed_forward_length says (load_arch_tensors).
ALL_ROUTED = frozenset(("gpt-oss", "hunyuan-moe", "minimax-m2", "olmoe", "qwen2moe", "qwen3moe", "qwen3vlmoe"))
# The attention's scores are whole matrices: llama_init_from_model turns flash attention off, whatever it is told.
NO_FLASH_ATTENTION = frozenset(("grok",))
# Residual streams, and values of the embedding that every layer gets of its own (llama-hparams.h; no key is read).
ALTUP = {"gemma3n": (4, 256)}


@dataclass(frozen=True)
class Wiring:
    """One model's layers.

    measured: llama.cpp's numbers for this architecture are known. followed_experts: the last matrix of a layer comes
    after its routed experts. dense_lead: leading layers without experts, or None when dense layers may be anywhere.
    head_mla: values of a head's query before it is multiplied into the latent space, 0 without MLA. stacked: further
    embeddings in an input row, one per layer that gets an image of its own. per_layer: values of the embedding that
    every layer gets of its own. streams: parallel residuals. n_expert: all routed experts of a layer. sparse: cells
    that an indexer picks for each token, 0 when the attention reads all.
    """

    measured: bool = False
    gated: bool = True
    parallel: bool = False
    first_norm: bool = True
    learned_positions: bool = False
    weighted_input: bool = False
    followed_experts: bool = False
    flash_attention: bool = True
    dense_lead: int | None = None
    n_expert: int = 0
    n_ff_shared: int = 0
    head_mla: int = 0
    stacked: int = 0
    per_layer: int = 0
    streams: int = 1
    sparse: int = 0


def wiring(keys: Keys) -> Wiring:
    """The wiring of the model whose keys these are; raises PoolError when a key holds no count."""
    name = keys.architecture
    n_ff_shared = keys.number("expert_shared_feed_forward_length", 0)
    if not n_ff_shared:
        n_ff_shared = keys.number("expert_shared_count", 0) * keys.number("expert_feed_forward_length", 0)
    streams, per_layer = ALTUP.get(name, (1, keys.number("embedding_length_per_layer_input", 0)))
    lead, step = keys.number("leading_dense_block_count", 0), keys.number("interleave_moe_layer_step", 0)
    known_lead = name in ALL_ROUTED or (lead and step <= 1) or step == 1
    return Wiring(
        measured=name in MEASURED,
        gated=name not in UNGATED,
        parallel=name in PARALLEL,
        first_norm=name not in NO_FIRST_NORM,
        learned_positions=name in LEARNED_POSITIONS,
        weighted_input=name in WEIGHTED_INPUT or name not in MEASURED,
        followed_experts=name in FOLLOWED_EXPERTS or n_ff_shared > 0,
        flash_attention=name not in NO_FLASH_ATTENTION,
        dense_lead=lead if known_lead else None,
        n_expert=keys.number("expert_count", 0),
        n_ff_shared=n_ff_shared,
        head_mla=keys.number("attention.key_length_mla", 0),
        stacked=keys.number("n_deepstack_layers", 0),
        per_layer=per_layer,
        streams=streams,
        sparse=keys.number("attention.indexer.top_k", 0),
    )
