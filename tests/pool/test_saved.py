# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A saved plan that is applied, and a question about machines that do not exist, over the embedded pool."""

from __future__ import annotations

import json
import re

import pytest

pytestmark = pytest.mark.pool

WORKER1, WORKER2, WORKER3 = "relay-demo-worker1", "relay-demo-worker2", "relay-demo-worker3"


def test_a_saved_plan_is_applied_once_and_refused_when_the_pool_is_another(pool, tmp_path):
    pool.settled = False
    monday, output = tmp_path / "monday.json", tmp_path / "plan.json"
    short = {"relay_ctx_size": 1792, "relay_plan_file": str(monday), "relay_plan_output": str(output)}
    before = pool.processes()
    planned = pool.play("plan.yml", relay_ctx_size=1792, relay_plan_output=str(monday))
    assert planned.rc == 0, planned.text[-4000:]
    assert re.search(r"The placement changes: .*context 2048 -> 1792", planned.text)
    assert pool.processes() == before

    dry = pool.play("deploy.yml", "--check", "--diff", **short)
    assert dry.rc == 0, dry.text[-4000:]
    assert pool.processes() == before

    first = pool.play("deploy.yml", **short)
    assert first.rc == 0, first.text[-4000:]
    assert pool.plan() == json.loads(monday.read_text())
    running = pool.processes()
    assert running != before

    second = pool.play("deploy.yml", **short)
    assert (second.rc, second.changed) == (0, 0), second.text[-4000:]

    refused = pool.play("deploy.yml", **{**short, "relay_ctx_size": 1536})
    assert refused.rc != 0
    (said,) = refused.errors
    assert "does not match the pool any more: relay_ctx_size was 1792 and is 1536: run plan.yml again" in said
    assert refused.changed == 0
    assert pool.processes() == running
    assert pool.ask("The sea is", 4)["content"]


def test_what_other_machines_would_bring(pool, tmp_path):
    before, output = pool.processes(), tmp_path / "plan.json"
    more = {WORKER3: {"memory": {"total_bytes": 4 * 1024**3}}}
    played = pool.play("plan.yml", relay_what_if=more, relay_plan_output=str(output))
    assert (played.rc, played.changed) == (0, 0), played.text[-4000:]
    assert f"sharded, served by relay-demo-host -> replica on {WORKER3}" in played.text
    assert "-> off (replica): the whole model fits" in " ".join(played.text.split())

    gone = {worker: {"state": "absent"} for worker in (WORKER1, WORKER2)}
    less = pool.play("plan.yml", relay_what_if=gone, relay_plan_output=str(output))
    assert (less.rc, less.changed) == (0, 0), less.text[-4000:]
    assert "would not fit any more: smollm2-135m-120l needs" in less.text

    assert not output.exists()
    assert pool.processes() == before
