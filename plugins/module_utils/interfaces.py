# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a network interface of Linux is, from /sys/class/net: its speed, Wi-Fi, down, a bridge of containers, a VPN."""

from __future__ import annotations

import os
import re

from ansible_collections.relay.pool.plugins.module_utils.small_files import read_text

SYS_NET = "/sys/class/net"
ROUTES = "/proc/net/route"
# Names that container and virtual machine runtimes give to their bridges and links, and VPNs to theirs.
CONTAINER_NAMES = re.compile(
    r"^(docker\d+|docker_gwbridge|br-[0-9a-f]{12}|podman\d+|cni-?\w*|veth\w*|virbr\d+|vmnet\d+|vboxnet\d+|lxc\w*"
    r"|lxdbr\d+|incusbr\d+|flannel[.\w]*|vxlan\.calico|cali\w*|cilium\w*|kube\S*|nodelocaldns|weave\w*|antrea\S*"
    r"|ovn-k8s\S*|nerdctl\d+|v[ebz]-\S+)$"
)
VPN_NAMES = re.compile(r"^(tailscale\d+|wg\S*|wt\d+|tun\d*|tap\d*|zt\w+|nebula\d*|utun\d*|ppp\d+|ipsec\d+|vti\d*)$")
# ARPHRD_* of links without a card: none (tun, WireGuard), IP in IP, IPv6 in IPv4, GRE and their IPv6 kin.
TUNNEL_TYPES = ("65534", "768", "769", "776", "778", "823")
DOWN_STATES = ("down", "lowerlayerdown", "notpresent")
# Why the addresses of an interface are not taken unasked.
CONTAINERS = "a bridge of containers"
VPN = "a VPN"
TUNNEL = "a tunnel"


def _exists(root: str, *names: str) -> bool:
    return os.path.exists(os.path.join(root, *names))


def exists(interface: str, root: str = SYS_NET) -> bool:
    return _exists(root, interface)


def master(interface: str, root: str = SYS_NET) -> str:
    """The bridge or bond that the interface is a part of, "" without one."""
    try:
        return os.path.basename(os.readlink(os.path.join(root, interface, "master")))
    except OSError:
        return ""


def _is_bridge(interface: str, root: str) -> bool:
    return _exists(root, interface, "bridge")


def is_down(interface: str, root: str = SYS_NET) -> bool:
    """No link, or switched off. What the driver does not tell counts as up, and so does one that has a carrier."""
    state, carrier = (read_text(root, interface, name).strip() for name in ("operstate", "carrier"))
    return state in DOWN_STATES and carrier != "1"


def lower_devices(interface: str, root: str = SYS_NET) -> list[str]:
    """What a bridge, bond, VLAN or macvlan stands on; empty for a card."""
    found = set()
    for folder, prefix in ((interface, "lower_"), (os.path.join(interface, "brif"), "")):
        try:
            names = os.listdir(os.path.join(root, folder))
        except OSError:
            continue
        found |= {name[len(prefix) :] for name in names if name.startswith(prefix)}
    return sorted(found)


def _stack(interface: str, root: str) -> list[str]:
    """The interface and all that is below it, each once."""
    found = [interface]
    for name in found:  # grows while it is read
        found += [lower for lower in lower_devices(name, root) if lower not in found]
    return found


def on_card(interface: str, root: str = SYS_NET) -> bool:
    """Is there a card, in the end?"""
    return any(_exists(root, name, "device") for name in _stack(interface, root))


def is_wireless(interface: str, root: str = SYS_NET) -> bool:
    """Wi-Fi, or something that stands on Wi-Fi."""
    return any(
        _exists(root, name, "wireless")
        or _exists(root, name, "phy80211")
        or "DEVTYPE=wlan" in read_text(root, name, "uevent").split()
        for name in _stack(interface, root)
    )


def _own_speed(interface: str, root: str) -> int | None:
    try:
        value = int(read_text(root, interface, "speed"))
    except ValueError:
        return None
    return value if 0 < value < 2**31 else None


def _lower_speed(lower: list[str], root: str, seen: tuple[str, ...]) -> int | None:
    speeds = [_speed(name, root, seen) for name in lower if name not in seen and not is_down(name, root)]
    return min((speed for speed in speeds if speed is not None), default=None)


def _speed(interface: str, root: str, seen: tuple[str, ...]) -> int | None:
    seen = (*seen, interface)
    lower = lower_devices(interface, root)
    if _is_bridge(interface, root):
        # A bridge claims the speed of its fastest port, which may be a guest's virtual one.
        cards = [name for name in lower if on_card(name, root)]
        if cards:
            return _lower_speed(cards, root, seen)
    own = _own_speed(interface, root)
    return _lower_speed(lower, root, seen) if own is None else own


def speed_mbps(interface: str, root: str = SYS_NET) -> int | None:
    """Link speed in Mbit/s, None where nobody knows (Wi-Fi, virtual links, links that are down).

    What does not know its own has the speed of the slowest link below it that is up.
    """
    return _speed(interface, root, ())


def _is_gateway_link(interface: str, routes: str) -> bool:
    """Does a route to a gateway leave here?"""
    for line in read_text(routes).splitlines()[1:]:
        fields = line.split()
        if len(fields) > 2 and fields[0] == interface and fields[2].strip("0"):
            return True
    return False


def virtual_reason(interface: str, root: str = SYS_NET, routes: str = ROUTES) -> str | None:
    """What makes an interface one that RPC traffic does not take unasked, or None."""
    if VPN_NAMES.match(interface) or _exists(root, interface, "tun_flags"):
        return VPN
    if "DEVTYPE=wireguard" in read_text(root, interface, "uevent").split():
        return VPN
    if CONTAINER_NAMES.match(interface):
        return CONTAINERS
    if on_card(interface, root):
        return None
    if read_text(root, interface, "type").strip() in TUNNEL_TYPES:
        return TUNNEL
    # A bridge with a card in it carries the machine's own address, and so does one that leads to a gateway (in a
    # container, where the card is not seen). One with neither serves guests only.
    if _is_bridge(interface, root) and not _is_gateway_link(interface, routes):
        return CONTAINERS
    return None
