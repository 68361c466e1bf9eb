"""Where the deltas of running replies go: to viewers of this process at once, to all others in one batch a tick."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from ..commands.conversations.ports import Delta, DeltaTable
from ..domain.errors import MinutebookError

TICK_S = 0.04
"""Between two batches; the first delta of an attempt waits for none."""

RETRY_S = 0.5
"""Before the next batch, where the database did not take one."""

MAX_PENDING_CHARS = 8 * 1024 * 1024
"""Deltas that wait for a batch, in code points; what is over it reaches viewers of this process only."""

MAX_BATCH = 2000
"""Rows of one batch."""

Heard = Callable[[Delta], None]
"""Called for each delta of a stream, on the loop. It must not wait and must not raise."""

_Attempt = tuple[int, int, int]

log = structlog.get_logger(__name__)


class Deltas:
    """DeltaSink of commands/conversations/ports.py. One per process. dropped: deltas that other processes never get."""

    def __init__(self, table: DeltaTable, tick_s: float = TICK_S) -> None:
        self._table = table
        self._tick_s = tick_s
        self._viewers: dict[int, set[Heard]] = {}
        self._pending: dict[_Attempt, list[Delta]] = {}
        self._pending_chars = 0
        self._begun: set[_Attempt] = set()
        self._over: dict[int, int] = {}
        self._some = asyncio.Event()
        self._urgent = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0

    def start(self) -> None:
        """Begin to write batches on the running loop."""
        self._task = asyncio.create_task(self._write_for_ever(), name="deltas")

    async def close(self) -> None:
        """Stop; what waits is written once more, if the database takes it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(MinutebookError):
            await self._write()

    def subscribe(self, stream_id: int, heard: Heard) -> Callable[[], None]:
        """Hear the deltas of a conversation's turns that run in this process. What it gives ends it."""
        self._viewers.setdefault(stream_id, set()).add(heard)

        def end() -> None:
            viewers = self._viewers.get(stream_id, set())
            viewers.discard(heard)
            if not viewers:
                self._viewers.pop(stream_id, None)

        return end

    def put(self, delta: Delta) -> None:
        """See DeltaSink.put."""
        self._tell(delta)
        self._keep(delta)

    def began(self, stream_id: int, turn: int, attempt: int, epoch: int) -> None:
        """See DeltaSink.began: a delta without text."""
        delta = Delta(stream_id, turn, attempt, 0, "", epoch)
        self._tell(delta)
        self._keep(delta)

    async def ended(self, stream_id: int, turn: int) -> None:
        """See DeltaSink.ended. The rows go with the next batch."""
        for attempt in [each for each in self._pending if each[0] == stream_id and each[1] <= turn]:
            self._pending_chars -= sum(len(each.text) for each in self._pending.pop(attempt))
        self._begun = {each for each in self._begun if each[0] != stream_id}
        self._over[stream_id] = max(turn, self._over.get(stream_id, 0))
        self._some.set()

    def _tell(self, delta: Delta) -> None:
        for heard in tuple(self._viewers.get(delta.stream_id, ())):
            heard(delta)

    def _keep(self, delta: Delta) -> None:
        if self._pending_chars + len(delta.text) > MAX_PENDING_CHARS:
            self.dropped += 1
            return
        attempt = (delta.stream_id, delta.turn, delta.attempt)
        waiting = self._pending.setdefault(attempt, [])
        last = waiting[-1] if waiting else None
        if last is not None and last.text and delta.offset == last.offset + len(last.text):
            waiting[-1] = Delta(*attempt, last.offset, last.text + delta.text, delta.epoch)
        else:
            waiting.append(delta)
        self._pending_chars += len(delta.text)
        if delta.text and attempt not in self._begun:
            self._begun.add(attempt)
            self._urgent.set()
        self._some.set()

    async def _write_for_ever(self) -> None:
        while True:
            await self._some.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._tick_s):
                    await self._urgent.wait()
            self._some.clear()
            self._urgent.clear()
            try:
                await self._write()
            except MinutebookError as error:
                log.warning("deltas were not kept", error=type(error).__name__)
                self._some.set()
                await asyncio.sleep(RETRY_S)

    async def _write(self) -> None:
        """One batch, and what is over goes. What the database did not take waits for the next one."""
        over, self._over = self._over, {}
        pending, self._pending = self._pending, {}
        self._pending_chars = 0
        batch = [delta for waiting in pending.values() for delta in waiting]
        try:
            for start in range(0, len(batch), MAX_BATCH):
                await self._table.put(batch[start : start + MAX_BATCH])
            for stream_id, turn in over.items():
                await self._table.clear(stream_id, turn)
        except MinutebookError:
            self._again(pending, over)
            raise

    def _again(self, pending: dict[_Attempt, list[Delta]], over: dict[int, int]) -> None:
        newer, self._pending = self._pending, {}
        self._pending_chars = 0
        for stream_id, turn in over.items():
            self._over[stream_id] = max(turn, self._over.get(stream_id, 0))
        for deltas in (*pending.values(), *newer.values()):
            for delta in deltas:
                if delta.turn > self._over.get(delta.stream_id, 0):
                    self._keep(delta)
