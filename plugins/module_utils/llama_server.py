# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP side of ``llama-server``: health, slots, properties and one completion.

No proxy of the environment is used: the server is on this machine or in its own network.
"""

from __future__ import annotations

import http.client
import json
import math
import socket
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from ansible_collections.relay.pool.plugins.module_utils import deadline

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_SHOWN_CHARACTERS = 300


@dataclass(frozen=True)
class Answer:
    """An HTTP answer. ``status`` is None when there was none, and ``error`` then says why."""

    status: int | None
    body: Any
    error: str | None
    refused: bool = False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """llama-server never redirects, and the key must not follow whoever does."""

    def redirect_request(self, *_args: Any) -> None:
        return None


class Client:
    """Talks to one ``llama-server``. ``timeout`` is in seconds and per request."""

    def __init__(self, url: str, api_key: str = "", timeout: float = 60.0) -> None:
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())

    def request(self, path: str, data: dict[str, Any] | None = None, timeout: float | None = None) -> Answer:
        """The answer to one request, which takes ``timeout`` seconds at most, however slowly the bytes come."""
        limit = self.timeout if timeout is None else timeout
        try:
            return deadline.within(limit, lambda: self._request(path, data, limit))
        except (deadline.DeadlineError, socket.timeout):
            return Answer(None, None, f"{path} gave no answer within {limit:g} s")
        except urllib.error.URLError as exc:
            refused = isinstance(exc.reason, ConnectionRefusedError)
            if isinstance(exc.reason, socket.timeout):
                return Answer(None, None, f"{path} gave no answer within {limit:g} s")
            reason = getattr(exc.reason, "strerror", None) or exc.reason
            return Answer(None, None, f"{path} cannot be reached: {reason}", refused)
        except (OSError, http.client.HTTPException) as exc:
            return Answer(None, None, f"{path} broke off: {_shown(str(exc) or type(exc).__name__)}")
        except (ValueError, OverflowError):
            # Not the words of the exception: they quote the header with the key.
            return Answer(
                None, None, f"{path} cannot be asked for: the URL or the API key holds what HTTP cannot carry"
            )

    def _request(self, path: str, data: dict[str, Any] | None, timeout: float) -> Answer:
        body = None if data is None else json.dumps(data).encode("utf-8")
        request = urllib.request.Request(self.url + path, data=body, headers=self._headers)
        try:
            response = self._opener.open(request, timeout=timeout)
        except urllib.error.HTTPError as exc:
            response = exc
        with response:
            status, parsed = response.getcode(), _json(response.read(MAX_BODY_BYTES))
        return Answer(status, parsed, None if status == 200 else f"{path} answered {status}{_message(parsed)}")


def _shown(text: str) -> str:
    """What a stranger sent, fit for one line of a message."""
    return repr(text[:MAX_SHOWN_CHARACTERS])[1:-1]


def _json(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _number(value: Any, kind: type = float) -> Any:
    """``value`` where it is a finite number, of whole numbers only for ``int``, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, kind)) or not math.isfinite(value):
        return None
    return value


def _words(value: Any) -> str | None:
    """``value`` where it is a text, without halves of characters, which no JSON of ours could carry."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


def _message(parsed: Any) -> str:
    """llama-server's own words in an error body."""
    error = parsed.get("error") if isinstance(parsed, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return f": {_shown(str(text))}" if text else ""


def read_health(client: Client) -> Answer:
    return client.request("/health", timeout=min(client.timeout, 10.0))


def read_slots(client: Client) -> list[dict[str, Any]]:
    """The slots, each with ``id``, ``n_ctx``, ``speculative``, ``is_processing``; empty when the server hides them."""
    answer = client.request("/slots", timeout=min(client.timeout, 10.0))
    if answer.status != 200 or not isinstance(answer.body, list):
        return []
    return [
        {
            "id": _number(slot.get("id"), int),
            "n_ctx": _number(slot.get("n_ctx"), int),
            "speculative": slot.get("speculative") is True,
            "is_processing": slot.get("is_processing") is True,
        }
        for slot in answer.body
        if isinstance(slot, dict)
    ]


def read_props(client: Client) -> dict[str, Any]:
    answer = client.request("/props", timeout=min(client.timeout, 10.0))
    return answer.body if answer.status == 200 and isinstance(answer.body, dict) else {}


def complete(client: Client, prompt: str, max_tokens: int, temperature: float) -> Answer:
    """One completion. Nothing is taken from an earlier one, so that the timings are those of this request."""
    data = {
        "prompt": prompt,
        "n_predict": max_tokens,
        "temperature": temperature,
        "cache_prompt": False,
        "stream": False,
        "return_tokens": True,
    }
    return client.request("/completion", data)


def _text(answer: Answer) -> str | None:
    return _words(answer.body.get("content")) if answer.status == 200 and isinstance(answer.body, dict) else None


def empty() -> dict[str, Any]:
    """The result before anything is known."""
    return {
        "state": "down",
        "healthy": False,
        "completion": False,
        "text": None,
        "tokens": None,
        "tokens_unsent": None,
        "tokens_per_second": None,
        "prompt_tokens_per_second": None,
        "draft_n": None,
        "draft_n_accepted": None,
        "speculative": None,
        "n_ctx": None,
        "slots": [],
        "build_info": None,
        "model_path": None,
        "error": None,
    }


def _fill_timings(result: dict[str, Any], timings: Any) -> None:
    if not isinstance(timings, dict):
        return
    result["tokens_per_second"] = _number(timings.get("predicted_per_second"))
    result["prompt_tokens_per_second"] = _number(timings.get("prompt_per_second"))
    # llama-server names the draft only when it drafted; a completion without these drafted nothing.
    result["draft_n"] = _number(timings.get("draft_n", 0), int)
    result["draft_n_accepted"] = _number(timings.get("draft_n_accepted", 0), int)


def _fill_tokens(result: dict[str, Any], body: dict[str, Any]) -> None:
    """How many tokens came, and how many more the server counts as generated."""
    sent, timings = body.get("tokens"), body.get("timings")
    counted = _number(timings.get("predicted_n"), int) if isinstance(timings, dict) else None
    # A list that is empty beside a text is of a server that returns none.
    if isinstance(sent, list) and counted is not None and (sent or not counted):
        result.update(tokens=len(sent), tokens_unsent=max(counted - len(sent), 0))


def probe(
    client: Client,
    prompt: str = "The capital of France is",
    max_tokens: int = 32,
    temperature: float = 0.0,
    with_completion: bool = True,
) -> dict[str, Any]:
    """Everything HTTP says. ``/health`` alone proves nothing: it stays 200 after a worker has died.

    ``state`` is ``down`` (no answer), ``loading`` (503), ``ready``, or ``failing`` (answers, but wrongly).
    """
    result = empty()
    health = read_health(client)
    if health.status == 503:
        result.update(state="loading", error=f"{client.url} is still loading the model")
        return result
    if health.status != 200:
        result["state"] = "down" if health.status is None else "failing"
        result["error"] = f"{client.url}{health.error or ' did not answer as llama-server does'}"
        return result
    slots = read_slots(client)
    props = read_props(client)
    settings = props.get("default_generation_settings")
    result.update(state="ready", healthy=True, slots=slots)
    result["build_info"] = _words(props.get("build_info"))
    result["model_path"] = _words(props.get("model_path"))
    if slots:
        result["speculative"] = all(slot["speculative"] for slot in slots)
        result["n_ctx"] = slots[0]["n_ctx"]
    elif isinstance(settings, dict):
        result["n_ctx"] = _number(settings.get("n_ctx"), int)
    if not with_completion:
        return result
    started = time.monotonic()
    answer = complete(client, prompt, max_tokens, temperature)
    text = _text(answer)
    result["completion_seconds"] = round(time.monotonic() - started, 3)
    if text is None:
        problem = answer.error or "/completion answered without a text"
        result.update(state="failing", healthy=False, error=f"{client.url} is healthy but {problem}")
        return result
    result.update(completion=True, text=text)
    _fill_tokens(result, answer.body)
    _fill_timings(result, answer.body.get("timings"))
    return result
