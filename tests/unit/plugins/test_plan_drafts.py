# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What plan.yml says of a draft file that cannot draft."""

from __future__ import annotations


def test_each_file_is_called_what_it_is(models, plan):
    """The draft is what is read, and the model what it is compared with."""
    data = models["draft"].read_bytes()
    models["draft"].write_bytes(data.replace(b"t39", b"x39"))
    status, said, planned = plan(relay_model=str(models["model"]), relay_draft_model=str(models["draft"]))
    assert status == 0, said
    assert planned["draft"]["reason"] == "tokenizer_mismatch"
    assert "token 39 is 't39' in the target and 'x39' in the draft" in planned["draft"]["message"]


def test_a_file_that_is_no_model_is_not_said_to_be_absent(models, plan):
    models["draft"].write_text("<!DOCTYPE html>")
    status, said, planned = plan(relay_model=str(models["model"]), relay_draft_model=str(models["draft"]))
    assert status == 0, said
    draft = planned["draft"]
    assert (draft["enabled"], draft["reason"]) == (False, "unsized")
    assert draft["message"] == (
        f"the draft model cannot be read, {models['draft']}: this is a web page, not the model: the download address "
        "or its login is wrong: set relay_draft_model to a whole GGUF or to nothing"
    )
