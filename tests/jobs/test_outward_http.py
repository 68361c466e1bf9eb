"""Calls to the outside: where they may go, what comes of each answer, and that nothing of it is unbounded."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from minutebook.commands.jobs import Refused, TryAgain
from minutebook.infra import outward_http
from minutebook.infra.outward_http import (
    MAX_RETRY_AFTER_S,
    MaybeSent,
    OutwardClient,
    is_private,
    is_public,
    retry_after_s,
)
from outside import Mischief, Outside, Reply, huge, lost_before, serving, status

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def receiver() -> Iterator[Outside]:
    with serving(Outside(lambda _: Reply(200))) as outside:
        yield outside


def call(url: str, *, allow_private: bool = True, timeout_s: float = 5, **options: Any) -> Any:
    async def body() -> Any:
        client = OutwardClient(timeout_s, allow_private=allow_private)
        try:
            return await client.call("POST", url, content=b"{}", **options)
        finally:
            await client.close()

    return asyncio.run(body())


PUBLIC = ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"]
PRIVATE = [
    *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "::1", "fd00::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::"),
]
NEVER = [
    *("169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1"),  # noqa: S104
    *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::"),
]  # fmt: skip


def test_addresses_are_public_private_or_never_called() -> None:
    for texts, expected in ((PUBLIC, (True, False)), (PRIVATE, (False, True)), (NEVER, (False, False))):
        found = {
            text: (is_public(ipaddress.ip_address(text)), is_private(ipaddress.ip_address(text))) for text in texts
        }
        assert set(found.values()) == {expected}, found


@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize("address", NEVER)
def test_some_addresses_are_never_called(address: str, allow: bool) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(Refused, match="address_refused"):
        call(f"https://{host}/", allow_private=allow)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "127.1"])
def test_this_machine_is_refused_unless_it_is_allowed(receiver: Outside, host: str) -> None:
    port = receiver.url.rpartition(":")[2]
    for scheme in ("http", "https"):
        with pytest.raises(Refused, match="address_refused"):
            call(f"{scheme}://{host}:{port}/in", allow_private=False)
    assert receiver.requests == []


def test_allowed_it_is_called_by_the_name_that_was_configured(receiver: Outside) -> None:
    port = receiver.url.rpartition(":")[2]
    assert call(f"http://localhost:{port}/in?x=1").status == 200
    (request,) = receiver.requests
    assert (request.path, request.query, request.headers["host"]) == ("/in", {"x": "1"}, f"localhost:{port}")


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Names resolve to these, one list a look-up, the last for ever."""
    asked: list[str] = []

    async def getaddrinfo(_loop: Any, host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port)) for text in found]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return asked


def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to(
    receiver: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that turns to another address between check and connect (DNS rebinding)."""
    asked = resolving(monkeypatch, ["127.0.0.1"], ["169.254.169.254"])
    port = receiver.url.rpartition(":")[2]
    assert call(f"http://hook.example:{port}/").status == 200
    assert asked == ["hook.example"]
    with pytest.raises(Refused, match="address_refused"):
        call(f"http://hook.example:{port}/")


def test_a_name_with_one_refused_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["93.184.216.34", "10.0.0.1"])
    with pytest.raises(Refused, match="address_refused"):
        call("https://hook.example/", allow_private=False)


def test_plain_http_never_leaves_the_private_network(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["93.184.216.34"])
    with pytest.raises(Refused, match="address_refused"):
        call("http://hook.example/", allow_private=True)


def test_an_address_that_does_not_answer_is_passed_over(receiver: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["127.0.0.2", "127.0.0.1"])  # nothing listens on the first
    port = receiver.url.rpartition(":")[2]
    assert call(f"http://hook.example:{port}/").status == 200


def test_a_name_or_port_that_is_not_there_may_come_later() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/", "http://does-not-exist.invalid/"):
        with pytest.raises(TryAgain, match="unreachable") as caught:
            call(url)
        assert not isinstance(caught.value, MaybeSent)


@pytest.mark.parametrize(
    ("mischief", "kind", "reason", "after_s"),
    [
        (status(429), TryAgain, "rate_limited", None),
        (status(429, retry_after="120"), TryAgain, "rate_limited", 120),
        (status(403, retry_after="7"), TryAgain, "rate_limited", 7),
        (status(403, x_ratelimit_remaining="0"), TryAgain, "rate_limited", None),
        (status(408), TryAgain, "http_408", None),
        (status(500), MaybeSent, "server_error", None),
        (status(503, retry_after="3"), MaybeSent, "server_error", 3),
        (status(400), Refused, "http_400", None),
        (status(401), Refused, "http_401", None),
        (status(403), Refused, "http_403", None),
        (status(404), Refused, "http_404", None),
        (status(410), Refused, "http_410", None),
        (status(302, location="http://127.0.0.1:1/elsewhere"), Refused, "redirected", None),
        (status(304), Refused, "redirected", None),
        (lost_before, MaybeSent, "connection_lost", None),
    ],
)
def test_what_comes_of_an_answer(
    receiver: Outside, mischief: Mischief, kind: type[Exception], reason: str, after_s: float | None
) -> None:
    receiver.mischief = [mischief]
    with pytest.raises(kind) as caught:
        call(receiver.url)
    assert type(caught.value) is kind
    assert caught.value.args == (reason,)
    assert getattr(caught.value, "after_s", None) == after_s
    assert len(receiver.requests) == 1, "somebody repeated it, or followed a redirect"


def test_a_slow_answer_is_cut_off(receiver: Outside) -> None:
    go = threading.Event()

    def slow(_request: Any, honest: Any) -> Reply:
        go.wait(20)
        return honest()

    receiver.mischief = [slow]
    began = time.monotonic()
    with pytest.raises(MaybeSent, match="timeout"):
        call(receiver.url, timeout_s=0.5)
    assert time.monotonic() - began < 5
    go.set()


def test_of_a_body_no_more_is_read_than_is_wanted(receiver: Outside) -> None:
    receiver.mischief = [huge, huge]
    assert call(receiver.url).body == b""
    with pytest.raises(Refused, match="answer_too_large"):
        call(receiver.url, max_bytes=1 << 20)


def test_a_compressed_body_is_not_inflated(receiver: Outside) -> None:
    receiver.mischief = [lambda _, __: Reply(200, b"x", {"content-encoding": "gzip"})]
    with pytest.raises(Refused, match="answer_unreadable"):
        call(receiver.url, max_bytes=100)
    assert receiver.requests[0].headers["accept-encoding"] == "identity"


def test_a_proxy_of_the_environment_sees_nothing(receiver: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert call(receiver.url).status == 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("120", 120),
        (" 0 ", 0),
        ("1000000000", MAX_RETRY_AFTER_S),
        ("9" * 5000, MAX_RETRY_AFTER_S),
        ("Fri, 02 Jan 2026 03:05:05 GMT", 60),
        ("Fri, 02 Jan 2026 03:00:00 GMT", 0),
        ("Fri, 02 Jan 2099 03:00:00 GMT", MAX_RETRY_AFTER_S),
        ("abc", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("٣", None),
    ],
)
def test_b69_retry_after_in_every_form(text: str | None, expected: float | None) -> None:
    assert retry_after_s(text, NOW) == expected


def test_the_transport_is_the_one_that_checks() -> None:
    async def body() -> None:
        client = OutwardClient(1, allow_private=True)
        inner = client._client
        assert isinstance(inner._transport, outward_http._Checked)
        assert inner._mounts == {}
        assert not inner.follow_redirects
        await client.close()
        assert isinstance(inner, httpx.AsyncClient)

    asyncio.run(body())
