# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import subprocess

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command, network

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
    assert network.choose_address(addresses, **wish, source_of=sources.get) == (address, None)


@pytest.mark.parametrize(
    ("addresses", "wish", "words"),
    [
        (ALL, {"rpc_subnet": "10.99.0.0/24"}, ["rpc_subnet 10.99.0.0/24 matches no address", "192.168.1.20 (eno1)"]),
        (ALL, {"rpc_subnet": "0.0.0.0/0"}, ["matches 4 addresses", "set rpc_address"]),
        (ALL, {"rpc_interface": "eth9"}, ["rpc_interface eth9 matches no address"]),
        (ALL, {"rpc_address": "10.0.0.9"}, ["rpc_address 10.0.0.9 matches no address"]),
        (ALL, {"rpc_interface": "eno1", "rpc_subnet": "10.10.0.0/24"}, ["rpc_interface eno1 and rpc_subnet"]),
        (ALL, {"rpc_address": "fd00::1"}, ["rpc_address is 'fd00::1'", "dotted IPv4"]),
        (ALL, {"rpc_address": "worker"}, ["rpc_address is 'worker'"]),
        (ALL, {"rpc_subnet": "ten"}, ["rpc_subnet is 'ten'"]),
        (ALL, {"route_to": "host"}, ["route_to is 'host'"]),
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
    address, reason = network.choose_address(addresses, **wish, source_of=sources.get)
    assert address is None
    for word in words:
        assert word in reason


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("eth0", None),
        ("enp5s0f0np0", None),
        ("ib0", None),
        ("bond0", None),
        ("br-lan", None),
        ("docker0", "a bridge of containers"),
        ("br-0123456789ab", "a bridge of containers"),
        ("podman1", "a bridge of containers"),
        ("virbr0", "a bridge of containers"),
        ("cni0", "a bridge of containers"),
        ("tailscale0", "a VPN"),
        ("wg0", "a VPN"),
        ("zt5u4y6ejv", "a VPN"),
    ],
)
def test_virtual_by_name(tmp_path, name, expected):
    assert network.virtual_reason(name, str(tmp_path)) == expected


def test_virtual_by_what_the_kernel_says(tmp_path):
    for path in ("mesh", "lan/bridge", "lan/brif/eno1", "guests/bridge", "guests/brif/veth1", "eno1/device", "veth1"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "mesh" / "uevent").write_text("DEVTYPE=wireguard\nINTERFACE=mesh\n")
    (tmp_path / "vpn").mkdir()
    (tmp_path / "vpn" / "tun_flags").write_text("0x1\n")
    found = {name: network.virtual_reason(name, str(tmp_path)) for name in ("mesh", "vpn", "lan", "guests", "eno1")}
    assert found == {
        "mesh": "a VPN",
        "vpn": "a VPN",
        "lan": None,
        "guests": "a bridge of containers",
        "eno1": None,
    }


@pytest.mark.parametrize(
    ("text", "expected"), [("25000\n", 25000), ("-1\n", None), ("4294967295\n", None), ("\n", None), (None, None)]
)
def test_speed(tmp_path, text, expected):
    if text is not None:
        (tmp_path / "eth0").mkdir()
        (tmp_path / "eth0" / "speed").write_text(text)
    assert network.speed_mbps("eth0", str(tmp_path)) == expected


IP_JSON = json.dumps(
    [
        {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
        {
            "ifname": "eth0",
            "addr_info": [
                {"family": "inet", "local": "10.0.0.24", "prefixlen": 24, "label": "eth0"},
                {"family": "inet6", "local": "fe80::1", "prefixlen": 64},
            ],
        },
        {"ifname": "down0"},
        {},
    ]
)


def test_addresses_by_ip(tmp_path):
    def run(argv, timeout):
        return command.Result(0, IP_JSON, "", None)

    addresses, errors = network.read_addresses(1, run, str(tmp_path))
    assert errors == []
    assert [a.to_dict() for a in addresses] == [
        {"interface": "eth0", "address": "10.0.0.24", "prefix": 24, "speed_mbps": None}
    ]


@pytest.mark.parametrize("text", ["", 'Option "-j" is unknown', "{}", "[1]"])
def test_addresses_without_json_come_from_the_kernel(monkeypatch, text):
    monkeypatch.setattr(network, "ioctl_addresses", lambda: [("eth1", "10.0.0.25", 16)])
    addresses, errors = network.read_addresses(1, lambda argv, timeout: command.Result(0, text, "", None))
    assert [(a.interface, a.address, a.prefix) for a in addresses] == [("eth1", "10.0.0.25", 16)]
    assert errors == []


def test_addresses_that_cannot_be_read_are_an_error(monkeypatch):
    def broken():
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(network, "ioctl_addresses", broken)
    assert network.read_addresses(1, lambda argv, timeout: command.Result(1, "", "", "no")) == (
        [],
        ["IPv4 addresses cannot be read: Operation not permitted"],
    )


def test_kernel_and_ip_agree_here():
    try:
        text = subprocess.run(["ip", "-j", "addr"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no ip -j here")
    up = {name for name, _ip, _prefix in network.ioctl_addresses()}
    assert sorted(network.ioctl_addresses()) == sorted(a for a in network.parse_ip_json(text) if a[0] in up)


def test_route_source_here():
    assert network.route_source("127.0.0.1") == "127.0.0.1"
