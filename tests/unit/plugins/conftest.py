# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small GGUF files for the tests, written by the reference writer of the gguf package, and a web server for them."""

from __future__ import annotations

import http.server
import os
import re
import struct
import threading
import time
from urllib.parse import unquote, urlsplit

import numpy
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFEndian, GGUFWriter
from hypothesis import settings

# The same inputs in every run, so that a change is what turns a test red; HYPOTHESIS_PROFILE=default draws new ones.
settings.register_profile("steady", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


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
