# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of what a plan does without."""

from __future__ import annotations

from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.views.refusals import refused_lines
from ansible_collections.relay.pool.plugins.plugin_utils.views.table import plan_table


def entry(host, device, reason="not_needed", tail=" is not needed: the whole model fits gpu0 CUDA0"):
    label = f"{host} {device}" if device else host
    return {"host": host, "device": device, "reason": reason, "message": label + tail}


def test_a_few_have_a_line_each():
    entries = [entry("gpu1", "CUDA0"), entry("gpu1", "CUDA1"), entry("gpu2", "CUDA0")]
    assert refused_lines(entries) == [e["message"] for e in entries]


def test_many_of_one_kind_are_one_line():
    entries = [entry(f"gpu{machine}", f"CUDA{gpu}") for machine in range(1, 21) for gpu in range(8)]
    del entries[3]
    broken = entry("gpu7", "ROCm0", "unknown_memory", ": the free memory could not be read")
    lines = refused_lines([entries[0], broken, *entries[1:]])
    assert len(lines) == 2
    assert lines[0] == (
        "gpu1 CUDA0 is not needed: the whole model fits gpu0 CUDA0 (and likewise 158 more: "
        "gpu1 CUDA1, CUDA2, CUDA4, CUDA5, CUDA6, CUDA7; gpu2 CUDA0-CUDA7; gpu3 CUDA0-CUDA7; gpu4 CUDA0-CUDA7; "
        "gpu5 CUDA0-CUDA7; gpu6 CUDA0-CUDA7; 14 more machines)"
    )
    assert lines[1] == broken["message"]


def test_numbers_do_not_make_kinds():
    tail = " is left out: a token would take as long or longer with it (it reads at {} GB/s, and the way takes {} ms)"
    entries = [entry(f"w{n}", "CUDA0", "slower", tail.format(n * 1234, n / 7)) for n in range(5)]
    assert refused_lines(entries)[0].endswith("(and likewise 4 more: w1 CUDA0; w2 CUDA0; w3 CUDA0; w4 CUDA0)")
    entries[4]["reason"] = "no_room"
    assert len(refused_lines(entries)) == 2


def test_machines_without_a_device():
    entries = [entry(f"w{n}", None, "no_gpu", " has no usable GPU") for n in range(8)]
    assert refused_lines(entries) == [
        "w0 has no usable GPU (and likewise 7 more: w1; w2; w3; w4; w5; w6; 1 more machine)"
    ]


def test_twenty_machines_with_eight_gpus_in_the_table(ask):
    plan = make_plan(ask([9000], *[[1300] * 8] * 19))
    assert len(plan["refused"]) == 19 * 8
    refused = [line for line in plan_table(plan).splitlines() if line.startswith("refused")]
    assert len(refused) <= 2
