# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IPv4 addresses of the machine, and the one that RPC traffic takes.

llama.cpp's RPC speaks IPv4 only. The address is never guessed: what is asked for matches one address, or the
answer is a reason in words. Bridges of containers and VPNs are taken only when they are asked for.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import json
import os
import re
import socket
import struct
from dataclasses import dataclass
from typing import Any, Callable, Sequence

from ansible_collections.relay.pool.plugins.module_utils import command

SYS_NET = "/sys/class/net"
# Names that container and virtual machine runtimes give to their bridges and links, and VPNs to theirs.
CONTAINER_NAMES = re.compile(
    r"^(docker\d+|docker_gwbridge|br-[0-9a-f]{12}|podman\d+|cni-?\w*|veth\w*|virbr\d+|vmnet\d+|vboxnet\d+|lxc\w*"
    r"|lxdbr\d+|incusbr\d+|flannel[.\w]*|cali\w*|cilium\w*|kube\S*|nodelocaldns|weave\w*|nerdctl\d+)$"
)
VPN_NAMES = re.compile(r"^(tailscale\d+|wg\S*|tun\d*|tap\d*|zt\w+|nebula\d*|utun\d*|ppp\d+|ipsec\d+|vti\d*)$")
SIOCGIFCONF = 0x8912
SIOCGIFNETMASK = 0x891B
WAY_OUT = "set rpc_address, rpc_interface or rpc_subnet"


@dataclass(frozen=True)
class Address:
    """One IPv4 address of an interface. ``virtual`` says why RPC traffic does not take it unasked."""

    interface: str
    address: str
    prefix: int
    speed_mbps: int | None = None
    virtual: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "interface": self.interface,
            "address": self.address,
            "prefix": self.prefix,
            "speed_mbps": self.speed_mbps,
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
        for info in link.get("addr_info", []):
            if info.get("family") == "inet" and info.get("local") and not info["local"].startswith("127."):
                found.append((link.get("ifname", ""), info["local"], int(info.get("prefixlen", 32))))
    return found


def ioctl_addresses() -> list[tuple[str, str, int]]:
    """The same without ``ip``: SIOCGIFCONF lists every interface that is up and has an IPv4 address."""
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
            answer = fcntl.ioctl(sock.fileno(), SIOCGIFNETMASK, struct.pack("16s24x", label))
            prefix = bin(struct.unpack("!I", answer[20:24])[0]).count("1")
            # An alias such as eth0:1 belongs to eth0.
            found.append((label.decode("ascii", "replace").split(":", 1)[0], ip, prefix))
    return found


def speed_mbps(interface: str, root: str = SYS_NET) -> int | None:
    """Link speed in Mbit/s, None where the driver does not know (virtual links, links that are down)."""
    try:
        with open(os.path.join(root, interface, "speed"), encoding="ascii") as handle:
            value = int(handle.read().strip())
    except (OSError, ValueError):
        return None
    return value if 0 < value < 2**31 else None


def virtual_reason(interface: str, root: str = SYS_NET) -> str | None:
    """What makes an interface one that RPC traffic does not take unasked, or None."""
    folder = os.path.join(root, interface)
    if VPN_NAMES.match(interface) or os.path.exists(os.path.join(folder, "tun_flags")):
        return "a VPN"
    try:
        with open(os.path.join(folder, "uevent"), encoding="ascii", errors="replace") as handle:
            if "DEVTYPE=wireguard" in handle.read().split():
                return "a VPN"
    except OSError:
        pass
    if CONTAINER_NAMES.match(interface):
        return "a bridge of containers"
    if os.path.isdir(os.path.join(folder, "bridge")):
        # A bridge with a card in it carries the machine's own address; one without serves guests only.
        try:
            ports = os.listdir(os.path.join(folder, "brif"))
        except OSError:
            ports = []
        if not any(os.path.exists(os.path.join(root, port, "device")) for port in ports):
            return "a bridge of containers"
    return None


def read_addresses(
    timeout: float = 10.0, run: Callable[..., command.Result] = command.run, root: str = SYS_NET
) -> tuple[list[Address], list[str]]:
    """IPv4 addresses of this machine except loopback, and what went wrong."""
    errors: list[str] = []
    try:
        raw = parse_ip_json(run(["ip", "-j", "addr"], timeout=timeout).stdout)
    except (ValueError, AttributeError, TypeError):
        # No ip, or one too old for JSON.
        try:
            raw = ioctl_addresses()
        except OSError as exc:
            raw = []
            errors.append(f"IPv4 addresses cannot be read: {exc.strerror or exc}")
    return [
        Address(name, ip, prefix, speed_mbps(name, root), virtual_reason(name, root)) for name, ip, prefix in raw
    ], errors


def route_source(destination: str) -> str | None:
    """Source address the kernel takes towards ``destination``, None without a route. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((destination, 9))
            return sock.getsockname()[0]
        except OSError:
            return None


def _ipv4(name: str, value: str) -> str:
    try:
        return str(ipaddress.IPv4Address(value))
    except ValueError:
        raise ValueError(f"{name} is {value!r}: llama.cpp's RPC wants a dotted IPv4 address") from None


def _told(
    addresses: Sequence[Address], rpc_address: str, rpc_interface: str, rpc_subnet: str
) -> tuple[str | None, str | None]:
    """The one address that fits all that was asked for."""
    matches = list(addresses)
    wishes = []
    if rpc_address:
        wanted = _ipv4("rpc_address", rpc_address)
        if wanted.startswith("127."):
            matches.append(Address("lo", wanted, 8))
        wishes.append(f"rpc_address {wanted}")
        matches = [a for a in matches if a.address == wanted]
    if rpc_interface:
        wishes.append(f"rpc_interface {rpc_interface}")
        matches = [a for a in matches if a.interface == rpc_interface]
    if rpc_subnet:
        try:
            network = ipaddress.IPv4Network(rpc_subnet, strict=False)
        except ValueError:
            raise ValueError(f"rpc_subnet is {rpc_subnet!r}: it must be an IPv4 network such as 10.10.0.0/24") from None
        wishes.append(f"rpc_subnet {rpc_subnet}")
        matches = [a for a in matches if ipaddress.IPv4Address(a.address) in network]
    asked = " and ".join(wishes)
    unique = sorted({a.address for a in matches})
    if len(unique) == 1:
        return unique[0], None
    if unique:
        return None, f"{asked} matches {len(unique)} addresses, {', '.join(map(str, matches))}: set rpc_address"
    have = ", ".join(map(str, addresses)) or "no IPv4 address"
    return None, f"{asked} matches no address of this machine, which has {have}"


def choose_address(
    addresses: Sequence[Address],
    rpc_address: str = "",
    rpc_interface: str = "",
    rpc_subnet: str = "",
    route_to: str = "",
    source_of: Callable[[str], str | None] = route_source,
) -> tuple[str | None, str | None]:
    """(address, None) or (None, why none). What is asked for outright goes before the route to ``route_to``."""
    try:
        if rpc_address or rpc_interface or rpc_subnet:
            return _told(addresses, rpc_address, rpc_interface, rpc_subnet)
        if route_to:
            _ipv4("route_to", route_to)
    except ValueError as exc:
        return None, str(exc)
    if route_to:
        source = source_of(route_to)
        if source is None:
            return None, f"there is no route to {route_to}: {WAY_OUT}"
        via = next((a for a in addresses if a.address == source), None)
        if via is not None and via.virtual:
            return None, f"the route to {route_to} leaves by {via}, {via.virtual}: {WAY_OUT} if that is meant"
        return source, None
    if not addresses:
        return None, "the machine has no IPv4 address, and llama.cpp's RPC speaks no IPv6"
    real = [a for a in addresses if not a.virtual]
    if len(real) == 1:
        return real[0].address, None
    if real:
        return None, f"the machine has {len(real)} addresses, {', '.join(map(str, real))}: {WAY_OUT}"
    have = ", ".join(f"{a}, {a.virtual}" for a in addresses)
    return None, f"the machine has only {have}: {WAY_OUT} if that is meant"
