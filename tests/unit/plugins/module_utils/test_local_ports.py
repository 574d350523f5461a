# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.module_utils import local_ports


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("\n", []),
        ("", []),
        ("50052\n", [[50052, 50052]]),
        ("8080,9148-9150\n", [[8080, 8080], [9148, 9150]]),
        ("8080,x,9-,-9,1-2-3\n", [[8080, 8080], [9, 9]]),
    ],
)
def test_reserved(text, pairs):
    assert local_ports.parse_reserved(text) == pairs


@pytest.mark.parametrize(
    ("text", "span"), [("32768\t60999\n", [32768, 60999]), ("32768\n", None), ("a b\n", None), (None, None)]
)
def test_the_range(tmp_path, text, span):
    if text is not None:
        (tmp_path / "ip_local_port_range").write_text(text)
    assert local_ports.read_ports(str(tmp_path)) == {"range": span, "reserved": []}


def test_this_machine():
    first, last = local_ports.read_ports()["range"]
    assert 0 < first < last < 65536
