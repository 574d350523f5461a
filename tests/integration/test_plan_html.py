# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of a plan as a browser lays it out and paints it.

Wants Chromium: Debian's package chromium-headless-shell, or chromium. RELAY_CHROMIUM names another program.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.views.html import plan_html
from ansible_collections.relay.pool.plugins.plugin_utils.views.picture import scale_bytes

from tests import plans
from tests.integration.conftest import missing

PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
# Written into the page when it is laid out: every bar with its parts, and what is wider than the screen.
MEASURE = """
<script>
addEventListener("load", () => {
  const box = (element) => element.getBoundingClientRect();
  const bars = [...document.querySelectorAll("svg.bar[role=img]")].map((bar) => ({
    left: box(bar).left, width: box(bar).width, height: box(bar).height,
    parts: [...bar.querySelectorAll("rect[data-bytes]")].map((part) => ({
      name: part.getAttribute("class"), bytes: Number(part.dataset.bytes), left: box(part).left, width: box(part).width,
      height: box(part).height, fill: getComputedStyle(part).fill })) }));
  const page = document.documentElement;
  const wide = [...document.querySelectorAll("body *")].filter((element) => box(element).right > page.clientWidth + 1);
  const text = [...document.querySelectorAll("dt, dd, h3, h4, li, p, pre, .name, .numbers div")];
  const style = getComputedStyle(document.body);
  const found = { bars, scroll: page.scrollWidth, client: page.clientWidth, color: style.color,
    background: style.backgroundColor, wide: wide.map((element) => element.outerHTML.slice(0, 200)),
    clipped: text.filter((element) => element.scrollWidth > element.clientWidth + 1 && element.clientWidth)
      .map((element) => element.outerHTML.slice(0, 200)) };
  parent.postMessage(JSON.stringify(found), "*");
});
</script>
"""
# A frame may be narrower than a window of Chromium, which is not below 500 pixels.
FRAME = """<!DOCTYPE html>
<meta name="color-scheme" content="light dark">
<script>addEventListener("message", (event) => {{ document.querySelector("pre").textContent = event.data; }});</script>
<pre></pre>
<iframe src="framed.html" width="{width}" height="900" style="border: 0"></iframe>
"""


@pytest.fixture(scope="module")
def chromium():
    """The browser."""
    named = os.environ.get("RELAY_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if not found:
        missing(f"no {', '.join(PROGRAMS)}: install Debian's chromium-headless-shell, or name one in RELAY_CHROMIUM")
    return found


@pytest.fixture
def browse(chromium, tmp_path):
    """Opens a text as a page with these arguments of the browser and returns what it writes."""

    def run(text, *arguments, dark=False):
        page = tmp_path / "plan.html"
        page.write_text(text, encoding="utf-8")
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        command += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1300,900"]
        command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", *arguments, page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def measure(browse, tmp_path):
    """What MEASURE finds on the page of a plan."""

    def run(plan, width=1200, dark=False):
        page, n_replaced = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', MEASURE, plan_html(plan))
        assert n_replaced == 1
        (tmp_path / "framed.html").write_text(page, encoding="utf-8")
        dom = browse(FRAME.format(width=width), "--dump-dom", dark=dark)
        (found,) = re.findall(r"<pre>(.+?)</pre>", dom, re.DOTALL)
        for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
            found = found.replace(entity, character)
        return json.loads(found)

    return run


def large():
    """20 machines with 8 GPUs each, names that are long, and much to say."""
    plan = json.loads(json.dumps(plans.vendors()))
    stage, worker = plan["stages"][1], plan["workers"][0]
    plan["model"].update(alias="a-model-with-a-very-long-name-" * 4, path="/models/" + "x" * 300 + ".gguf")
    plan["stages"], plan["workers"] = plan["stages"][:1], []
    for machine in range(20):
        host = f"a-machine-with-a-long-name-{machine}.rack{machine}.example.com"
        endpoint = f"10.0.0.{machine}:50052"
        plan["workers"].append({**worker, "host": host, "endpoint": endpoint})
        for gpu in range(8):
            number = len(plan["stages"]) - 1
            row = {**stage, "host": host, "endpoint": endpoint, "device": f"CUDA{gpu}", "rpc_device": f"RPC{number}"}
            plan["stages"].append(row)
    plan["warnings"] = ["without-a-space" * 30]
    plan["refused"] = [{"reason": "no_gpu", "message": f"h{n} has no usable GPU " + "y" * 99} for n in range(1000)]
    return plan


PLANS = {"cpus": plans.cpus, "vendors": plans.vendors, "replica": plans.replica, "large": large}


@pytest.mark.parametrize("width", [400, 700, 1200])
@pytest.mark.parametrize("name", PLANS)
def test_what_is_laid_out_is_to_scale_and_fits_the_screen(measure, name, width):
    plan = PLANS[name]()
    scale = scale_bytes(plan)
    found = measure(plan, width=width)
    assert (found["client"], found["scroll"]) == (width, width)
    assert found["wide"] == []
    assert found["clipped"] == []
    hosts = list(dict.fromkeys(stage["host"] for stage in plan["stages"]))
    stages = sorted(plan["stages"], key=lambda stage: hosts.index(stage["host"]))
    assert len(found["bars"]) == len(stages)
    for stage, picture in zip(stages, found["bars"]):
        assert picture["width"] >= width * 0.5
        byte = picture["width"] / scale
        needed = [part for part in picture["parts"] if part["name"] != "left"]
        assert sum(part["width"] for part in needed) == pytest.approx(stage["memory"]["total_bytes"] * byte, rel=0.01)
        at = picture["left"]
        for part in picture["parts"]:
            assert part["left"] == pytest.approx(at, abs=0.1)
            assert part["height"] == picture["height"]
            at += part["width"]
            if part["name"] != "left":
                assert part["width"] == pytest.approx(part["bytes"] * byte, rel=0.01, abs=0.05)
        assert at <= picture["left"] + picture["width"] + 0.1


def luminance(color):
    """Relative luminance of rgb(r, g, b) as in WCAG 2."""
    channels = [int(text) / 255 for text in re.findall(r"\d+", color)[:3]]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear))


def test_it_follows_the_reader_into_the_dark(measure):
    found = {dark: measure(plans.cpus(), dark=dark) for dark in (False, True)}
    for dark, seen in found.items():
        ink, paper = luminance(seen["color"]), luminance(seen["background"])
        assert (ink > paper) == dark
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) > 7


def test_every_part_is_painted_in_its_own_way(measure):
    parts = {part["name"]: part["fill"] for picture in measure(plans.cpus())["bars"] for part in picture["parts"]}
    assert set(parts) == {"weights", "kv", "compute", "draft", "reserve", "left"}
    assert len(set(parts.values())) == len(parts)


def test_without_scripts_it_shows_the_same(browse):
    text = plan_html(plans.vendors())
    body = re.compile(r"<main>.*</main>", re.DOTALL)
    assert body.search(browse(text, "--dump-dom"))[0] == body.search(text)[0]


def test_a_name_that_is_a_script_does_not_run(browse):
    plan = plans.vendors()
    plan["model"]["alias"] = plan["stages"][0]["host"] = (
        '"><script>document.title = "ran"</script><img src=x onerror=x>'
    )
    text = plan_html(plan)
    # the escaping alone must do, so the policy that would stop a script is taken away
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    dom = browse(text, "--dump-dom")
    assert "<title>ran</title>" not in dom
    assert "<script" not in dom
    assert "<img" not in dom


def test_it_can_be_printed(browse, tmp_path):
    browse(plan_html(plans.vendors()), f"--print-to-pdf={tmp_path / 'plan.pdf'}", "--no-pdf-header-footer", dark=True)
    printed = (tmp_path / "plan.pdf").read_bytes()
    assert printed.startswith(b"%PDF-")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 3
