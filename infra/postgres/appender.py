"""The group commit: everything that is ready to append at one moment goes to the database in one call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
import psycopg
from msgspec import UNSET, Struct, UnsetType
from psycopg_pool import AsyncConnectionPool

from ...commands.ports import Append, EventRow, Outcome
from ...domain.errors import MinutebookError
from .errors import NO_CONNECTION, TRANSIENT, is_data_error, is_lost_connection, translate, unavailable
from .pool import renew_if_read_only

T = TypeVar("T")

MAX_BATCH_EVENTS = 500
"""Events in one call, unless one group alone has more."""

MAX_BATCH_GROUPS = 256
MAX_QUEUED_GROUPS = 8192
"""Groups that may wait; beyond it callers get a 503."""

MAX_TRIES = 4
"""Times that a batch is sent when the connection broke, a deadlock was found or the like."""

BACKOFF_S = (0.05, 0.25, 1.0)

_SQL = (
    "SELECT outcome, seq, event_id, chain, ts, bytes, status, body"
    " FROM minutebook.append_v1(%s::text[], %s::json, %s::json, %s, %s)"
)
_SQL_ONE = (
    "SELECT outcome, seq, event_id, chain, ts, bytes, status, body FROM minutebook.append_one_v1("
    "%s, %s, %s, %s, %s, %s::jsonb, %s, %s, %s, %s, %s, %s, %s::text[], %s::text[], %s, %s, %s)"
)
_IS_OURS = (
    "SELECT e.seq FROM minutebook.streams s JOIN minutebook.events e ON e.stream_id = s.id"
    " WHERE s.name = %s AND e.seq = %s AND e.id = %s"
)
_HASH_AT = (
    "SELECT e.id, encode(e.hash, 'hex'), to_char(e.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),"
    " s.bytes - (SELECT coalesce(sum(b.bytes), 0) FROM minutebook.events b WHERE b.stream_id = s.id AND b.seq > e.seq)"
    " FROM minutebook.streams s JOIN minutebook.events e ON e.stream_id = s.id WHERE s.name = %s AND e.seq = %s"
)


class _ItemRow(Struct, rename="camel", omit_defaults=True):
    n: int
    s: int
    expected: int
    count: int
    kind: str | UnsetType = UNSET
    tenant: str | UnsetType = UNSET
    retention: int | UnsetType = UNSET
    seal: bool | UnsetType = UNSET
    fence_purpose: str | UnsetType = UNSET
    fence_holder: str | UnsetType = UNSET
    fence_epoch: int | UnsetType = UNSET
    key_tenant: str | UnsetType = UNSET
    key_caller: str | UnsetType = UNSET
    key_operation: str | UnsetType = UNSET
    key_scope: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    fingerprint: str | UnsetType = UNSET
    status: int | UnsetType = UNSET
    body: Any = UNSET


class _Group(Struct):
    items: Sequence[Append]
    answer: asyncio.Future[list[Outcome]]


class Appender:
    """Any number of callers, a few writers. `append` may be cancelled: what was sent is still stored."""

    def __init__(
        self,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        *,
        writers: int = 1,
        notify: bool = True,
    ) -> None:
        self._pool = pool
        self._writers = writers
        self._notify = notify
        self._queue: deque[_Group] = deque()
        self._ready = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self._encoder = msgspec.json.Encoder()

    @property
    def waiting(self) -> int:
        """Groups that wait for the next call."""
        return len(self._queue)

    def start(self) -> None:
        """Start the writers on the running loop."""
        self._tasks = [asyncio.create_task(self._write(), name=f"appender-{n}") for n in range(self._writers)]

    async def close(self) -> None:
        """Write what is queued, then stop."""
        self._closing = True
        self._ready.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def abort(self) -> None:
        """Cancel what is under way and refuse what waits: a statement that has not committed by now never will."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        _refuse(self._queue, unavailable("The server is stopping; try again, with the same idempotency key."))
        self._queue.clear()

    async def append(self, items: Sequence[Append]) -> list[Outcome]:
        """One outcome an item, in order. The items of one call go in one transaction, unless two of them have one key:
        the second then goes in the next, where it finds the first one's answer (rules.md, law 3).

        Raises Unavailable, Invalid, Conflict, Damaged for the whole call.
        """
        if self._closing or len(self._queue) >= MAX_QUEUED_GROUPS:
            raise unavailable("The server is busy or stopping; try again, with the same idempotency key.")
        loop = asyncio.get_running_loop()
        groups = [_Group(part, loop.create_future()) for part in _parts(items)]
        self._queue.extend(groups)
        self._ready.set()
        outcomes: list[Outcome] = []
        for group in groups:
            outcomes += await asyncio.shield(group.answer)
        return outcomes

    async def _write(self) -> None:
        while True:
            if not self._queue:
                if self._closing:
                    return
                self._ready.clear()
                await self._ready.wait()
                continue
            await self._send(self._take())

    def _take(self) -> list[_Group]:
        """The next batch. Two items never share a key: the second waits, and finds the first one's answer."""
        taken: list[_Group] = []
        later: list[_Group] = []
        keys: set[tuple[str, ...]] = set()
        events = 0
        while self._queue and len(taken) < MAX_BATCH_GROUPS:
            group = self._queue[0]
            size = sum(len(item.events) for item in group.items)
            if taken and events + size > MAX_BATCH_EVENTS:
                break
            self._queue.popleft()
            places = [item.key.place for item in group.items if item.key is not None]
            if not keys.isdisjoint(places):
                later.append(group)
                continue
            keys.update(places)
            events += size
            taken.append(group)
        self._queue.extendleft(reversed(later))
        return taken

    async def _send(self, groups: list[_Group]) -> None:
        try:
            outcomes = await self._call([item for group in groups for item in group.items])
        except asyncio.CancelledError:
            _refuse(groups, unavailable("The server is stopping; try again, with the same idempotency key."))
            raise
        except Exception as error:  # noqa: BLE001 - every caller must get its answer, whatever went wrong
            if len(groups) > 1 and is_data_error(error):
                for group in groups:
                    await self._send([group])
                return
            if isinstance(error, NO_CONNECTION):
                # Who queued up meanwhile would each wait for the pool again, one batch after another.
                groups = [*groups, *self._queue]
                self._queue.clear()
            _refuse(groups, translate(error))
            return
        place = 0
        for group in groups:
            if not group.answer.done():
                group.answer.set_result(outcomes[place : place + len(group.items)])
            place += len(group.items)

    async def _call(self, items: list[Append]) -> list[Outcome]:
        in_doubt = False
        for attempt in range(MAX_TRIES):
            try:
                async with self._pool.connection() as connection:
                    outcomes = await self._execute(connection, items)
                    return await self._settle(connection, items, outcomes) if in_doubt else outcomes
            except Exception as error:
                await renew_if_read_only(self._pool, error)
                lost = is_lost_connection(error)
                if not lost and getattr(error, "sqlstate", None) not in TRANSIENT:
                    raise
                if attempt == MAX_TRIES - 1:
                    raise
                in_doubt = in_doubt or lost
                await asyncio.sleep(BACKOFF_S[attempt])
        raise AssertionError("unreachable")

    async def _execute(self, connection: psycopg.AsyncConnection[Any], items: list[Append]) -> list[Outcome]:
        if len(items) == 1 and _is_plain(items[0]):
            return [await self._execute_one(connection, items[0])]
        streams: dict[str, int] = {}
        rows: list[_ItemRow] = []
        events: list[EventRow] = []
        creates = False
        for n, item in enumerate(items, 1):
            place = streams.setdefault(item.stream, len(streams) + 1)
            creates = creates or item.create is not None
            rows.append(_item_row(n, place, item))
            for k, event in enumerate(item.events, 1):
                event.i = n
                event.k = k
                events.append(event)
        cursor = await connection.execute(
            _SQL,
            (
                list(streams),
                self._encoder.encode(rows).decode(),
                self._encoder.encode(events).decode(),
                creates,
                self._notify,
            ),
            prepare=True,
        )
        return [Outcome(*row) for row in await cursor.fetchall()]

    async def _execute_one(self, connection: psycopg.AsyncConnection[Any], item: Append) -> Outcome:
        """The short path: half the work for a batch of one."""
        event = item.events[0]
        cursor = await connection.execute(
            _SQL_ONE,
            (
                item.stream,
                item.expected,
                event.id,
                event.type,
                event.version,
                bytes(event.payload).decode(),
                event.actor_kind,
                event.actor_id,
                _or_none(event.actor_role),
                _or_none(event.run_id),
                _or_none(event.caused_by),
                event.origin,
                list(event.redactions),
                list(event.classes),
                _or_none(event.origin_client),
                _or_none(event.origin_key),
                self._notify,
            ),
            prepare=True,
        )
        return Outcome(*(await cursor.fetchall())[0])

    async def _settle(
        self, connection: psycopg.AsyncConnection[Any], items: list[Append], outcomes: list[Outcome]
    ) -> list[Outcome]:
        """After a lost answer: tell a refusal by our own first try from a refusal by somebody else's append."""
        settled = list(outcomes)
        for n, (item, outcome) in enumerate(zip(items, outcomes, strict=True)):
            if outcome.kind in ("appended", "key_reused") or not item.events:
                continue
            first = await connection.execute(_IS_OURS, (item.stream, item.expected + 1, item.events[0].id))
            if await first.fetchone() is None:
                continue
            last = item.expected + len(item.events)
            row = await (await connection.execute(_HASH_AT, (item.stream, last))).fetchone()
            if row is not None:
                id_, chain, ts, size = row
                settled[n] = Outcome("appended", last, id_, chain, ts, int(size), outcome.status, outcome.body)
        return settled


def _refuse(groups: Iterable[_Group], error: MinutebookError) -> None:
    for group in groups:
        if not group.answer.done():
            group.answer.set_exception(error)
            group.answer.exception()  # a caller that went away retrieves nothing; that is no defect


def _parts(items: Sequence[Append]) -> list[Sequence[Append]]:
    """The items cut before each one whose key stands in the part already."""
    parts: list[Sequence[Append]] = []
    start = 0
    keys: set[tuple[str, ...]] = set()
    for n, item in enumerate(items):
        if item.key is not None:
            if item.key.place in keys:
                parts.append(items[start:n])
                start = n
                keys.clear()
            keys.add(item.key.place)
    return [*parts, items[start:]]


def _item_row(n: int, place: int, item: Append) -> _ItemRow:
    row = _ItemRow(n, place, item.expected, len(item.events))
    if item.create is not None:
        row.kind, row.tenant, row.retention = item.create.kind, item.create.tenant, item.create.retention_days
    if item.seal:
        row.seal = True
    if item.fence is not None:
        row.fence_purpose, row.fence_holder = item.fence.purpose, item.fence.holder
        row.fence_epoch = item.fence.epoch
    if item.key is not None:
        row.key_tenant, row.key_caller, row.key_operation, row.key_scope, row.key = item.key.place
        row.fingerprint, row.status, row.body = item.key.fingerprint, item.key.status, item.key.answer
    return row


def _is_plain(item: Append) -> bool:
    return len(item.events) == 1 and item.key is None and item.fence is None and item.create is None and not item.seal


def _or_none(value: T | UnsetType) -> T | None:
    return None if value is UNSET else value
