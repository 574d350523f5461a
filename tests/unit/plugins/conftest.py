# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small GGUF files for the tests, written by the reference writer of the gguf package, a web server for them, and a
pool of this machine to plan them for."""

from __future__ import annotations

import http.server
import json
import os
import re
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy
import pytest
import yaml
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFEndian, GGUFWriter
from hypothesis import settings

# The same inputs in every run, so that a change is what turns a test red; HYPOTHESIS_PROFILE=default draws new ones.
settings.register_profile("steady", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

ROOT = Path(__file__).resolve().parents[3]
KEYS = (
    ("add_uint32", "llama.block_count", 2),
    ("add_uint32", "llama.context_length", 4096),
    ("add_uint32", "llama.embedding_length", 64),
    ("add_uint32", "llama.feed_forward_length", 128),
    ("add_uint32", "llama.attention.head_count", 4),
    ("add_uint32", "llama.attention.head_count_kv", 2),
    ("add_string", "tokenizer.ggml.model", "llama"),
)
NAMES = {"attn_norm": (64,), "attn_q": (64, 64), "attn_k": (64, 32), "attn_v": (64, 32), "attn_output": (64, 64),
         "ffn_norm": (64,), "ffn_gate": (64, 128), "ffn_up": (64, 128), "ffn_down": (128, 64)}  # fmt: skip


class GgufFactory:
    """Writes small models and damages them."""

    def __init__(self, folder) -> None:
        self.folder = folder

    def model(self, name="m.gguf", arch="llama", tensors=(), keys=(), tokens=None, types=None, big=False, split=0):
        """Writes a model. ``tensors``: (name, shape with the row first, type); ``keys``: (method, key, value)."""
        path = self.folder / name
        writer = GGUFWriter(None, arch, endianess=GGUFEndian.BIG if big else GGUFEndian.LITTLE, split_max_tensors=split)
        for method, key, value in keys:
            getattr(writer, method)(key, value)
        if tokens is not None:
            writer.add_token_list(tokens)
        if types is not None:
            writer.add_token_types(types)
        for tensor_name, shape, type_name in tensors:
            kind = GGMLQuantizationType[type_name]
            block_elements, block_bytes = GGML_QUANT_SIZES[kind]
            rows = tuple(reversed(shape[1:]))
            data = numpy.zeros((*rows, shape[0] // block_elements * block_bytes), dtype=numpy.uint8)
            writer.add_tensor(tensor_name, data, raw_dtype=kind)
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    @staticmethod
    def set_type(path, tensor, number) -> None:
        """Overwrites the type number of a tensor in a little-endian file."""
        data = bytearray(path.read_bytes())
        place = data.index(struct.pack("<Q", len(tensor)) + tensor.encode()) + 8 + len(tensor)
        n_dims = struct.unpack_from("<I", data, place)[0]
        struct.pack_into("<I", data, place + 4 + 8 * n_dims, number)
        path.write_bytes(data)

    def raw(self, body: bytes, n_tensors=0, n_keys=0, version=3, name="raw.gguf"):
        """Writes a little-endian header by hand."""
        path = self.folder / name
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_keys) + body)
        return path


@pytest.fixture
def gguf_factory(tmp_path):
    """Writes small GGUF files into the test's own folder."""
    return GgufFactory(tmp_path)


class WebPage:
    """What the web server has under one path, and what is wrong with how it gives it away."""

    def __init__(self, content=b"", **knobs) -> None:
        self.content = content
        self.knobs = knobs

    def answer(self, handler) -> None:
        """Answers one GET as nginx does, but for the knobs."""
        knobs, content = self.knobs, self.content
        if "status" in knobs:
            return self.send(handler, knobs["status"], b"<html>no", dict(knobs.get("headers", {})))
        if "login" in knobs and handler.headers.get("Authorization") != knobs["login"]:
            return self.send(handler, 401, b"", {})
        headers = {"ETag": '"one"', **knobs.get("headers", {})}
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        if span is None or not knobs.get("ranges", True):
            return self.send(handler, 200, content, headers)
        first, last = int(span.group(1)), min(int(span.group(2)), len(content) - 1)
        if first >= len(content):
            return self.send(handler, 416, b"", {"Content-Range": f"bytes */{len(content)}"})
        last = min(last, first + knobs.get("at_most", len(content)) - 1)
        total = knobs.get("total", len(content))
        headers.setdefault("Content-Range", f"bytes {first}-{last}/{total}")
        return self.send(handler, 206, content[first : last + 1], headers)

    def send(self, handler, status, body, headers) -> None:
        """Status, headers and body, which may come slowly or not wholly."""
        if "silent" in self.knobs:
            time.sleep(self.knobs["silent"])
        handler.send_response(status)
        for name, value in headers.items():
            if value is not None:
                handler.send_header(name, value)
        if "Content-Length" not in headers and not ("unsized" in self.knobs and status == 200):
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if "drip" in self.knobs:
            for place in range(len(body)):
                handler.wfile.write(body[place : place + 1])
                time.sleep(self.knobs["drip"])
        else:
            handler.wfile.write(body[: self.knobs.get("cut", len(body))])


class WebSite:
    """A web server on the loopback. ``pages`` maps paths to pages, ``requests`` holds (path, headers) of each GET,
    the names of the headers in lower case."""

    def __init__(self) -> None:
        self.pages: dict = {}
        self.requests: list = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                site.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                page = site.pages.get(unquote(urlsplit(self.path).path)) or WebPage(status=404)
                try:
                    page.answer(self)
                except OSError:  # the reader has seen enough
                    self.close_connection = True

            def log_message(self, *_args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def add(self, path, content=b"", **knobs) -> str:
        """Puts a page under ``path`` and gives its URL."""
        self.pages[path] = WebPage(content, **knobs)
        return self.url(path)

    def url(self, path) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}{path}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def new_site(monkeypatch):
    """Starts web servers, each another origin."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    sites = []

    def start() -> WebSite:
        sites.append(WebSite())
        return sites[-1]

    yield start
    for site in sites:
        site.close()


@pytest.fixture
def site(new_site):
    """One web server."""
    return new_site()


@pytest.fixture
def models(gguf_factory):
    """The paths of a model and of one that can be its draft."""

    def make(name, n_blocks):
        tensors = [("token_embd.weight", (64, 40), "F16"), ("output_norm.weight", (64,), "F32")]
        for block in range(n_blocks):
            tensors += [(f"blk.{block}.{part}.weight", shape, "F16") for part, shape in NAMES.items()]
        keys = (("add_uint32", "llama.block_count", n_blocks), *KEYS[1:])
        return gguf_factory.model(name, tensors=tensors, keys=keys, tokens=[f"t{number}" for number in range(40)])

    return {"model": make("model.gguf", 6), "draft": make("draft.gguf", 1)}


@pytest.fixture
def plan(tmp_path):
    """Runs plan.yml for a pool of this machine alone, and gives the exit status, the output and the plan."""
    inventory = {
        "all": {
            "vars": {
                "ansible_connection": "local",
                "ansible_python_interpreter": sys.executable,
                "ansible_become": False,
                "relay_allow_cpu": True,
                "relay_ctx_size": 512,
                "relay_parallel": 1,
                "relay_draft_scope": "any",
                "relay_config_dir": str(tmp_path / "etc"),
                "relay_llama_cpp_root": str(tmp_path / "llama"),
                "relay_plan_output": str(tmp_path / "plan.json"),
            },
            "children": {"relay_pool": {"children": {"relay_host": {"hosts": {"box": {}}}, "relay_workers": {}}}},
        }
    }
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(inventory))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "ANSIBLE_"))},
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
        "ANSIBLE_HOME": str(tmp_path / "ansible"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "no_proxy": "127.0.0.1",
    }

    def run(*arguments, playbook=ROOT / "playbooks" / "plan.yml", **variables):
        command = [Path(sys.prefix) / "bin" / "ansible-playbook", "-i", tmp_path / "inventory.yml", *arguments]
        command += [playbook, "-e", json.dumps(variables)]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        written = tmp_path / "plan.json"
        return done.returncode, done.stdout, json.loads(written.read_text()) if written.exists() else None

    return run
