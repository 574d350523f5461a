# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter that reads a plan.json."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.filter.read_plan import FilterModule

read_plan = FilterModule().filters()["read_plan"]


def test_what_is_wrong_is_a_sentence():
    assert read_plan("{}") == {"plan": None, "problem": "plan.json is JSON, but no plan: run plan.yml again."}
    problem = read_plan("", "that of a", "run deploy.yml again")["problem"]
    assert problem == "that of a is no JSON (line 1: Expecting value): run deploy.yml again."


def test_what_is_no_text_is_an_error():
    with pytest.raises(AnsibleFilterError, match="text of a file"):
        read_plan(None)
