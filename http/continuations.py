"""What became of a background turn, for whoever began it: read from the log, as they may see it now."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ..commands.answers.ports import KeptContinuation
from ..commands.conversations.handlers import Looked
from ..commands.mailbox import Answer
from ..domain.conversations.commands import CancelTurn
from ..domain.conversations.events import ReplyRecorded
from ..domain.conversations.identity import identity_of
from ..domain.errors import AlreadyEnded, NotVisible
from ..domain.principals import Caller
from ..domain.times import stamp
from .conversation_entries import Record, reader_of
from .conversation_services import ConversationServices
from .conversation_sights import sights_of
from .dialogue import Dialogue, Viewing

MAX_WAIT_S = 30

UNREADABLE = "turn-failed"
"""Reason where the record of the end is not verifiably ours, and so says nothing."""

State = Literal["queued", "running", "completed", "failed", "cancelled", "expired"]

_ENDS: dict[str, State] = {
    "completed": "completed",
    "interrupted": "cancelled",
    "failed": "failed",
    "rejected": "failed",
}


class ContinuationShown(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """GET /v1/continuations/{token}. id: for operators. result: the reply, of a cancelled turn what there was of it.

    reason: why it failed, or was cancelled without its turn. expires_at: until when this is answered or, before the
    end, when it is over without one.
    """

    id: str
    status: State
    expires_at: str
    turn: int | UnsetType = UNSET
    result: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class ContinuationDesk:
    """One per process."""

    def __init__(self, talks: ConversationServices) -> None:
        self._talks = talks
        self._kept = talks.continuations

    async def read(self, caller: Caller, token: str, wait_s: int, bearer: str) -> ContinuationShown:
        """How it stands; with `wait_s`, once it has an end, or how it stands then. bearer: verified again after a wait.

        Raises NotVisible for what is not the caller's, also where they take part no more; RateLimited and Unavailable
        where too many wait; Unauthenticated.
        """
        found = await self._kept.find(caller, token)
        looked = await self._look(caller, found)
        if wait_s and found.status is None:
            await self._wait(caller, token, looked, wait_s)
            caller = await self._again(caller, bearer)
            found = await self._kept.find(caller, token)
            looked = await self._look(caller, found)
        if found.status is None and not _is_under_way(looked, found):
            # It may have ended between the two looks.
            found = await self._kept.find(caller, token)
            if found.status is None and any(each.id == found.envelope_id for each in looked.conversation.consumed):
                raise NotVisible  # it was purged, and the same message came once more
        return await self._shown(caller, found, looked)

    async def cancel(self, caller: Caller, token: str, key: str | None) -> Answer:
        """202 `{"seq", "chain"}`; the turn stops where it is, one that waits before its model is asked.

        Raises NotVisible, AlreadyEnded, RateLimited.
        """
        found = await self._kept.find(caller, token)
        handlers = self._talks.handlers
        if found.status is not None and found.record_ord is None:
            await self._look(caller, found)
            raise AlreadyEnded("The continuation has ended already.")
        return await handlers.cancel(caller, found.conversation_id, CancelTurn(found.envelope_id), key)

    async def state(self, caller: Caller, token: str) -> Mapping[str, Any]:
        """See Runs of commands/channels/doing.py. What it says goes to a channel, which the words may not be for: they
        come by a delivery, or to who asks with a token."""
        return msgspec.to_builtins(replace(await self.read(caller, token, 0, ""), result=UNSET))

    async def stop(self, caller: Caller, token: str, key: str) -> None:
        """See Runs."""
        await self.cancel(caller, token, key)

    async def _look(self, caller: Caller, found: KeptContinuation) -> Looked:
        return await self._talks.handlers.look(caller, found.conversation_id)

    async def _again(self, caller: Caller, bearer: str) -> Caller:
        """The caller as their token says it now: what was allowed before a wait may not be after it."""
        again = await self._talks.verify(bearer)
        if identity_of(again) != identity_of(caller):
            raise NotVisible
        return again

    async def _wait(self, caller: Caller, token: str, looked: Looked, wait_s: int) -> None:
        """Return when there may be an end, when the caller is taken out, or when the time is over. A place among those
        who follow the conversation is held meanwhile, and no connection."""
        talks, moved = self._talks, asyncio.Event()
        conversation = looked.conversation
        talks.places.check(caller, conversation.id)
        with talks.places.place(caller, conversation.id):
            viewing = Viewing(looked.who, looked.version)
            reader = reader_of(talks.keyring, conversation.id)
            dialogue = talks.hub.follow(looked.stream_id, reader, conversation, moved, viewing)
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._end(caller, token, dialogue, viewing, moved)
            finally:
                talks.hub.leave(dialogue, moved)

    async def _end(
        self, caller: Caller, token: str, dialogue: Dialogue, viewing: Viewing, moved: asyncio.Event
    ) -> None:
        """Look after each record; deltas wake as well, and cost nothing."""
        draining = self._talks.hub.draining
        while not (draining.is_set() or dialogue.is_closed or viewing.is_leaving or viewing.until is not None):
            seen = dialogue.last_ord
            if (await self._kept.find(caller, token)).status is not None:
                return
            while dialogue.last_ord == seen and not (draining.is_set() or dialogue.is_closed or viewing.is_leaving):
                moved.clear()
                await moved.wait()
                if viewing.until is not None:
                    return

    async def _shown(self, caller: Caller, found: KeptContinuation, looked: Looked) -> ContinuationShown:
        expires_at = stamp(found.expires_at.astimezone(UTC))
        turn = UNSET if found.turn is None else found.turn
        if found.status is None:
            running = looked.conversation.running
            is_running = running is not None and running.id == found.envelope_id
            if running is not None and is_running:
                turn = running.turn
            return ContinuationShown(found.id, "running" if is_running else "queued", expires_at, turn)
        if found.record_ord is None:
            return ContinuationShown(found.id, found.status, expires_at, turn, reason=found.reason or UNSET)
        record = await self._record(looked, found)
        if record is None:
            return ContinuationShown(found.id, "failed", expires_at, turn, reason=UNREADABLE)
        event, status = record.event, _ENDS[record.event.status]
        result: str | UnsetType = UNSET
        if status in ("completed", "cancelled") and await self._is_theirs(caller, looked, record):
            result = event.text
        return ContinuationShown(found.id, status, expires_at, turn, result, event.reason)

    async def _record(self, looked: Looked, found: KeptContinuation) -> Record | None:
        """The end as the log says it, where that is verifiably ours and of that turn."""
        assert found.record_ord is not None  # noqa: S101 - asked for such alone
        reader = reader_of(self._talks.keyring, found.conversation_id)
        records = reader.records(await self._talks.log.by_ords(looked.stream_id, [found.record_ord]))
        for record in records:
            event = record.event
            is_its = event.turn == found.turn if isinstance(event, ReplyRecorded) else event.id == found.envelope_id
            if is_its and event.status in _ENDS:
                return record
        return None

    async def _is_theirs(self, caller: Caller, looked: Looked, record: Record) -> bool:
        """Whether the caller sees the words of a record that has any."""

        async def look() -> Looked:
            return await self._talks.handlers.look(caller, looked.conversation.id)

        sights = await sights_of(self._talks.clearances, looked, caller.claims, look)
        (seen,) = await sights.of([record])
        return seen != "restricted" and not record.event.is_erased


def _is_under_way(looked: Looked, found: KeptContinuation) -> bool:
    conversation = looked.conversation
    running = () if conversation.running is None else (conversation.running,)
    return any(each.id == found.envelope_id for each in (*running, *conversation.queue))
