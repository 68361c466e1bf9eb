"""Calls of the server's HTTP interface: problems as errors, bounded retries of what may be sent twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import msgspec

from .settings import is_loopback

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0
"""Longest wait for an answer; a command's own deadline is shorter (limits.commandDeadlineMs)."""

GIVE_UP_S = 60.0
"""A call that was not answered for this long, retries included, fails."""

FIRST_RETRY_S = 0.2
LONGEST_RETRY_S = 5.0
"""Waits before a retry double from the first to the longest; a Retry-After inside of it is kept."""

RETRIED = frozenset({429, 502, 503, 504})
"""What passes by itself: the request may be sent again as it was."""

MAX_DETAIL_CHARS = 500

TokenSource = Callable[[], str]
"""Called for every request, so that a long run never sends a token that has expired meanwhile."""


class Refused(Exception):
    """The server answered with a problem. `code` is that of http.md, empty where the answer was no problem document."""

    def __init__(self, status: int, code: str, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.retry_after_s = retry_after_s

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in RETRIED


class Unreachable(Exception):
    """No answer came; the message names the server and says what to do."""


class _Problem(msgspec.Struct, rename="camel"):
    code: str = ""
    detail: str = ""
    title: str = ""


_problem = msgspec.json.Decoder(_Problem)


def make_client(url: str) -> httpx.AsyncClient:
    """A client of the server at `url`. Raises ValueError where it is not an http or https URL."""
    host = _host(url)
    if host is None:
        raise ValueError(f"{url} is not the URL of a server, such as http://127.0.0.1:8080.")
    timeout = httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    # The variables for the way out of this machine must not send a call to itself there.
    return httpx.AsyncClient(base_url=url, timeout=timeout, trust_env=not is_loopback(host))


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.scheme in ("http", "https") and parts.port != 0 else None
    except ValueError:  # a port that is none
        return None


def refusal_of(response: httpx.Response, body: bytes) -> Refused:
    """The error that an answer other than 2xx stands for."""
    try:
        found = _problem.decode(body)
    except msgspec.MsgspecError:
        found = _Problem()
    detail = found.detail or found.title or f"The server answered {response.status_code} {response.reason_phrase}."
    after = response.headers.get("retry-after", "")
    return Refused(
        response.status_code, found.code, detail[:MAX_DETAIL_CHARS], float(after) if after.isdecimal() else None
    )


def unreachable(client: httpx.AsyncClient, error: httpx.TransportError) -> Unreachable:
    """What to say where no answer came."""
    where = str(client.base_url).rstrip("/")
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return Unreachable(f"No server answers at {where}; start it with `minutebook serve`, or give another --url.")
    return Unreachable(f"The connection to {where} was lost ({type(error).__name__}); try again.")


def backoff_s(tries: int, longest_s: float = LONGEST_RETRY_S) -> float:
    """The wait before try `tries` (from 1), with jitter so that clients of one server do not come back together."""
    return min(longest_s, FIRST_RETRY_S * 2 ** min(tries - 1, 16)) * random.uniform(0.8, 1.2)  # noqa: S311 - jitter


class Api:
    """Calls of one principal. `give_up_s` bounds the retries of one call, all told."""

    def __init__(self, client: httpx.AsyncClient, token: TokenSource, *, give_up_s: float = GIVE_UP_S) -> None:
        self.client = client
        self.token = token
        self._give_up_s = give_up_s
        self._was_answered = False

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        params: Mapping[str, str | int] | None = None,
    ) -> dict[str, Any]:
        """The answer's object. Only for what may be sent twice: reads, keyed commands, pushes with their own numbers.

        A lost connection and a passing refusal are retried with a growing wait; a server that never answered is not.
        Raises Refused and Unreachable.
        """
        headers = {"authorization": f"Bearer {self.token()}"}
        if key is not None:
            headers["idempotency-key"] = key
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._give_up_s
        tries = 0
        while True:
            tries += 1
            try:
                return await self._once(method, path, body, headers, params)
            except httpx.TransportError as error:
                failure: Exception = unreachable(self.client, error)
                wait_s = backoff_s(tries)
                passes = self._was_answered
            except Refused as refused:
                failure, passes = refused, refused.is_passing
                wait_s = min(refused.retry_after_s or backoff_s(tries), LONGEST_RETRY_S)
            if not passes or loop.time() + wait_s > deadline:
                raise failure
            await asyncio.sleep(wait_s)

    async def _once(
        self, method: str, path: str, body: Any, headers: dict[str, str], params: Mapping[str, str | int] | None
    ) -> dict[str, Any]:
        content = None if body is None else msgspec.json.encode(body)
        if content is not None:
            headers = headers | {"content-type": "application/json"}
        response = await self.client.request(method, path, content=content, headers=headers, params=params)
        self._was_answered = True
        if not response.is_success:
            raise refusal_of(response, response.content)
        try:
            answer = msgspec.json.decode(response.content)
        except msgspec.MsgspecError:
            answer = None
        if not isinstance(answer, dict):
            raise Refused(response.status_code, "", "The answer is not JSON; is this a Minutebook server?")
        return cast("dict[str, Any]", answer)
