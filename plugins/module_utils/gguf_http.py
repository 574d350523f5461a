# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks web servers for parts of files: redirects, logins, a deadline for everything, and one sentence per failure.

The headers that a user gives may hold a secret, whatever their names are. They go to the scheme, host and port that
they were given for, and nowhere else: most model files are answered with a redirect to a host that delivers them.
"""

from __future__ import annotations

import base64
import http.client
import re
import socket
import string
import time
import urllib.error
import urllib.parse
import urllib.request

from ansible_collections.relay.pool.plugins.module_utils import deadline
from ansible_collections.relay.pool.plugins.module_utils.gguf_source import (
    WEB_ADDRESS,
    GgufError,
    MissingFileError,
    loginless,
    shown,
)

MAX_REDIRECTS = 10
# A server that says nothing for so long has gone.
MAX_SILENCE_SECONDS = 30.0
REDIRECTS = (301, 302, 303, 307, 308)
# What this reader says itself.
OWN_HEADERS = frozenset(("range", "accept-encoding", "host", "connection"))

SENTENCES = {
    401: "it wants a login, give headers with an Authorization that may read it, and check the address",
    403: "it does not let us read the file, accept the model's terms on its page and give headers with an Authorization"
    " that may read it; a signed address may have expired",
    407: "the proxy wants a login, put it into the environment variable https_proxy",
    408: "it gave up waiting, try again",
    410: "the file is gone, correct the address",
    429: "it was asked too often, wait a while and try again",
    451: "it may not hand out the file for legal reasons, take it from another place",
}


def origin(url: str) -> tuple:
    """Scheme, host and port of a URL."""
    parts = urllib.parse.urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme.lower())
    return parts.scheme.lower(), (parts.hostname or "").lower(), port


def split_login(url: str) -> tuple:
    """The URL without user and password and without fragment, and the header Authorization that they make, or None."""
    parts = urllib.parse.urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    clean = urllib.parse.urlunsplit((parts.scheme.lower(), host, parts.path, parts.query, ""))
    if not at:
        return clean, None
    user, _colon, password = login.partition(":")
    pair = f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password)}"
    return clean, "Basic " + base64.b64encode(pair.encode("utf-8")).decode("ascii")


def quoted(url: str) -> str:
    """The URL as HTTP carries it: blanks and letters beyond ASCII are written as %XX, what is quoted stays as it is."""
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc if parts.netloc.isascii() else parts.netloc.encode("idna").decode("ascii")
    path, query = (urllib.parse.quote(part, safe=string.punctuation) for part in (parts.path, parts.query))
    return urllib.parse.urlunsplit((parts.scheme, host, path, query, ""))


class _AnyStatus(urllib.request.HTTPErrorProcessor):
    """Hands out every answer as it is: redirects and errors are the session's."""

    def http_response(self, _request, response):
        return response

    https_response = http_response


def web_opener(validate_certs: bool = True):
    """The function that sends one GET: (url, headers, seconds) -> answer with status, headers, read1() and close().

    Proxies are those of the environment variables. Redirects are not followed.
    """
    handlers = [_AnyStatus()]
    try:
        import ssl
    except ImportError:  # a Python without OpenSSL: http is left
        pass
    else:
        context = ssl.create_default_context()
        if not validate_certs:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        handlers.append(urllib.request.HTTPSHandler(context=context))
    director = urllib.request.build_opener(*handlers)
    director.addheaders = []

    def send(url: str, headers: dict, seconds: float):
        return director.open(urllib.request.Request(url, headers=headers), timeout=seconds)

    return send


class Session:
    """Asks for files until its time is over. ``timeout`` is in seconds, for everything together.

    ``headers`` are sent to the origin of ``home``, a URL. ``send`` is what :func:`web_opener` makes.
    """

    def __init__(self, send, timeout: float, headers=None, home: str = "") -> None:
        self._send = send
        self._timeout = timeout
        self._until = time.monotonic() + timeout
        self._headers = self._checked(headers or {})
        self._home = None
        self._logins: dict = {}
        if home:
            self._home = origin(self.without_login(home))

    @staticmethod
    def _checked(headers: dict) -> dict:
        kept = {}
        for name, value in headers.items():
            # Not the value, which may be a secret.
            if not re.match(r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z", str(name)) or value is None:
                raise GgufError(f"headers: {shown(str(name))!r} is no name of a header with a value: correct it.")
            if not re.match(r"^[\t\x20-\x7e\x80-\xff]*\Z", str(value)):
                raise GgufError(f"headers: the value of {name} holds what HTTP cannot carry: correct it.")
            if str(name).lower() not in OWN_HEADERS:
                kept[str(name)] = str(value)
        return kept

    def without_login(self, url: str) -> str:
        """The URL without user and password, which are kept for this server. GgufError for what is no URL."""
        try:
            clean, login = split_login(url)
            server = origin(clean)
            quoted(clean)
        except ValueError as exc:
            # With a login, the words of the exception may be a part of it.
            why = "" if "@" in url else f" ({shown(str(exc))})"
            raise GgufError(
                f"{shown(loginless(url))}: this is no URL{why}: correct it, in a login / ? # and @ are written as %XX."
            ) from exc
        if login:
            self._logins[server] = login
        return clean

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._until

    def seconds_left(self, url: str) -> float:
        """The time that is left; GgufError when there is none."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise self._late(url)
        return left

    def _late(self, url: str) -> GgufError:
        return GgufError(
            f"{url}: the header could not be read within {self._timeout:g} s: try again, or set a longer timeout."
        )

    def _silent(self, url: str) -> GgufError:
        # No answer is waited for longer than all may take.
        if self._until - time.monotonic() < 0.1:
            return self._late(url)
        return GgufError(f"{url}: the server said nothing for {MAX_SILENCE_SECONDS:g} s: try again.")

    def within(self, url: str, function):
        """What ``function`` returns, in the time that is left. It may raise GgufError or whatever the network does."""
        try:
            return deadline.within(self.seconds_left(url), function)
        except deadline.DeadlineError:
            raise self._late(url) from None
        except socket.timeout as exc:
            raise self._silent(url) from exc
        except (OSError, http.client.HTTPException, ValueError) as exc:
            if isinstance(exc, urllib.error.URLError) and isinstance(exc.reason, socket.timeout):
                raise self._silent(url) from exc
            raise GgufError(f"{url}: {_network_sentence(exc)}.") from exc

    def get(self, url: str, span: str = ""):
        """One answer of the status 200, 206 or 416 to a request for the bytes ``span``, after all redirects."""
        current = url
        for _hop in range(MAX_REDIRECTS):
            headers = {"User-Agent": "relay.pool", "Accept": "*/*"}
            server = origin(current)
            if server == self._home:
                headers.update(self._headers)
            if server in self._logins:
                headers["Authorization"] = self._logins[server]
            # A compressed file has other offsets.
            headers["Accept-Encoding"] = "identity"
            if span:
                headers["Range"] = f"bytes={span}"
            answer = self._send(quoted(current), headers, min(self.seconds_left(url), MAX_SILENCE_SECONDS))
            if answer.status not in REDIRECTS:
                break
            answer.close()
            current = self._redirected(url, current, answer)
        else:
            raise GgufError(f"{url}: the server redirects more than {MAX_REDIRECTS} times: correct the address.")
        if answer.status not in (200, 206, 416):
            answer.close()
            raise _status_error(url, answer)
        return answer

    @staticmethod
    def _redirected(url: str, current: str, answer) -> str:
        said = answer.headers.get("Location") or ""
        try:
            place = split_login(urllib.parse.urljoin(current, said))[0]
            if WEB_ADDRESS.match(place) and origin(place)[1] and place != current:
                return place
        except ValueError:
            pass
        raise GgufError(
            f"{url}: the server redirects to '{shown(loginless(said))}', where nothing can be read: correct the"
            " address."
        )


def _status_error(url: str, answer) -> GgufError:
    status = answer.status
    phrase = http.client.responses.get(status, "an unknown status")
    said = f"{url}: the server answers {status} ({phrase}): "
    if status == 404:
        return MissingFileError(said + "it has no such file, correct the address.")
    sentence = SENTENCES.get(status)
    if sentence is None:
        sentence = "try again later" if status >= 500 else "correct the address"
    after = answer.headers.get("Retry-After") or ""
    if re.match(r"^[0-9]{1,6}\Z", after):
        sentence += f"; it says in {after} s"
    return (MissingFileError if status == 410 else GgufError)(said + sentence + ".")


def _network_sentence(exc: Exception) -> str:
    """What a failure of the network means and the way out, without the full stop."""
    reason = exc.reason if isinstance(exc, urllib.error.URLError) else exc
    if isinstance(reason, socket.gaierror):
        return f"the name of the server cannot be looked up ({reason.strerror}): correct the address or the network"
    if type(reason).__name__ == "SSLCertVerificationError":
        why = shown(getattr(reason, "verify_message", "") or str(reason))
        return f"the certificate of the server is not trusted ({why}): install its CA, or set validate_certs to false"
    if isinstance(exc, (ValueError, UnicodeError)) and not isinstance(exc, OSError):
        # Not the words of the exception: they may quote a header.
        return "this is no address that HTTP can ask for: correct it"
    words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return f"the connection failed ({shown(words)}): check the address, the network and the proxy, and try again"
