"""The group commit: everything that is ready to append at one moment goes to the database in one call."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psycopg
from msgspec import Struct
from psycopg_pool import AsyncConnectionPool

from ...commands.ports import Append, Outcome
from ...domain.errors import MinutebookError
from .append_call import send, settle
from .direct import DirectSession
from .errors import NO_CONNECTION, TRANSIENT, is_data_error, is_lost_connection, translate, unavailable
from .pool import renew_if_read_only

MAX_BATCH_EVENTS = 500
"""Events in one call, unless one group alone has more."""

MAX_BATCH_GROUPS = 256
MAX_QUEUED_GROUPS = 8192
"""Groups that may wait; beyond it callers get a 503."""

MAX_TRIES = 4
"""Times that a batch is sent when the connection broke, a deadlock was found or the like."""

BACKOFF_S = (0.05, 0.25, 1.0)

WORTH_A_SECOND = 32
"""Groups that must wait before a second writer takes some beside the first: smaller batches cost more than they win."""

MAX_PASSED_OVER = 64
"""Groups that one look at the queue passes over, since their streams or keys are under way."""


class _Group(Struct):
    items: Sequence[Append]
    answer: asyncio.Future[list[Outcome]]
    events: int
    keys: list[tuple[str, ...]]

    def streams(self) -> set[str]:
        """The names of the streams that the group appends to, and of those whose leases it stands on: two batches that
        lock the same rows in different order would wait for each other."""
        own = {item.stream for item in self.items}
        return own | {item.fence.stream for item in self.items if item.fence is not None and item.fence.stream}


class Appender:
    """Any number of callers, a few writers. `append` may be cancelled: what was sent is still stored.

    A writer has one connection of the pool, kept, and one batch under way; what comes meanwhile waits and goes
    together. A second one steps in where so much waits that two batches at once beat one larger one, and leaves the
    streams of the first alone: the events of a stream arrive in the order in which they were given.
    """

    def __init__(
        self,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]],
        *,
        writers: int = 2,
        notify: bool = True,
        told: Callable[[float, str | None], None] | None = None,
    ) -> None:
        """told: hears of each append how many seconds it took, and the code of its error."""
        self._told = told
        self._writers = [_Writer(pool, notify=notify) for _ in range(writers)]
        self._queue: deque[_Group] = deque()
        self._ready = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self._under_way: set[str] = set()
        self._busy = 0

    @property
    def waiting(self) -> int:
        """Groups that wait for the next call."""
        return len(self._queue)

    def start(self) -> None:
        """Start the writers on the running loop."""
        self._tasks = [
            asyncio.create_task(self._write(writer), name=f"appender-{n}") for n, writer in enumerate(self._writers)
        ]

    async def close(self) -> None:
        """Write what is queued, then stop."""
        self._closing = True
        self._ready.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(writer.close() for writer in self._writers))

    async def abort(self) -> None:
        """Cancel what is under way and refuse what waits: a statement that has not committed by now never will."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        _refuse(self._queue, unavailable("The server is stopping; try again, with the same idempotency key."))
        self._queue.clear()
        await asyncio.gather(*(writer.close(is_broken=True) for writer in self._writers))

    async def append(self, items: Sequence[Append]) -> list[Outcome]:
        """One outcome an item, in order. The items of one call go in one transaction, unless two of them have one key:
        the second then goes in the next, where it finds the first one's answer (rules.md, law 3).

        Raises Unavailable, Invalid, Conflict, Damaged for the whole call.
        """
        if self._told is None:
            return await self._append(items)
        began = time.perf_counter()
        try:
            outcomes = await self._append(items)
        except MinutebookError as error:
            self._told(time.perf_counter() - began, error.code)
            raise
        self._told(time.perf_counter() - began, None)
        return outcomes

    async def _append(self, items: Sequence[Append]) -> list[Outcome]:
        if self._closing or len(self._queue) >= MAX_QUEUED_GROUPS:
            raise unavailable("The server is busy or stopping; try again, with the same idempotency key.")
        parts = [items] if len(items) < 2 else _parts(items)
        if len(parts) == 1:
            return await self._put(items)
        answers = [self._put(part) for part in parts]
        return [outcome for answer in answers for outcome in await answer]

    def _put(self, items: Sequence[Append]) -> asyncio.Future[list[Outcome]]:
        """Queue a group; the future may be cancelled by whoever waits for it."""
        keys = [item.key.place for item in items if item.key is not None]
        count = sum(len(item.events) for item in items)
        group = _Group(items, asyncio.get_running_loop().create_future(), count, keys)
        self._queue.append(group)
        if self._busy == 0 or len(self._queue) >= WORTH_A_SECOND:
            self._ready.set()
        return group.answer

    async def _write(self, writer: _Writer) -> None:
        while True:
            groups = self._take()
            if not groups:
                if self._closing and not self._queue:
                    return
                self._ready.clear()
                await self._ready.wait()
                continue
            streams = {name for group in groups for name in group.streams()}
            self._under_way |= streams
            self._busy += 1
            try:
                await self._send(writer, groups)
            finally:
                self._busy -= 1
                self._under_way -= streams
                self._ready.set()

    def _take(self) -> list[_Group]:
        """The next batch, empty where the writers under way are enough.

        Of a long queue half, so that the other writer has the other half. Two items never share a key: the second
        waits, and finds the first one's answer. What must wait keeps its place, and what follows it of its stream waits
        with it.
        """
        waiting = len(self._queue)
        if self._busy and waiting < WORTH_A_SECOND:
            return []
        most = MAX_BATCH_GROUPS if waiting < 2 * WORTH_A_SECOND else min(MAX_BATCH_GROUPS, (waiting + 1) // 2)
        taken: list[_Group] = []
        later: list[_Group] = []
        barred = set(self._under_way)
        keys: set[tuple[str, ...]] = set()
        events = 0
        while self._queue and len(taken) < most and len(later) < MAX_PASSED_OVER:
            group = self._queue[0]
            if taken and events + group.events > MAX_BATCH_EVENTS:
                break
            self._queue.popleft()
            if (barred and not barred.isdisjoint(group.streams())) or not keys.isdisjoint(group.keys):
                barred |= group.streams()
                later.append(group)
                continue
            keys.update(group.keys)
            events += group.events
            taken.append(group)
        self._queue.extendleft(reversed(later))
        return taken

    async def _send(self, writer: _Writer, groups: list[_Group]) -> None:
        try:
            outcomes = await writer.send([item for group in groups for item in group.items])
        except asyncio.CancelledError:
            _refuse(groups, unavailable("The server is stopping; try again, with the same idempotency key."))
            raise
        except Exception as error:  # noqa: BLE001 - every caller must get its answer, whatever went wrong
            if len(groups) > 1 and is_data_error(error):
                for group in groups:
                    await self._send(writer, [group])
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


class _Writer:
    """One connection, kept from batch to batch, and another one where it is lost."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]], *, notify: bool) -> None:
        self._pool = pool
        self._notify = notify
        self._session: DirectSession | None = None

    async def send(self, items: list[Append]) -> list[Outcome]:
        """One outcome an item; sent again where the connection broke. Raises what psycopg and the pool raise."""
        in_doubt = False
        for attempt in range(MAX_TRIES):
            try:
                session = await self._open()
                outcomes = await send(session, items, notify=self._notify)
                return await settle(session, items, outcomes) if in_doubt else outcomes
            except BaseException as error:
                lost = is_lost_connection(error)
                # A session that began while the database took no writes never does (fault B81).
                if lost or isinstance(error, asyncio.CancelledError | psycopg.errors.ReadOnlySqlTransaction):
                    await self.close(is_broken=True)
                await renew_if_read_only(self._pool, error)
                if not lost and getattr(error, "sqlstate", None) not in TRANSIENT:
                    raise
                if attempt == MAX_TRIES - 1:
                    raise
                in_doubt = in_doubt or lost
                await asyncio.sleep(BACKOFF_S[attempt])
        raise AssertionError("unreachable")

    async def close(self, *, is_broken: bool = False) -> None:
        """Give the connection back to the pool, or up."""
        session, self._session = self._session, None
        if session is not None:
            await session.close(is_broken=is_broken)

    async def _open(self) -> DirectSession:
        """The writer's connection, another where the database closed it while nothing was under way."""
        if self._session is not None and not self._session.is_usable:
            await self.close(is_broken=True)
        if self._session is None:
            self._session = await DirectSession.open(self._pool)
        return self._session


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
