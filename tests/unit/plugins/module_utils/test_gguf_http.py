# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models on web servers: the same facts as from the file, few bytes, and one sentence for what servers get wrong."""

from __future__ import annotations

import base64
import json
import struct
import time
import tracemalloc

import pytest
from ansible_collections.relay.pool.plugins.module_utils import gguf_http, gguf_range
from ansible_collections.relay.pool.plugins.module_utils.gguf_http import Session, quoted, split_login, web_opener
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import describe
from ansible_collections.relay.pool.plugins.module_utils.gguf_range import make_opener
from ansible_collections.relay.pool.plugins.module_utils.gguf_source import GgufError

TENSORS = tuple((f"blk.{number}.attn_q.weight", (32, number + 1), "Q8_0") for number in range(3))
KEYS = (("add_uint32", "llama.block_count", 3), ("add_string", "tokenizer.ggml.model", "llama"))
TOKENS = [f"token {number}" for number in range(40000)]
MADE = []  # the bytes of the model, which takes a while to make


def read(url, compare_with=None, timeout=20, send=None, **options):
    """The facts of a model on a web server."""
    session = Session(send or web_opener(), timeout, options.get("headers"), home=options.get("home", url))
    return describe(url, compare_with, make_opener(session))


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


@pytest.fixture
def model(gguf_factory):
    """The path of a model of which the header is larger than the first range, and the weights much larger."""
    path = gguf_factory.folder / "m.gguf"
    if not MADE:
        tensors = (*TENSORS, ("output.weight", (1024, 12000), "Q8_0"))
        gguf_factory.model(tensors=tensors, keys=KEYS, tokens=TOKENS, types=[1] * len(TOKENS))
        MADE.append(path.read_bytes())
    path.write_bytes(MADE[0])
    return path


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"ranges": False},
        {"at_most": 100_000},
        {"at_most": 1 << 18, "cut": 70_000},  # every answer breaks off
        {"ranges": False, "cut": 1_000_000},
        {"total": "*"},
        {"headers": {"ETag": None}},
        {"headers": {"ETag": 'W/"one"', "Content-Encoding": "identity"}},
    ],
)
def test_the_facts_are_those_of_the_file(site, model, knobs):
    url = site.add("/m.gguf", model.read_bytes(), **knobs)
    expected = describe(str(model))
    expected["path"] = expected["files"][0]["path"] = url
    assert read(url) == expected


def test_the_weights_are_not_fetched(site, model):
    content = model.read_bytes()
    url = site.add("/m.gguf", content)
    read(url)
    spans = [tuple(map(int, headers["range"][6:].split("-"))) for _path, headers in site.requests]
    assert spans[0] == (0, gguf_range.FIRST_RANGE_BYTES - 1)
    assert all(one[1] + 1 == other[0] for one, other in zip(spans, spans[1:]))
    header_bytes = len(content) - sum(size for _name, size in [("output", 12000 * 1024 // 32 * 34)])
    assert header_bytes < spans[-1][1] + 1 < 2 * header_bytes + gguf_range.FIRST_RANGE_BYTES
    assert len(spans) == 3


def test_a_range_grows_no_larger_than_is_worth_it(site, gguf_factory):
    content = gguf_factory.model(tokens=["x" * 200] * 200_000).read_bytes()
    url = site.add("/m.gguf", content)
    read(url)
    spans = [tuple(map(int, headers["range"][6:].split("-"))) for _path, headers in site.requests]
    assert max(last - first + 1 for first, last in spans) == gguf_range.MAX_RANGE_BYTES
    assert len(spans) < 16


def test_a_server_without_ranges_is_left_as_soon_as_the_header_is_read(site, model):
    sent = []

    class Counting:
        def __init__(self, answer):
            self.answer, self.status, self.headers = answer, answer.status, answer.headers
            self.closed = False

        def read1(self, n_bytes):
            sent.append(len(piece := self.answer.read1(n_bytes)))
            return piece

        def close(self):
            self.closed = True
            self.answer.close()

    answers, opener = [], web_opener()

    def send(*request):
        answers.append(Counting(opener(*request)))
        return answers[-1]

    content = model.read_bytes()
    read(site.add("/m.gguf", content, ranges=False), send=send)
    assert sum(sent) < len(content) / 4
    assert [answer.closed for answer in answers] == [True]


@pytest.mark.parametrize("name", ["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"])
def test_a_split_model_is_found_from_any_shard(site, gguf_factory, name):
    gguf_factory.model(tensors=TENSORS, keys=KEYS, tokens=["a"] * 9, split=1)
    for path in gguf_factory.folder.iterdir():
        site.add(f"/a b/{path.name}", path.read_bytes())
    expected = describe(str(gguf_factory.folder / name))
    facts = read(site.url(f"/a b/{name}?download=true&x=%20#part"))
    urls = [site.url(f"/a b/m-0000{number}-of-00003.gguf?download=true&x=%20") for number in (1, 2, 3)]
    assert facts["path"] == urls[0]
    assert [entry["path"] for entry in facts["files"]] == urls
    for facts_of in (facts, expected):
        facts_of["path"] = None
        for entry in facts_of["files"]:
            entry["path"] = None
    assert facts == expected
    assert {path.partition("?")[2] for path, _headers in site.requests} == {"download=true&x=%20"}


@pytest.mark.parametrize("status", [404, 410])
def test_missing_shards_are_listed(site, gguf_factory, status):
    gguf_factory.model(tensors=TENSORS, keys=KEYS, split=1)
    for path in gguf_factory.folder.iterdir():
        site.add(f"/{path.name}", path.read_bytes())
    site.add("/m-00002-of-00003.gguf", status=status)
    facts = read(site.url("/m-00003-of-00003.gguf?x=/y"))
    assert facts["missing"] == ["m-00002-of-00003.gguf"]
    site.add("/m-00001-of-00003.gguf", status=status)
    with pytest.raises(GgufError, match=r"the first of its 3 shards is missing, m-00001-of-00003\.gguf:"):
        read(site.url("/m-00003-of-00003.gguf"))


def test_a_shard_of_another_name_says_which_one_is_wanted(site, gguf_factory):
    gguf_factory.model(tensors=TENSORS, keys=KEYS, split=1)
    content = (gguf_factory.folder / "m-00001-of-00003.gguf").read_bytes()
    with pytest.raises(GgufError, match=r"give the URL of a file that is called <name>-00001-of-00003\.gguf"):
        read(site.add("/get", content) + "?file=m-00001-of-00003.gguf")


@pytest.mark.parametrize("local", ["target", "draft", None])
def test_compares_what_lies_in_two_places(site, gguf_factory, local):
    places = {}
    for name, last in (("target", "x"), ("draft", "y")):
        path = gguf_factory.model(f"{name}.gguf", keys=KEYS, tokens=[*TOKENS[:9000], last])
        places[name] = str(path) if name == local else site.add(f"/{name}.gguf", path.read_bytes())
    comparison = read(places["target"], places["draft"], home=site.url("/"))["comparison"]
    assert comparison["first_difference"] == "token 9000 is 'x' in the target and 'y' in the draft"


# What no server should say, and what the user is told.
PAGE = b"<!DOCTYPE html><title>Log in</title>" + b" " * 1000


@pytest.mark.parametrize(
    ("content", "knobs", "sentence"),
    [
        (b"", {"status": 401}, "the server answers 401 (Unauthorized): it wants a login, give headers with"),
        (b"", {"status": 403}, "403 (Forbidden): it does not let us read the file, accept the model's terms"),
        (b"", {"status": 404}, "404 (Not Found): it has no such file, correct the address."),
        (b"", {"status": 429, "headers": {"Retry-After": "7"}}, "wait a while and try again; it says in 7 s."),
        (b"", {"status": 429, "headers": {"Retry-After": "soon"}}, "wait a while and try again."),
        (b"", {"status": 500}, "500 (Internal Server Error): try again later."),
        (b"", {"status": 503}, "503 (Service Unavailable): try again later."),
        (b"", {"status": 599}, "599 (an unknown status): try again later."),
        (b"", {"status": 400}, "400 (Bad Request): correct the address."),
        (b"", {}, "the file is empty: download it again."),
        (b"", {"ranges": False}, "the file is empty: download it again."),
        (PAGE, {}, "this is a web page, not the model: the download address or its login is wrong."),
        (PAGE, {"ranges": False}, "this is a web page, not the model"),
        (PAGE, {"ranges": False, "headers": {"Content-Length": None}}, "this is a web page, not the model"),
        (
            b"\x1f\x8b" + bytes(40),
            {"headers": {"Content-Encoding": "gzip", "Content-Type": "text/html; charset=utf-8"}},
            "this is a web page, not the model",
        ),
        (
            b"\x1f\x8b" + bytes(40),
            {"headers": {"Content-Encoding": "gzip"}},
            "so no part of it can be read: take the file",
        ),
        (b"", {"status": 416}, "the server answers 416 to a request for the beginning: take the file from another"),
        (b"version https://git-lfs.github.com/spec/v1\nsize 123\n", {}, "Git LFS pointer to 123 bytes"),
        (b'{"error":"Repository not found"}', {}, "this is JSON text, not the model"),
        (b"GGUF" + bytes(600), {"ranges": False, "headers": {"Content-Length": None}}, "does not say how large"),
        (b"GGUF" + bytes(600), {"headers": {"Content-Range": "bytes 7-90/700"}}, "sends other bytes than it was asked"),
        (b"GGUF" + bytes(600), {"headers": {"Content-Range": "bytes 0-90/50"}}, "bytes up to 90 of a file of 50"),
        (b"GGUF" + bytes(600), {"headers": {"Content-Range": "sheep 0-90/700"}}, "sends other bytes"),
        (b"GGUF" + bytes(600), {"cut": 0}, "the server breaks off again and again"),
        (b"GGUF" + bytes(600), {"total": "*", "at_most": 9, "unsized": True}, "does not say how large"),
    ],
)
def test_what_servers_get_wrong_is_one_sentence(site, content, knobs, sentence):
    url = site.add("/m.gguf", content, **knobs)
    with pytest.raises(GgufError) as failure:
        read(url)
    assert str(failure.value).startswith(f"{url}: ")
    assert sentence in str(failure.value)
    assert str(failure.value).count(". ") == 0


def test_the_page_about_a_file_is_told_from_the_file(site):
    url = site.add("/user/repo/blob/main/m.gguf", PAGE)
    with pytest.raises(GgufError, match=r"take the one with /resolve/ instead of /blob/\.$"):
        read(url)


@pytest.mark.parametrize(
    "change",
    [{"headers": {"ETag": '"two"'}}, {"total": 12345678}, {"status": 416}, {"content": b"GGUF"}],
)
def test_a_file_that_is_replaced_meanwhile_is_noticed(site, model, change):
    class Changing:
        def __init__(self, pages):
            self.pages = pages

        def answer(self, handler):
            (self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]).answer(handler)

    url = site.add("/m.gguf", model.read_bytes())
    first = site.pages["/m.gguf"]
    site.add("/m.gguf", **{"content": first.content, **change})
    site.pages["/m.gguf"] = Changing([first, site.pages["/m.gguf"]])
    with pytest.raises(GgufError, match=r"the file was replaced.*try again"):
        read(url)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_and_secrets_stay_at_home(new_site, model, status):
    home, storage = new_site(), new_site()
    home.add("/repo/m.gguf", status=status, headers={"Location": "/renamed/m.gguf"})
    home.add("/renamed/m.gguf", status=status, headers={"Location": storage.url("/blob?signature=a%2Fb")})
    storage.add("/blob", model.read_bytes())
    url = home.url("/repo/m.gguf")
    headers = {"Authorization": "Bearer secret", "X-Token": "secret too", "Range": "bytes=1-2", "accept": "x/y"}
    facts = read(url, headers=headers)
    assert facts["path"] == url
    assert len(storage.requests) > 1
    for _path, sent in home.requests:
        assert (sent["authorization"], sent["x-token"], sent["accept"]) == ("Bearer secret", "secret too", "x/y")
    for path, sent in storage.requests:
        assert path == "/blob?signature=a%2Fb"
        assert "secret" not in str(sent)
        assert sent["range"] != "bytes=1-2"
        assert sent["accept-encoding"] == "identity"


def test_headers_are_for_the_server_of_the_model_alone(new_site, model):
    home, other = new_site(), new_site()
    url = home.add("/m.gguf", model.read_bytes())
    read(url, other.add("/d.gguf", model.read_bytes()), headers={"Authorization": "Bearer secret"})
    assert all("secret" in str(sent) for _path, sent in home.requests)
    assert not any("secret" in str(sent) for _path, sent in other.requests)


def test_a_login_in_the_url_is_used_and_not_shown(new_site, gguf_factory):
    home, storage = new_site(), new_site()
    gguf_factory.model(tensors=TENSORS, keys=KEYS, split=1)
    login = "Basic " + base64.b64encode(b"me:p@ss").decode()
    for path in gguf_factory.folder.iterdir():
        storage.add(f"/{path.name}", path.read_bytes())
        home.add(f"/{path.name}", path.read_bytes(), login=login)
    home.add(
        "/m-00002-of-00003.gguf", login=login, status=302, headers={"Location": storage.url("/m-00002-of-00003.gguf")}
    )
    url = home.url("/m-00001-of-00003.gguf").replace("//", "//me:p%40ss@")
    facts = read(url)
    assert "p%40ss" not in json.dumps(facts)
    assert facts["path"] == home.url("/m-00001-of-00003.gguf")
    assert facts["missing"] == []
    assert not any("authorization" in sent for _path, sent in storage.requests)
    with pytest.raises(GgufError) as failure:
        read(url.replace("p%40ss", "wrong"))
    assert "wrong" not in str(failure.value)


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("file:///etc/passwd", "redirects to 'file:///etc/passwd', where nothing can be read"),
        ("", "where nothing can be read"),
        ("/m.gguf", "where nothing can be read"),
        ("/m.gguf?again", "redirects more than 10 times"),
        ("http://[::1", "redirects to 'http://[::1', where nothing"),
        ("http://127.0.0.1:99999/", "where nothing can be read"),
        ("ftp://me:secret@h/m.gguf", "redirects to 'ftp://h/m.gguf', where nothing"),
        ("//me:secret@[::1", "redirects to '//[::1', where nothing"),
    ],
)
def test_redirects_that_lead_nowhere(site, place, sentence):
    url = site.add("/m.gguf", status=302, headers={"Location": place})
    if place.endswith("again"):
        site.pages["/m.gguf"].knobs["headers"]["Location"] = "/n.gguf"
        site.add("/n.gguf", status=302, headers={"Location": "/m.gguf"})
    with pytest.raises(GgufError) as failure:
        read(url)
    assert sentence in str(failure.value)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://127.0.0.1:1/m.gguf", "the connection failed (Connection refused)"),
        ("http://no.such.host.invalid/m.gguf", "the name of the server cannot be looked up"),
        ("http:///m.gguf", "the connection failed (no host given)"),
        ("http://[::1/m.gguf", "this is no URL"),
        ("http://me:secret@h:99999/m.gguf", "this is no URL"),
    ],
)
def test_addresses_without_a_server(url, sentence):
    with pytest.raises(GgufError) as failure:
        read(url)
    assert sentence in str(failure.value)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({"Authorization": "Bearer se\ncret"}, "the value of Authorization holds what HTTP cannot carry"),
        ({"Authorization": "Bearer secret\u20ac"}, "the value of Authorization holds what HTTP cannot carry"),
        ({"Authorization": None}, "'Authorization' is no name of a header with a value"),
        ({"Bad name": "secret"}, "'Bad name' is no name of a header"),
        ({"": "secret"}, "is no name of a header"),
    ],
)
def test_headers_that_http_cannot_carry(headers, sentence):
    with pytest.raises(GgufError) as failure:
        read("http://127.0.0.1:1/m.gguf", headers=headers)
    assert sentence in str(failure.value)
    assert "cret" not in str(failure.value)


@pytest.mark.parametrize(
    "knobs",
    [{"drip": 0.01}, {"silent": 30}, {"ranges": False, "drip": 0.01}, {"at_most": 1, "silent": 0.05}],
)
def test_everything_together_has_a_deadline(site, model, knobs):
    url = site.add("/m.gguf", model.read_bytes(), **knobs)
    started = time.monotonic()
    with pytest.raises(GgufError, match=r"could not be read within 0\.5 s: try again, or set a longer timeout"):
        read(url, timeout=0.5)
    assert time.monotonic() - started < 2


def test_a_server_that_says_nothing_more_is_named(site, model, monkeypatch):
    monkeypatch.setattr(gguf_http, "MAX_SILENCE_SECONDS", 0.2)
    url = site.add("/m.gguf", model.read_bytes(), silent=10)
    with pytest.raises(GgufError, match=r"the server said nothing for 0\.2 s: try again"):
        read(url)


def test_a_server_that_gives_little_is_not_asked_for_ever(site, model, monkeypatch):
    monkeypatch.setattr(gguf_range, "MAX_REQUESTS", 20)
    url = site.add("/m.gguf", model.read_bytes(), at_most=10)
    with pytest.raises(GgufError, match=r"gives too little at once, 20 requests were not enough: take the file"):
        read(url)
    assert len(site.requests) == 20


def test_headers_that_come_drop_by_drop_have_a_deadline(site):
    class Dripping:
        @staticmethod
        def answer(handler):
            for letter in "HTTP/1.0 200 OK\r\n" + "X: y\r\n" * 10000:
                handler.wfile.write(letter.encode())
                time.sleep(0.01)

    site.pages["/m.gguf"] = Dripping
    with pytest.raises(GgufError, match=r"within 0\.3 s"):
        read(site.url("/m.gguf"), timeout=0.3)


class Endless:
    """A file of 2 ** 50 bytes that is made up as it is asked for: a beginning, then one pattern for ever."""

    def __init__(self, head, pattern, ranges):
        self.head, self.block, self.ranges = head, pattern * ((1 << 16) // len(pattern)), ranges

    def answer(self, handler):
        first, last = map(int, handler.headers["Range"][6:].split("-"))
        size = 1 << 50
        if not self.ranges:
            first, last = 0, size - 1
        handler.send_response(206 if self.ranges else 200)
        if self.ranges:
            handler.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        handler.send_header("Content-Length", str(last - first + 1))
        handler.end_headers()
        while first <= last:
            piece = (
                self.head[first:]
                if first < len(self.head)
                else self.block[(first - len(self.head)) % len(self.block) :]
            )
            piece = piece[: last - first + 1]
            handler.wfile.write(piece)
            first += len(piece)


def header(n_keys, body):
    return b"GGUF" + struct.pack("<IQQ", 3, 0, n_keys) + body


def array_of_texts(key, count):
    return text(key) + struct.pack("<IIQ", 9, 8, count)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize(
    ("head", "pattern"),
    [
        pytest.param(header(1, array_of_texts(b"tokenizer.ggml.tokens", 1 << 21)), text(b"x" * 120), id="tokens"),
        pytest.param(
            header(1, array_of_texts(b"tokenizer.ggml.tokens", 1 << 21)), text(b"x" * 65528), id="long tokens"
        ),
        pytest.param(header(1, array_of_texts(b"tokenizer.ggml.merges", 1 << 21)), text(b"x" * 1016), id="merges"),
        pytest.param(header(1, array_of_texts(b"t", 1 << 22)), text(b""), id="empty texts"),
        pytest.param(
            header(1, text(b"tokenizer.ggml.token_type") + struct.pack("<IIQ", 9, 5, 1 << 45)), bytes(4), id="types"
        ),
        pytest.param(header(1, text(b"t") + struct.pack("<IQ", 8, 1 << 49)), b"x", id="a text"),
        pytest.param(header(1 << 40, b""), text(b"k" * 1000) + struct.pack("<IQ", 8, 4) + b"four", id="the same key"),
        pytest.param(
            header(1, text(b"t") + struct.pack("<IIQ", 9, 9, 1 << 20)), struct.pack("<IQ", 9, 1), id="arrays in arrays"
        ),
    ],
)
def test_a_hostile_server_costs_neither_memory_nor_time(site, head, pattern, ranges):
    site.pages["/m.gguf"] = Endless(head, pattern, ranges)
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(GgufError) as failure:
        read(site.url("/m.gguf"), timeout=60)
    assert "within 60 s" not in str(failure.value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20
    assert time.process_time() - started < 10  # the server's own time and the tracing are in it


def test_a_certificate_that_nobody_vouches_for(site, model, self_signed):
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(self_signed)
    site.server.socket = context.wrap_socket(site.server.socket, server_side=True)
    url = site.add("/m.gguf", model.read_bytes()).replace("http:", "https:")
    with pytest.raises(GgufError, match=r"the certificate of the server is not trusted \(.*\): install its CA"):
        read(url)
    assert read(url, send=web_opener(validate_certs=False))["path"] == url


@pytest.fixture
def self_signed(tmp_path):
    """The path of a key and a certificate of its own for 127.0.0.1."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    today = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "server.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.mark.parametrize(
    ("url", "clean", "login"),
    [
        ("HTTPS://h/x?y=1#z", "https://h/x?y=1", None),
        ("http://u@h:8/x", "http://h:8/x", "u:"),
        ("http://u%3a:p%20:q@h/x", "http://h/x", "u::p :q"),
    ],
)
def test_the_login_of_a_url(url, clean, login):
    expected = None if login is None else "Basic " + base64.b64encode(login.encode()).decode()
    assert split_login(url) == (clean, expected)


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("http://h/a b/ä.gguf?x=y z", "http://h/a%20b/%C3%A4.gguf?x=y%20z"),
        ("http://h/a%20b.gguf?x=%2F&y=1", "http://h/a%20b.gguf?x=%2F&y=1"),
        ("http://büro.example/x", "http://xn--bro-hoa.example/x"),
    ],
)
def test_a_url_as_http_carries_it(url, written):
    assert quoted(url) == written
