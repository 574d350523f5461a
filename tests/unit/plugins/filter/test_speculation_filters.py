# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters around speculation: what each is for, and how it fails."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.relay.pool.plugins.filter.broken_rules import FilterModule as BrokenRules
from ansible_collections.relay.pool.plugins.filter.lossless_differences import FilterModule as LosslessDifferences
from ansible_collections.relay.pool.plugins.filter.without_speculation import FilterModule as WithoutSpeculation

FILTERS = {
    name: function
    for module in (BrokenRules, LosslessDifferences, WithoutSpeculation)
    for name, function in module().filters().items()
}


def test_each_filter_does_what_it_says():
    rules = [{"name": "a", "value": "1e3", "whole": [0, 64]}, {"name": "b", "value": "8", "whole": [0, 64]}]
    broken = {"name": "a", "value": "1e3", "range": "a whole number from 0 to 64"}
    assert FILTERS["broken_rules"](rules) == [broken]
    assert FILTERS["without_speculation"](["--model", "m", "--spec-type", "ngram-mod"]) == ["--model", "m"]
    assert FILTERS["lossless_differences"](["p"], [{"text": "a"}], [{"text": "a"}]) == []
    assert len(FILTERS["lossless_differences"](["p"], [{"text": "a"}], [{"text": "b"}])) == 1
    early, whole = {"text": "a b", "tokens": 2, "tokens_unsent": 1}, {"text": "a b c", "tokens": 3}
    assert FILTERS["lossless_differences"](["p"], [early], [whole], "4") == []


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("broken_rules", ["relay_draft_max"], "must be a list of rules"),
        ("broken_rules", [["relay_draft_max"]], "a rule cannot be read"),
        ("broken_rules", [[{"name": "a", "value": 1}]], "the rule of a says nothing"),
        ("broken_rules", [[{"name": "a", "value": 1, "whole": [1]}]], "a rule cannot be read"),
        ("without_speculation", ["--model m"], "must be a list of arguments"),
        ("without_speculation", [["--port", 8384]], "must be a list of arguments"),
        ("lossless_differences", ["p", ["a"], ["a"]], "must be lists"),
        ("lossless_differences", [["p"], [{"text": "a"}], []], "1 prompts have 1 and 0 completions"),
        ("lossless_differences", [["p"], [{}], [{"text": "a"}]], "text"),
        ("lossless_differences", [["p"], [{"text": "a"}], [{"text": "a"}], "many"], "many"),
        ("lossless_differences", [["p"], [1], [2]], "lossless_differences"),
    ],
)
def test_each_filter_says_what_it_wants(name, arguments, text):
    with pytest.raises(AnsibleFilterError, match=text):
        FILTERS[name](*arguments)
