"""Following conversations live: records from the log, and running replies from memory or from other processes.

Each followed conversation is read once for all its viewers. A reply that is generated here comes by call; one that is
generated elsewhere by the table of deltas, whose channel says which conversations to look at. What a reply's beginning
is missing from is read from the table, too, so that a viewer may come in mid-reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import structlog

from ..commands.conversations.ports import ConversationLog, Delta, DeltaTable
from ..domain.conversations.state import Conversation
from ..domain.errors import MinutebookError
from .conversation_entries import Reader
from .dialogue import Dialogue, Message, Viewing

PAGE = 128
"""Records read at a time."""

POLL_S = 1.0
"""A look at everything that is followed, whatever the listener says (law 8)."""

LOCAL_S = 1.0
"""So long after a delta from this process the table has nothing for its conversation that is not here already."""

log = structlog.get_logger(__name__)


class DeltaHub:
    """One per process. Holds no database connection while nothing moves."""

    def __init__(
        self,
        records: ConversationLog,
        table: DeltaTable,
        versions: Callable[[Sequence[int]], Awaitable[dict[int, int]]],
        subscribe: Callable[[int, Callable[[Delta], None]], Callable[[], None]],
    ) -> None:
        """versions: heads of streams, by id. subscribe: to what this process generates; what it gives ends that."""
        self._subscribe = subscribe
        self._records = records
        self._versions = versions
        self._table = table
        self._dialogues: dict[int, Dialogue] = {}
        self._behind: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._catching: asyncio.Task[None] | None = None
        self._poll: asyncio.Task[None] | None = None
        self.draining = asyncio.Event()
        self.streams = 0

    def start(self) -> None:
        """Begin the safety poll on the running loop."""
        self._poll = asyncio.create_task(self._look_for_ever(), name="delta hub poll")

    async def close(self) -> None:
        """Stop reading."""
        tasks = [*self._tasks, *([self._poll] if self._poll else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def drain(self) -> None:
        """Tell every viewer to reconnect elsewhere."""
        self.draining.set()
        for dialogue in self._dialogues.values():
            dialogue.wake()

    @property
    def followed(self) -> int:
        """Conversations that have a viewer here."""
        return len(self._dialogues)

    def follow(
        self, stream_id: int, reader: Reader, conversation: Conversation, viewer: asyncio.Event, viewing: Viewing
    ) -> Dialogue:
        """Join a viewer; synchronous, and so is `leave`: clean-up that awaits may never run (fault B28)."""
        dialogue = self._dialogues.get(stream_id)
        if dialogue is None:
            dialogue = self._dialogues[stream_id] = Dialogue(stream_id, reader, conversation, viewing.seq)
            dialogue.end = self._subscribe(stream_id, self.hear)
            # What was appended since it was looked at woke nobody up, and what is being said began before.
            self._read_soon(dialogue)
            self._ask_soon(stream_id)
        elif dialogue.seq < viewing.seq:
            self._read_soon(dialogue)
        dialogue.join(viewer, viewing)
        self.streams += 1
        return dialogue

    def part(self, stream: str, principal: str, seq: int) -> None:
        """That principal was taken out of the conversation with that stream at that event: they get no more words of a
        running reply, even before the log says so here."""
        for dialogue in self._dialogues.values():
            if dialogue.reader.verifier.stream == stream:
                for viewing in dialogue.viewers.values():
                    viewing.is_leaving |= viewing.who.actor == principal and viewing.seq < seq
                self._read_soon(dialogue)

    def leave(self, dialogue: Dialogue, viewer: asyncio.Event) -> None:
        """Part with a viewer; the last one takes the conversation along."""
        dialogue.viewers.pop(viewer, None)
        self.streams -= 1
        if not dialogue.viewers:
            self._dialogues.pop(dialogue.stream_id, None)
            dialogue.end()

    def wake(self, ids: frozenset[int] | None) -> None:
        """What the listener heard of the log."""
        for stream_id in self._dialogues if ids is None else ids & self._dialogues.keys():
            self._read_soon(self._dialogues[stream_id])

    def wake_deltas(self, ids: frozenset[int] | None) -> None:
        """What the listener heard of the table of deltas."""
        now = asyncio.get_running_loop().time()
        for stream_id in list(self._dialogues) if ids is None else ids & self._dialogues.keys():
            live = self._dialogues[stream_id].live
            if live is None or now - live.local_at > LOCAL_S:
                self._ask_soon(stream_id)

    def hear(self, delta: Delta) -> None:
        """Some of a reply that this process generates; the first of an attempt has offset 0, and may be empty."""
        dialogue = self._dialogues.get(delta.stream_id)
        if dialogue is None:
            return
        if not dialogue.hear(delta):
            self._ask_soon(delta.stream_id)
        elif dialogue.live is not None:
            dialogue.live.local_at = asyncio.get_running_loop().time()
        if delta.turn > dialogue.asked:
            self._read_soon(dialogue)

    async def history(self, dialogue: Dialogue, after: int) -> tuple[list[Message], int]:
        """A page of the log for a viewer who is behind the buffer, and the ord that it reaches."""
        through = min(after + PAGE, dialogue.last_ord)
        found = await self._records.by_ords(dialogue.stream_id, range(after + 1, through + 1))
        return [Message(record) for record in dialogue.reader.records(found)], through

    def _read_soon(self, dialogue: Dialogue) -> None:
        if dialogue.is_reading:
            dialogue.is_stale = True
            return
        dialogue.is_reading = True
        self._begin(self._read(dialogue))

    async def _read(self, dialogue: Dialogue) -> None:
        try:
            while True:
                dialogue.is_stale = False
                found = await self._records.records(dialogue.stream_id, dialogue.seq, PAGE)
                if found:
                    dialogue.add(found)
                if not dialogue.viewers or (len(found) < PAGE and not dialogue.is_stale):
                    return
        except MinutebookError as error:
            _say(error)
        finally:
            dialogue.is_reading = False

    def _ask_soon(self, stream_id: int) -> None:
        """Read the table for that conversation; one query at a time, for all that came together meanwhile."""
        self._behind.add(stream_id)
        if self._catching is None:
            self._catching = self._begin(self._catch_up())

    async def _catch_up(self) -> None:
        try:
            while self._behind:
                asked = {key: self._dialogues[key].position() for key in self._behind if key in self._dialogues}
                self._behind.clear()
                for delta in await self._table.behind(asked) if asked else ():
                    dialogue = self._dialogues.get(delta.stream_id)
                    if dialogue is not None:
                        dialogue.hear(delta)
                        if delta.turn > dialogue.asked:
                            self._read_soon(dialogue)
        except MinutebookError as error:
            _say(error)
        finally:
            self._catching = None

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            if not self._dialogues:
                continue
            try:
                versions = await self._versions(list(self._dialogues))
            except MinutebookError as error:
                _say(error)
                continue
            for stream_id, version in versions.items():
                dialogue = self._dialogues.get(stream_id)
                if dialogue is None:
                    continue
                if dialogue.version != version:
                    dialogue.version = version
                    self._read_soon(dialogue)
                if dialogue.asked > dialogue.answered:
                    self._ask_soon(stream_id)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _say(error: MinutebookError) -> None:
    log.warning("a followed conversation cannot be read now", error=type(error).__name__)
