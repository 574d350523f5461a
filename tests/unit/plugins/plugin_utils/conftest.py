# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models and machines as dictionaries, the way the modules return them."""

from __future__ import annotations

import pytest

MIB = 1024 * 1024


class World:
    """Makes gguf results, node facts and requests with small numbers."""

    @staticmethod
    def gguf(
        path="/models/target.gguf", n_layer=10, layer_mib=100, arch="llama", embd_mib=50, output_mib=60, **metadata
    ):
        """A dense model; keyword arguments are metadata keys with dots written as two underscores."""
        keys = {
            "block_count": n_layer,
            "context_length": 32768,
            "embedding_length": 1024,
            "feed_forward_length": 2048,
            "attention.head_count": 8,
            "attention.head_count_kv": 2,
        }
        keys.update({key.replace("__", "."): value for key, value in metadata.items()})
        return {
            "path": path,
            "size_bytes": (n_layer * layer_mib + embd_mib + output_mib) * MIB,
            "architecture": arch,
            "role": "model",
            "missing": [],
            "byte_order": "little",
            "metadata": {f"{arch}.{key}": value for key, value in keys.items() if value is not None},
            "tensors": {
                "blocks": [layer_mib * MIB] * n_layer,
                "token_embd_bytes": embd_mib * MIB,
                "output_bytes": output_mib * MIB,
                "output_norm_bytes": 4096,
                "input_bytes": embd_mib * MIB,
                "other_bytes": 0,
                "rope_freqs_bytes": 0,
                "tied": output_mib == 0,
                "unknown_types": [],
                "row_padding": {"512": [0] * n_layer, "512_output": 0},
            },
            "tokenizer": {
                "type": "BPE", "n_tokens": 32000, "digest": "same", "add_bos_token": False, "add_eos_token": False,
                "chunk_digests": ["a", "b"], "padding_from": None,
            },
        }  # fmt: skip

    @staticmethod
    def node(number, gpus=(), ram=4096, **fields):
        """A machine with GPUs of so many free MiB."""
        node = {
            "gpus": [
                {
                    "index": index,
                    "device": f"CUDA{index}",
                    "uuid": f"GPU-{number}-{index}",
                    "placeable": True,
                    "memory_free_bytes": None if free is None else free * MIB,
                    "memory_own_bytes": 0,
                    "bandwidth_bytes_per_second": None,
                }
                for index, free in enumerate(gpus)
            ],
            "memory": {
                "available_bytes": None if ram is None else ram * MIB,
                "own_bytes": 0,
                "bandwidth_bytes_per_second": None,
            },
            "cpu": {"physical_cores": 4},
            "address": f"10.0.0.{number}",
            "machine_id": f"id-{number}",
            "listeners": [],
            "overrides": [],
        }
        node.update(fields)
        return node


@pytest.fixture(scope="session")
def world():
    """The maker of models and machines."""
    return World


@pytest.fixture
def ask(world):
    """Makes a request over machines a (host), b, c, ... with the given GPUs."""
    from ansible_collections.relay.pool.plugins.plugin_utils.request import Request

    def make(*machines, model=None, **options):
        nodes = {
            chr(97 + i): gpus if isinstance(gpus, dict) else world.node(i + 1, gpus) for i, gpus in enumerate(machines)
        }
        return Request(
            model=model or world.gguf(),
            host="a",
            workers=tuple(sorted(nodes))[1:],
            nodes=nodes,
            **{"ctx_size": 4096, "parallel": 1, **options},
        )

    return make
