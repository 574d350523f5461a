# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the draft takes on the machine that serves, and what to say where there is no room for it."""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import Verdict
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.layouts.layout import DraftCharge, Layout, stages
from ansible_collections.relay.pool.plugins.plugin_utils.machines.devices import Device, Machine
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger, whole_model
from ansible_collections.relay.pool.plugins.plugin_utils.request import Request
from ansible_collections.relay.pool.plugins.plugin_utils.units import mib


def charge_on(request: Request, ledger: Ledger, server: Machine) -> DraftCharge | Verdict:
    """The draft's memory on the server, on its GPU with most room, else in its RAM; or why it cannot be there.

    :param ledger: that of the draft.
    """
    wanted = request.draft_device
    device: Device | None = None
    if wanted == "auto":
        device = max(server.gpus, key=lambda gpu: gpu.usable_bytes, default=None)
    elif wanted not in ("none", "CPU"):
        device = next((gpu for gpu in server.gpus if gpu.name == wanted), None)
        if device is None:
            names = ", ".join(gpu.name for gpu in server.gpus) or "no GPU"
            raise PoolError(
                f"draft_device is {wanted}, but {server.host} offers {names}: name one of them, auto or none"
            )
    if not request.allow_cpu and not server.gpus:
        return no_host_stage(server)
    charge = charge_of(request, ledger, device)
    for where, need in ((device, charge.gpu.total), (server.ram, charge.ram.total)):
        if where and need > where.usable_bytes:
            return Verdict(
                "no_room", f"the draft needs {mib(need)} on {where.label}, which offers {mib(where.usable_bytes)}"
            )
    return charge


def charge_of(request: Request, ledger: Ledger, device: Device | None) -> DraftCharge:
    """The draft's memory with its layers on that GPU; None for the CPU."""
    gpu, ram = whole_model(ledger, on_gpu=device is not None, n_gpu_layers=request.draft_gpu_layers)
    return DraftCharge(device.name if device and gpu.total else "none", gpu, ram)


def no_host_stage(host: Machine) -> Verdict:
    """A draft beside no layers of the target would only wait for the network."""
    why = "no usable GPU" if not host.gpus else "no room for a layer"
    return Verdict(
        "no_host_stage", f"{host.host} holds no layers of the target ({why}), so the draft would not run beside it"
    )


def no_room(request: Request, charge: DraftCharge, layout: Layout) -> Verdict:
    """The draft does not fit beside this layout."""
    at = "CPU" if charge.device == "none" else charge.device
    need = charge.ram.total if charge.device == "none" else charge.gpu.total
    left = next(
        (
            stage["memory"]["left_bytes"]
            for stage in stages(layout)
            if stage["host"] == layout.server.host and stage["device"] == at
        ),
        None,
    )
    if left is not None and need <= left:
        return Verdict(
            "no_room",
            f"the draft would fit, but {layout.server.host} has no room for the target's buffers "
            f"to check {request.draft_max} tokens at once: lower relay_draft_max",
        )
    have = "an unknown amount" if left is None else mib(max(left, 0))
    moved = "" if request.draft_reserve else " (relay_draft_reserve is off)"
    where = f"{layout.server.host} {at}"
    return Verdict("no_room", f"the draft needs {mib(need)} on {where}, the target leaves {have}{moved}")
