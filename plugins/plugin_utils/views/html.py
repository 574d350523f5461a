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
from xml.etree.ElementTree import Element, SubElement, tostring

from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB
from ansible_collections.relay.pool.plugins.plugin_utils.views import words
from ansible_collections.relay.pool.plugins.plugin_utils.views.picture import (
    OPEN_END,
    Bar,
    bars,
    scale_bytes,
    ticks,
)

# Notes beyond these are folded.
UNFOLDED = 8
STYLE = "plan.css"
# No scripts and nothing from elsewhere, whatever a name may hold.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
LABELS = {
    "weights": "weights",
    "kv": "KV",
    "compute": "compute",
    "draft": "draft",
    "reserve": "reserve",
    "left": "left",
}
MEANINGS = {
    "weights": "",
    "kv": "cache and recurrent state",
    "compute": "buffers",
    "draft": "model",
    "reserve": "kept free",
    "left": "of what is free",
}
# How the patterns look without their colours. Each is a tile of 8 x 8 pixels.
PATTERNS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "kv": [("path", {"d": "M-2 2 2 -2M0 8 8 0M6 10 10 6"})],
    "compute": [("circle", {"cx": "2", "cy": "2", "r": "1.3"}), ("circle", {"cx": "6", "cy": "6", "r": "1.3"})],
    "draft": [("path", {"d": "M0 2H8M0 6H8"})],
    "reserve": [("path", {"d": "M-2 6 2 10M0 0 8 8M6 -2 10 2"})],
    "over": [("path", {"d": "M0 0 8 8M8 0 0 8"})],
}


def plan_html(plan: Mapping[str, Any]) -> str:
    """The whole plan as the text of an HTML file. Raises what reading an unreadable plan raises."""
    alias = str(plan["model"]["alias"])
    page = Element("html", {"lang": "en"})
    _head(page, f"{alias} on {plan['host']}: plan")
    body = _add(page, "body")
    _patterns(body)
    main = _add(body, "main")
    header = _add(main, "header")
    _add(header, "h1", alias)
    _add(header, "p", f"{words.size(plan)}: {words.kind(plan)}", {"class": "lead"})
    _facts(header, plan)
    _notes(main, "Warnings", "warnings", list(plan.get("warnings") or []))
    _memory(main, plan)
    _refused(main, plan.get("refused") or [])
    _notes(main, "Advice", "advice", list(plan.get("advice") or []))
    _commands(main, plan)
    return "<!DOCTYPE html>\n" + tostring(page, encoding="unicode", method="html") + "\n"


def _add(parent: Element, tag: str, text: str | None = None, attributes: Mapping[str, str] | None = None) -> Element:
    child = SubElement(parent, tag, dict(attributes or {}))
    child.text = text
    return child


def _spaced(number: str) -> str:
    """A number of MiB, its digits in threes, apart by a narrow space at which no line breaks."""
    return "unknown" if number == "?" else f"{int(number):,}".replace(",", "\u202f")


def _share(value: float) -> str:
    return f"{value * 100:.4f}%"


def _head(page: Element, title: str) -> None:
    head = _add(page, "head")
    _add(head, "meta", attributes={"charset": "utf-8"})
    _add(head, "meta", attributes={"http-equiv": "Content-Security-Policy", "content": POLICY})
    _add(head, "meta", attributes={"name": "viewport", "content": "width=device-width, initial-scale=1"})
    _add(head, "meta", attributes={"name": "color-scheme", "content": "light dark"})
    _add(head, "title", title)
    _add(head, "style", Path(__file__).with_name(STYLE).read_text(encoding="utf-8"))


def _patterns(body: Element) -> None:
    defs = _add(_add(body, "svg", attributes={"class": "patterns", "aria-hidden": "true"}), "defs")
    for name, shapes in PATTERNS.items():
        tile = {"id": name, "width": "8", "height": "8", "patternUnits": "userSpaceOnUse"}
        pattern = _add(defs, "pattern", attributes=tile)
        _add(pattern, "rect", attributes={"class": f"{name}-ground", "width": "8", "height": "8"})
        for tag, attributes in shapes:
            _add(pattern, tag, attributes={"class": f"{name}-mark", **attributes})


def _facts(header: Element, plan: Mapping[str, Any]) -> None:
    llama = plan.get("llama") or {}
    build = " ".join(str(llama[key]) for key in ("version", "commit") if llama.get(key))
    facts = [("File", str(plan["model"]["path"])), ("Draft", words.draft_state(plan)), ("Speed", _speed(plan))]
    facts += [("llama.cpp", build)] if build else []
    listed = _add(header, "dl", attributes={"class": "facts"})
    for name, value in facts:
        row = _add(listed, "div")
        _add(row, "dt", name)
        _add(row, "dd", value)


def _speed(plan: Mapping[str, Any]) -> str:
    """Every predicted figure, marked as an estimate."""
    predicted = plan.get("predicted") or {}
    found = []
    for key, text in (
        ("tokens_per_second", "about {:g} tokens/s without a draft"),
        ("with_draft_tokens_per_second", "about {:g} tokens/s with the draft"),
    ):
        if predicted.get(key) is not None:
            found.append(text.format(predicted[key]))
    if predicted.get("break_even_acceptance") is not None:
        found.append("the draft pays from {:.0%} of its tokens accepted".format(predicted["break_even_acceptance"]))
    return f"{'; '.join(found)} (estimate, nothing was measured)" if found else "no estimate"


def _memory(main: Element, plan: Mapping[str, Any]) -> None:
    section = _add(main, "section", attributes={"class": "memory"})
    _add(section, "h2", "Memory")
    scale = scale_bytes(plan)
    pictures = list(zip(plan["stages"], bars(plan)))
    _add(section, "p", _how_to_read([picture for _stage, picture in pictures], scale), {"class": "note"})
    legend = _add(section, "ul", attributes={"class": "legend"})
    for name, meaning in MEANINGS.items():
        item = _add(legend, "li")
        _swatch(item, name)
        _add(item, "b", LABELS[name]).tail = f" {meaning}"
    axis = _add(section, "div", attributes={"class": "axis", "aria-hidden": "true"})
    line = _add(axis, "div")
    for share, label in ticks(scale):
        _add(line, "span", label, {"style": f"left: {_share(share)}"})
    workers = {worker["host"]: worker for worker in plan["workers"]}
    for host in dict.fromkeys(stage["host"] for stage in plan["stages"]):
        machine = _add(section, "section", attributes={"class": "machine"})
        title = _add(machine, "h3", str(host))
        _add(title, "span", _role(host == plan["host"], workers.get(host)))
        for stage, picture in pictures:
            if stage["host"] == host:
                _device(machine, stage, picture)


def _how_to_read(pictures: Sequence[Bar], scale: int) -> str:
    found = f"All sizes are MiB. All bars have one scale: the full width is {_spaced(str(scale // MIB))} MiB."
    if any(picture.magnified > 1 for picture in pictures):
        found += " A bar too narrow to read is drawn once more below, magnified."
    if any(picture.cut for picture in pictures):
        found += " RAM that holds no layers is cut off where the scale ends."
    if any(picture.over_bytes for picture in pictures):
        found += " A crossed lower edge marks what does not fit."
    if any(picture.end is None for picture in pictures):
        found += " A bar with an open end has an unknown amount of memory."
    return found


def _role(serves: bool, worker: Mapping[str, Any] | None) -> str:
    if serves:
        return "runs llama-server"
    if not worker:
        return ""
    found = f"runs ggml-rpc-server at {worker['endpoint']}"
    return f"{found}, {words.link(worker['link'])}" if worker.get("link") else found


def _device(machine: Element, stage: Mapping[str, Any], picture: Bar) -> None:
    memory = stage["memory"]
    row = _add(machine, "div", attributes={"class": "device"})
    name = _add(row, "div", attributes={"class": "name"})
    title = _add(name, "h4", str(stage["device"]))
    if stage.get("rpc_device"):
        _add(title, "span", str(stage["rpc_device"]))
    _add(name, "p", _layers(stage))
    drawn = _add(row, "div", attributes={"class": "drawn"})
    _bar(drawn, picture, 1, _spoken(stage, picture))
    if picture.magnified > 1:
        after = _extent(picture) * picture.magnified + (OPEN_END if picture.end is None else 0)
        lens = _add(drawn, "div", attributes={"class": "lens"})
        _bar(lens, picture, picture.magnified, None)
        _add(lens, "span", f"magnified {picture.magnified} times", {"style": f"left: {_share(after)}"})
    numbers = _add(drawn, "dl", attributes={"class": "numbers"})
    for part in picture.parts:
        if part.name != "left":
            _number(numbers, part.name, LABELS[part.name], words.need(part.size_bytes))
    if picture.over_bytes:
        _number(numbers, "over", "short", words.need(picture.over_bytes))
    else:
        _number(numbers, "left", LABELS["left"], words.room(memory["left_bytes"]))
    _number(numbers, "free", "free", words.room(memory["free_bytes"]))


def _layers(stage: Mapping[str, Any]) -> str:
    first, count = stage["first_layer"], stage["n_layers"]
    if not count:
        return "output" if stage["has_output"] else "no layers"
    what = f"layer {first}" if count == 1 else f"layers {first}\u2013{first + count - 1}"
    return f"{what}, output" if stage["has_output"] else what


def _spoken(stage: Mapping[str, Any], picture: Bar) -> str:
    """The bar for those who cannot see it; its numbers follow as text."""
    memory = stage["memory"]
    total, free = words.need(memory["total_bytes"]), words.room(memory["free_bytes"])
    label = f"{stage['host']} {stage['device']}: {total} MiB planned"
    if picture.end is None:
        return f"{label}, an unknown amount is free"
    return f"{label} of {free} MiB free" + (", which does not fit" if picture.over_bytes else "")


def _number(numbers: Element, kind: str, label: str, value: str) -> None:
    cell = _add(numbers, "div", attributes={"class": f"is-{kind}"})
    term = _add(cell, "dt")
    if kind != "free":
        _swatch(term, kind)
        term[-1].tail = label
    else:
        term.text = label
    _add(cell, "dd", _spaced(value))


def _swatch(parent: Element, kind: str) -> None:
    svg = _add(parent, "svg", attributes={"class": "swatch", "aria-hidden": "true"})
    _add(svg, "rect", attributes={"class": kind, "width": "100%", "height": "100%"})


def _extent(picture: Bar) -> float:
    last = picture.parts[-1] if picture.parts else None
    return max(picture.end or 0, last.start + last.width if last else 0)


def _bar(parent: Element, picture: Bar, factor: int, label: str | None) -> None:
    spoken = {"role": "img", "aria-label": label} if label else {"aria-hidden": "true"}
    svg = _add(parent, "svg", attributes={"class": "bar", **spoken})

    def rect(kind: str, start: float, width: float) -> Element:
        place = {"x": _share(start * factor), "width": _share(width * factor), "height": "100%"}
        return _add(svg, "rect", attributes={"class": kind, **place})

    for part in picture.parts:
        shape = rect(part.name, part.start, part.width)
        shape.set("data-bytes", str(part.size_bytes))
        _add(shape, "title", f"{LABELS[part.name]} {_spaced(words.need(part.size_bytes))} MiB")
    extent = _extent(picture)
    if picture.end is None:
        # Not to scale, so it is not magnified with the rest.
        open_end = {"class": "unknown", "x": _share(extent * factor), "width": _share(OPEN_END), "height": "100%"}
        _add(svg, "rect", attributes=open_end)
        return
    if picture.over_bytes:
        # Along the lower edge, so that what does not fit is still seen.
        over = rect("over", picture.end, extent - picture.end)
        over.attrib.update(y="65%", height="35%")
    rect("frame", 0, picture.end)
    if picture.cut:
        edge = _add(svg, "svg", attributes={"class": "cut", "x": "100%"})
        _add(edge, "path", attributes={"d": "M1 -1-6 4 0 9-6 14 0 19-6 23H1Z"})


def _folded(section: Element, summary: str, fold: bool) -> Element:
    """Where notes go: the section, or a part of it that opens on demand."""
    if not fold:
        return section
    details = _add(section, "details")
    _add(details, "summary", summary)
    return details


def _notes(main: Element, title: str, kind: str, messages: list[str], summary: str = "") -> None:
    if not messages:
        return
    section = _add(main, "section", attributes={"class": f"notes {kind}"})
    _add(section, "h2", title)
    place = _folded(section, summary or f"{len(messages)} lines", len(messages) > UNFOLDED)
    listed = _add(place, "ul")
    for message in messages:
        _add(listed, "li", str(message))


def _refused(main: Element, refused: Iterable[Mapping[str, Any]]) -> None:
    entries = list(refused)
    reasons = Counter(str(entry.get("reason")) for entry in entries)
    summary = "{} refusals: {}".format(
        _spaced(str(len(entries))), ", ".join(f"{reason} {_spaced(str(n))}" for reason, n in reasons.most_common())
    )
    _notes(main, "Not used", "refused", [entry["message"] for entry in entries], summary)


def _commands(main: Element, plan: Mapping[str, Any]) -> None:
    section = _add(main, "section", attributes={"class": "commands"})
    _add(section, "h2", "Command lines")
    workers = plan["workers"]
    place = _folded(section, f"{len(workers)} workers", len(workers) > UNFOLDED)
    for worker in workers:
        _command(place, worker["host"], "ggml-rpc-server", worker["args"], worker.get("environment") or {})
    _command(section, plan["host"], "llama-server", plan["server_args"], plan.get("server_environment") or {})


def _command(parent: Element, host: str, program: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
    _add(parent, "h3", str(host))
    code = _add(_add(parent, "pre"), "code")
    for piece in words.command(program, argv, environment):
        _add(code, "span", piece).tail = " "
