# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of a plan's devices as bars: SVG that follows the geometry of picture.py, and the numbers as text."""

from __future__ import annotations

from typing import Any, Mapping, Sequence
from xml.etree.ElementTree import Element

from ansible_collections.relay.pool.plugins.plugin_utils.units import MIB
from ansible_collections.relay.pool.plugins.plugin_utils.views import words
from ansible_collections.relay.pool.plugins.plugin_utils.views.markup import add, spaced
from ansible_collections.relay.pool.plugins.plugin_utils.views.picture import OPEN_END, Bar, bars, scale_bytes, ticks

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


def _share(value: float) -> str:
    return f"{value * 100:.4f}%"


def add_patterns(body: Element) -> None:
    """What the parts of the bars are filled with, once for the whole page."""
    defs = add(add(body, "svg", attributes={"class": "patterns", "aria-hidden": "true"}), "defs")
    for name, shapes in PATTERNS.items():
        tile = {"id": name, "width": "8", "height": "8", "patternUnits": "userSpaceOnUse"}
        pattern = add(defs, "pattern", attributes=tile)
        add(pattern, "rect", attributes={"class": f"{name}-ground", "width": "8", "height": "8"})
        for tag, attributes in shapes:
            add(pattern, tag, attributes={"class": f"{name}-mark", **attributes})


def add_memory(main: Element, plan: Mapping[str, Any]) -> None:
    """The section with a bar and its numbers for every device, by machine."""
    section = add(main, "section", attributes={"class": "memory"})
    add(section, "h2", "Memory")
    scale = scale_bytes(plan)
    pictures = list(zip(plan["stages"], bars(plan)))
    add(section, "p", _how_to_read([picture for _stage, picture in pictures], scale), {"class": "note"})
    legend = add(section, "ul", attributes={"class": "legend"})
    for name, meaning in MEANINGS.items():
        item = add(legend, "li")
        _swatch(item, name)
        add(item, "b", LABELS[name]).tail = f" {meaning}"
    axis = add(section, "div", attributes={"class": "axis", "aria-hidden": "true"})
    line = add(axis, "div")
    for share, label in ticks(scale):
        add(line, "span", label, {"style": f"left: {_share(share)}"})
    workers = {worker["host"]: worker for worker in plan["workers"]}
    for host in dict.fromkeys(stage["host"] for stage in plan["stages"]):
        machine = add(section, "section", attributes={"class": "machine"})
        title = add(machine, "h3", str(host))
        add(title, "span", _role(host == plan["host"], workers.get(host)))
        for stage, picture in pictures:
            if stage["host"] == host:
                _device(machine, stage, picture)


def _how_to_read(pictures: Sequence[Bar], scale: int) -> str:
    found = f"All sizes are MiB. All bars have one scale: the full width is {spaced(str(scale // MIB))} MiB."
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
    row = add(machine, "div", attributes={"class": "device"})
    name = add(row, "div", attributes={"class": "name"})
    title = add(name, "h4", str(stage["device"]))
    if stage.get("rpc_device"):
        add(title, "span", str(stage["rpc_device"]))
    add(name, "p", _layers(stage))
    drawn = add(row, "div", attributes={"class": "drawn"})
    _bar(drawn, picture, 1, _spoken(stage, picture))
    if picture.magnified > 1:
        after = _extent(picture) * picture.magnified + (OPEN_END if picture.end is None else 0)
        lens = add(drawn, "div", attributes={"class": "lens"})
        _bar(lens, picture, picture.magnified, None)
        add(lens, "span", f"magnified {picture.magnified} times", {"style": f"left: {_share(after)}"})
    numbers = add(drawn, "dl", attributes={"class": "numbers"})
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
        alone = stage["device"] != "CPU" or stage.get("rpc_device")
        draft = "the draft alone" if alone and stage["memory"]["draft_bytes"] else "no layers"
        return "output" if stage["has_output"] else draft
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
    cell = add(numbers, "div", attributes={"class": f"is-{kind}"})
    term = add(cell, "dt")
    if kind != "free":
        _swatch(term, kind)
        term[-1].tail = label
    else:
        term.text = label
    add(cell, "dd", spaced(value))


def _swatch(parent: Element, kind: str) -> None:
    svg = add(parent, "svg", attributes={"class": "swatch", "aria-hidden": "true"})
    add(svg, "rect", attributes={"class": kind, "width": "100%", "height": "100%"})


def _extent(picture: Bar) -> float:
    last = picture.parts[-1] if picture.parts else None
    return max(picture.end or 0, last.start + last.width if last else 0)


def _bar(parent: Element, picture: Bar, factor: int, label: str | None) -> None:
    spoken = {"role": "img", "aria-label": label} if label else {"aria-hidden": "true"}
    svg = add(parent, "svg", attributes={"class": "bar", **spoken})

    def rect(kind: str, start: float, width: float) -> Element:
        place = {"x": _share(start * factor), "width": _share(width * factor), "height": "100%"}
        return add(svg, "rect", attributes={"class": kind, **place})

    for part in picture.parts:
        shape = rect(part.name, part.start, part.width)
        shape.set("data-bytes", str(part.size_bytes))
        add(shape, "title", f"{LABELS[part.name]} {spaced(words.need(part.size_bytes))} MiB")
    extent = _extent(picture)
    if picture.end is None:
        # Not to scale, so it is not magnified with the rest.
        open_end = {"class": "unknown", "x": _share(extent * factor), "width": _share(OPEN_END), "height": "100%"}
        add(svg, "rect", attributes=open_end)
        return
    if picture.over_bytes:
        # Along the lower edge, so that what does not fit is still seen.
        over = rect("over", picture.end, extent - picture.end)
        over.attrib.update(y="65%", height="35%")
    rect("frame", 0, picture.end)
    if picture.cut:
        edge = add(svg, "svg", attributes={"class": "cut", "x": "100%"})
        add(edge, "path", attributes={"d": "M1 -1-6 4 0 9-6 14 0 19-6 23H1Z"})
