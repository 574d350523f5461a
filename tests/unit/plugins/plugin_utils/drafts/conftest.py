# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Targets and drafts of every kind as dictionaries, the way gguf_info returns them."""

from __future__ import annotations

import pytest

HEAD = {"n_layer": 1, "layer_mib": 10, "embd_mib": 0, "output_mib": 10}


@pytest.fixture
def files(world):
    """Makes a file of a kind by its name; keyword arguments are metadata keys, or ``tensors``, ``tokenizer``."""

    def make(kind, tensors=None, tokenizer=None, **keys):
        makers = {
            "llama": {},
            "draft": {"path": "/models/draft.gguf", "n_layer": 4},
            "eagle3": {
                "path": "/models/eagle3.gguf",
                "arch": "eagle3",
                **HEAD,
                "target_layers": [2, 5, 8],
                "target_hidden_size": 1024,
            },
            "dflash": {
                "path": "/models/dflash.gguf",
                "arch": "dflash",
                **HEAD,
                "n_layer": 2,
                "target_layers": [2, 9],
                "block_size": 16,
            },
            # GLM-4.5 in small: the last block is the NextN layer
            "glm4moe": {"arch": "glm4moe", "n_layer": 11, "nextn_predict_layers": 1},
            "glm4moe-mtp": {"path": "/models/mtp.gguf", "arch": "glm4moe", "n_layer": 11, "nextn_predict_layers": 1},
            "gemma4": {"arch": "gemma4"},
            "gemma4-assistant": {
                "path": "/models/assistant.gguf",
                "arch": "gemma4-assistant",
                "n_layer": 4,
                "embedding_length": 256,
                "embedding_length_out": 1024,
                "nextn_predict_layers": 4,
            },
            "qwen35": {
                "arch": "qwen35",
                "n_layer": 9,
                "nextn_predict_layers": 1,
                "ssm__conv_kernel": 4,
                "ssm__inner_size": 2048,
                "ssm__state_size": 128,
                "ssm__group_count": 8,
            },
            "jamba": {
                "arch": "jamba",
                "ssm__conv_kernel": 4,
                "ssm__inner_size": 2048,
                "ssm__state_size": 16,
                "attention__head_count_kv": [0, 2] * 5,
            },
        }
        makers["dspark"] = {**makers["dflash"], "path": "/models/dspark.gguf", "sample_from_anchor": True}
        gguf = world.gguf(**{**makers[kind], **keys})
        n_layer = len(gguf["tensors"]["blocks"])
        nextn = gguf["metadata"].get(f"{gguf['architecture']}.nextn_predict_layers", 0)
        gguf["tensors"]["nextn_blocks"] = list(range(n_layer - nextn, n_layer)) if kind != "gemma4-assistant" else []
        gguf["tensors"]["telling"] = ["conf_proj.weight", "markov_w1.weight"] if kind == "dspark" else []
        gguf["tensors"].update(tensors or {})
        gguf["tokenizer"].update({"mask_token_id": 31999, **(tokenizer or {})})
        if kind in ("eagle3", "dflash", "dspark", "glm4moe-mtp", "gemma4-assistant"):
            gguf["role"] = "draft_head"
        return gguf

    return make
