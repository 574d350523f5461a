# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP side of ``llama-server``: health, slots, properties and one completion.

No proxy of the environment is used: the server is on this machine or in its own network.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

MAX_BODY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Answer:
    """An HTTP answer. ``status`` is None when there was none, and ``error`` then says why."""

    status: int | None
    body: Any
    error: str | None
    refused: bool = False


class Client:
    """Talks to one ``llama-server``. ``timeout`` is in seconds and per request."""

    def __init__(self, url: str, api_key: str = "", timeout: float = 60.0) -> None:
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def request(self, path: str, data: dict[str, Any] | None = None, timeout: float | None = None) -> Answer:
        limit = self.timeout if timeout is None else timeout
        body = None if data is None else json.dumps(data).encode("utf-8")
        request = urllib.request.Request(self.url + path, data=body, headers=self._headers)
        try:
            with self._opener.open(request, timeout=limit) as response:
                return Answer(response.status, _json(response.read(MAX_BODY_BYTES)), None)
        except urllib.error.HTTPError as exc:
            parsed = _json(exc.read(MAX_BODY_BYTES))
            return Answer(exc.code, parsed, f"{path} answered {exc.code}{_message(parsed)}")
        except urllib.error.URLError as exc:
            refused = isinstance(exc.reason, ConnectionRefusedError)
            if isinstance(exc.reason, socket.timeout):
                return Answer(None, None, f"{path} gave no answer within {limit:g} s")
            reason = getattr(exc.reason, "strerror", None) or exc.reason
            return Answer(None, None, f"{path} cannot be reached: {reason}", refused)
        except socket.timeout:
            return Answer(None, None, f"{path} gave no answer within {limit:g} s")
        except (OSError, http.client.HTTPException) as exc:
            return Answer(None, None, f"{path} broke off: {exc or type(exc).__name__}")


def _json(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8", "replace"))
    except ValueError:
        return None


def _message(parsed: Any) -> str:
    """llama-server's own words in an error body."""
    error = parsed.get("error") if isinstance(parsed, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return f": {text}" if text else ""


def read_health(client: Client) -> Answer:
    return client.request("/health", timeout=min(client.timeout, 10.0))


def read_slots(client: Client) -> list[dict[str, Any]]:
    """The slots, each with ``id``, ``n_ctx``, ``speculative``, ``is_processing``; empty when the server hides them."""
    answer = client.request("/slots", timeout=min(client.timeout, 10.0))
    if answer.status != 200 or not isinstance(answer.body, list):
        return []
    keys = ("id", "n_ctx", "speculative", "is_processing")
    return [{key: slot.get(key) for key in keys} for slot in answer.body if isinstance(slot, dict)]


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
    }
    return client.request("/completion", data)


def _text(answer: Answer) -> str | None:
    if answer.status == 200 and isinstance(answer.body, dict) and isinstance(answer.body.get("content"), str):
        return answer.body["content"]
    return None


def empty() -> dict[str, Any]:
    """The result before anything is known."""
    return {
        "state": "down",
        "healthy": False,
        "completion": False,
        "text": None,
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
    result["tokens_per_second"] = timings.get("predicted_per_second")
    result["prompt_tokens_per_second"] = timings.get("prompt_per_second")
    # llama-server names the draft only when it drafted; a completion without these drafted nothing.
    result["draft_n"] = timings.get("draft_n", 0)
    result["draft_n_accepted"] = timings.get("draft_n_accepted", 0)


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
    result["build_info"] = props.get("build_info")
    result["model_path"] = props.get("model_path")
    if slots:
        result["speculative"] = all(bool(slot["speculative"]) for slot in slots)
        result["n_ctx"] = slots[0]["n_ctx"]
    elif isinstance(settings, dict):
        result["n_ctx"] = settings.get("n_ctx")
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
    _fill_timings(result, answer.body.get("timings"))
    return result
