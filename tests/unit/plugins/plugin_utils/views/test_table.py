# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table: its sections, its width and the links of the workers."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.views import words
from ansible_collections.relay.pool.plugins.plugin_utils.views.table import WIDTH, plan_table

from tests import plans


def test_sections_stand_apart():
    sections = plan_table(plans.vendors()).split("\n\n")
    starts = [[line.split(" ")[0] for line in section.splitlines() if line[0] != " "] for section in sections]
    assert [starts[0][0], starts[1][0]] == ["large", "machine"]
    assert {"draft", "link"} <= set(starts[2]) <= {"draft", "speed", "link"}
    assert starts[3] == ["worker", "worker", "server"]
    assert list(dict.fromkeys(starts[4]))[:2] == ["refused", "warning"]
    assert len(sections) == 5


@pytest.mark.parametrize("make", [plans.cpus, plans.vendors, plans.replica])
def test_it_keeps_its_width(make):
    assert max(len(line) for line in plan_table(make()).splitlines()) <= WIDTH


def test_links_and_what_is_not_known_of_them():
    lines = plan_table(plans.cpus()).splitlines()
    assert "link     node2: round trip 0.21 ms, 10 Gbit/s" in lines
    assert "link     node3: round trip unknown, speed unknown" in lines
    assert not any(line.startswith("link") for line in plan_table(plans.replica()).splitlines())


@pytest.mark.parametrize(
    ("rtt", "speed", "text"),
    [
        (0.00021, 10000, "round trip 0.21 ms, 10 Gbit/s"),
        (0.0123, 2500, "round trip 12.30 ms, 2.5 Gbit/s"),
        (0, 100, "round trip 0.00 ms, 100 Mbit/s"),
        (None, 866, "round trip unknown, 866 Mbit/s"),
        (0.5, None, "round trip 500.00 ms, speed unknown"),
    ],
)
def test_a_link_in_words(rtt, speed, text):
    assert words.link({"rtt_seconds": rtt, "speed_mbps": speed}) == text


def test_a_command_line_breaks_between_options_only():
    assert words.command("prog", ["--a", "x y", "--b", "-1", "--c"], {"V": "a b"}) == [
        "V='a b'", "prog", "--a 'x y'", "--b -1", "--c",
    ]  # fmt: skip


def test_what_a_machine_says_does_not_steer_the_terminal():
    plan = plans.vendors()
    plan["refused"][-1]["message"] += ": \x1b]0;a title\x07\x9b31m red"
    plan["server_args"] = [*plan["server_args"], "--x", "a\rb"]
    table = plan_table(plan)
    assert all(character == "\n" or character.isprintable() for character in table)
    assert "\ufffd]0;a title\ufffd" in table
