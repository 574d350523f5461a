# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All facts about one machine, as ``ansible_facts.relay_node``."""

from __future__ import annotations

import os
import platform
import socket
import time
from dataclasses import dataclass, field
from typing import Any, Callable

from ansible_collections.relay.pool.plugins.module_utils import (
    cpu,
    links,
    local_ports,
    memory,
    network,
    overrides,
    rpc_address,
    small_files,
    sockets,
    units,
)
from ansible_collections.relay.pool.plugins.module_utils.gpu import gather as gpu_gather
from ansible_collections.relay.pool.plugins.module_utils.gpu import record

# A tool that prints rubbish must not fill the facts with it.
MAX_MESSAGES = 16
DEFAULT_UNITS = ("relay-rpc.service", "relay-llama.service")


@dataclass(frozen=True)
class Options:
    """What to look at. ``timeout`` is in seconds, for the tools of each probe together.

    ``environment`` is that of the pool's services; ``links`` are targets for ``links.measure``.
    """

    ports: list[int] = field(default_factory=list)
    units: list[str] = field(default_factory=lambda: list(DEFAULT_UNITS))
    rpc_address: str = ""
    rpc_interface: str = ""
    rpc_subnet: str = ""
    route_to: str = ""
    overrides: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    links: list[dict[str, Any]] = field(default_factory=list)
    timeout: float = 10.0


class _Errors:
    """Runs probes; one that raises becomes an entry, not a failed task."""

    def __init__(self) -> None:
        self.entries: list[dict[str, str]] = []

    def add(self, probe: str, messages: list[str]) -> None:
        messages = [message for message in messages if message]
        said = [record.shown(message) for message in messages[:MAX_MESSAGES]]
        if len(messages) > MAX_MESSAGES:
            said.append(f"and {len(messages) - MAX_MESSAGES} messages more")
        self.entries += [{"probe": probe, "message": message} for message in said]

    def guard(self, probe: str, function: Callable[[], Any], fallback: Any) -> Any:
        try:
            return function()
        except Exception as exc:
            self.add(probe, [f"{type(exc).__name__}: {exc}"])
            return fallback


def read_machine_id(paths: tuple = ("/etc/machine-id", "/var/lib/dbus/machine-id")) -> Any:
    for path in paths:
        try:
            text = small_files.read_bytes(path).decode("ascii", "replace").strip()
        except OSError:
            continue
        if text and text != "uninitialized":
            return text
    return None


def read_environment(given: dict[str, Any]) -> dict[str, str]:
    """The variables as texts. Raises ValueError for what cannot be one, without its value, which may be a secret."""
    for name, value in given.items():
        if value is None or isinstance(value, (bool, dict, list)):
            kind = "null" if value is None else "no text"
            raise ValueError(f"environment.{name} is {kind}: write its value in quotes, or leave it out")
    return {str(name): str(value) for name, value in given.items()}


def gather(options: Options) -> dict[str, Any]:
    """Read the machine. Raises ValueError only for overrides and an environment that cannot be meant."""
    errors = _Errors()
    tcp = errors.guard("sockets", sockets.read_sockets, [])

    shown, messages = errors.guard("units", lambda: units.show(options.units, options.timeout), ([], []))
    errors.add("units", messages)
    unit_facts: list[dict[str, Any]] = []
    own_pids: list[int] = []
    for properties in shown:
        pids = errors.guard("units", lambda p=properties: units.processes(units.main_pid(p)), [])
        own_pids += pids
        entry = errors.guard("units", lambda p=properties, q=pids: units.describe(p, q, tcp), None)
        if entry is not None:
            unit_facts.append(entry)

    total, available = errors.guard("memory", memory.read_memory, (None, None))
    if total is None or available is None:
        errors.add("memory", ["/proc/meminfo does not say MemTotal and MemAvailable"])
    own = errors.guard("memory", lambda: sum(memory.process_own_bytes(pid) or 0 for pid in own_pids), 0)

    machine = record.Machine(meminfo=errors.guard("memory", memory.read_meminfo, {}), own_pids=tuple(own_pids))
    environment = read_environment(options.environment)
    gpus = gpu_gather.read_gpus(machine, options.timeout, environment, errors.guard, errors.add)

    addresses, messages = errors.guard("network", lambda: network.read_addresses(options.timeout), ([], []))
    errors.add("network", messages)
    address, address_reason = errors.guard(
        "network",
        lambda: rpc_address.choose_address(
            addresses, options.rpc_address, options.rpc_interface, options.rpc_subnet, options.route_to
        ),
        (None, "the addresses of the machine cannot be read"),
    )

    facts: dict[str, Any] = {
        "gpus": gpus,
        "memory": {
            "total_bytes": total,
            "available_bytes": available,
            "own_bytes": own,
            "bandwidth_bytes_per_second": None,
        },
        "cpu": errors.guard("cpu", cpu.read_cpu, {"model": platform.machine(), "threads": os.cpu_count() or 1}),
        "addresses": [entry.to_dict() for entry in addresses],
        "links": errors.guard("links", lambda: links.measure(options.links, addresses), []),
        "address": address,
        "address_reason": address_reason,
        "hostname": socket.gethostname(),
        "machine_id": read_machine_id(),
        "architecture": platform.machine(),
        "gathered_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python_version": platform.python_version(),
        "units": unit_facts,
        "listeners": errors.guard("sockets", lambda: sockets.listeners(options.ports, tcp), []),
        "ports": errors.guard("sockets", local_ports.read_ports, {"range": None, "reserved": []}),
        "errors": errors.entries,
    }
    facts["cpu"].setdefault("physical_cores", facts["cpu"]["threads"])
    facts["overrides"] = overrides.apply_overrides(facts, options.overrides, environment)
    return facts
