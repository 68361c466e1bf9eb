"""HTTP of the model services, under their official libraries: bytes repaired and bounded, errors told without words."""

from __future__ import annotations

import codecs
import functools
import logging
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import httpx2

from ..outward_http import retry_after_s
from .calling import Failure

MAX_ANSWER_BYTES = 32 << 20
"""Of one answer, framing included."""

MAX_CONNECTIONS = 256
CONNECT_S = 10.0
SEND_S = 30.0

PASSING = frozenset({408, 409, 425, 429})
"""Client errors that pass by themselves; so do all of 500 and above."""

LASTING = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Reasons of a 429 that do not pass."""

STATUS_OF = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
}
"""What an error in mid-stream would have been as an answer."""

_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")


class AnswerTooLarge(Exception):
    """An answer is larger than MAX_ANSWER_BYTES."""


class Unended(Exception):
    """An answer ended before the service said that it is whole."""


def http_client(read_s: float, headers: Mapping[str, str] | None = None) -> httpx2.AsyncClient:
    """For one service. It follows no redirects, so that a key is never sent elsewhere. read_s: longest silence."""
    return httpx2.AsyncClient(
        verify=_trust(),
        timeout=httpx2.Timeout(read_s, connect=CONNECT_S, write=SEND_S, pool=CONNECT_S),
        limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=20),
        headers={"Accept-Encoding": "identity", **(headers or {})},
        event_hooks={"response": [_repair]},
        follow_redirects=False,
    )


@functools.cache
def _trust() -> ssl.SSLContext:
    """Whom https is believed; the libraries' own way to it, once for all agents: it costs a tenth of a second."""
    return httpx2.create_ssl_context()


def quiet(*names: str) -> None:
    """Keep what libraries say of requests out of every log: it has the words of people in it."""
    for name in names:
        logging.getLogger(name).setLevel(logging.WARNING)


async def _repair(response: httpx2.Response) -> None:
    if "content-encoding" not in response.headers:
        response.stream = _Repaired(cast("httpx2.AsyncByteStream", response.stream))


class _Repaired(httpx2.AsyncByteStream):
    """A body as UTF-8: bytes that are none become U+FFFD. The libraries refuse a whole answer for one of them."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise AnswerTooLarge
            yield decoder.decode(chunk).encode()
        yield decoder.decode(b"", final=True).encode()

    async def aclose(self) -> None:
        """See httpx2."""
        await self._inner.aclose()


def failure_of(error: Exception) -> Failure:
    """What went wrong, in our own words: a service's or a library's may hold hosts, keys and what people wrote."""
    if isinstance(error, AnswerTooLarge):
        return Failure(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
    if isinstance(error, Unended):
        return Failure("the answer ended in its middle", passes=True)
    # The two libraries are made alike, and either may be missing: their errors are told by their names.
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "APIStatusError" in kinds:
        return _of_status(error)
    if kinds & {"APITimeoutError", "TimeoutException", "APIConnectionError", "TransportError"}:
        is_silent = bool(kinds & {"APITimeoutError", "TimeoutException"})
        return Failure(f"the service {'was silent for too long' if is_silent else 'cannot be reached'}", passes=True)
    if "APIError" in kinds:
        return _in_stream(getattr(error, "body", None))
    return Failure(f"the answer cannot be read ({type(error).__name__})")


def _of_status(error: Exception) -> Failure:
    response = cast("httpx2.Response", cast("Any", error).response)
    status, code = response.status_code, _code_of(getattr(error, "body", None))
    if status < 400:
        return _in_stream(getattr(error, "body", None))
    passes = status >= 500 or (status in PASSING and code not in LASTING)
    return Failure(
        f"the service answered {status}{f' ({code})' if code else ''}", status, passes, _after_s(response.headers)
    )


def _in_stream(body: Any) -> Failure:
    code = _code_of(body)
    status = STATUS_OF.get(code)
    return Failure(f"the service broke its answer off{f' ({code})' if code else ''}", status, passes=status is not None)


def _code_of(body: Any) -> str:
    """The code or type of an error's body, where it is one word; empty where there is none."""
    found: Any = cast("dict[str, Any]", body).get("error", body) if isinstance(body, dict) else None
    for name in ("code", "type"):
        value: Any = cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
        if isinstance(value, str) and _CODE.fullmatch(value) and value != "error":
            return value
    return ""


def _after_s(headers: httpx2.Headers) -> float | None:
    exact = headers.get("retry-after-ms", "")
    if exact.isascii() and exact.isdigit():
        return int(exact[:10]) / 1000
    return retry_after_s(headers.get("retry-after"), datetime.now(UTC))
