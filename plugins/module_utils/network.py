# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IPv4 addresses of this machine and of the others: which it has, by which it sends, what a name means."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import json
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any, Callable, Sequence

from ansible_collections.relay.pool.plugins.module_utils import command, deadline, interfaces

CARRIER_NAT = ipaddress.IPv4Network("100.64.0.0/10")
LINK_LOCAL = ipaddress.IPv4Network("169.254.0.0/16")
# Why an address is not taken unasked although its interface would be.
UNCONFIGURED = "a link-local address"
LOOPBACK = "an address of the loopback interface"
SIOCGIFCONF = 0x8912
SIOCGIFNETMASK = 0x891B
RESOLVE_SECONDS = 3.0


@dataclass(frozen=True)
class Address:
    """One IPv4 address of an interface.

    ``speed_mbps`` is the link's in Mbit/s. ``virtual`` says why RPC traffic does not take it unasked. ``wireless`` is
    True when the traffic goes over Wi-Fi, also below a bridge or bond. ``down``: the interface has no link.
    ``secondary``: traffic of the machine itself leaves with another address of the interface.
    """

    interface: str
    address: str
    prefix: int
    speed_mbps: int | None = None
    virtual: str | None = None
    wireless: bool = False
    down: bool = False
    secondary: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "interface": self.interface,
            "address": self.address,
            "prefix": self.prefix,
            "speed_mbps": self.speed_mbps,
            "wireless": self.wireless,
        }

    def __str__(self) -> str:
        return f"{self.address} ({self.interface})"


def parse_ip_json(text: str) -> list[tuple[str, str, int]]:
    """(interface, address, prefix) from ``ip -j addr``, without loopback. Raises ValueError when it is no such list."""
    found = []
    links = json.loads(text)
    if not isinstance(links, list):
        raise ValueError("ip -j addr did not print a list")
    for link in links:
        name = link.get("ifname")
        for info in link.get("addr_info", []) if name else []:
            if info.get("family") == "inet" and info.get("local") and not info["local"].startswith("127."):
                found.append((name, info["local"], int(info.get("prefixlen", 32))))
    return found


def ioctl_addresses() -> list[tuple[str, str, int]]:
    """The same without ``ip``: SIOCGIFCONF lists every interface that has an IPv4 address."""
    found = []
    record = 40 if struct.calcsize("P") == 8 else 32  # sizeof(struct ifreq)
    buffer = array.array("B", bytes(record * 256))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("iP", len(buffer), buffer.buffer_info()[0])
        length = struct.unpack("iP", fcntl.ioctl(sock.fileno(), SIOCGIFCONF, request))[0]
        data = buffer.tobytes()
        for start in range(0, length, record):
            label = data[start : start + 16].split(b"\0", 1)[0]
            ip = socket.inet_ntoa(data[start + 20 : start + 24])
            if ip.startswith("127."):
                continue
            # With the address, since an interface may have several under one name.
            question = struct.pack("16sHH4s16x", label, socket.AF_INET, 0, socket.inet_aton(ip))
            answer = fcntl.ioctl(sock.fileno(), SIOCGIFNETMASK, question)
            prefix = bin(struct.unpack("!I", answer[20:24])[0]).count("1")
            # An alias such as eth0:1 belongs to eth0.
            found.append((label.decode("ascii", "replace").split(":", 1)[0], ip, prefix))
    return found


def _aside(interface: str, ip: ipaddress.IPv4Address, prefix: int, on_card: bool) -> str | None:
    """Why one address of an interface that is none of these is not taken unasked, or None."""
    if interface == "lo":
        return LOOPBACK
    if ip in LINK_LOCAL:
        return UNCONFIGURED
    if ip in CARRIER_NAT and prefix == 32 and not on_card:
        return interfaces.VPN  # as Tailscale hands them out, whatever its interface is called
    return None


def _secondary(raw: Sequence[tuple[str, str, int]]) -> list[bool]:
    """Of each address, whether the kernel sends with another one of the interface instead.

    It does for a later address in the network of an earlier one, and for a single one that floats inside a network.
    """
    raw_networks = [(name, ipaddress.IPv4Network((ip, prefix), strict=False)) for name, ip, prefix in raw]
    wide = {entry for entry in raw_networks if entry[1].prefixlen < 32}
    seen = set()
    found = []
    for name, network in raw_networks:
        floats = network.prefixlen == 32 and any(name == other and network.subnet_of(net) for other, net in wide)
        found.append(floats or (name, network) in seen)
        seen.add((name, network))
    return found


def read_addresses(
    timeout: float = 10.0, run: Callable[..., command.Result] = command.run, root: str = interfaces.SYS_NET
) -> tuple[list[Address], list[str]]:
    """IPv4 addresses of this machine except loopback, and what went wrong."""
    errors: list[str] = []
    try:
        raw = parse_ip_json(run(["ip", "-j", "addr"], timeout=timeout).stdout)
        found = _describe(raw, root)
    except (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError):
        # No ip, one too old for JSON, or one that prints something else: numbers that are infinite, no end of brackets.
        try:
            found = _describe(ioctl_addresses(), root)
        except OSError as exc:
            found = []
            errors.append(f"IPv4 addresses cannot be read: {exc.strerror or exc}")
    return found, errors


def _describe(raw: Sequence[tuple[str, str, int]], root: str) -> list[Address]:
    # Once per interface: one that carries the services of a cluster has thousands of addresses.
    links = {
        name: (interfaces.speed_mbps(name, root), interfaces.is_wireless(name, root), interfaces.is_down(name, root))
        for name, _ip, _prefix in raw
    }
    reasons = {name: interfaces.virtual_reason(name, root) for name in links}
    cards = {name: interfaces.on_card(name, root) for name in links}
    found = []
    for (name, ip, prefix), secondary in zip(raw, _secondary(raw)):
        speed, wireless, down = links[name]
        virtual = reasons[name] or _aside(name, ipaddress.IPv4Address(ip), prefix, cards[name])
        found.append(Address(name, ip, prefix, speed, virtual, wireless, down, secondary))
    return found


def route_source(destination: str) -> str | None:
    """Source address the kernel takes towards ``destination``, None without a route. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((destination, 9))
            return sock.getsockname()[0]
        except OSError:
            return None


def _look_up(name: str, family: int, end: float) -> list[str]:
    """Addresses of the family. Raises OSError or ValueError for what is no name here, DeadlineError when late."""
    left = max(0.0, end - time.monotonic())
    found = deadline.within(left, lambda: socket.getaddrinfo(name, None, family, socket.SOCK_STREAM))
    return list(dict.fromkeys(entry[4][0] for entry in found))


def resolve(name: str, timeout: float = RESOLVE_SECONDS) -> tuple[list[str], str | None]:
    """(IPv4 addresses of another machine, None) or ([], why none), within ``timeout`` seconds."""
    end = time.monotonic() + timeout
    try:
        return abroad(name, _look_up(name, socket.AF_INET, end))
    except deadline.DeadlineError:
        return [], f"this machine did not resolve {name} within {timeout:g} s"
    except (OSError, ValueError) as exc:
        problem = f"this machine cannot resolve {name} ({getattr(exc, 'strerror', None) or exc})"
    try:
        other = _look_up(name, socket.AF_INET6, end)
    except (deadline.DeadlineError, OSError, ValueError):
        return [], problem
    return [], f"this machine resolves {name} to IPv6 only ({', '.join(other)}), and llama.cpp's RPC speaks IPv4 only"


def abroad(name: str, found: list[str]) -> tuple[list[str], str | None]:
    """Without the addresses that mean this machine."""
    others = [ip for ip in found if not ip.startswith(("127.", "0."))]
    if others:
        return others, None
    means = "which is this machine itself"
    if name == ", ".join(found):
        return [], f"the other machine's address is {name}, {means}"
    return [], f"this machine resolves {name} to {', '.join(found)}, {means}: correct its line in /etc/hosts"
