# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils import interfaces


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
    assert interfaces.virtual_reason(name, str(tmp_path)) == expected


@pytest.mark.parametrize(
    ("known", "wireless"),
    [
        ({"x": {"device": None, "speed": "1000"}}, False),
        ({"x": {"device": None, "wireless": None}}, True),
        ({"x": {"phy80211": None}}, True),
        ({"x": {"uevent": "DEVTYPE=wlan\nINTERFACE=x"}}, True),
        ({"x": {"uevent": "DEVTYPE=wwan"}}, False),
        ({"x": {"bridge": None, "on": ["w", "e"]}, "w": {"wireless": None}, "e": {"device": None}}, True),
        ({"x": {"on": ["e"]}, "e": {"device": None}}, False),
        # a VLAN on a bond on Wi-Fi, and links that go round in a circle
        ({"x": {"on": ["b"]}, "b": {"on": ["e", "w"]}, "e": {}, "w": {"phy80211": None}}, True),
        ({"x": {"on": ["y"]}, "y": {"on": ["x"]}}, False),
        ({}, False),
    ],
)
def test_wireless(sys_net, known, wireless):
    assert interfaces.is_wireless("x", sys_net(**known)) is wireless


UP, DOWN = {"operstate": "up"}, {"operstate": "down"}


@pytest.mark.parametrize(
    ("known", "speed"),
    [
        # a VLAN that knows, one that does not
        ({"x": {"speed": "2500", "on": ["e"]}, "e": {"speed": "1000", **UP}}, 2500),
        ({"x": {"speed": "-1", "on": ["e"]}, "e": {"speed": "1000", **UP}}, 1000),
        # a bond has the sum of what is below
        ({"x": {"speed": "20000", "on": ["e", "f"]}, "e": {"speed": "10000"}, "f": {"speed": "10000"}}, 20000),
        # a macvlan of two levels: the slowest that is up
        ({"x": {"on": ["b"]}, "b": {"on": ["e", "f"]}, "e": {"speed": "10000"}, "f": {"speed": "1000", **DOWN}}, 10000),
        ({"x": {"on": ["b"]}, "b": {"on": ["e", "f"]}, "e": {"speed": "10000"}, "f": {"speed": "1000", **UP}}, 1000),
        # a bridge says 10000 for its guest's virtual link
        (
            {
                "x": {"speed": "10000", "bridge": None, "on": ["e", "veth1"]},
                "e": {"speed": "1000", "device": None},
                "veth1": {"speed": "10000"},
            },
            1000,
        ),
        # one over a bond, and one over Wi-Fi, which tells no speed
        ({"x": {"bridge": None, "on": ["b"]}, "b": {"speed": "2000", "on": ["e"]}, "e": {"device": None}}, 2000),
        ({"x": {"speed": "10000", "bridge": None, "on": ["w"]}, "w": {"device": None, "wireless": None}}, None),
        ({"x": {"speed": "10000", "bridge": None, "on": ["veth1"]}, "veth1": {}}, 10000),
        ({"x": {"on": ["y"]}, "y": {"on": ["x"]}}, None),
        ({"x": {}}, None),
    ],
)
def test_speed_of_what_stands_on_others(sys_net, known, speed):
    assert interfaces.speed_mbps("x", sys_net(**known)) == speed


@pytest.mark.parametrize(
    ("known", "down"),
    [
        ({"operstate": "up"}, False),
        ({"operstate": "unknown"}, False),
        ({"operstate": "dormant"}, False),
        ({"operstate": "down", "carrier": "0"}, True),
        ({"operstate": "lowerlayerdown"}, True),
        ({"operstate": "notpresent"}, True),
        # an old driver that never says
        ({"operstate": "down", "carrier": "1"}, False),
        ({}, False),
    ],
)
def test_down(sys_net, known, down):
    assert interfaces.is_down("x", sys_net(x=known)) is down


ROUTES = "Iface\tDestination\tGateway\nbr0\t00000000\t0100000A\nbr1\t0000000A\t00000000\nbr2\n"


@pytest.mark.parametrize(
    ("name", "known", "reason"),
    [
        # Proxmox: a bridge over a bond, over a VLAN, without any card
        ("vmbr0", {"vmbr0": {"bridge": None, "on": ["b"]}, "b": {"on": ["e"]}, "e": {"device": None}}, None),
        ("vmbr0", {"vmbr0": {"bridge": None, "on": ["e.20"]}, "e.20": {"on": ["e"]}, "e": {"device": None}}, None),
        ("vmbr1", {"vmbr1": {"bridge": None, "on": ["tap1"]}, "tap1": {"tun_flags": "0x1"}}, interfaces.CONTAINERS),
        ("vmbr2", {"vmbr2": {"bridge": None}}, interfaces.CONTAINERS),
        # a machine that is a container sees no card: its bridge is the one that leads to a gateway
        ("br0", {"br0": {"bridge": None, "on": ["eth0"]}, "eth0": {}}, None),
        ("br1", {"br1": {"bridge": None, "on": ["eth0"]}, "eth0": {}}, interfaces.CONTAINERS),
        # whatever a VPN calls its interface
        ("office", {"office": {"tun_flags": "0x1", "type": "65534"}}, interfaces.VPN),
        ("office", {"office": {"type": "65534"}}, interfaces.TUNNEL),
        ("gre1", {"gre1": {"type": "778"}}, interfaces.TUNNEL),
        ("wwan0", {"wwan0": {"type": "65534", "device": None}}, None),
        ("ib0", {"ib0": {"type": "32", "device": None}}, None),
        ("eth0", {"eth0": {"type": "1"}}, None),
        ("vxlan.calico", {}, interfaces.CONTAINERS),
        ("ve-guest", {}, interfaces.CONTAINERS),
        ("wt0", {}, interfaces.VPN),
    ],
)
def test_virtual_in_the_field(tmp_path, sys_net, name, known, reason):
    routes = tmp_path / "route"
    routes.write_text(ROUTES)
    assert interfaces.virtual_reason(name, sys_net(**known), str(routes)) == reason


def test_virtual_by_what_the_kernel_says(tmp_path):
    for path in ("mesh", "lan/bridge", "lan/brif/eno1", "guests/bridge", "guests/brif/veth1", "eno1/device", "veth1"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "mesh" / "uevent").write_text("DEVTYPE=wireguard\nINTERFACE=mesh\n")
    (tmp_path / "vpn").mkdir()
    (tmp_path / "vpn" / "tun_flags").write_text("0x1\n")
    found = {name: interfaces.virtual_reason(name, str(tmp_path)) for name in ("mesh", "vpn", "lan", "guests", "eno1")}
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
    assert interfaces.speed_mbps("eth0", str(tmp_path)) == expected
