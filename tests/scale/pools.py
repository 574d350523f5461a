# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random models and pools, the same for the same seed, as dictionaries the way the modules return them."""

from __future__ import annotations

from random import Random
from typing import Any

MIB = 1024 * 1024
GBIT = 1000
DRAFT_PATH = "/models/draft.gguf"
# Bytes per second of a few common cards, and of a desktop's RAM.
CARDS = (272, 336, 448, 504, 616, 672, 912, 936, 1008, 1792, 2039, 3350)
RAM_BANDWIDTHS = (25, 40, 51, 80, 200)

EXPERTS = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 512}
STATE = {"ssm.inner_size": 2048, "ssm.state_size": 64, "ssm.conv_kernel": 4, "ssm.group_count": 1}
# Architectures whose layers differ, with the keys that make them so.
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "gemma3": {"attention.sliding_window": 512},
    "gpt-oss": {"attention.sliding_window": 128, **EXPERTS},
    "gemma3n": {
        "attention.sliding_window": 512,
        "embedding_length_per_layer_input": 256,
        "altup.num_inputs": 4,
        "attention.shared_kv_layers": 2,
    },
    "mamba2": {**STATE, "ssm.time_step_rank": 32},
    "jamba": {**STATE, "ssm.time_step_rank": 64},
    "qwen35": {**STATE, "ssm.time_step_rank": 32, "full_attention_interval": 4},
    "glm4moe": {"nextn_predict_layers": 1, **EXPERTS},
}


def random_model(
    rng: Random, n_layer: int, layer_mib: int, path: str = "/models/target.gguf", stateful: bool = True
) -> dict[str, Any]:
    """A model of that many layers of about that size, of a random kind; stateful: that may keep a recurrent state."""
    arch = rng.choice([kind for kind, keys in KINDS.items() if stateful or not STATE.keys() <= keys.keys()])
    equal = rng.random() < 0.4
    blocks = [int(layer_mib * MIB * (1 if equal else rng.uniform(0.4, 1.6))) for _layer in range(n_layer)]
    keys: dict[str, Any] = {
        "block_count": n_layer,
        "context_length": 131072,
        "embedding_length": rng.choice([1024, 2048]),
        "feed_forward_length": rng.choice([2048, 4096]),
        "attention.head_count": 8,
        "attention.head_count_kv": rng.choice([1, 2, 8]),
        **KINDS[arch],
    }
    if arch == "jamba":
        keys["attention.head_count_kv"] = [2 if layer % 3 == 1 else 0 for layer in range(n_layer)]
    tied = rng.random() < 0.3
    embd, output = rng.randint(5, layer_mib) * MIB, 0 if tied else rng.randint(5, layer_mib) * MIB
    return {
        "path": path,
        "size_bytes": sum(blocks) + embd + output,
        "architecture": arch,
        "role": "model",
        "missing": [],
        "byte_order": "little",
        "metadata": {f"{arch}.{key}": value for key, value in keys.items()},
        "tensors": {
            "blocks": blocks,
            "token_embd_bytes": embd,
            "output_bytes": output,
            "output_norm_bytes": 4096,
            "input_bytes": embd,
            "other_bytes": 0,
            "rope_freqs_bytes": rng.choice([0, 256]),
            "tied": tied,
            "unknown_types": [],
            "row_padding": {"512": [rng.choice([0, 12345]) for _block in blocks], "512_output": rng.choice([0, 4321])},
        },
        "tokenizer": {
            "type": "BPE", "n_tokens": rng.choice([32000, 150000]), "digest": "same", "add_bos_token": False,
            "add_eos_token": False, "chunk_digests": ["a", "b"], "padding_from": 1000,
        },
    }  # fmt: skip


def random_node(
    rng: Random, number: int, sizes_mib: list[int], ram_mib: int | None, known: float = 0.5, unified: float = 0.0
) -> dict[str, Any]:
    """A machine with GPUs of so much free memory; known: the chance that a bandwidth is."""
    vendor = rng.choice(["CUDA", "CUDA", "ROCm", "Vulkan"])
    gpus = [
        {
            "index": index,
            "device": f"{vendor}{index}",
            "uuid": f"GPU-{number}-{index}",
            "placeable": True,
            "memory_free_bytes": free * MIB,
            "memory_own_bytes": 0,
            "bandwidth_bytes_per_second": rng.choice(CARDS) * 10**9 if rng.random() < known else None,
        }
        for index, free in enumerate(sizes_mib)
    ]
    if gpus and rng.random() < unified:
        gpus[0]["unified_memory"] = True
    return {
        "gpus": gpus,
        "memory": {
            "available_bytes": None if ram_mib is None else ram_mib * MIB,
            "own_bytes": 0,
            "bandwidth_bytes_per_second": rng.choice(RAM_BANDWIDTHS) * 10**9 if rng.random() < known else None,
        },
        "cpu": {"physical_cores": 8},
        "address": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        "machine_id": f"id-{number}",
        "listeners": [],
        "overrides": [],
    }


def random_links(rng: Random, names: list[str]) -> list[dict[str, Any]]:
    """What the host knows of the way to the others: some unknown, some fast, some far."""
    return [
        {
            "name": name,
            "rtt_seconds": rng.choice([None, 0.00005, 0.0002, 0.001, 0.01]),
            "speed_mbps": rng.choice([None, 100, 1000, 10000, 25000]),
        }
        for name in names
        if rng.random() < 0.8
    ]


def _draft_device(rng: Random, nodes: dict[str, Any]) -> str:
    """Mostly what needs no name; else a GPU of the host or a worker, if there is one."""
    gpus = [gpu["device"] for gpu in nodes["m0"]["gpus"]]
    named = [choices for choices in (gpus, list(nodes)[1:]) if choices]
    kind = rng.choice(["auto", "auto", "none", *(["name", "name"] if named else [])])
    return rng.choice(rng.choice(named)) if kind == "name" else kind


def random_request(rng: Random, machines: int, gpus: int, layers: tuple[int, int]) -> dict[str, Any]:
    """Options of a Request over up to so many machines with up to so many GPUs each.

    Free memory is drawn around what the model needs, so that about half of the pools can serve it.
    """
    n_layer = rng.randint(*layers)
    layer_mib = rng.choice([40, 100, 300])
    model = random_model(rng, n_layer, layer_mib)
    count = rng.randint(min(2, machines) if rng.random() < 0.9 else 1, machines)
    allow_cpu = rng.random() < 0.4
    counts = [rng.randint(0, gpus) for _machine in range(count)]
    if rng.random() < 0.25:
        counts[0] = 0
    devices = max(sum(counts), 1)
    # From a replica on one device to a share of a layer.
    need = n_layer * layer_mib * rng.choice([1.0, 1.3, 1.7, 2.2]) / rng.randint(devices * 2 // 3 + 1, devices)
    nodes = {}
    for index, here in enumerate(counts):
        sizes = [max(int(need * rng.uniform(0.4, 1.6)) + rng.choice([0, 0, 150]), 1) for _gpu in range(here)]
        ram = rng.choice([None, 50, int(need) + 50, int(need) + 250, 1000])
        nodes[f"m{index}"] = random_node(rng, index + 1, sizes, ram, rng.choice([0, 0.5, 1]), 0.1)
    names = list(nodes)
    nodes["m0"]["links"] = random_links(rng, names[1:])
    options: dict[str, Any] = {
        "model": model,
        "host": "m0",
        "workers": tuple(names[1:]),
        "nodes": nodes,
        "allow_cpu": allow_cpu,
        "ctx_size": rng.choice([512, 4096, 16384]),
        "parallel": rng.choice([1, 2]),
        "reserve_bytes": rng.choice([0, 20 * MIB]),
    }
    if rng.random() < 0.4:
        draft = random_model(rng, 2, 10, DRAFT_PATH, stateful=False)
        draft["tokenizer"] = model["tokenizer"]
        options.update(
            draft=draft,
            draft_path=DRAFT_PATH,
            draft_reserve=rng.random() < 0.8,
            draft_scope=rng.choice(["sharded", "any"]),
            draft_device=_draft_device(rng, nodes),
            draft_max=rng.choice([4, 16]),
            draft_fallback=rng.choice(["none", "none", "ngram-mod"]),
        )
    return options
