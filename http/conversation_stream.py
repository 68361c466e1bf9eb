"""One viewer's stream of a conversation: its state, its records, the running reply, and an end (http.md, SSE)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Generator
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET

from ..commands.conversations.handlers import Looked
from ..domain.conversations.identity import identity_of
from ..domain.errors import MinutebookError, NotVisible, Unauthenticated
from ..domain.principals import Caller
from .conversation_entries import Cursor, reader_of
from .conversation_reading import status_of
from .conversation_sights import Sights
from .dialogue import Dialogue, Live, Message, Viewing
from .endless import Endless, frame
from .live import SEND_BYTES
from .metrics import LISTENER
from .services import Services


class Start(msgspec.Struct, frozen=True):
    """Where a stream begins: behind the cursor, or with the last `tail` records. token: to be verified again."""

    token: str
    cursor: Cursor | None
    tail: int


class _Shown(msgspec.Struct):
    """What the viewer has of running replies. offset: code points of that attempt's reply."""

    turn: int = 0
    attempt: int = 0
    offset: int = 0


class ConversationStream(Endless):
    """See Endless. Deltas are cut when they are sent, so a slow viewer gets few long ones."""

    kind: ClassVar[str] = LISTENER

    def __init__(self, services: Services, caller: Caller, looked: Looked, sights: Sights, start: Start) -> None:
        self._talks = services.conversations
        settings = services.settings.conversations
        super().__init__(services, caller, float(settings.stream_max_seconds), self._talks.hub.draining)
        self._looked = looked
        self._sights = sights
        self._start = start
        self._shown = _Shown()
        conversation = looked.conversation
        last = conversation.next_ord - 1
        self._ord = max(0, last - start.tail) if start.cursor is None else start.cursor.ord
        generation = conversation.generation if start.cursor is None else start.cursor.generation
        self._cursor = str(Cursor(generation, self._ord))
        self._joined_in = 0 if conversation.running is None else conversation.running.turn
        self._pending_bytes = settings.stream_pending_bytes
        self._authorize_every_s = float(settings.authorize_seconds)
        self._due_at = asyncio.get_running_loop().time() + self._authorize_every_s

    @contextlib.contextmanager
    def _joined(self) -> Generator[Coroutine[Any, Any, None]]:
        talks, looked = self._talks, self._looked
        conversation_id = looked.conversation.id
        reader = reader_of(talks.keyring, conversation_id)
        with talks.places.place(self._caller, conversation_id):
            viewing = Viewing(looked.who, looked.version)
            dialogue = talks.hub.follow(looked.stream_id, reader, looked.conversation, self._moved, viewing)
            try:
                yield self._serve(dialogue, viewing)
            finally:
                talks.hub.leave(dialogue, self._moved)

    async def _serve(self, dialogue: Dialogue, viewing: Viewing) -> None:
        cursor = self._start.cursor
        is_clamped = True if cursor is not None and cursor.is_clamped else UNSET
        status = status_of(self._looked.conversation, self._looked.who, is_clamped, self._cursor)
        await self._begin(frame("status", status))
        try:
            while not await self._turn(dialogue, viewing) and not await self._wait():
                await self._authorize_when_due()
        except (NotVisible, Unauthenticated) as error:
            await self._end("closed", {"reason": "not_found"}, frame("error", {"code": error.code}))
        except MinutebookError as error:
            await self._broken(error)

    async def _turn(self, dialogue: Dialogue, viewing: Viewing) -> bool:
        """Send what came since the last turn; True when the stream has ended. Raises NotVisible for a viewer who was
        taken out, once they have what came before (law 17)."""
        while True:
            self._moved.clear()
            if viewing.is_over(self._ord):
                raise NotVisible
            taken_bytes = dialogue.total_bytes
            messages = dialogue.after(self._ord)
            if messages is None:
                found, through = await self._talks.hub.history(dialogue, self._ord)
                await self._deliver(viewing, found)
                self._ord = through
            elif messages:
                await self._deliver(viewing, messages)
                if dialogue.total_bytes - taken_bytes > self._pending_bytes:
                    await self._reconnect("slow_consumer")
                    return True
            elif dialogue.is_closed:
                await self._end("closed", {"reason": "conversation_closed"})
                return True
            else:
                live = dialogue.shown(viewing)
                if live is not None:
                    await self._say(live)
                return False

    async def _deliver(self, viewing: Viewing, messages: list[Message]) -> None:
        """Write records in chunks. What the viewer may see is asked for each: one can wait for a slow reader."""
        for chunk in _chunks(messages):
            theirs = viewing.theirs(chunk)
            seen = await self._sights.of([message.record for message in theirs])
            if theirs:
                self._ord, self._cursor = theirs[-1].ord, theirs[-1].cursor
                await self._write(b"".join(each.frame(sight) for each, sight in zip(theirs, seen, strict=True)))

    async def _say(self, live: Live) -> None:
        """What the viewer does not have of the running reply."""
        shown = self._shown
        if (shown.turn, shown.attempt) == (live.turn, live.attempt):
            if shown.offset == live.length:
                return
            data = live.frame("delta", shown.offset)
        elif shown.turn == live.turn:
            data = frame("reset", {"turn": live.turn, "attempt": live.attempt})
            data += live.frame("delta", 0) if live.length else b""
        elif live.turn == self._joined_in:
            data = live.frame("partial", 0)
        else:
            data = live.frame("delta", 0) if live.length else b""
        self._shown = _Shown(live.turn, live.attempt, live.length)
        if data:
            await self._write(data)

    async def _authorize_when_due(self) -> None:
        """Look at token and owner again: what only that can tell takes effect soon enough (law 17).

        Raises Unauthenticated where the token is none any more, NotVisible where the conversation is not theirs.
        """
        loop = asyncio.get_running_loop()
        if loop.time() < self._due_at:
            return
        caller = await self._talks.verify(self._start.token)
        if identity_of(caller) != identity_of(self._caller):
            raise NotVisible
        looked = await self._talks.handlers.look(caller, self._looked.conversation.id)
        if looked.who != self._looked.who:
            raise NotVisible
        await self._sights.renew(looked, caller.claims)
        self._due_at = loop.time() + self._authorize_every_s

    def _resume(self) -> dict[str, Any]:
        return {"cursor": self._cursor}


def _chunks(messages: list[Message]) -> Generator[list[Message]]:
    """Of about SEND_BYTES, however much of them is shown."""
    chunk: list[Message] = []
    size = 0
    for message in messages:
        chunk.append(message)
        size += message.size
        if size >= SEND_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
