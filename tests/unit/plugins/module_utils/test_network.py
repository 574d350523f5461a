# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import ctypes
import json
import socket
import struct
import subprocess
import time

import pytest
from ansible_collections.relay.pool.plugins.module_utils import command, interfaces, network


def answers(monkeypatch, **families):
    """getaddrinfo as it would be; an exception is raised, a number is slept."""

    def getaddrinfo(name, _port, family, _kind):
        found = families["v4" if family == socket.AF_INET else "v6"]
        if isinstance(found, float):
            time.sleep(found)
        if isinstance(found, Exception):
            raise found
        return [(family, 1, 6, "", (ip, 0)) for ip in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


UNKNOWN = socket.gaierror(-2, "Name or service not known")


@pytest.mark.parametrize(
    ("families", "found", "words"),
    [
        ({"v4": ["10.0.0.5"]}, ["10.0.0.5"], ""),
        ({"v4": ["10.0.0.5", "10.0.0.5", "10.1.0.5"]}, ["10.0.0.5", "10.1.0.5"], ""),
        # Debian's line for the machine itself, beside a good one and alone
        ({"v4": ["127.0.1.1", "10.0.0.5"]}, ["10.0.0.5"], ""),
        (
            {"v4": ["127.0.1.1"]},
            [],
            "resolves gpu1 to 127.0.1.1, which is this machine itself: correct its line in /etc/h",
        ),
        ({"v4": ["0.0.0.0"]}, [], "which is this machine itself"),
        ({"v4": UNKNOWN, "v6": UNKNOWN}, [], "cannot resolve gpu1 (Name or service not known)"),
        (
            {"v4": UNKNOWN, "v6": ["fd00::5"]},
            [],
            "resolves gpu1 to IPv6 only (fd00::5), and llama.cpp's RPC speaks IPv4",
        ),
        ({"v4": socket.gaierror(-3, "Temporary failure"), "v6": 2.0}, [], "cannot resolve gpu1 (Temporary failure)"),
        ({"v4": 2.0, "v6": []}, [], "did not resolve gpu1 within 0.2 s"),
        ({"v4": ValueError("embedded null byte"), "v6": UNKNOWN}, [], "embedded null byte"),
    ],
)
def test_names(monkeypatch, families, found, words):
    answers(monkeypatch, **families)
    started = time.monotonic()
    addresses, reason = network.resolve("gpu1", 0.2)
    assert time.monotonic() - started < 1
    assert addresses == found
    assert words in reason if words else reason is None


@pytest.mark.parametrize("name", ["x" * 70 + ".lan", "a..b", "a\0b", "\u00fc" * 80, ""])
def test_what_is_no_name(name):
    addresses, reason = network.resolve(name, 1)
    assert addresses == []
    assert reason


@pytest.mark.parametrize(
    ("name", "local", "prefix", "known", "reason"),
    [
        ("mesh7", "100.101.7.9", 32, {}, interfaces.VPN),
        ("mesh7", "100.63.255.255", 32, {}, None),
        ("mesh7", "100.128.0.1", 32, {}, None),
        # a provider that gives its machines such addresses
        ("eth0", "100.101.7.9", 20, {}, None),
        ("ens4", "100.101.7.9", 32, {"ens4": {"device": None}}, None),
        ("eth1", "169.254.3.4", 16, {}, network.UNCONFIGURED),
        ("eth1", "169.253.3.4", 16, {}, None),
        ("lo", "10.255.255.254", 32, {}, network.LOOPBACK),
        ("docker0", "169.254.3.4", 16, {}, interfaces.CONTAINERS),
    ],
)
def test_virtual_by_address(sys_net, name, local, prefix, known, reason):
    root = sys_net(**known)
    text = json.dumps([{"ifname": name, "addr_info": [{"family": "inet", "local": local, "prefixlen": prefix}]}])
    (found,), errors = network.read_addresses(1, lambda argv, timeout: command.Result(0, text, "", None), root)
    assert (found.virtual, errors) == (reason, [])


def test_what_the_kernel_does_not_send_with(sys_net):
    raw = [
        ("eth0", "10.0.0.2", 24),
        ("eth0", "10.0.0.50", 32),  # floats between machines
        ("eth0", "10.0.0.3", 24),  # the second in its network
        ("eth0", "10.1.0.2", 24),  # another network on the same cable
        ("eth0", "10.0.0.4", 16),  # a wider one
        ("eth1", "10.0.0.9", 24),  # the same network on another card
        ("lo", "10.7.7.7", 32),
        ("lo", "10.7.7.8", 32),
    ]
    found = network._describe(raw, sys_net(eth1={"operstate": "down"}))
    assert [a.address for a in found if a.secondary] == ["10.0.0.50", "10.0.0.3"]
    assert [a.address for a in found if a.down] == ["10.0.0.9"]


def test_thousands_of_addresses_take_no_time(tmp_path):
    raw = [("kube-ipvs0", f"10.96.{n // 250}.{n % 250}", 32) for n in range(4000)]
    started = time.process_time()
    assert len(network._describe(raw, str(tmp_path))) == 4000
    assert time.process_time() - started < 1


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
        {"addr_info": [{"family": "inet", "local": "10.0.0.26", "prefixlen": 24}]},
        {},
    ]
)


def test_addresses_by_ip(tmp_path):
    def run(argv, timeout):
        return command.Result(0, IP_JSON, "", None)

    addresses, errors = network.read_addresses(1, run, str(tmp_path))
    assert errors == []
    assert [a.to_dict() for a in addresses] == [
        {"interface": "eth0", "address": "10.0.0.24", "prefix": 24, "speed_mbps": None, "wireless": False}
    ]


def one_address(**changed):
    info = {"family": "inet", "local": "10.0.0.24", "prefixlen": 24, **changed.pop("info", {})}
    return json.dumps([{"ifname": "eth0", "addr_info": [info], **changed}])


@pytest.mark.parametrize(
    "text",
    [
        "",
        'Option "-j" is unknown',
        "{}",
        "[1]",
        "[" * 100_000,
        one_address(ifname=5),
        one_address(info={"local": ["10.0.0.24"]}),
        one_address(info={"prefixlen": float("inf")}),
        one_address(info={"prefixlen": float("nan")}),
        one_address(info={"prefixlen": 33}),
    ],
    ids=lambda text: text[:70],
)
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


def test_addresses_under_one_name_have_each_its_mask(monkeypatch):
    masks = {"10.0.0.2": "255.255.255.0", "10.0.0.50": "255.255.255.255"}

    def ioctl(_handle, request, argument):
        if request == network.SIOCGIFCONF:
            _size, place = struct.unpack("iP", argument)
            entries = [struct.pack("16sHH4s16x", b"eth0", 2, 0, socket.inet_aton(ip)) for ip in masks]
            ctypes.memmove(place, b"".join(entries), 40 * len(entries))
            return struct.pack("iP", 40 * len(entries), place)
        # As the kernel: the mask of the address in the question, else of the first one of that name.
        mask = masks.get(socket.inet_ntoa(argument[20:24]), "255.255.255.0")
        return argument[:20] + socket.inet_aton(mask) + argument[24:]

    monkeypatch.setattr(network.fcntl, "ioctl", ioctl)
    assert network.ioctl_addresses() == [("eth0", "10.0.0.2", 24), ("eth0", "10.0.0.50", 32)]


def test_route_source_here():
    assert network.route_source("127.0.0.1") == "127.0.0.1"
