# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import contextlib
import http.server
import json
import socket
import socketserver
import threading
import time

import pytest
from ansible_collections.relay.pool.plugins.module_utils import llama_server

SLOT = {"id": 0, "n_ctx": 512, "speculative": True, "is_processing": False, "params": {"seed": 1}}
PROPS = {"build_info": "b11434-abc", "model_path": "/m.gguf", "default_generation_settings": {"n_ctx": 512}}
TIMINGS = {"prompt_per_second": 30.0, "predicted_per_second": 20.0, "draft_n": 8, "draft_n_accepted": 6}
LOADING = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
GOOD = {
    "/health": (200, {"status": "ok"}),
    "/slots": (200, [SLOT, dict(SLOT, id=1)]),
    "/props": (200, PROPS),
    "/completion": (200, {"content": " Paris.", "timings": TIMINGS}),
}


class Server(socketserver.ThreadingTCPServer):
    """Like ThreadingHTTPServer, without the look-up of its own name."""

    daemon_threads = True
    allow_reuse_address = True


@contextlib.contextmanager
def serve(answers):
    """An HTTP server on loopback. An answer is (status, body); None closes the connection, a number waits."""
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            length = int(self.headers.get("Content-Length") or 0)
            requests.append((self.path, self.headers.get("Authorization"), self.rfile.read(length)))
            answer = answers.get(self.path, (404, {"error": {"message": "File Not Found"}}))
            if answer is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if isinstance(answer, float):
                time.sleep(answer)
                return
            status, body = answer
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, *_args):
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", requests
        finally:
            server.shutdown()


def probe(answers, timeout=2.0, key="", **options):
    with serve({**GOOD, **answers}) as (url, requests):
        return llama_server.probe(llama_server.Client(url + "/", key, timeout), **options), requests, url


def test_ready_pool():
    result, requests, _url = probe({}, key="sk-1", prompt="Hello", max_tokens=4)
    assert result.pop("completion_seconds") >= 0
    assert result == {
        "state": "ready",
        "healthy": True,
        "completion": True,
        "text": " Paris.",
        "tokens": None,
        "tokens_unsent": None,
        "tokens_per_second": 20.0,
        "prompt_tokens_per_second": 30.0,
        "draft_n": 8,
        "draft_n_accepted": 6,
        "speculative": True,
        "n_ctx": 512,
        "slots": [{"id": number, "n_ctx": 512, "speculative": True, "is_processing": False} for number in (0, 1)],
        "build_info": "b11434-abc",
        "model_path": "/m.gguf",
        "error": None,
    }
    assert {key for _path, key, _body in requests} == {"Bearer sk-1"}
    sent = json.loads(requests[-1][2])
    assert (sent["prompt"], sent["n_predict"], sent["temperature"], sent["cache_prompt"]) == ("Hello", 4, 0.0, False)
    assert sent["return_tokens"] is True


def answered(tokens, counted):
    return {"/completion": (200, {"content": "x", "tokens": tokens, "timings": {"predicted_n": counted}})}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        # a draft that never drafted is not mentioned by the server
        ({"/completion": (200, {"content": "x", "timings": {}})}, {"draft_n": 0, "draft_n_accepted": 0}),
        (answered([7, 8], 2), {"tokens": 2, "tokens_unsent": 0}),
        (answered([7, 8], 5), {"tokens": 2, "tokens_unsent": 3}),
        (answered([7, 8], 1), {"tokens": 2, "tokens_unsent": 0}),
        (answered([], 0), {"tokens": 0, "tokens_unsent": 0}),
        # a server that lists none, or does not count
        (answered([], 5), {"tokens": None, "tokens_unsent": None}),
        (answered("7", 5), {"tokens": None, "tokens_unsent": None}),
        (answered([7], None), {"tokens": None, "tokens_unsent": None}),
        ({"/slots": (200, [SLOT, dict(SLOT, speculative=False)])}, {"speculative": False}),
        ({"/slots": (501, LOADING)}, {"speculative": None, "slots": [], "n_ctx": 512, "healthy": True}),
        ({"/slots": (501, {}), "/props": (500, b"no json")}, {"n_ctx": None, "build_info": None, "healthy": True}),
    ],
)
def test_parts(answers, expected):
    result, _requests, _url = probe(answers)
    assert {key: result[key] for key in expected} == expected
    assert result["error"] is None


@pytest.mark.parametrize(
    ("answers", "state", "words"),
    [
        ({"/health": (503, LOADING)}, "loading", "is still loading the model"),
        ({"/health": (404, b"<html>")}, "failing", "/health answered 404"),
        ({"/health": None}, "down", "/health broke off"),
        # health is good and the pool is dead
        ({"/completion": None}, "failing", "is healthy but /completion broke off"),
        ({"/completion": (500, {"error": {"message": "Compute error."}})}, "failing", "answered 500: Compute error."),
        ({"/completion": (401, {"error": "Invalid API Key"})}, "failing", "answered 401: Invalid API Key"),
        ({"/completion": (200, b"garbage")}, "failing", "without a text"),
        ({"/completion": (200, [1])}, "failing", "without a text"),
        ({"/completion": 0.6}, "failing", "gave no answer within 0.3 s"),
    ],
)
def test_trouble(answers, state, words):
    result, _requests, url = probe(answers, timeout=0.3)
    assert result["state"] == state
    assert (result["healthy"], result["completion"]) == (False, False)
    assert result["error"].startswith(url)
    assert words in result["error"]


def drip(client):
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    with contextlib.suppress(OSError):
        while True:
            client.sendall(b" ")
            time.sleep(0.05)


def drip_header(client):
    client.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    with contextlib.suppress(OSError):
        while True:
            client.sendall(b"x")
            time.sleep(0.05)


def send(data, wait=0.0):
    def handler(client):
        client.sendall(data)
        time.sleep(wait)

    return handler


REDIRECT = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n"


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (drip, "gave no answer within 0.4 s"),
        (drip_header, "gave no answer within 0.4 s"),
        # an error whose body does not come, or comes in part
        (send(b"HTTP/1.1 500 X\r\nContent-Length: 9\r\n\r\n", 1.0), "gave no answer within 0.4 s"),
        (send(b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc"), "broke off"),
        (send(REDIRECT % b"/health"), "answered 302"),
        (send(REDIRECT % b"http://127.0.0.1:1/"), "answered 302"),
        (send(b"\0\xff" * 5000), "broke off"),
    ],
)
def test_odd_servers_hold_nobody_up(handler, words):
    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(65536)
            handler(self.request)

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True).start()
        started = time.monotonic()
        result = llama_server.probe(llama_server.Client(f"http://127.0.0.1:{server.server_address[1]}", "k", 0.4))
        server.shutdown()
    assert time.monotonic() - started < 1.2
    assert words in result["error"]
    assert len(result["error"]) < 2000


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/slots", b"[" * 100_000, {"slots": [], "n_ctx": 512}),
        ("/slots", [5, {"id": {}, "n_ctx": "x", "speculative": "yes"}], {"n_ctx": None, "speculative": False}),
        ("/props", {"build_info": [1], "model_path": {}}, {"build_info": None, "model_path": None}),
        (
            "/completion",
            b'{"content": "x", "timings": {"predicted_per_second": NaN, "prompt_per_second": "9", "draft_n": "3"}}',
            {"tokens_per_second": None, "prompt_tokens_per_second": None, "draft_n": None},
        ),
        ("/completion", {"content": "x", "timings": {"draft_n": 1.5, "draft_n_accepted": True}}, {"draft_n": None}),
        ("/completion", b'{"content": "a\\ud800"}', {"text": "a?"}),
    ],
)
def test_wrong_types_are_no_facts(path, body, expected):
    result, _requests, _url = probe({path: (200, body)})
    assert {key: result[key] for key in expected} == expected
    json.dumps(result, allow_nan=False)


@pytest.mark.parametrize(
    ("url", "key"), [("http://127.0.0.1:1", "sk-1\nx"), ("http://127.0.0.1:1", "sk-1\u4e2d"), ("http://[::1", "sk-1")]
)
def test_what_http_cannot_carry_is_said_without_the_key(url, key):
    result = llama_server.probe(llama_server.Client(url, key, 1.0))
    assert result["state"] == "down"
    assert "cannot be asked for" in result["error"]
    assert "sk-1" not in result["error"]


def test_without_completion():
    result, requests, _url = probe({"/completion": None}, with_completion=False)
    assert (result["state"], result["healthy"], result["completion"], result["draft_n"]) == ("ready", True, False, None)
    assert "/completion" not in [path for path, _key, _body in requests]


def test_down():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    result = llama_server.probe(llama_server.Client(f"http://127.0.0.1:{port}"))
    assert result["state"] == "down"
    assert result["error"] == f"http://127.0.0.1:{port}/health cannot be reached: Connection refused"


def test_proxies_are_not_used(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert probe({})[0]["healthy"]
