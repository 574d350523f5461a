# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of a kind that no module returns."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"llama": {"flags": [1]}}, "llama.flags.0 is 1, not a text"),
        ({"llama": {"flags": "--model"}}, "llama.flags is '--model', not a list"),
        ({"llama": {"build": "11434"}}, "llama.build is '11434', not a whole number, 0 or more"),
        ({"llama": 5}, "llama is 5, not a dictionary"),
        ({"measured": {"tokens_per_second": "12"}}, "measured.tokens_per_second is '12', not a rate"),
        ({"measured": {"tokens_per_second": float("inf")}}, "measured.tokens_per_second is inf, not a rate"),
        ({"comparison": {"compatible": "no"}}, "comparison.compatible is 'no', not true or false"),
        ({"alias": "\ud800"}, "alias is .*, not a text"),
        ({"extra_args": ("--verbose", None)}, "extra_args.1 is None, not a text"),
        ({"speculation_type": None}, "speculation_type is None, not a text"),
        ({"draft_fallback": None}, "draft_fallback is None, not a text"),
        ({"draft_device": None}, "draft_device is None, not a text"),
        ({"draft_path": "/d\0.gguf"}, r"draft_path is '/d\\x00.gguf': it holds a NUL byte, .*"),
        ({"extra_args": ("--grammar", "\0")}, r"extra_args.1 is '\\x00': it holds a NUL byte, .*"),
        (
            {"draft": {"path": "/\ud800.gguf"}},
            r"what is said of the draft model cannot be used: path is '/\\ud800.gguf', not a text: read it again .*",
        ),
    ],
)
def test_what_no_module_returns(ask, options, said):
    with pytest.raises(PoolError, match=f"^{said}$"):
        ask([3000], **options)
