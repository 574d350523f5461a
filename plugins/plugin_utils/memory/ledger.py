# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes a model needs, layer by layer, before any device is chosen.

Where llama.cpp puts things: ``blk.i.*``, KV and recurrent state of layer i on the device of layer i; the output
with its norm on the output's device, and when it is tied, a copy of the token embedding there; the token embedding
itself always on the host's CPU. CUDA and the other GPU back ends pad the rows of quantised tensors to 512 values.

What neither the file nor a measurement says is charged on the safe side, and ``Ledger.assumptions`` says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Callable, Mapping, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory import aborts, compute, heads, kv
from ansible_collections.relay.pool.plugins.plugin_utils.memory.activations import FLOAT
from ansible_collections.relay.pool.plugins.plugin_utils.memory.batch import Batch
from ansible_collections.relay.pool.plugins.plugin_utils.memory.header import check_header
from ansible_collections.relay.pool.plugins.plugin_utils.memory.reads import Reads, token_reads
from ansible_collections.relay.pool.plugins.plugin_utils.memory.shape import (
    MTP_GRAPHS,
    NEXTN_SKIPPED,
    NO_OUTPUT_COPY,
    OUTPUT_FIRST,
    ModelShape,
    model_shape,
    nextn_shape,
)
from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB

# Bits per weight of the types that an x86 CPU multiplies in an order of its own (ggml_repack_get_optimal_repack_type,
# ggml-cpu/repack.cpp): Q2_K, MXFP4, and Q4_0, Q4_K and IQ4_NL. An ARM CPU reorders some more.
REORDERED_BITS = frozenset((2.625, 4.25, 4.5))
REORDERED_ROWS = 8


@dataclass(frozen=True)
class ContextSpec:
    """How a model is to be run.

    mtp: its own MTP layers draft, in a context beside. snapshots: recurrent states per slot besides the one in use.
    read_layers: layers whose inputs a head reads. handed: MTP layers of another file read what the last layer makes.
    drafts: the context only drafts, being that of a head or of MTP layers. batch_size: tokens of --batch-size.
    """

    ctx_size: int
    parallel: int
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    ubatch_size: int = 512
    n_outputs: int = 1
    mtp: bool = False
    snapshots: int = 0
    read_layers: tuple[int, ...] = ()
    handed: bool = False
    drafts: bool = False
    batch_size: int = 2048


@dataclass(frozen=True)
class Ledger:
    """Bytes per layer and per singular part; ``*_pad`` is what a GPU adds to the same part.

    output_tied: the copy of the token embedding that the output's device gets; output_tied_on_cpu: that of the CPU.
    output_beside: of the output, what goes with the last layers wherever the matrix itself is put.
    weight_reads: which weights of the layers decoding reads. output_reads: bytes of the output stage that it reads.
    given: what a head reads of it, of which ``rows_kept`` bytes are in RAM. mtp: the context of its own NextN layers.
    drafting: it is itself one that drafts for another.
    """

    shape: ModelShape
    batch: Batch
    weights: tuple[int, ...]
    weights_pad: tuple[int, ...]
    kv: tuple[int, ...]
    recurrent: tuple[int, ...]
    output: int
    output_pad: int
    output_tied: int
    output_tied_on_cpu: int
    output_beside: int
    input: int
    per_device: int
    weight_reads: Reads
    output_reads: int
    given: heads.Given = field(default_factory=heads.Given)
    rows_kept: int = 0
    mtp: heads.Mtp | None = None
    drafting: heads.Drafting | None = None

    @property
    def n_layer(self) -> int:
        """Repeating layers, NextN layers included."""
        return self.shape.n_layer

    @property
    def mtp_device(self) -> int:
        """Bytes of the context of its own NextN layers on the device that has the last layer; 0 when none drafts."""
        return self.mtp.kv + self.mtp.compute if self.mtp else 0

    @property
    def mtp_host(self) -> int:
        """Bytes of the same context in RAM, where the layers are not on the host's CPU."""
        return self.mtp.host if self.mtp else 0

    @property
    def mtp_weights(self) -> int:
        """Bytes of the NextN layers that draft; they are among ``weights``."""
        return self.mtp.weights if self.mtp else 0

    @property
    def output_apart(self) -> bool:
        """Whether the output can be on the CPU without the last layers: what stays with them is next to nothing."""
        return self.output_beside < MIB

    @property
    def reads(self) -> tuple[int, ...]:
        """Bytes of the weights of each layer that decoding one token reads."""
        return self.weight_reads.batch()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Sentences on what is charged on the safe side because neither the file nor a measurement says less."""
        return self.shape.assumptions

    def device_bytes(
        self, first: bool, pipelined: bool, output: bool, layers: tuple[int, int] | None = None, gpu: bool = False
    ) -> int:
        """Compute buffer of a device; layers: its first one and the one after its last, where they are known."""
        if self.drafting:
            return heads.device_bytes(self.shape, self.batch, pipelined, self.drafting.read, gpu)
        kind = self._range_kinds(*layers) if layers and self._range_kinds else layers is None
        key = (first, pipelined, output, kind, gpu)
        size = self._device_sizes.get(key)
        if size is None:
            size = compute.device_bytes(self.shape, self.batch, first, pipelined, output, layers, gpu)
            self._device_sizes[key] = size
        return size + self.given.rows(layers, output) * self.batch.tokens * self.shape.n_embd * FLOAT

    @property
    def layers_alike(self) -> bool:
        """Whether a compute buffer is the same for all layers, but for the first and the output."""
        return self._range_kinds is None and not self.given.layers

    @cached_property
    def _range_kinds(self) -> Callable[[int, int], Any] | None:
        return compute.range_kinds(self.shape, self.batch)

    @cached_property
    def _device_sizes(self) -> dict[Any, int]:
        """What device_bytes() has computed: a search asks for every range of layers, and few kinds of them differ."""
        return {}

    def host_bytes(self, layers: bool, pipelined: bool, output: bool = False) -> int:
        """Compute and logits buffers of the host's CPU, and the rows that a head reads."""
        if self.drafting:
            read, outputs = self.drafting.read, self.drafting.outputs
            return heads.host_bytes(self.shape, self.batch, layers, pipelined, read, outputs)
        size = compute.host_bytes(self.shape, self.batch, layers, pipelined, output) + self.rows_kept
        if layers:
            size += self.given.rows(None, output) * self.batch.tokens * self.shape.n_embd * FLOAT
        return size

    def layer_weights(self, first: int, last: int, padded: bool) -> int:
        """Weights of layers first..last-1."""
        total = sum(self.weights[first:last])
        return total + (sum(self.weights_pad[first:last]) if padded else 0)

    def output_weights(self, padded: bool, on_cpu: bool = False) -> int:
        """Weights of the output stage; on the CPU a tied output mostly is the token embedding itself, not a copy."""
        tied = self.output_tied_on_cpu if on_cpu else self.output_tied
        return self.output + tied + (self.output_pad if padded else 0)


def check_model(gguf: Mapping[str, Any], what: str = "the model", drafts: bool = False) -> None:
    """Raise when the file is no complete, loadable model; drafts: it may be one that only drafts."""
    check_header(gguf, what)
    path = gguf.get("path") or what
    role = gguf.get("role", "model")
    if role != "model" and not (drafts and role == "draft_head"):
        raise PoolError(f"{path} is a GGUF of role {role}, not a model: name the model itself")
    if gguf.get("missing"):
        raise PoolError(f"{path} lacks its parts {', '.join(gguf['missing'])}: put all parts into one directory")
    unknown = (gguf.get("tensors") or {}).get("unknown_types")
    if unknown:
        raise PoolError(
            f"{path} has tensors of the unknown types {', '.join(map(str, unknown))}: its size cannot be computed"
        )
    if gguf.get("byte_order", "little") != "little":
        raise PoolError(f"{path} is big endian: llama.cpp loads it on big-endian machines only")


def model_ledger(gguf: Mapping[str, Any], spec: ContextSpec) -> Ledger:
    """The ledger of a gguf_info result."""
    check_model(gguf, drafts=spec.drafts)
    shape = model_shape(gguf)
    own_nextn = shape.n_layer_nextn > 0 and shape.architecture in MTP_GRAPHS
    if spec.drafts and own_nextn:
        shape = nextn_shape(gguf, shape)
    tensors = gguf.get("tensors") or {}
    blocks = list(tensors.get("blocks") or [])
    if len(blocks) != shape.n_block:
        raise PoolError(
            f"{gguf.get('path')} lists the sizes of {len(blocks)} blocks but has {shape.n_block} layers: "
            "read it again with gguf_info"
        )
    padding = tensors.get("row_padding") or {}
    block_pad = list(padding.get("512") or [0] * shape.n_block)
    if len(block_pad) != shape.n_block:
        raise PoolError(f"{gguf.get('path')} lists no size for some of its blocks: read it again with gguf_info")
    # --spec-type draft-mtp loads them, whichever file drafts
    loaded = own_nextn and (spec.mtp or spec.handed or spec.drafts)
    if shape.architecture in NEXTN_SKIPPED and not loaded:
        for layer in range(shape.n_layer - shape.n_layer_nextn, shape.n_layer):
            blocks[layer] = block_pad[layer] = 0
    reads = token_reads(gguf, blocks, shape.n_layer)
    # layers that llama.cpp adds have no weights of their own
    blocks += [0] * (shape.n_layer - shape.n_block)
    block_pad += [0] * (shape.n_layer - shape.n_block)
    kv.check_cache_types(shape, spec.cache_type_k, spec.cache_type_v)
    total, cells = kv.context(spec.ctx_size, spec.parallel)
    path, count = str(gguf.get("path")), int(tensors.get("count") or 0)
    aborts.check_graph(shape, path, count, spec.parallel, spec.cache_type_k, spec.cache_type_v)
    aborts.check_slots(shape, path, total, spec.parallel, spec.ubatch_size)
    windowed = kv.window_cells(shape, cells, spec.ubatch_size) if shape.window else 0
    cache = tuple(
        kv.kv_bytes(shape, spec.ctx_size, spec.parallel, spec.cache_type_k, spec.cache_type_v, spec.ubatch_size)
    )
    rope = int(tensors.get("rope_freqs_bytes") or 0)
    token_embd = int(tensors.get("token_embd_bytes") or 0)
    tied = token_embd if tensors.get("tied") and shape.architecture not in NO_OUTPUT_COPY else 0
    output = sum(int(tensors.get(f"{part}_bytes") or 0) for part in ("output", "output_norm", "other"))
    tokens = min(spec.ubatch_size, total)
    # llama.cpp takes them for encoders, whose every token has an output
    rows = tokens if spec.drafts and shape.architecture in heads.READING else spec.n_outputs
    half_kv = _half_kv(shape, spec)
    batch = Batch(cells, windowed, spec.ubatch_size, rows, cache, spec.parallel, half_kv, spec.snapshots)
    given = heads.Given(spec.read_layers, (spec.mtp and own_nextn) or spec.handed)
    return Ledger(
        shape=shape,
        batch=batch,
        weights=tuple(blocks),
        weights_pad=tuple(block_pad),
        kv=cache,
        recurrent=tuple(kv.recurrent_bytes(shape, spec.parallel * (1 + spec.snapshots))),
        output=output,
        output_pad=int(padding.get("512_output") or 0),
        output_tied=tied,
        output_tied_on_cpu=tied if shape.architecture in OUTPUT_FIRST or _is_reordered(shape, tied) else 0,
        output_beside=output - int(tensors.get("output_bytes") or 0),
        input=int(tensors.get("input_bytes") or token_embd),
        per_device=rope,
        weight_reads=reads,
        output_reads=output + (token_embd if tensors.get("tied") else 0),
        given=given,
        rows_kept=given.count * min(spec.batch_size, total) * shape.n_embd * FLOAT,
        mtp=_mtp(gguf, shape, spec, blocks) if spec.mtp and own_nextn else None,
        drafting=heads.drafting(gguf, shape, tokens, spec.n_outputs) if spec.drafts else None,
    )


def _mtp(gguf: Mapping[str, Any], shape: ModelShape, spec: ContextSpec, blocks: Sequence[int]) -> heads.Mtp:
    """The context in which the NextN layers draft.

    It has the target's context and slots, an f16 cache, and an output row per slot; that the target is a pipeline is
    taken for granted, as its context then is one, too.
    """
    alone = nextn_shape(gguf, shape)
    caches = kv.kv_bytes(alone, spec.ctx_size, spec.parallel, "f16", "f16", spec.ubatch_size)
    cells = kv.context(spec.ctx_size, spec.parallel)[1]
    windowed = kv.window_cells(alone, cells, spec.ubatch_size) if alone.window else 0
    batch = Batch(cells, windowed, spec.ubatch_size, spec.parallel, tuple(caches), spec.parallel)
    return heads.Mtp(
        kv=sum(caches),
        compute=heads.device_bytes(alone, batch, True, alone.n_embd),
        host=heads.host_bytes(alone, batch, False, True, alone.n_embd, spec.parallel),
        weights=sum(blocks[shape.n_layer - shape.n_layer_nextn :]),
    )


def _half_kv(shape: ModelShape, spec: ContextSpec) -> int:
    """Bytes of the largest layer's cache as half floats, unless it is kept so."""
    if spec.cache_type_k == spec.cache_type_v == "f16":
        return 0
    return max(kv.kv_bytes(shape, spec.ctx_size, spec.parallel, "f16", "f16", spec.ubatch_size))


def _is_reordered(shape: ModelShape, matrix: int) -> bool:
    """Whether a CPU multiplies with a matrix of that many bytes in an order of its own, so that it needs a copy."""
    weights = shape.n_embd * shape.n_vocab
    return bool(weights) and not shape.n_vocab % REORDERED_ROWS and matrix * 8 / weights in REORDERED_BITS


@dataclass(frozen=True)
class Charge:
    """What a whole small model costs on one device and in the host's RAM."""

    weights: int
    kv: int
    compute: int

    @property
    def total(self) -> int:
        """Sum in bytes."""
        return self.weights + self.kv + self.compute


def whole_model(ledger: Ledger, on_gpu: bool, n_gpu_layers: int = -1, padded: bool = True) -> tuple[Charge, Charge]:
    """(charge on the device, charge in RAM) of a model on a single device, its last n_gpu_layers on the GPU."""
    n_layer = ledger.n_layer
    offloaded = n_layer + 1 if n_gpu_layers < 0 else min(n_gpu_layers, n_layer + 1)
    if not on_gpu:
        offloaded = 0
    first = n_layer + 1 - offloaded
    state = [ledger.kv[layer] + ledger.recurrent[layer] for layer in range(n_layer)]
    output_on_gpu = offloaded > 0
    ram = Charge(
        weights=ledger.input
        + ledger.layer_weights(0, min(first, n_layer), False)
        + (ledger.per_device if first else 0)
        + (0 if output_on_gpu else ledger.output_weights(False, on_cpu=True)),
        kv=sum(state[:first]),
        compute=ledger.host_bytes(layers=first > 0, pipelined=False, output=not output_on_gpu),
    )
    if not output_on_gpu:
        return Charge(0, 0, 0), ram
    gpu = Charge(
        weights=ledger.layer_weights(first, n_layer, padded) + ledger.output_weights(padded) + ledger.per_device,
        kv=sum(state[first:]),
        compute=ledger.device_bytes(first=True, pipelined=False, output=True, gpu=padded),
    )
    return gpu, ram


def memory_estimate(gguf: Mapping[str, Any], spec: ContextSpec) -> dict[str, Any]:
    """The ledger of one context without devices, for people and for the filter of the same name."""
    ledger = model_ledger(gguf, spec)
    gpu, ram = whole_model(ledger, on_gpu=True)
    total, per_slot = kv.context(spec.ctx_size, spec.parallel)
    weights = gpu.weights + ledger.input
    return {
        "architecture": ledger.shape.architecture,
        "n_layer": ledger.n_layer,
        "ctx_size": total,
        "ctx_size_per_slot": per_slot,
        "layers": [
            {"weights_bytes": ledger.weights[i], "kv_bytes": ledger.kv[i], "recurrent_bytes": ledger.recurrent[i]}
            for i in range(ledger.n_layer)
        ],
        "input_bytes": ledger.input,
        "output_bytes": ledger.output_weights(False),
        "weights_bytes": weights,
        "kv_bytes": sum(ledger.kv),
        "recurrent_bytes": sum(ledger.recurrent),
        "compute_bytes": gpu.compute,
        "host_compute_bytes": ram.compute,
        "total_bytes": weights + sum(ledger.kv) + sum(ledger.recurrent) + gpu.compute + ram.compute,
        "assumptions": list(ledger.assumptions),
    }
