# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A draft on the host, on its CPU by name, and on a worker, over the embedded pool: each live, all with one text."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.pool

HOST, WORKER2 = "relay-demo-host", "relay-demo-worker2"
PROMPTS = ("The sea is", "def fibonacci(n):\n", "1, 2, 3, 4, 5,")
# Where relay_draft_device puts the draft on these machines without a GPU: the machine, and its device for the server.
PLACES = {"auto": (HOST, "none"), "cpu": (HOST, "none"), WORKER2: (WORKER2, "RPC1")}


def server_command(pool) -> str:
    """The command line of the deployed unit."""
    return pool.on(HOST, "systemctl", "show", "-p", "ExecStart", "relay-llama")


def texts(pool) -> list[str]:
    """What the pool writes, greedily."""
    return [pool.ask(prompt)["content"] for prompt in PROMPTS]


def test_the_text_is_the_same_wherever_the_draft_runs(pool):
    pool.settled = False
    plain = pool.play("deploy.yml", relay_draft_model="")
    assert plain.rc == 0, plain.text[-4000:]
    assert pool.plan()["draft"]["reason"] == "not_configured"
    assert "--spec" not in server_command(pool)
    expected = texts(pool)
    assert len(set(expected)) == len(PROMPTS)

    for device, (machine, name) in PLACES.items():
        played = pool.play("deploy.yml", relay_draft_device=device)
        assert played.rc == 0, played.text[-4000:]
        draft = pool.plan()["draft"]
        assert (draft["enabled"], draft["host"], draft["device"]) == (True, machine, name), device
        assert "The draft is live: " in played.text
        assert "The draft's " in played.text
        assert "MiB lie on " in played.text
        assert f"--spec-draft-device {name} --spec-type draft-simple" in server_command(pool)
        answers = [pool.ask(prompt) for prompt in PROMPTS]
        assert [answer["content"] for answer in answers] == expected, device
        assert all(answer["timings"]["draft_n"] > 0 for answer in answers), device
