# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file with the picture of a plan, as a parser reads it; how a browser draws it is an integration test."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.views import predicted
from ansible_collections.relay.pool.plugins.plugin_utils.views.html import plan_html
from ansible_collections.relay.pool.plugins.plugin_utils.views.picture import scale_bytes

from tests import plans

MIB = 1024 * 1024
VOID = {"meta", "link", "img", "br", "hr", "input"}
NASTY = (
    "</title></style><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "&lt;b&gt; & <!-- -->",
    "]]><svg/onload=alert(1)>",
)


class Page(HTMLParser):
    """The elements of a page in order: (tag, attributes, text directly in it, tags around it)."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, **{"attributes": dict(attrs)}, "text": "", "around": [e["tag"] for e in self.open]}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        if self.open:
            self.open[-1]["text"] += data

    def all(self, tag, **attributes):
        wanted = {key.rstrip("_"): value for key, value in attributes.items()}
        return [
            element
            for element in self.elements
            if element["tag"] == tag and wanted.items() <= element["attributes"].items()
        ]

    @property
    def text(self):
        hidden = ("style", "title", "head")
        return "\n".join(e["text"] for e in self.elements if e["tag"] not in hidden)


def percent(text):
    assert text.endswith("%")
    return float(text[:-1]) / 100


def drawn(page):
    """For each bar that is not magnified: {part: (share of the width, bytes that it says it has)}."""
    found = []
    for element in page.elements:
        attributes = element["attributes"]
        if element["tag"] == "svg" and "bar" in attributes.get("class", "").split():
            found.append({} if attributes.get("role") == "img" else None)
        elif element["tag"] == "rect" and "data-bytes" in attributes and found[-1] is not None:
            found[-1][attributes["class"]] = percent(attributes["width"]), int(attributes["data-bytes"])
    return [picture for picture in found if picture is not None]


@pytest.mark.parametrize("make", [plans.cpus, plans.vendors, plans.replica])
def test_the_drawn_widths_are_the_plan_s_bytes_to_scale(make):
    plan = make()
    scale = scale_bytes(plan)
    pictures = drawn(Page(plan_html(plan)))
    # by machine, in the order in which the plan names them
    hosts = list(dict.fromkeys(stage["host"] for stage in plan["stages"]))
    stages = sorted(plan["stages"], key=lambda stage: hosts.index(stage["host"]))
    assert len(pictures) == len(stages)
    for stage, picture in zip(stages, pictures):
        memory = stage["memory"]
        needed = sum(width for name, (width, _bytes) in picture.items() if name != "left") * scale
        assert needed == pytest.approx(memory["total_bytes"], rel=0.01)
        assert sum(size for name, (_width, size) in picture.items() if name != "left") == memory["total_bytes"]
        for name in ("weights", "compute", "draft", "reserve"):
            assert picture.get(name, (0, 0))[1] == memory[f"{name}_bytes"]
        if memory["left_bytes"] is None:
            assert "left" not in picture
        elif memory["free_bytes"] <= scale:
            assert sum(width for width, _bytes in picture.values()) * scale == pytest.approx(
                memory["free_bytes"], rel=0.01
            )


def test_it_says_what_an_operator_asks_for():
    plan = plans.vendors()
    text = Page(plan_html(plan)).text
    for wanted in (
        "large",
        "llama, 67600 MiB: sharded, served by rig; context 32768 in 4 slots",
        "/srv/models/small.gguf",
        "runs llama-server",
        "runs ggml-rpc-server at 10.0.0.2:50052, round trip 0.90 ms, 1 Gbit/s",
        "MTL0",
        "RPC0",
        "the driver reports no memory",
        "llama.cpp is not installed yet: the flags of a current build are assumed",
        "ROCR_VISIBLE_DEVICES=0,1",
        "--tensor-split",
    ):
        assert wanted in text
    assert all("--device " + ",".join(worker["devices"]) in text for worker in plan["workers"])
    for stage in plan["stages"]:
        first, last = stage["first_layer"], stage["first_layer"] + stage["n_layers"] - 1
        assert (f"layers {first}\u2013{last}" if stage["n_layers"] else "no layers") in text
        assert f"{-(-stage['memory']['weights_bytes'] // MIB):,}".replace(",", "\u202f") in text


def test_estimates_are_marked_and_what_is_not_known_is_said():
    plan = plans.cpus()
    text = Page(plan_html(plan)).text
    sentences = predicted.lines(plan)
    assert len(sentences) == 2
    assert all(sentence in text and "estimate" in sentence for sentence in sentences)
    assert "round trip unknown, speed unknown" in text
    assert "no estimate" in Page(plan_html({**plan, "predicted": {"tokens_per_second": None}})).text
    no_reading = {"tokens_per_second": None, "reason": "the bandwidth of a is unknown"}
    assert "not estimated: the bandwidth of a is unknown" in Page(plan_html({**plan, "predicted": no_reading})).text


def test_unknown_ram_is_drawn_as_unknown():
    page = Page(plan_html(plans.replica()))
    assert page.all("rect", class_="unknown")
    assert "an unknown amount of memory" in page.text
    spoken = [element["attributes"]["aria-label"] for element in page.all("svg", role="img")]
    assert spoken[0].startswith("gpu1 CPU: ")
    assert spoken[0].endswith("MiB planned, an unknown amount is free")


def test_a_frame_ends_where_the_memory_of_the_device_ends():
    plan = plans.vendors()
    scale = scale_bytes(plan)
    ends = sorted(min(stage["memory"]["free_bytes"], scale) / scale for stage in plan["stages"])
    frames = [percent(element["attributes"]["width"]) for element in Page(plan_html(plan)).all("rect", class_="frame")]
    assert sorted(frames) == pytest.approx(ends, rel=0.01)


def test_what_does_not_fit_is_drawn_said_and_spoken():
    plan = plans.vendors()
    memory = plan["stages"][1]["memory"]
    memory.update(free_bytes=memory["total_bytes"] - 300 * MIB, left_bytes=-300 * MIB)
    page = Page(plan_html(plan))
    (over,) = [e for e in page.all("rect", class_="over") if "x" in e["attributes"]]
    assert percent(over["attributes"]["width"]) * scale_bytes(plan) == pytest.approx(300 * MIB, rel=0.01)
    assert re.search(r"short\s+300\s", page.text)
    assert any(e["attributes"]["aria-label"].endswith("which does not fit") for e in page.all("svg", role="img"))


def renamed(plan, name):
    """The plan with this in the place of every text in it that the planner does not compute with."""
    plan = json.loads(json.dumps(plan))
    plan["model"].update(alias=name, path=name, architecture=name)
    plan.update(host=name, warnings=[name], advice=[name])
    plan["draft"].update(message=name, path=name, device=name)
    plan["refused"] = [{"host": name, "device": None, "reason": name, "message": name}] * 9
    plan["server_args"] += [name]
    plan["server_environment"] = {"X": name}
    for stage in plan["stages"]:
        stage.update(host=name, device=name, rpc_device=name, endpoint=name)
    for worker in plan["workers"]:
        worker.update(host=name, endpoint=name, args=[name])
    return plan


@pytest.mark.parametrize("name", NASTY)
def test_a_name_is_text_whatever_it_has_in_it(name):
    plain, page = (Page(plan_html(renamed(plans.vendors(), text))) for text in ("plain", name))
    assert [(e["tag"], sorted(e["attributes"])) for e in page.elements] == [
        (e["tag"], sorted(e["attributes"])) for e in plain.elements
    ]
    assert page.all("h1")[0]["text"] == name
    assert page.text.count(name) >= 9


def test_it_needs_no_scripts_and_nothing_from_elsewhere():
    text = plan_html(plans.vendors())
    page = Page(text)
    assert {element["tag"] for element in page.elements} & {"script", "link", "img", "iframe", "object"} == set()
    assert not any(name.startswith("on") for element in page.elements for name in element["attributes"])
    assert not any({"src", "href"} & set(element["attributes"]) for element in page.elements)
    (style,) = page.all("style")
    assert re.findall(r"url\((.)", style["text"]) == ["#"] * style["text"].count("url(")
    assert "@import" not in style["text"]
    assert "http" not in style["text"]
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["attributes"]["content"].startswith("default-src 'none'")


def test_a_thousand_refusals_are_folded_and_counted():
    plan = plans.vendors()
    plan["refused"] = [
        {"reason": "no_room" if number % 4 else "no_gpu", "message": f"h{number} is not used"} for number in range(1000)
    ]
    page = Page(plan_html(plan))
    (summary,) = page.all("summary")
    assert summary["text"] == "1\u202f000 refusals: no_room 750, no_gpu 250"
    assert sum("details" in element["around"] for element in page.all("li")) == 1000
    assert not page.all("details", open="")


def test_every_kind_of_part_has_its_own_pattern_and_its_legend():
    page = Page(plan_html(plans.cpus()))
    patterns = [element["attributes"]["id"] for element in page.all("pattern")]
    assert sorted(patterns) == ["compute", "draft", "kv", "over", "reserve"]
    (style,) = page.all("style")
    for name in patterns:
        assert f".{name} {{ fill: url(#{name});" in style["text"]
    assert [e["text"] for e in page.all("b")] == ["weights", "KV", "compute", "draft", "reserve", "left"]


def test_the_same_plan_gives_the_same_file():
    assert plan_html(plans.vendors()) == plan_html(json.loads(json.dumps(plans.vendors())))
