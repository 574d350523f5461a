# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smallest changes with which there would be a plan, each tried by making one."""

from __future__ import annotations

import dataclasses
from typing import Callable, Iterable, Iterator, Optional, Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine, rpc_devices
from ansible_collections.relay.pool.plugins.plugin_utils.machines.nodes import GPU_RESERVE_BYTES
from ansible_collections.relay.pool.plugins.plugin_utils.machines.pool import Pool
from ansible_collections.relay.pool.plugins.plugin_utils.memory import kv
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB, mib
from ansible_collections.relay.pool.plugins.plugin_utils.ways_out.quantisation import described, least_bytes, scaled
from ansible_collections.relay.pool.plugins.plugin_utils.ways_out.trials import Exhausted, Trials

STEP_BYTES = 64 * MIB
RESERVE_STEP_BYTES = 16 * MIB
FILE_STEPS = 256
LEAST_UBATCH = 32
# For these two every CUDA build has kernels (GGML_CUDA_FA_QUANTS in ggml/CMakeLists.txt of llama.cpp).
CACHE_TYPES = ("f16", "q8_0", "q4_0")
Way = Callable[[Trials], Optional[str]]


def ways_out(trials: Trials) -> list[str]:
    """Parts of a sentence, the cheapest changes first; a combination of settings only where none alone is enough."""
    common = _those(trials, (_context, _cache, _cpu, _file))
    hardware = _those(trials, (_more_memory, _more_machines))
    settings = common + _those(trials, (_slots, _ubatch, _reserve))
    if not settings:
        settings = next(filter(None, (_those(trials, (way,)) for way in COMBINED)), [])
    return settings + hardware


def _those(trials: Trials, ways: Sequence[Way]) -> list[str]:
    """What each of the ways offers; one that would take more plans than may be tried is left out."""
    found = []
    for way in ways:
        try:
            text = way(trials)
        except Exhausted:
            continue
        if text:
            found.append(text)
    return found


# -- settings ----------------------------------------------------------------------------------------------------


def _context(trials: Trials, request: Request | None = None) -> str | None:
    """The largest context that works; llama.cpp gives every slot a multiple of kv.PAD tokens."""
    request = request or trials.request
    step = kv.PAD * request.parallel
    steps = kv.context(request.ctx_size, request.parallel)[0] // step

    def asked(fewer: int) -> tuple[Request, None]:
        return dataclasses.replace(request, ctx_size=(steps - fewer) * step), None

    fewer = trials.least(asked, steps - 1)
    return None if fewer is None else f"lower relay_ctx_size to {(steps - fewer) * step}"


def _smaller_caches(request: Request) -> Iterator[str]:
    """Types that take less than the caches of the request do, the largest first."""
    values = 256  # of which every type has whole blocks
    have = kv.row_bytes(request.cache_type_k, values) + kv.row_bytes(request.cache_type_v, values)
    return (name for name in CACHE_TYPES if 2 * kv.row_bytes(name, values) < have)


def _with_cache(trials: Trials, name: str) -> Request:
    return trials.changed(cache_type_k=name, cache_type_v=name)


def _cache(trials: Trials) -> str | None:
    for name in _smaller_caches(trials.request):
        if trials.works(_with_cache(trials, name)):
            return f"set relay_kv_cache_type to {name}"
    return None


def _slots(trials: Trials) -> str | None:
    """Fewer slots; they share relay_ctx_size, so only what every slot has besides becomes less."""
    slots = trials.request.parallel
    fewer = trials.least(lambda fewer: (trials.changed(parallel=slots - fewer), None), slots - 1)
    return None if fewer is None else f"lower relay_parallel to {slots - fewer}"


def _ubatch(trials: Trials) -> str | None:
    """The micro batch halved as often as it takes."""
    sizes = []
    size = min(trials.request.ubatch_size, trials.request.batch_size) // 2
    while size >= LEAST_UBATCH:
        sizes.append(size)
        size //= 2
    found = trials.least(lambda step: (trials.changed(ubatch_size=sizes[step - 1]), None), len(sizes))
    return None if found is None else f"lower relay_ubatch_size to {sizes[found - 1]}"


def _reserve(trials: Trials) -> str | None:
    devices = [device for member in trials.pool.machines() for device in member.devices]
    most = max((device.reserve_bytes for device in devices), default=0)

    def asked(steps: int) -> tuple[Request, Pool]:
        reserve = max(most - steps * RESERVE_STEP_BYTES, 0)
        pool = _over(trials, [_kept_free(member, reserve) for member in trials.pool.machines()])
        return trials.changed(reserve_bytes=reserve), pool

    steps = trials.least(asked, -(-most // RESERVE_STEP_BYTES))
    if steps is None:
        return None
    reserve = max(most - steps * RESERVE_STEP_BYTES, 0)
    return f"lower relay_reserve_bytes to {reserve} ({mib(reserve)})"


def _cpu(trials: Trials) -> str | None:
    """The CPUs of machines without a usable GPU."""
    if trials.request.allow_cpu or all(member.gpus or not member.ram for member in trials.pool.machines()):
        return None
    pool = _over(trials, trials.pool.machines(), allow_cpu=True)
    return "set relay_allow_cpu to true" if trials.works(trials.changed(allow_cpu=True), pool) else None


def _file(trials: Trials, request: Request | None = None) -> str | None:
    """The largest file of the same model that fits, as if every matrix shrank alike."""
    request = request or trials.request
    model = trials.request.model
    size = int(model.get("size_bytes") or 0)
    least = least_bytes(model)
    if not size or least >= size:
        return None
    step = max(size // FILE_STEPS // MIB, 1) * MIB

    def bytes_of(fewer: int) -> int:
        return (size - fewer * step) // MIB * MIB

    def asked(fewer: int) -> tuple[Request, None]:
        return dataclasses.replace(request, model=scaled(model, bytes_of(fewer))), None

    fewer = trials.least(asked, (size - least) // step)
    if fewer is None or bytes_of(fewer) < least:
        return None
    kind = described(model, bytes_of(fewer))
    return f"take a file of at most {mib(bytes_of(fewer))}" + (f" ({kind})" if kind else "")


# -- several settings at once ------------------------------------------------------------------------------------


def _cache_and(trials: Trials, way: Callable[[Trials, Request], str | None]) -> str | None:
    """The largest smaller cache with which the other way is one."""
    for name in _smaller_caches(trials.request):
        text = way(trials, _with_cache(trials, name))
        if text:
            return f"set relay_kv_cache_type to {name} and {text}"
    return None


def _cache_and_context(trials: Trials) -> str | None:
    return _cache_and(trials, _context)


def _cache_and_file(trials: Trials) -> str | None:
    return _cache_and(trials, _file)


def _all_three(trials: Trials) -> str | None:
    """Half the context as often as it takes, until a file would fit with the smallest cache that is possible."""
    types = [name for name in _smaller_caches(trials.request) if trials.ledger(_with_cache(trials, name))]
    request = _with_cache(trials, types[-1]) if types else trials.request
    ctx_size = trials.request.ctx_size // 2
    while ctx_size >= kv.PAD * request.parallel:
        text = _file(trials, dataclasses.replace(request, ctx_size=ctx_size))
        if text:
            cache = f"set relay_kv_cache_type to {types[-1]}, " if types else ""
            return f"{cache}lower relay_ctx_size to {ctx_size} and {text}"
        ctx_size //= 2
    return None


COMBINED: tuple[Way, ...] = (_cache_and_context, _cache_and_file, _all_three)

# -- more memory -------------------------------------------------------------------------------------------------


def _most_steps(trials: Trials) -> int:
    """Steps of memory with which one device would hold everything."""
    ledger = trials.ledger(trials.request)
    if ledger is None:
        return 0
    most = sum(ledger.weights) + sum(ledger.weights_pad) + ledger.output_weights(True)
    most += sum(ledger.kv) + sum(ledger.recurrent) + ledger.input + ledger.per_device
    most += ledger.device_bytes(True, True, True, gpu=True) + ledger.host_bytes(True, True)
    return most // STEP_BYTES + 8


def _more_memory(trials: Trials) -> str | None:
    """On the device that needs the fewest more: the largest one, the host's largest, or the host's RAM."""
    host = trials.pool.host
    holders = trials.pool.holders(trials.request.allow_cpu)
    candidates = [max(devices, key=lambda device: device.usable_bytes) for devices in (holders, host.gpus) if devices]
    candidates += [host.ram] if host.ram else []
    most, found = _most_steps(trials), None
    for device in dict.fromkeys(candidates):

        def asked(steps: int, device: Device = device) -> tuple[None, Pool]:
            larger = [_enlarged(member, device, steps * STEP_BYTES) for member in trials.pool.machines()]
            return None, _over(trials, larger)

        steps = trials.least(asked, found[0] - 1 if found else most)
        if steps:
            found = (steps, device)
    return f"give {found[1].label} {mib(found[0] * STEP_BYTES)} more" if found else None


def _more_machines(trials: Trials) -> str | None:
    reserve = trials.request.reserve_bytes
    reserve = GPU_RESERVE_BYTES if reserve is None else reserve

    def asked(steps: int) -> tuple[None, Pool]:
        gpu = Device("another machine", "CUDA0", reserve + steps * STEP_BYTES, reserve, address="another address")
        other = Machine(gpu.host, None, (gpu,), (gpu.name,), gpu.address, None)
        return None, _over(trials, [*trials.pool.machines(), other])

    steps = trials.least(asked, _most_steps(trials))
    return None if steps is None else f"add a machine with {mib(reserve + steps * STEP_BYTES)} of free GPU memory"


# -- pools that differ -------------------------------------------------------------------------------------------


def _over(trials: Trials, machines: Iterable[Machine], allow_cpu: bool | None = None) -> Pool:
    """The pool of these machines, the host first."""
    host, *workers = machines
    cpus = trials.request.allow_cpu if allow_cpu is None else allow_cpu
    rpc = tuple(rpc_devices(workers, cpus))
    return dataclasses.replace(trials.pool, host=host, workers=tuple(workers), rpc=rpc)


def _kept_free(member: Machine, reserve: int) -> Machine:
    return _mapped(member, lambda device: dataclasses.replace(device, reserve_bytes=reserve))


def _enlarged(member: Machine, device: Device, extra: int) -> Machine:
    if member.host != device.host:
        return member
    larger = dataclasses.replace(device, capacity_bytes=device.capacity_bytes + extra)
    return _mapped(member, lambda other: larger if other == device else other)


def _mapped(member: Machine, change: Callable[[Device], Device]) -> Machine:
    ram = change(member.ram) if member.ram else None
    return dataclasses.replace(member, ram=ram, gpus=tuple(map(change, member.gpus)))
