# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is offered when nothing fits is feasible, and the next smaller step is not."""

from __future__ import annotations

import copy
import dataclasses
import os
import random
import re
import time

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.layouts import needs
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.best import layout_exists
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import Planner, make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.ways_out import trials, ways_out
from ansible_collections.relay.pool.plugins.plugin_utils.ways_out.infeasible import explain
from ansible_collections.relay.pool.plugins.plugin_utils.ways_out.quantisation import LADDER, described, scaled

MIB = 1024 * 1024
# HOW_MANY=1000 looks at more of them.
POOLS = int(os.environ.get("HOW_MANY", "50"))
KINDS = (
    ("llama", {}),
    ("gemma3", {"attention__sliding_window": 512}),
    ("qwen35", {"ssm__inner_size": 1024, "ssm__state_size": 16, "ssm__conv_kernel": 4}),
)


def refusal(request):
    """The sentence, or None where there is a plan."""
    try:
        make_plan(request)
    except PoolError as exc:
        return str(exc)
    return None


def feasible(request):
    """Whether there is a plan, from the facts on; a smaller step may be none that a model runs with."""
    try:
        planner = Planner(request)
    except PoolError:
        return False
    return layout_exists(planner.plain, planner.pool, request.allow_cpu)


def offers(sentence):
    """The ways out in a sentence of explain()."""
    ways = re.search(r"\)(?:, but not in whole layers)?: (.*)|beside its reserve: (.*)|^no [^:]*: (.*)", sentence)
    text = next(filter(None, ways.groups()))
    return re.split(r", or ", re.sub(r" \(not counted: .*\)$", "", text))


def mib(text):
    return int(text.replace(" ", "")) * MIB


def more(request, label, size):
    """The same machines, one device with so many bytes more."""
    host, device = label.split(" ", 1)
    nodes = copy.deepcopy(dict(request.nodes))
    if device == "CPU":
        nodes[host]["memory"]["available_bytes"] += size
    else:
        next(gpu for gpu in nodes[host]["gpus"] if gpu["device"] == device)["memory_free_bytes"] += size
    return dataclasses.replace(request, nodes=nodes)


def another(request, world, size):
    """One more machine, with a GPU of so many free bytes."""
    node = world.node(99, [0])
    node["gpus"][0]["memory_free_bytes"] = size
    return dataclasses.replace(request, workers=(*request.workers, "zz"), nodes={**request.nodes, "zz": node})


def changed(request, world, way):
    """(the request as the way out says, with the next smaller step or None). Reads the text as an operator does."""
    now = less = request
    parts = re.split(r", (?=lower|set|take)| and (?=lower|take)", way)
    for part in parts:
        last = part is parts[-1]
        found = re.fullmatch(r"lower relay_(ctx_size|parallel|ubatch_size) to (\d+)", part)
        if found:
            name, value = found.group(1), int(found.group(2))
            step = {"ctx_size": 256 * request.parallel, "parallel": 1, "ubatch_size": value}[name]
            less = dataclasses.replace(now, **{name: value + step if last else value})
            now = dataclasses.replace(now, **{name: value})
            continue
        found = re.fullmatch(r"set relay_kv_cache_type to (\w+)", part)
        if found:
            now = dataclasses.replace(now, cache_type_k=found.group(1), cache_type_v=found.group(1))
            order = ["f32", "f16", "q8_0", "q4_0"]
            before = order[order.index(found.group(1)) - 1]
            less = dataclasses.replace(now, cache_type_k=before, cache_type_v=before)
            continue
        found = re.fullmatch(r"lower relay_reserve_bytes to (\d+) \(([\d ]+) MiB\)", part)
        if found:
            value = int(found.group(1))
            assert mib(found.group(2)) - MIB < value <= mib(found.group(2))
            now = dataclasses.replace(request, reserve_bytes=value)
            less = dataclasses.replace(request, reserve_bytes=value + 16 * MIB)
            continue
        if part == "set relay_allow_cpu to true":
            now, less = dataclasses.replace(request, allow_cpu=True), None
            continue
        found = re.match(
            r"take a file of at most ([\d ]+) MiB(?: \(([\d.]+) bits per weight(?:, such as (\w+))?\))?$", part
        )
        if found:
            size = mib(found.group(1))
            whole = request.model["size_bytes"]
            step = max(whole // 256 // MIB, 1) * MIB
            less = dataclasses.replace(now, model=scaled(request.model, min(size + step + MIB, whole)))
            now = dataclasses.replace(now, model=scaled(request.model, size))
            if found.group(2):
                bits = size * 8 / request.model["parameters"]
                assert bits - 0.011 < float(found.group(2)) <= bits
            if found.group(3):
                assert dict(LADDER)[found.group(3)] <= bits
            continue
        found = re.fullmatch(r"give (.+?) ([\d ]+) MiB more", part)
        if found and not found.group(1)[-1].isspace():
            label, size = found.group(1), mib(found.group(2))
            return more(request, label, size), more(request, label, size - 64 * MIB)
        found = re.fullmatch(r"add a machine with ([\d ]+) MiB of free GPU memory", part)
        assert found, part
        size = mib(found.group(1))
        return another(request, world, size), another(request, world, size - 64 * MIB)
    return now, less


def random_request(rng, world):
    arch, keys = rng.choice(KINDS)
    model = world.gguf(n_layer=rng.choice([3, 5, 8]), layer_mib=rng.choice([20, 100, 400]), arch=arch, **keys)
    size = model["size_bytes"] / MIB
    if rng.random() < 0.7:
        model["parameters"] = int(model["size_bytes"] * 8 / rng.choice([2.5, 4.8, 8.5, 16]))
    nodes = {}
    count = rng.randint(1, 4)
    for number in range(count):
        gpus = [int(rng.uniform(300, 1200 + 2 * size / count)) for _gpu in range(rng.randint(0, 2))]
        nodes[chr(97 + number)] = world.node(number + 1, gpus, ram=rng.choice([400, 2000, 8000, None]))
    cache = rng.choice(["f16", "f16", "f32", "q8_0"])
    return Request(
        model=model,
        host="a",
        nodes=nodes,
        workers=tuple(nodes)[1:],
        ctx_size=rng.choice([1024, 4096, 32768, 131072]),
        parallel=rng.choice([1, 2, 4, 7, 32]),
        allow_cpu=rng.random() < 0.3,
        reserve_bytes=rng.choice([None, None, 0, 300 * MIB]),
        cache_type_k=cache,
        cache_type_v=cache,
    )


def test_every_way_out_works_and_a_smaller_step_does_not(world):
    rng = random.Random(5)
    seen, pools, nothing = {}, 0, 0
    while pools < POOLS:
        request = random_request(rng, world)
        sentence = refusal(request)
        if sentence is None:
            continue
        pools += 1
        nothing += "no usable GPU" in sentence
        for way in offers(sentence):
            now, less = changed(request, world, way)
            assert feasible(now), (way, sentence)
            assert less is None or not feasible(less), (way, sentence)
            seen[way.split(" to ")[0].split(" with ")[0].split(" most")[0]] = way
    assert nothing
    kinds = " | ".join(seen)
    for kind in (
        "lower relay_ctx_size", "set relay_kv_cache_type", "lower relay_ubatch_size",
        "lower relay_reserve_bytes", "set relay_allow_cpu", "take a file", "give a CUDA0", "add a machine",
    ):  # fmt: skip
        assert kind in kinds, kind


@pytest.mark.parametrize(("free", "slots"), [(1650, 8), (1700, 17), (1750, 26)])
def test_fewer_slots_of_a_model_that_keeps_a_state_for_each(ask, world, free, slots):
    """What a slot takes beside its share of the context."""
    model = world.gguf(arch="qwen35", ssm__inner_size=1024, ssm__state_size=128, ssm__conv_kernel=4)
    request = ask([free], model=model, parallel=32, ctx_size=32 * 256)
    way = next(way for way in offers(refusal(request)) if way.startswith("lower relay_parallel to "))
    now, less = changed(request, world, way)
    assert now.parallel == slots
    assert feasible(now)
    assert not feasible(less)


def test_few_plans_are_tried(ask, world, monkeypatch):
    made = []
    monkeypatch.setattr(trials, "layout_exists", lambda *asked: made.append(1) or layout_exists(*asked))
    model = world.gguf(n_layer=128, layer_mib=900)
    sentence = refusal(ask(*[[9000]] * 12, model=model, ctx_size=1024 * 1024, parallel=4))
    assert "give " in sentence
    assert "add a machine" in sentence
    assert 5 < len(made) <= trials.MOST


def test_what_a_model_takes_is_computed_once_for_all_pools(ask, world, monkeypatch):
    """With embeddings for every layer the ranges of layers are many, and none is like another."""
    asked, computed = [], []
    monkeypatch.setattr(
        trials, "layout_exists", lambda *tried: asked.append(tried[0].ledger.kv) or layout_exists(*tried)
    )
    monkeypatch.setattr(
        needs.Needs, "_row", lambda self, *args, real=needs.Needs._row: computed.append(1) or real(self, *args)
    )
    keys = {"attention__sliding_window": 512, "embedding_length_per_layer_input": 256, "altup__num_inputs": 4}
    model = world.gguf(arch="gemma3n", n_layer=30, layer_mib=900, **keys, attention__shared_kv_layers=10)
    assert "give " in refusal(ask(*[[9000]] * 2, model={**model, "size_bytes": None}))
    kinds = 4
    assert len(asked) > 2 * len(set(asked))
    assert len(computed) <= kinds * 31 * (len(set(asked)) + 1)


def test_what_the_sizes_rule_out_is_not_tried(ask, monkeypatch):
    """A dense model's slots share its context, so fewer of them take no less."""
    asked = []
    monkeypatch.setattr(trials, "layout_exists", lambda *tried: asked.append(tried[0].ledger) or layout_exists(*tried))
    assert "relay_parallel" not in refusal(ask([1300], [1300], ctx_size=40960, parallel=4))
    assert {ledger.batch.sequences for ledger in asked} == {4}


def test_the_plans_that_may_be_tried_run_out(ask, monkeypatch):
    monkeypatch.setattr(trials, "MOST", 1)
    sentence = refusal(ask([1300], [1300], ctx_size=40960, parallel=4))
    assert sentence.endswith(": set relay_kv_cache_type to q8_0") or sentence.endswith(": add a machine")


@pytest.mark.parametrize(
    ("free", "bits", "options", "way"),
    [
        (
            1120, 2.01, {"ctx_size": 65536, "parallel": 32},
            r"set relay_kv_cache_type to q8_0 and lower relay_ctx_size to 8192",
        ),
        (
            1000, 8, {"ctx_size": 131072},
            r"set relay_kv_cache_type to q4_0 and take a file of at most 526 MiB .3\.79 bits .*, such as IQ3_M.",
        ),
        (
            600, 8, {"ctx_size": 131072},
            r"set relay_kv_cache_type to q4_0, lower relay_ctx_size to 65536 and take a file of at most 366 MiB .*",
        ),
    ],
)  # fmt: skip
def test_a_combination_only_where_no_setting_is_enough(ask, world, free, bits, options, way):
    model = world.gguf()
    model["parameters"] = int(model["size_bytes"] * 8 / bits)
    request = ask([free], model=model, reserve_bytes=0, ubatch_size=32, **options)
    found, *hardware = offers(refusal(request))
    assert re.fullmatch(way, found)
    assert [text.split()[0] for text in hardware] == ["give", "add"]
    now, less = changed(request, world, found)
    assert feasible(now)
    assert not feasible(less)


def test_ram_that_is_too_small_is_said_and_not_called_gpu_memory(ask, world):
    sentence = refusal(ask(world.node(1, [9000], ram=300)))
    assert re.match(
        r"target needs \d+ MiB of RAM on a for its token embedding and buffers, and a has 44 MiB ", sentence
    )
    assert "give a CPU 64 MiB more" in sentence


def test_a_large_pool_stays_one_readable_sentence(ask, world):
    sentence = refusal(ask([1300], *[[700] * 8] * 19, model=world.gguf(n_layer=60, layer_mib=400)))
    assert "on the 15 largest of 153 devices (a CUDA0 788 MiB, " in sentence
    assert " and 7 more)" in sentence
    assert len(sentence) < 1000


def test_what_may_not_be_used_is_said_once(ask, world):
    machines = [world.node(number, [1000, 3000]) for number in range(1, 9)]
    for node in machines:
        node["gpus"][1].update(placeable=False, reason="MIG is on")
    sentence = refusal(ask(*machines, model=world.gguf(layer_mib=900)))
    assert "(not counted: a CUDA1: MIG is on (and likewise 7 more: b CUDA1; " in sentence


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (16.0, "16.00 bits per weight, such as Q8_0"),
        (4.9, "4.90 bits per weight, such as Q4_K_M"),
        (4.89, "4.88 bits per weight, such as Q4_K_S"),
        (2.1, "2.10 bits per weight, such as IQ1_S"),
        (1.9, "1.90 bits per weight"),
    ],
)
def test_the_quantisation_at_or_below_a_size(bits, text):
    weights = 8 * 10**9
    assert described({"parameters": weights}, int(weights * bits / 8)) == text
    assert described({}, 1) is None


def test_the_ladder_rises():
    assert [bits for _name, bits in LADDER] == sorted(bits for _name, bits in LADDER)


def test_a_smaller_file_has_smaller_matrices(world):
    model = world.gguf()
    half = scaled(model, model["size_bytes"] // 2)
    assert half["tensors"]["blocks"] == [50 * MIB] * 10
    assert (half["tensors"]["token_embd_bytes"], half["tensors"]["output_bytes"]) == (25 * MIB, 30 * MIB)
    assert half["tensors"]["output_norm_bytes"] == model["tensors"]["output_norm_bytes"]


def test_cache_types_that_every_build_has_kernels_for():
    assert ways_out.CACHE_TYPES == ("f16", "q8_0", "q4_0")


def test_a_thousand_machines_are_explained_quickly(ask, world):
    """The ways out are looked for on the largest devices only."""
    nodes = [world.node(0, [4000 + number % 997] * 8) for number in range(1000)]
    for number, node in enumerate(nodes):
        node.update(address=f"10.1.{number // 250}.{number % 250 + 1}", machine_id=f"m{number}")
        for gpu in node["gpus"]:
            gpu["uuid"] = f"{number}-{gpu['device']}"
    request = dataclasses.replace(
        ask([4000], model=world.gguf(n_layer=40, layer_mib=9000)),
        nodes={f"n{number}": node for number, node in enumerate(nodes)},
        host="n0",
        workers=tuple(f"n{number}" for number in range(1, 1000)),
    )
    planner = Planner(request)
    started = time.monotonic()
    sentence = explain(request, planner.plain, planner.pool, planner.refused)
    assert time.monotonic() - started < 10
    assert "add a machine with" in sentence
    assert "give n" in sentence


def test_cpus_that_do_not_hold_the_model_are_no_way_out(ask, world):
    small, large = world.node(1, ram=600), world.node(1, ram=4000)
    with pytest.raises(PoolError, match=r"^no usable GPU on a: set relay_allow_cpu to true, or add a machine with \d"):
        make_plan(ask(large))
    with pytest.raises(PoolError, match=r"^no usable GPU on a: add a machine with [\d ]+ MiB of free GPU memory$"):
        make_plan(ask(small))
    unknown = world.node(1, ram=None)
    with pytest.raises(
        PoolError, match=r"^no device can hold layers: neither .* RAM on a: add a machine with [\d ]+ MiB"
    ):
        make_plan(ask(unknown, allow_cpu=True))
