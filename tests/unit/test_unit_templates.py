# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
from ansible_collections.relay.pool.plugins.plugin_utils import systemd

ROLES = Path(__file__).resolve().parents[2] / "roles"
MODPROBE = "ExecStartPre=-+/bin/sh -c 'if command -v nvidia-modprobe >/dev/null; then exec nvidia-modprobe -u -c=0; fi'"


def render(role, unit, **options):
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
    environment.filters["comment"] = "# {}".format
    environment.filters["ternary"] = lambda value, yes, no: yes if value else no
    environment.filters["relay.pool.systemd_exec"] = systemd.exec_start
    environment.filters["relay.pool.systemd_environment"] = systemd.environment
    values = {"program": "/opt/x", "args": [], "user": "relay-pool", **options}
    template = environment.from_string((ROLES / role / "templates" / f"{unit}.service.j2").read_text())
    return template.render(ansible_facts={}, **{f"{role}_{key}": value for key, value in values.items()}).splitlines()


@pytest.mark.parametrize(("role", "unit"), [("rpc_worker", "relay-rpc"), ("llama_host", "relay-llama")])
def test_the_driver_is_woken_as_root_before_a_program_without_privileges(role, unit):
    lines = render(role, unit, uses_gpu=True, workers=["10.0.0.2:50052"])
    assert "NoNewPrivileges=yes" in lines
    starts = [line for line in lines if line.startswith("ExecStart")]
    assert starts[0] == MODPROBE
    assert starts[-1] == "ExecStart=/opt/x"
    assert MODPROBE not in render(role, unit, uses_gpu=False)
