# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a draft may run, what it takes there, and what to say where there is no room for it."""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import Verdict
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import DraftCharge, Layout, stages
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.machines.pool import Pool
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Charge, Ledger, whole_model
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib, mib_free

# A draft that is dropped for one of these leaves its place to the fallback. A hybrid target cannot step back.
FALLS_BACK = frozenset(
    ("no_room", "no_host_stage", "tokenizer_mismatch", "unsized", "not_found", "unsupported_build", "measured_slower")
)
NOTHING = Charge(0, 0, 0)


class Place(NamedTuple):
    """A device for the draft, None for the CPU of the machine that serves.

    beside_target: there it is wanted only if that machine holds layers of the target.
    """

    device: Device | None
    beside_target: bool = False


def places(request: Request, pool: Pool, server: Machine, beside_output: bool = False) -> list[Place] | Verdict:
    """Where the draft of the request may run, the first choice first; or why it can be nowhere.

    :param beside_output: only one place will do, so that every GPU of the machine is tried.
    :raises PoolError: for a relay_draft_device that is nothing of the pool, or two things.
    """
    wanted = request.draft_device
    if wanted.lower() == "auto":
        if not server.gpus and not request.allow_cpu:
            return no_host_stage(server)
        return [*(Place(gpu, True) for gpu in _roomiest(server, beside_output)), Place(None, True)]
    if wanted.lower() in ("cpu", "none"):
        return [Place(None)]
    workers = {worker.host: worker for worker in pool.workers}
    names = {gpu.name for gpu in (*pool.host.gpus, *server.gpus)}
    if wanted in workers and wanted in names:
        raise PoolError(
            f"draft_device is {wanted}, which is a device of {pool.host.host} and a worker: rename the worker, or set "
            "relay_draft_device to auto or cpu"
        )
    if wanted in workers:
        return _of_worker(workers[wanted], server, beside_output)
    if wanted in request.workers and wanted not in names:
        # Where workers may be left out, so may the draft.
        return Verdict(
            "no_room",
            f"the draft is to run on {wanted}, which is left out of the pool: bring it back, or set relay_draft_device "
            "to another worker, auto or cpu",
        )
    if wanted not in names:
        raise _unknown(wanted, pool, server)
    gpus = [gpu for gpu in server.gpus if gpu.name == wanted]
    if not gpus:
        offered = ", ".join(gpu.name for gpu in server.gpus) or "no GPU"
        return Verdict(
            "no_room",
            f"the draft is to run on {wanted}, and {server.host}, which serves, offers {offered}: set "
            "relay_draft_device to auto or cpu",
        )
    return [Place(gpus[0])]


def _roomiest(machine: Machine, others: bool) -> list[Device]:
    """The GPU with most room, if there is any; the others after it."""
    gpus = sorted(machine.gpus, key=lambda gpu: -gpu.usable_bytes)
    return gpus if others else gpus[:1]


def _of_worker(worker: Machine, server: Machine, others: bool) -> list[Place] | Verdict:
    """Its GPU with most room, else its CPU, whose memory is another one unless a GPU has no own."""
    found = _roomiest(worker, others)
    if worker.host == server.host:
        return [*(Place(gpu) for gpu in found), Place(None)]
    if worker.ram and not any(gpu.shared for gpu in worker.gpus):
        found.append(worker.ram)
    if found:
        return [Place(device) for device in found]
    return Verdict(
        "no_room",
        f"the draft is to run on {worker.host}, which has neither a usable GPU nor a known amount of free RAM: set "
        "relay_draft_device to another worker, auto or cpu",
    )


def _unknown(wanted: str, pool: Pool, server: Machine) -> PoolError:
    gpus = ", ".join(gpu.name for gpu in server.gpus) or "no GPU"
    workers = ", ".join(worker.host for worker in pool.workers)
    return PoolError(
        f"draft_device is {wanted}, but {server.host} offers {gpus}, and "
        + (f"the workers that may be used are {workers}" if workers else "there is no worker that may be used")
        + ": name one of them, auto or cpu"
    )


def charge_on(request: Request, ledger: Ledger, place: Place, server: Machine) -> DraftCharge | Verdict:
    """What the draft takes at that place, or that it alone is too large for it.

    :param ledger: that of the draft.
    """
    charge = charge_of(request, ledger, place.device)
    for where, need in ((charge.device, charge.gpu.total), (server.ram, charge.ram.total)):
        if where and need > where.usable_bytes:
            return Verdict(
                "no_room",
                f"the draft needs {mib(need)} on {where.label}, which offers {mib_free(where.usable_bytes)}: "
                + way_out(request),
            )
    return charge


def charge_of(request: Request, ledger: Ledger, device: Device | None) -> DraftCharge:
    """The draft's memory with its layers on that device; None for the CPU of the machine that serves."""
    padded = device is None or not device.is_cpu
    gpu, ram = whole_model(ledger, on_gpu=device is not None, n_gpu_layers=request.draft_gpu_layers, padded=padded)
    return DraftCharge(device if gpu.total else None, gpu, ram)


def mtp_charge(ledger: Ledger) -> DraftCharge:
    """What the MTP layers of the target take in RAM; their context on a device goes with the last layer.

    :param ledger: that of the target with its MTP layers.
    """
    return DraftCharge(None, NOTHING, Charge(0, 0, ledger.mtp_host))


def way_out(request: Request) -> str:
    """What makes room for a draft."""
    wanted = request.draft_device.lower()
    ways = ["take a smaller draft", "lower relay_ctx_size"]
    if not request.draft_reserve:
        ways.insert(0, "set relay_draft_reserve to true")
    if wanted in ("cpu", "none"):
        ways.append("set relay_draft_device to auto")
    elif wanted != "auto":
        ways.append("set relay_draft_device to auto or cpu")
    return f"{', '.join(ways[:-1])} or {ways[-1]}"


def no_host_stage(host: Machine) -> Verdict:
    """A draft beside no layers of the target would only wait for the network."""
    gpus = ", ".join(gpu.name for gpu in host.gpus)
    why, named = ("no room for a layer", f", {gpus}") if gpus else ("no usable GPU", "")
    return Verdict(
        "no_host_stage",
        f"{host.host} holds no layers of the target ({why}), so the draft would not run beside it: set "
        f"relay_draft_device to cpu{named} or a worker",
    )


def no_room(request: Request, charge: DraftCharge, layout: Layout, drafted: int) -> Verdict:
    """The draft does not fit beside this layout.

    :param drafted: tokens that a round proposes at most.
    """
    known = {(stage["host"], stage["device"]): stage["memory"]["left_bytes"] for stage in stages(layout)}
    server = layout.server
    wanted = [(charge.device, charge.device.label, charge.gpu.total)] if charge.device else []
    for device, label, need in [*wanted, (server.ram, f"{server.host} CPU", charge.ram.total)]:
        left = known.get((device.host, device.name), device.usable_bytes) if device else None
        if left is not None and need > left:
            moved = "" if request.draft_reserve else " (relay_draft_reserve is off)"
            return Verdict(
                "no_room",
                f"the draft needs {mib(need)} on {label}, the target leaves {mib_free(max(left, 0))}{moved}: "
                + way_out(request),
            )
    where = charge.device.label if charge.device else f"{server.host} CPU"
    return Verdict(
        "no_room",
        f"the draft would fit on {where}, but there is no room for the target's buffers to check {drafted} tokens at "
        "once: lower relay_draft_max",
    )


def no_room_for_rows(ledger: Ledger, plain: Ledger, speculation: Speculation) -> Verdict:
    """The target has no room for what proposes tokens without a file of its own.

    :param ledger: that of the target with it, plain: without.
    """
    ways = ["relay_ctx_size"]
    ways[:0] = ["relay_draft_max"] if speculation.mtp_of_target else []
    need = sum(ledger.weights) - sum(plain.weights) + ledger.mtp_device + ledger.mtp_host
    need += ledger.device_bytes(False, False, True) - plain.device_bytes(False, False, True)
    need += ledger.host_bytes(False, False) - plain.host_bytes(False, False)
    need += sum(ledger.recurrent) - sum(plain.recurrent)
    return Verdict(
        "no_room",
        f"{speculation.type} proposes up to {speculation.n_max} tokens at once, for which the target needs up to "
        f"{mib(max(need, 0))} more, and there is no room for that: lower {', '.join(ways)} or relay_parallel",
    )
