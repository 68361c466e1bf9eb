"""Calls to the outside: the address is checked where it is connected to, no redirects, bounded in time and size."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import ipaddress
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx

from ..commands.jobs import Refused, TryAgain
from .bounded_body import BodyTooLarge, CompressedBody, read_bounded

MAX_CONNECTIONS = 20
"""Calls at once of one service, where nothing else is said."""

MAX_RETRY_AFTER_S = 3600
"""A longer Retry-After is taken for this."""

DRAINED_BYTES = 4096
DRAIN_S = 0.5
"""A body that nobody wants is read where it is so short and comes so fast, for the next call on its connection."""

AGAIN = frozenset({408, 425, 429})
"""Client errors that pass by themselves; so do all of 500 and above."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Answer(NamedTuple):
    """What came back. body: at most what was asked for; empty where nothing was."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}


class MaybeSent(TryAgain):
    """TryAgain, where the other side may have done what it was asked to."""


class OutwardClient:
    """Calls one configured service. `allow_private`: it may be on this machine or in a private network; else only
    public addresses are connected to, and only by https. Proxies of the environment are not used: what is behind one
    could not be checked."""

    def __init__(
        self, timeout_s: float, *, allow_private: bool, max_connections: int = MAX_CONNECTIONS, keep_s: float = 0
    ) -> None:
        """keep_s: how long a connection is kept for another call; only where the same call twice does no harm."""
        self._timeout_s = timeout_s
        self._keeps = keep_s > 0
        self._client = httpx.AsyncClient(
            transport=_Checked(allow_private=allow_private, max_connections=max_connections, keep_s=keep_s),
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=False,
            headers={"Accept-Encoding": "identity", "User-Agent": "minutebook"},
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def call(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        max_bytes: int = 0,
    ) -> Answer:
        """One request. max_bytes: how much of the answer's body is wanted.

        Raises MaybeSent or TryAgain (`unreachable`, `timeout`, `connection_lost`, `rate_limited`, `server_error`), and
        Refused (`address_refused`, `redirected`, `http_<status>`, `answer_too_large`, `answer_unreadable`).
        """
        answer = await self.ask(method, url, headers=headers, content=content, max_bytes=max_bytes, only_below=300)
        _classify(answer)
        return answer

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        max_bytes: int = 0,
        only_below: int = 600,
        timeout_s: float | None = None,
    ) -> Answer:
        """One request and its answer, whatever the status. only_below: of other statuses no body is read.

        Raises TryAgain where the request was not written (`unreachable`, `timeout`), MaybeSent where it may have been
        (`timeout`, `connection_lost`), and Refused (`address_refused`, and `answer_too_large`, `answer_unreadable`
        of an answer that came).
        """
        is_written = False

        async def trace(event: str, _info: Mapping[str, Any]) -> None:
            nonlocal is_written
            is_written = is_written or event.endswith("send_request_headers.started")

        limit_s = self._timeout_s if timeout_s is None else timeout_s
        timeout = httpx.Timeout(limit_s).as_dict()
        request = self._client.build_request(
            method, url, headers=headers, content=content, extensions={"trace": trace, "timeout": timeout}
        )
        try:
            async with asyncio.timeout(limit_s):
                answer = await self._client.send(request, stream=True)
                try:
                    is_wanted = max_bytes > 0 and answer.status_code < only_below
                    body = await read_bounded(answer, max_bytes) if is_wanted else b""
                    if self._keeps and not is_wanted:
                        await _drained(answer)
                    return Answer(answer.status_code, body, answer.headers)
                finally:
                    await answer.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise TryAgain("unreachable") from None
        except (TimeoutError, httpx.TimeoutException):
            raise (MaybeSent("timeout") if is_written else TryAgain("timeout")) from None
        except (httpx.DecodingError, CompressedBody):
            raise Refused("answer_unreadable") from None
        except BodyTooLarge:
            raise Refused("answer_too_large") from None
        except httpx.RequestError:
            raise (MaybeSent("connection_lost") if is_written else TryAgain("unreachable")) from None


async def _drained(answer: httpx.Response) -> None:
    """Read a short body that nobody wants, without which a connection is of no further use; nothing hangs on it."""
    length = answer.headers.get("content-length", "")
    if not (length.isascii() and length.isdecimal() and len(length) < 6 and int(length) <= DRAINED_BYTES):
        return
    with contextlib.suppress(TimeoutError, httpx.RequestError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in answer.aiter_raw():
                pass


def _classify(answer: Answer) -> None:
    status = answer.status
    if status < 200 or status >= 600:
        raise Refused("answer_unreadable")
    if status < 300:
        return
    after_s = retry_after_s(answer.headers.get("retry-after"), datetime.now(UTC))
    is_limited = status == 403 and (after_s is not None or answer.headers.get("x-ratelimit-remaining") == "0")
    if status in AGAIN or is_limited:
        raise TryAgain("rate_limited" if status in (429, 403) else f"http_{status}", after_s)
    if status >= 500:
        raise MaybeSent("server_error", after_s)
    raise Refused("redirected" if status < 400 else f"http_{status}")


def retry_after_s(text: str | None, now: datetime) -> float | None:
    """A Retry-After header in seconds from now, 0 to MAX_RETRY_AFTER_S; None where it says nothing."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        return float(min(int(text.strip()[:10]), MAX_RETRY_AFTER_S))
    try:
        at = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return min(max((at - now).total_seconds(), 0.0), float(MAX_RETRY_AFTER_S))


class _Checked(httpx.AsyncBaseTransport):
    """Resolves a name once, checks what it means, and connects to exactly that: a name that means something else a
    moment later (DNS rebinding) changes nothing."""

    def __init__(self, *, allow_private: bool, max_connections: int, keep_s: float) -> None:
        self._allow_private = allow_private
        # A connection that is kept may be closed by the other side at the moment of its next use, and then nobody knows
        # what became of the request.
        limits = httpx.Limits(
            max_connections=max_connections,
            max_keepalive_connections=max_connections if keep_s else 0,
            keepalive_expiry=keep_s,
        )
        self._inner = httpx.AsyncHTTPTransport(trust_env=False, limits=limits)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See httpx."""
        host = request.url.raw_host.decode("ascii")
        addresses = await resolve(host, request.url.port or (443 if request.url.scheme == "https" else 80))
        if not all(self._is_allowed(address, request.url.scheme) for address in addresses):
            raise Refused("address_refused")
        failure: httpx.RequestError | None = None
        for address in addresses:
            pinned = httpx.Request(
                request.method,
                request.url.copy_with(host=str(address)),
                headers=request.headers,  # with the name as Host
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._inner.handle_async_request(pinned)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure or httpx.ConnectError("no address")

    def _is_allowed(self, address: Address, scheme: str) -> bool:
        if is_public(address):
            return scheme == "https"
        return self._allow_private and is_private(address)

    async def aclose(self) -> None:
        """See httpx."""
        await self._inner.aclose()


async def resolve(host: str, port: int) -> list[Address]:
    """Every address of a host. Raises httpx.ConnectError where it has none."""
    try:
        return [ipaddress.ip_address(host.strip("[]"))]
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise httpx.ConnectError("the name does not resolve") from None
    texts = dict.fromkeys(str(sockaddr[0]).partition("%")[0] for *_, sockaddr in found)
    return [ipaddress.ip_address(text) for text in texts]


def is_public(address: Address) -> bool:
    """Whether an address is one of the open internet, also where IPv6 wraps an IPv4 one."""
    inner = _wrapped(address)
    if inner is not None:
        return is_public(inner)
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def is_private(address: Address) -> bool:
    """Whether an address is this machine's or of a private network. Link-local ones are not: cloud machines hand out
    credentials there."""
    inner = _wrapped(address)
    if inner is not None:
        return is_private(inner)
    refused = address.is_link_local or address.is_multicast or address.is_unspecified or address.is_reserved
    return address.is_loopback or not (address.is_global or refused)


def _wrapped(address: Address) -> Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
