# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import time

import pytest
from ansible_collections.relay.pool.plugins.module_utils import interfaces, network, rpc_address

Address = network.Address
LAN = Address("eno1", "192.168.1.20", 24, 1000)
FABRIC = Address("ib0", "10.10.0.2", 24)
DOCKER = Address("docker0", "172.17.0.1", 16, None, "a bridge of containers")
VPN = Address("tailscale0", "100.64.0.7", 32, None, "a VPN")
ALL = [LAN, FABRIC, DOCKER, VPN]


@pytest.mark.parametrize(
    ("addresses", "wish", "address"),
    [
        (ALL, {"rpc_subnet": "10.10.0.0/24"}, "10.10.0.2"),
        (ALL, {"rpc_interface": "eno1"}, "192.168.1.20"),
        (ALL, {"rpc_address": "10.10.0.2"}, "10.10.0.2"),
        (ALL, {"rpc_address": "127.0.0.1"}, "127.0.0.1"),
        # asked for outright, even these
        (ALL, {"rpc_interface": "tailscale0"}, "100.64.0.7"),
        (ALL, {"rpc_subnet": "172.17.0.0/16"}, "172.17.0.1"),
        # what is asked for outright goes before the route
        (ALL, {"rpc_interface": "ib0", "route_to": "192.168.1.1"}, "10.10.0.2"),
        (ALL, {"route_to": "192.168.1.1"}, "192.168.1.20"),
        ([LAN, DOCKER, VPN], {}, "192.168.1.20"),
        # the same address twice is one answer
        ([LAN, Address("br0", "192.168.1.20", 24)], {"rpc_subnet": "192.168.0.0/16"}, "192.168.1.20"),
    ],
)
def test_choice(addresses, wish, address):
    sources = {"192.168.1.1": "192.168.1.20"}
    assert rpc_address.choose_address(addresses, **wish, source_of=sources.get) == (address, None)


@pytest.mark.parametrize(
    ("addresses", "wish", "words"),
    [
        (ALL, {"rpc_subnet": "10.99.0.0/24"}, ["rpc_subnet 10.99.0.0/24 matches no address", "192.168.1.20 (eno1)"]),
        (
            ALL,
            {"rpc_subnet": "0.0.0.0/0"},
            ["matches 2 addresses", "192.168.1.20 (eno1), 10.10.0.2 (ib0): set rpc_address"],
        ),
        (ALL, {"rpc_interface": "eth9"}, ["rpc_interface eth9 matches no address"]),
        (ALL, {"rpc_address": "10.0.0.9"}, ["rpc_address 10.0.0.9 matches no address"]),
        (ALL, {"rpc_interface": "eno1", "rpc_subnet": "10.10.0.0/24"}, ["rpc_interface eno1 and rpc_subnet"]),
        (ALL, {"rpc_address": "fd00::1"}, ["rpc_address is 'fd00::1'", "dotted IPv4"]),
        (ALL, {"rpc_address": "worker"}, ["rpc_address is 'worker'"]),
        (ALL, {"rpc_subnet": "ten"}, ["rpc_subnet is 'ten'"]),
        (ALL, {"route_to": "10.1"}, ["route_to is '10.1'", "dotted IPv4"]),
        (ALL, {"route_to": "10.9.9.9"}, ["no route to 10.9.9.9"]),
        (ALL, {"route_to": "100.64.0.1"}, ["leaves by 100.64.0.7 (tailscale0), a VPN"]),
        (ALL, {}, ["2 addresses", "192.168.1.20 (eno1), 10.10.0.2 (ib0)", "set rpc_address"]),
        ([DOCKER, VPN], {}, ["only 172.17.0.1 (docker0), a bridge of containers"]),
        ([], {}, ["no IPv4 address"]),
        ([], {"rpc_interface": "eth0"}, ["which has no IPv4 address"]),
    ],
)
def test_no_choice_is_a_reason(addresses, wish, words):
    sources = {"100.64.0.1": "100.64.0.7"}
    address, reason = rpc_address.choose_address(addresses, **wish, source_of=sources.get)
    assert address is None
    for word in words:
        assert word in reason


SECOND = Address("eno1", "192.168.1.21", 24, 1000, secondary=True)
FLOATING = Address("eno1", "192.168.1.250", 32, 1000, secondary=True)
TWIN = Address("eno2", "192.168.1.40", 24, 1000)
UNPLUGGED = Address("eno3", "10.30.0.2", 24, down=True)
LEFT_OVER = Address("eno4", "169.254.8.9", 16, None, network.UNCONFIGURED)
PODMAN = Address("podman0", "10.88.0.1", 16, None, interfaces.CONTAINERS)
WIREGUARD = Address("wg0", "10.99.0.2", 32, None, interfaces.VPN)
ON_LO = Address("lo", "10.255.255.254", 32, None, network.LOOPBACK)


@pytest.mark.parametrize(
    ("addresses", "wish", "address"),
    [
        # an interface with more than one address: the one that the kernel sends with
        ([LAN, SECOND, FLOATING], {"rpc_interface": "eno1"}, "192.168.1.20"),
        ([LAN, SECOND, FLOATING], {"rpc_subnet": "192.168.1.0/24"}, "192.168.1.20"),
        ([LAN, SECOND, FLOATING], {}, "192.168.1.20"),
        ([LAN, SECOND, FLOATING], {"rpc_address": "192.168.1.21"}, "192.168.1.21"),
        ([LAN, FLOATING], {"rpc_subnet": "192.168.1.250/32"}, "192.168.1.250"),
        # one that has kept a link-local address beside its own
        (
            [LAN, Address("eno1", "169.254.8.9", 16, 1000, network.UNCONFIGURED)],
            {"rpc_interface": "eno1"},
            "192.168.1.20",
        ),
        # two interfaces in one subnet: the one that leads to the other machine
        ([LAN, TWIN], {"rpc_subnet": "192.168.1.0/24", "route_to": "192.168.1.1"}, "192.168.1.20"),
        ([LAN, TWIN], {"rpc_subnet": "192.168.1.0/24", "route_to": "gpu1.lan"}, "192.168.1.20"),
        ([LAN, TWIN], {"rpc_interface": "eno2", "route_to": "192.168.1.1"}, "192.168.1.40"),
        # a subnet with host bits, with a mask in words, with spaces around
        (ALL, {"rpc_subnet": "10.10.0.77/24"}, "10.10.0.2"),
        (ALL, {"rpc_subnet": "10.10.0.0/255.255.255.0"}, "10.10.0.2"),
        (ALL, {"rpc_subnet": " 10.10.0.0/24\n"}, "10.10.0.2"),
        (ALL, {"rpc_interface": "ib0\n"}, "10.10.0.2"),
        # a wide subnet does not mean the bridges and VPNs in it
        ([FABRIC, PODMAN, WIREGUARD], {"rpc_subnet": "10.0.0.0/8"}, "10.10.0.2"),
        ([LAN, WIREGUARD], {"rpc_subnet": "10.99.0.0/24"}, "10.99.0.2"),
        (ALL, {"rpc_subnet": "100.64.0.0/10"}, "100.64.0.7"),
        ([LAN, LEFT_OVER], {"rpc_subnet": "169.254.0.0/16"}, "169.254.8.9"),
        # what is down is no choice
        ([LAN, UNPLUGGED], {}, "192.168.1.20"),
        ([FABRIC, UNPLUGGED], {"rpc_subnet": "10.0.0.0/8"}, "10.10.0.2"),
        ([LAN, LEFT_OVER, ON_LO], {}, "192.168.1.20"),
        # the other machine is in a link-local network itself, or the routing table leads to an address of lo
        ([LAN, LEFT_OVER], {"route_to": "169.254.1.1"}, "169.254.8.9"),
        ([LAN, ON_LO], {"route_to": "10.50.0.1"}, "10.255.255.254"),
        # the same address on a card without a cable
        ([Address("eno9", "192.168.1.20", 24, down=True), LAN], {"route_to": "192.168.1.1"}, "192.168.1.20"),
        # names
        (ALL, {"route_to": "gpu1.lan"}, "192.168.1.20"),
        (ALL, {"route_to": "both.lan"}, "192.168.1.20"),
        (ALL, {"route_to": "mesh-first.lan"}, "192.168.1.20"),
        # a name that means nothing here, and an address that means this machine, leave the only one
        ([LAN, DOCKER, VPN], {"route_to": "alias"}, "192.168.1.20"),
        ([LAN, DOCKER, VPN], {"route_to": "127.0.0.1"}, "192.168.1.20"),
        ([LAN, DOCKER, VPN], {"route_to": "fd00::5"}, "192.168.1.20"),
    ],
)
def test_choice_in_the_field(addresses, wish, address):
    assert rpc_address.choose_address(addresses, **wish, source_of=SOURCES.get, look_up=look_up) == (address, None)


SOURCES = {
    "192.168.1.1": "192.168.1.20",
    "192.168.1.2": "192.168.1.20",
    "10.10.0.1": "10.10.0.2",
    "100.64.0.1": "100.64.0.7",
    "169.254.1.1": "169.254.8.9",
    "10.50.0.1": "10.255.255.254",
    "10.30.0.1": "10.30.0.2",
    "8.8.8.8": "169.254.8.9",
}
NAMES = {
    "gpu1.lan": ["192.168.1.1"],
    "both.lan": ["192.168.1.1", "192.168.1.2"],
    "mesh-first.lan": ["100.64.0.1", "192.168.1.1"],
    "fabric-too.lan": ["192.168.1.1", "10.10.0.1"],
    "mesh.lan": ["100.64.0.1"],
    "far.lan": ["10.77.0.1"],
}


def look_up(name):
    return (NAMES[name], None) if name in NAMES else ([], f"{name} is unknown")


@pytest.mark.parametrize(
    ("addresses", "wish", "words"),
    [
        ([LAN, TWIN], {"rpc_subnet": "192.168.1.0/24"}, ["matches 2 addresses", "set rpc_address"]),
        ([LAN, TWIN], {"rpc_subnet": "192.168.1.0/24", "route_to": "10.77.0.1"}, ["matches 2 addresses"]),
        ([LAN, UNPLUGGED], {"rpc_interface": "eno3"}, ["matches 10.30.0.2 (eno3), which is down", "bring the link up"]),
        ([LAN, UNPLUGGED], {"rpc_address": "10.30.0.2"}, ["which is down"]),
        ([LAN, UNPLUGGED], {"route_to": "10.30.0.1"}, ["leaves by 10.30.0.2 (eno3), which is down", "set rpc_address"]),
        (
            [UNPLUGGED, DOCKER],
            {},
            ["only 10.30.0.2 (eno3), which is down, 172.17.0.1 (docker0), a bridge of containers"],
        ),
        # the fabric has no link, and Podman's bridge lies in the same wide subnet
        (
            [LAN, PODMAN],
            {"rpc_subnet": "10.0.0.0/8"},
            ["only 10.88.0.1 (podman0), a bridge", "set rpc_interface to podman0"],
        ),
        ([LAN, WIREGUARD], {"rpc_subnet": "10.0.0.0/8"}, ["only 10.99.0.2 (wg0), a VPN"]),
        ([LAN, VPN], {"rpc_subnet": "100.0.0.0/8"}, ["only 100.64.0.7 (tailscale0), a VPN"]),
        ([LAN, LEFT_OVER], {"route_to": "8.8.8.8"}, ["leaves by 169.254.8.9 (eno4), a link-local address"]),
        ([LEFT_OVER], {}, ["only 169.254.8.9 (eno4), a link-local address"]),
        (ALL, {"rpc_subnet": "10.10.0.0"}, ["matches no address", "with its length, such as 10.10.0.0/24"]),
        (ALL, {"rpc_subnet": "fd00::/64"}, ["rpc_subnet is 'fd00::/64'", "IPv4 network"]),
        (ALL, {"rpc_address": "10.10.0.3"}, ["every machine needs its own rpc_address"]),
        (ALL, {"rpc_address": "0.0.0.0"}, ["matches no address"]),
        ([], {}, ["no IPv4 address", "no IPv6"]),
        (ALL, {"route_to": "mesh.lan"}, ["the route to mesh.lan (100.64.0.1) leaves by", "a VPN"]),
        (ALL, {"route_to": "far.lan"}, ["there is no route to far.lan (10.77.0.1)", "set rpc_address"]),
        (ALL, {"route_to": "fabric-too.lan"}, ["several addresses", "192.168.1.20 and 10.10.0.2", "set rpc_address"]),
        (ALL, {"route_to": "alias"}, ["alias is unknown; the machine has 2 addresses"]),
        (ALL, {"route_to": "127.0.1.1"}, ["127.0.1.1, which is this machine itself; the machine has 2 addresses"]),
        (ALL, {"route_to": "fd00::5"}, ["fd00::5, and llama.cpp's RPC speaks IPv4 only; the machine has"]),
        (ALL, {"route_to": "10.0.0.300"}, ["route_to is '10.0.0.300'"]),
    ],
)
def test_no_choice_in_the_field(addresses, wish, words):
    address, reason = rpc_address.choose_address(addresses, **wish, source_of=SOURCES.get, look_up=look_up)
    assert address is None
    for word in words:
        assert word in reason


def test_reason_does_not_list_a_thousand_addresses():
    many = [Address("kube-ipvs0", f"10.96.{n // 250}.{n % 250}", 32) for n in range(3000)]
    _address, reason = rpc_address.choose_address(many, rpc_interface="eth0", root="/nonexistent")
    assert reason.endswith("and 2992 more")
    started = time.monotonic()
    rpc_address.choose_address(many, rpc_subnet="10.96.0.0/12")
    assert time.monotonic() - started < 1


def test_interface_without_an_address_is_explained(tmp_path):
    for path in ("eth5/x", "eth6/x", "eth7/x", "br0/x"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "eth6" / "operstate").write_text("down\n")
    (tmp_path / "eth7" / "master").symlink_to("../br0")

    def reason(name):
        return rpc_address.choose_address([LAN], rpc_interface=name, root=str(tmp_path))[1]

    assert reason("eth5").endswith("(eno1): eth5 has no IPv4 address")
    assert reason("eth6").endswith(": eth6 is down and has no IPv4 address")
    assert reason("eth7").endswith(": eth7 is part of br0, so set rpc_interface to br0")
    assert reason("eth8").endswith(": it has no interface eth8")
