"""The stream of an inbox: what is behind the cursor, then what comes and what is revoked (http.md, SSE)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Generator
from typing import Any, ClassVar

import msgspec

from ..domain.conversations.identity import identity_of
from ..domain.errors import MinutebookError, NotVisible, Unauthenticated
from ..domain.principals import Caller
from ..infra.postgres.inbox import Head, InboxItem
from .endless import Endless, frame
from .inbox import InboxDesk, InboxEntry, Revoked
from .live import single_line
from .metrics import INBOX
from .services import Services

PAGE = 50
"""Items read and written at a time: the whole of what waits here for a client that reads slowly."""


class InboxStream(Endless):
    """See Endless. after: the place behind which it begins; is_reset: the cursor was beyond the end, and is the end.
    token: verified again every now and then."""

    kind: ClassVar[str] = INBOX

    def __init__(
        self, services: Services, caller: Caller, head: Head, after: int, token: str, *, is_reset: bool
    ) -> None:
        self._desk: InboxDesk = services.inbox
        settings = services.settings.conversations
        super().__init__(services, caller, float(settings.stream_max_seconds), self._desk.hub.draining)
        self._head = head
        self._after = after
        self._token = token
        self._is_reset = is_reset
        self._authorize_every_s = float(settings.authorize_seconds)
        self._due_at = asyncio.get_running_loop().time() + self._authorize_every_s

    @contextlib.contextmanager
    def _joined(self) -> Generator[Coroutine[Any, Any, None]]:
        with self._desk.hub.follow(self._head.id, self._head.last, self._moved):
            yield self._serve()

    async def _serve(self) -> None:
        await self._begin(frame("reset", {"cursor": str(self._after)}) if self._is_reset else b"")
        try:
            while True:
                await self._deliver()
                if await self._wait():
                    return
                await self._authorize_when_due()
        except (NotVisible, Unauthenticated) as error:
            await self._end("closed", {"reason": "not_found"}, frame("error", {"code": error.code}))
        except MinutebookError as error:
            await self._broken(error)

    async def _deliver(self) -> None:
        """Everything that is there, a page at a time: nothing is read before its client took what came before."""
        while not self._draining.is_set():
            self._moved.clear()
            items = await self._desk.table.page(self._head.id, self._after, PAGE, with_revoked=True)
            if not items:
                return
            data = await self._frames(items)
            self._after = items[-1].cursor
            if data:
                await self._write(data)
            if len(items) < PAGE and not self._moved.is_set():
                return

    async def _frames(self, items: list[InboxItem]) -> bytes:
        """What the caller may have of them now, in their order."""
        seen = {int(entry.cursor): entry for entry in await self._desk.seen(self._caller, items)}
        frames: list[bytes] = []
        for item in items:
            if item.is_revoked:
                frames.append(_durable("revoked", Revoked(str(item.cursor), item.delivery_id, item.part)))
            elif item.cursor in seen:
                frames.append(_durable("delivery", seen[item.cursor]))
        return b"".join(frames)

    async def _authorize_when_due(self) -> None:
        """Look at the token again (law 17). Raises Unauthenticated, NotVisible."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._due_at:
            return
        caller = await self._services.conversations.verify(self._token)
        if identity_of(caller) != identity_of(self._caller):
            raise NotVisible
        self._caller = caller
        self._due_at = loop.time() + self._authorize_every_s

    def _resume(self) -> dict[str, Any]:
        return {"cursor": str(self._after)}


def _durable(event: str, data: InboxEntry | Revoked) -> bytes:
    """A frame whose id is a place to resume from."""
    head = f"id: {data.cursor}\nevent: {event}\ndata: ".encode()
    return head + single_line(msgspec.json.encode(data)) + b"\n\n"
