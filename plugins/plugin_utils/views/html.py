# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan as one HTML file that needs nothing else: the picture, its numbers, and what the planner says.

A tree is built and serialised, so that a name is text whatever it has in it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Iterable, Mapping, Sequence
from xml.etree.ElementTree import Element, tostring

from ansible_collections.relay.pool.plugins.plugin_utils.views import predicted, words
from ansible_collections.relay.pool.plugins.plugin_utils.views.markup import add, spaced
from ansible_collections.relay.pool.plugins.plugin_utils.views.memory_bars import add_memory, add_patterns

# Notes beyond these are folded.
UNFOLDED = 8
STYLE = "plan.css"
# No scripts and nothing from elsewhere, whatever a name may hold.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def plan_html(plan: Mapping[str, Any]) -> str:
    """The whole plan as the text of an HTML file. Raises what reading an unreadable plan raises."""
    alias = str(plan["model"]["alias"])
    page = Element("html", {"lang": "en"})
    _head(page, f"{alias} on {plan['host']}: plan")
    body = add(page, "body")
    add_patterns(body)
    main = add(body, "main")
    header = add(main, "header")
    add(header, "h1", alias)
    add(header, "p", f"{words.size(plan)}: {words.kind(plan)}", {"class": "lead"})
    _facts(header, plan)
    _notes(main, "Warnings", "warnings", list(plan.get("warnings") or []))
    add_memory(main, plan)
    _refused(main, plan.get("refused") or [])
    _notes(main, "Advice", "advice", list(plan.get("advice") or []))
    _commands(main, plan)
    return "<!DOCTYPE html>\n" + tostring(page, encoding="unicode", method="html") + "\n"


def _head(page: Element, title: str) -> None:
    head = add(page, "head")
    add(head, "meta", attributes={"charset": "utf-8"})
    add(head, "meta", attributes={"http-equiv": "Content-Security-Policy", "content": POLICY})
    add(head, "meta", attributes={"name": "viewport", "content": "width=device-width, initial-scale=1"})
    add(head, "meta", attributes={"name": "color-scheme", "content": "light dark"})
    add(head, "title", title)
    add(head, "style", Path(__file__).with_name(STYLE).read_text(encoding="utf-8"))


def _facts(header: Element, plan: Mapping[str, Any]) -> None:
    llama = plan.get("llama") or {}
    build = ", ".join(f"{key} {llama[key]}" for key in ("version", "build", "commit") if llama.get(key))
    facts = {
        "File": [str(plan["model"]["path"])],
        "Draft": [words.draft_state(plan)],
        "Speed": predicted.lines(plan) or ["no estimate"],
        "llama.cpp": [build] if build else [],
    }
    listed = add(header, "dl", attributes={"class": "facts"})
    for name, sentences in facts.items():
        if sentences:
            row = add(listed, "div")
            add(row, "dt", name)
            for sentence in sentences:
                add(row, "dd", sentence)


def _folded(section: Element, summary: str, fold: bool) -> Element:
    """Where notes go: the section, or a part of it that opens on demand."""
    if not fold:
        return section
    details = add(section, "details")
    add(details, "summary", summary)
    return details


def _notes(main: Element, title: str, kind: str, messages: list[str], summary: str = "") -> None:
    if not messages:
        return
    section = add(main, "section", attributes={"class": f"notes {kind}"})
    add(section, "h2", title)
    place = _folded(section, summary or f"{len(messages)} lines", len(messages) > UNFOLDED)
    listed = add(place, "ul")
    for message in messages:
        add(listed, "li", str(message))


def _refused(main: Element, refused: Iterable[Mapping[str, Any]]) -> None:
    entries = list(refused)
    reasons = Counter(str(entry.get("reason")) for entry in entries)
    summary = "{} refusals: {}".format(
        spaced(str(len(entries))), ", ".join(f"{reason} {spaced(str(n))}" for reason, n in reasons.most_common())
    )
    _notes(main, "Not used", "refused", [entry["message"] for entry in entries], summary)


def _commands(main: Element, plan: Mapping[str, Any]) -> None:
    section = add(main, "section", attributes={"class": "commands"})
    add(section, "h2", "Command lines")
    workers = plan["workers"]
    place = _folded(section, f"{len(workers)} workers", len(workers) > UNFOLDED)
    for worker in workers:
        _command(place, worker["host"], "ggml-rpc-server", worker["args"], worker.get("environment") or {})
    _command(section, plan["host"], "llama-server", plan["server_args"], plan.get("server_environment") or {})


def _command(parent: Element, host: str, program: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
    add(parent, "h3", str(host))
    code = add(add(parent, "pre"), "code")
    for piece in words.command(program, argv, environment):
        add(code, "span", piece).tail = " "
