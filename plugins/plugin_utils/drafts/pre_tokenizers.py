# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pre-tokenizers llama.cpp knows, read off its source (llama_vocab::impl::load in src/llama-vocab.cpp of b11434).

It does not load a file of the tokenizer type BPE with another name ("unknown pre-tokenizer type"), and with the draft
the whole llama-server ends. A file without a name gets the default one, and no other type of tokenizer has any.
"""

from __future__ import annotations

from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.drafts.architectures import BUILD, speak_of

KNOWN = frozenset(
    (
        "a.x-4.0", "afmoe", "bailingmoe", "bailingmoe2", "bloom", "chameleon", "chatglm-bpe", "codeshell",
        "cohere2moe", "command-r", "dbrx", "deepseek-coder", "deepseek-llm", "deepseek-r1-qwen", "deepseek-v3",
        "default", "exaone", "exaone-moe", "exaone4", "f2llmv2", "falcon", "falcon-h1", "falcon3", "gemma4",
        "gigachat", "glm4", "glm5", "gpt-2", "gpt-4o", "gpt3-finnish", "granite-docling", "granite-embed-multi-311m",
        "granite-embed-multi-97m", "grok-2", "hunyuan", "hunyuan-dense", "hy_v4", "jais", "jais-2", "jina-de",
        "jina-es", "jina-v1-en", "jina-v2-code", "jina-v2-de", "jina-v2-es", "jina-v5-nano", "joyai-llm", "kanana2",
        "kimi-k2", "kormo", "laguna", "lfm2", "llada-moe", "llama-bpe", "llama-v3", "llama3", "llama4", "megrez",
        "mellum", "mellum2", "midm-2.0", "minerva-7b", "minicpm5", "minimax-m2", "mmbert", "modern-bert", "mpt",
        "olmo", "phi-2", "pixtral", "poro-chat", "qwen2", "qwen35", "refact", "roberta-bpe", "sarvam-moe",
        "seed-coder", "smaug-bpe", "smollm", "solar-open", "spark2_5", "stablelm2", "starcoder", "superbpe", "talkie",
        "tekken", "tiny_aya", "trillion", "ufakzeka", "viking", "whitespace", "youtu",
    )
)  # fmt: skip


def unknown_name(gguf: Mapping[str, Any], llama: Mapping[str, Any] | None) -> str | None:
    """The end of a sentence about a file's pre-tokenizer that the build does not know, or None.

    llama is a llama_info result. Of a build that is newer than the table nothing is said.
    """
    tokenizer = gguf.get("tokenizer") or {}
    pre = tokenizer.get("pre")
    if tokenizer.get("type") != "BPE" or not pre or pre in KNOWN or not speak_of(llama):
        return None
    return f"has the pre-tokenizer {pre!r:.80}, which llama.cpp b{BUILD} does not know"
