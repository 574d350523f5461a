# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which layers keep a window of the context only, where llama.cpp decides it and not the file.

A GGUF may name a window; whether llama.cpp believes it, and for which layers, is written into load_arch_hparams of
each architecture (src/models/*.cpp, b11434; load_swa_pattern in src/llama-model.cpp reads the pattern). Every name
that llama.cpp serves on its own, and those that draft for it, are in one table of this file or of caches.py; of any
other, nothing in the file is believed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.relay.pool.plugins.plugin_utils.memory.keys import Keys


@dataclass(frozen=True)
class Pattern:
    """How one architecture divides its layers.

    source: file under src/models whose load_arch_hparams says so.
    period: every so many layers one is full, unless the file lists the windowed layers or names another period; 0 when
    none is full, whatever the file says; None when llama.cpp does not load a file without the list.
    full_first: the full layer is the first of its period, not the last.
    default: tokens of the window when the file names none. fixed: tokens whatever the file names, but for 0.
    layers: only models of so many layers have windows; 0 for all.
    """

    source: str
    period: int | None = None
    full_first: bool = False
    default: int = 0
    fixed: int = 0
    layers: int = 0


PATTERNS = {
    "afmoe": Pattern("afmoe.cpp", 4),
    "cohere2": Pattern("cohere2.cpp", 4),
    "cohere2moe": Pattern("cohere2moe.cpp", 4, full_first=True),
    "deepseek4": Pattern("deepseek4.cpp", 0),
    "dflash": Pattern("dflash.cpp"),
    "dots3note": Pattern("dots3note.cpp"),
    "exaone-moe": Pattern("exaone-moe.cpp", 4, default=128),
    "exaone4": Pattern("exaone4.cpp", 4, default=4096, layers=64),
    "gemma2": Pattern("gemma2.cpp", 2, default=4096),
    "gemma3": Pattern("gemma3.cpp", 6),
    "gemma3n": Pattern("gemma3n.cpp", 5),
    "gemma4": Pattern("gemma4.cpp"),
    "gpt-oss": Pattern("openai-moe.cpp", 2),
    "granite_swa": Pattern("granite-swa.cpp"),
    "laguna": Pattern("laguna.cpp", 4, full_first=True),
    # every layer that attends
    "lfm2": Pattern("lfm2.cpp", 0),
    # the attention is cut into chunks of so many tokens, for which the cache is that of a window
    "llama4": Pattern("llama4.cpp", 4, default=8192, fixed=8192),
    "maple": Pattern("maple.cpp"),
    "mellum": Pattern("mellum.cpp", 4),
    "mimo2": Pattern("mimo2.cpp"),
    "muse-glimmer": Pattern("muse-glimmer.cpp", 4),
    "olmo2": Pattern("olmo2.cpp", 4),
    "plamo3": Pattern("plamo3.cpp", 8),
    "smallthinker": Pattern("smallthinker.cpp", 4, full_first=True, fixed=4096),
    "spark2_5": Pattern("spark2-5.cpp"),
    "step35": Pattern("step35.cpp"),
}

# Every layer attends to the whole context, even where the file names a window (phi3, qwen2, llama).
FULL = frozenset(
    (
        "apertus", "arcee", "arctic", "baichuan", "bailingmoe", "bailingmoe2", "bitnet", "bloom", "chameleon",
        "chatglm", "codeshell", "cogvlm", "command-r", "dbrx", "deci", "deepseek", "deepseek2", "deepseek2-ocr",
        "deepseek32", "dots1", "eagle3", "ernie4_5", "ernie4_5-moe", "exaone", "falcon", "gemma", "glm-dsa", "glm4",
        "glm4moe", "gpt2", "gptneox", "granite", "granitemoe", "graniteswitch", "grok", "grovemoe", "hrm_text",
        "hunyuan-dense", "hunyuan-moe", "hunyuan_vl", "hy_v3", "hy_v4", "internlm2", "jais", "jais2", "llama",
        "llama-embed", "maincoder", "minicpm", "minicpm3", "minimax-m2", "minimax-m3", "mistral3", "mistral4", "mpt",
        "nanbeige", "nemotron", "olmo", "olmoe", "openelm", "orion", "paddleocr", "pangu-embedded", "phi2", "phi3",
        "phimoe", "plamo", "plm", "pockettts", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3tts",
        "qwen3vl", "qwen3vlmoe", "refact", "seed_oss", "smollm3", "stablelm", "starcoder", "starcoder2", "t5",
        "t5encoder", "talkie", "xverse",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Windows:
    """Tokens of the window, 0 without one; the layers that keep no more; and what had to be assumed, or ""."""

    tokens: int
    layers: tuple[bool, ...]
    assumption: str = ""


def windows(keys: Keys, n_layer: int, n_trunk: int) -> Windows:
    """The windows of a model of n_layer layers, of which n_trunk are no NextN layers."""
    architecture = keys.architecture
    none = (False,) * n_layer
    pattern = PATTERNS.get(architecture)
    if pattern is None:
        return Windows(0, none)
    tokens = keys.number("attention.sliding_window", pattern.default)
    if not tokens or (pattern.layers and pattern.layers != n_trunk):
        return Windows(0, none)
    tokens = pattern.fixed or tokens
    if pattern.period == 0:
        return Windows(tokens, (True,) * n_layer)
    listed = keys.flags("attention.sliding_window_pattern", n_layer)
    if listed is not None:
        return Windows(tokens, tuple(listed))
    if pattern.period is None:
        return Windows(
            0,
            none,
            f"the file does not say which layers of architecture {architecture} keep its window of {tokens} tokens: "
            "every layer is charged in full",
        )
    period = keys.number("attention.sliding_window_pattern", pattern.period)
    return Windows(
        tokens, tuple(layer < n_trunk and _in_window(layer, period, pattern.full_first) for layer in range(n_layer))
    )


def _in_window(layer: int, period: int, full_first: bool) -> bool:
    """llama_hparams::set_swa_pattern; with period 0 no layer is full, with period 1 every layer is."""
    if period == 0:
        return True
    return layer % period != 0 if full_first else layer % period < period - 1
