# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""argv to ExecStart and back, by a reading of systemd's rules of its own."""

from __future__ import annotations

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.server.systemd import environment, exec_start
from hypothesis import example, given
from hypothesis import strategies as st

ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"'}


def parse(line):
    """Splits like systemd: quotes, C escapes, then specifiers, then variables in all but the program."""
    words, word, quoted, inside, place = [], "", False, False, 0
    while place < len(line):
        character = line[place]
        place += 1
        if character == "\\":
            code = line[place]
            place += 1
            if code == "x":
                word += chr(int(line[place : place + 2], 16))
                place += 2
            else:
                word += ESCAPED[code]
            inside = True
        elif character == '"':
            quoted, inside = not quoted, True
        elif character == "'":
            assert quoted, "a single quote would begin a quotation"
            word += character
        elif character in " \t\n" and not quoted:
            if inside:
                words.append(word)
            word, inside = "", False
        else:
            assert character != ";" or quoted, "a bare semicolon would end the command"
            word, inside = word + character, True
    assert not quoted
    if inside:
        words.append(word)
    result = []
    for position, text in enumerate(words):
        assert text.replace("%%", "").count("%") == 0
        text = text.replace("%%", "%")
        if position:
            assert text.replace("$$", "").count("$") == 0
            text = text.replace("$$", "$")
        result.append(text)
    return result


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), max_size=5))
@example(
    ["-m", "/srv/my models/EPS%3AHello 100%.gguf", 'it\'s $5 "q" \\ end', '{"enable_thinking":false}', "", ";", "\x7f"]
)
def test_round_trip(arguments):
    argv = ["/opt/bin/llama-server", *arguments]
    line = exec_start(argv)
    assert "\n" not in line
    assert parse(line) == argv


def test_plain_arguments_stay_plain():
    assert (
        exec_start(["/bin/a", "--rpc", "10.0.0.2:50052,10.0.0.3:50052"]) == "/bin/a --rpc 10.0.0.2:50052,10.0.0.3:50052"
    )


@pytest.mark.parametrize(
    ("argv", "text"), [([], "empty argv"), (["llama-server"], "no absolute path"), (["/bin/a", "b\0c"], "NUL")]
)
def test_refused(argv, text):
    with pytest.raises(PoolError, match=text):
        exec_start(argv)


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "CUDA_VISIBLE_DEVICES=0,1"),
        ({"B": "x y", "A": 1}, 'A=1 "B=x y"'),
        ({"P": "100%", "D": "$HOME"}, "D=$HOME P=100%%"),
        ({"A": "", "B": 0.5, "C": "a\tb"}, 'A= B=0.5 "C=a\\tb"'),
        ({"V": 'a,"%h" \'b'}, '"V=a,\\"%%h\\" \'b"'),
    ],
)
def test_environment(variables, line):
    assert environment(variables) == line
    # Read as ExecStart is, in which alone a dollar sign means something.
    assert parse("/x " + line.replace("$", "$$")) == ["/x", *(f"{n}={v}" for n, v in sorted(variables.items()))]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"A B": "secret"}, "A B is no name of an environment variable"),
        ({"1A": "secret"}, "1A is no name"),
        ({1: "secret", "B": "1"}, "1 is no name"),
        ({"A": "secret\nlines"}, "the environment variable A holds a line break"),
        ({"A": "secret\0"}, "control character"),
        ({"A": "secret\x1b[2J"}, "control character"),
        ({"A": "secret\x7f"}, "control character"),
        ({"A": "secret\udc80"}, "control character"),
        ({"A": None}, "the environment variable A is null: write its value in quotes, or leave it out"),
        ({"A": ["secret"]}, "the environment variable A is no text: write its value in quotes"),
        ({"A": {"secret": 1}}, "the environment variable A is no text"),
        ({"A": True}, "the environment variable A is no text"),
    ],
)
def test_environment_that_no_unit_can_carry(variables, said):
    with pytest.raises(PoolError, match=said) as error:
        environment(variables)
    assert "secret" not in str(error.value)
