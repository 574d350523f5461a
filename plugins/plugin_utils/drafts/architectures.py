# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What llama.cpp can do with a target of which architecture, read off its source (src/models/*.cpp of b11434).

None of it is in the binary's help: what is missing aborts llama-server, often with the first request only.
"""

from __future__ import annotations

from typing import Any, Mapping

from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import MTP_GRAPHS

BUILD = 11434
# They draft with one NextN layer or several, each of which proposes one token.
MTP_OF_SEVERAL = frozenset(("hy_v3", "mimo2", "step35"))
# The graphs of the others assert that there is one.
MTP_OF_ONE = MTP_GRAPHS - MTP_OF_SEVERAL
# Their MTP graph asserts multi-head latent attention.
MTP_BY_LATENT = frozenset(("deepseek2", "deepseek32", "glm-dsa"))
# What they call a NextN layer is a router.
ROUTED = frozenset(("graniteswitch",))
# Those that give away what goes into a layer (t_layer_inp), from which EAGLE-3, DFlash and DSpark draft.
LAYER_INPUTS = frozenset(
    (
        "bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan-dense", "hunyuan_vl", "lfm2", "lfm2moe", "llama",
        "mimo2", "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h", "nemotron_h_moe", "qwen3",
        "qwen35", "qwen35moe", "qwen3moe", "qwen3next", "qwen4exp",
    )
)  # fmt: skip
# And what comes out of the last one (t_layer_inp[n_layer]).
LAST_OUTPUT = frozenset(("deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe"))
# llm_arch_supports_rs_rollback: they can keep states to step back to, all others take n_rs_seq for 0.
ROLLBACK = frozenset(
    (
        "bailingmoe3", "deepseek4", "glm5-next", "kimi-k3", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe",
        "qwen35", "qwen35moe", "qwen4exp",
    )
)  # fmt: skip


def speak_of(llama: Mapping[str, Any] | None) -> bool:
    """Whether these tables hold for a build, a llama_info result; a newer one may have learned more."""
    build = (llama or {}).get("build")
    return build is None or build <= BUILD
