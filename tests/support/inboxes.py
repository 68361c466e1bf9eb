"""Deliveries to the inbox of a running server, sent from here, and what its clients get of them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from typing import Any, TypeVar

import httpx
from delivery_desk import PAYLOAD_KEY, Desk, desk_of
from live_server import Frame, LiveServer, Stream
from minutebook.commands.deliveries.planning import Said, Wanted
from minutebook.commands.ports import no_redaction
from minutebook.domain.channels.messages import Address
from minutebook.infra.channels.setup import SHAPES
from minutebook.infra.channels.web import WebChannel
from minutebook.infra.codecs import PayloadCodec
from minutebook.infra.postgres.inbox import PostgresInbox
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.settings_channels import ChannelSettings

NAME = "inbox"
DAY_S = 86_400

T = TypeVar("T")
_numbers = itertools.count(1)


@contextlib.asynccontextmanager
async def _desk(server: LiveServer, tenant: str, ttl_s: int) -> AsyncGenerator[tuple[Desk, PostgresInbox]]:
    url = server.database_url("app")
    async with make_pool(url, "app", max_size=4, statement_timeout_ms=10_000) as pool:
        rows = PostgresInbox(pool, PayloadCodec(SHAPES, [PAYLOAD_KEY], no_redaction), ttl_s)
        channel = WebChannel(NAME, ChannelSettings(kind="web", tenant=tenant), rows)
        async with desk_of(url, {NAME: channel}) as desk:
            yield desk, rows


def at_desk(
    server: LiveServer,
    work: Callable[[Desk, PostgresInbox], Awaitable[T]],
    tenant: str = "default",
    ttl_s: int = 30 * DAY_S,
) -> T:
    """What `work` gives, at a desk with a web channel of the tenant."""

    async def go() -> T:
        async with _desk(server, tenant, ttl_s) as (desk, rows):
            return await work(desk, rows)

    return asyncio.run(go())


def wish(talk: str | None, turn: int | None, *texts: str, to: str = "human:alice", tenant: str = "default") -> Wanted:
    """A delivery to somebody's inbox, a part a text; the first one of several is the question."""
    kinds = ["reply"] if len(texts) == 1 else ["echo", *["reply"] * (len(texts) - 1)]
    parts = tuple(Said(kind, text) for kind, text in zip(kinds, texts, strict=True))  # pyright: ignore[reportArgumentType]
    number = next(_numbers)
    about: dict[str, Any] = {} if talk is None else {"conversation_id": talk, "turn": turn}
    return Wanted(tenant, NAME, Address(NAME, to), parts, f"inbox-{number}", f"corr-{number}", **about)


def deliver(server: LiveServer, *wishes: Wanted, **options: Any) -> list[str]:
    """Plan and send; the ids, in order."""

    async def work(desk: Desk, _: PostgresInbox) -> list[str]:
        ids = [(await desk.planner.plan([each]))[0] for each in wishes]
        await desk.drain(times=len(wishes) + 1)
        return ids

    tenant = wishes[0].tenant if wishes else "default"
    return at_desk(server, work, tenant, **options)


def inbox(client: httpx.Client, **query: Any) -> dict[str, Any]:
    """A page of the caller's inbox."""
    answer = client.get("/v1/inbox", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def acknowledge(client: httpx.Client, delivered: Sequence[str] = (), observed: Sequence[str] = ()) -> int:
    """How many of it were new."""
    answer = client.post("/v1/inbox/ack", json={"delivered": list(delivered), "observed": list(observed)})
    assert answer.status_code == 200, answer.text
    return answer.json()["applied"]


@contextlib.contextmanager
def following(client: httpx.Client, last_event_id: str | None = None, **query: Any) -> Generator[Stream]:
    """An open stream of the caller's inbox."""
    headers = {} if last_event_id is None else {"last-event-id": last_event_id}
    with client.stream("GET", "/v1/inbox/stream", params=query, headers=headers) as response:
        if response.status_code != 200:
            response.read()
        assert response.status_code == 200, response.text
        yield Stream(response)


def items(stream: Stream, count: int) -> list[Frame]:
    """The next `count` frames that are neither comments nor `retry`."""
    found: list[Frame] = []
    while len(found) < count:
        frame = stream.next()
        if frame.event not in (":", "retry"):
            found.append(frame)
    return found
