"""An inbox as its recipient gets it: what is in it of conversations that they may see now, and what they say of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from ..commands.channels.ports import Receipt
from ..commands.conversations.handlers import Looked
from ..commands.deliveries.noting import Notes
from ..domain.conversations.events import ContextDecided
from ..domain.errors import NotVisible
from ..domain.principals import Caller
from ..domain.times import stamp
from ..infra.postgres.inbox import Head, InboxItem, PostgresInbox
from .conversation_entries import Record, reader_of
from .conversation_services import ConversationServices
from .conversation_sights import sights_of
from .inbox_hub import InboxHub

MAX_PAGE = 200
MAX_READS = 10
"""Reads of the table for one page, where much of it is hidden."""

MAX_ACKNOWLEDGED = 100
"""Deliveries in one list of an acknowledgement."""


class InboxEntry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One item. part: of its delivery, from 1. echo: it is the question. label: the source of what crosses from a
    private chat to a shared one."""

    cursor: str
    delivery_id: str
    conversation: str | None
    turn: int | None
    text: str
    ts: str
    observed: bool
    part: int
    echo: bool | UnsetType = UNSET
    label: str | UnsetType = UNSET


class InboxPage(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/inbox."""

    items: list[InboxEntry]
    next_cursor: str | UnsetType = UNSET


class Revoked(msgspec.Struct, frozen=True, rename="camel"):
    """The `revoked` frame: what its client has of that part goes."""

    cursor: str
    delivery_id: str
    part: int


class InboxDesk:
    """One per process. `hub` is for its streams."""

    def __init__(self, table: PostgresInbox, notes: Notes, talks: ConversationServices, hub: InboxHub) -> None:
        self.table = table
        self.hub = hub
        self._notes = notes
        self._talks = talks

    async def head(self, caller: Caller) -> Head:
        """The caller's own inbox."""
        return await self.table.open(caller.tenant, str(caller.principal))

    async def page(self, caller: Caller, after: int, limit: int) -> InboxPage:
        """What the caller sees behind a place, oldest first."""
        head = await self.head(caller)
        found: list[InboxEntry] = []
        is_more = True
        for _ in range(MAX_READS):
            items = await self.table.page(head.id, after, limit + 1)
            found += await self.seen(caller, items)
            is_more = len(items) > limit
            if not is_more or len(found) > limit:
                break
            after = items[-1].cursor
        if len(found) > limit:
            return InboxPage(found[:limit], found[limit - 1].cursor)
        return InboxPage(found, str(after) if is_more else UNSET)

    async def seen(self, caller: Caller, items: Sequence[InboxItem]) -> list[InboxEntry]:
        """Those with words that the caller may see now, each as they get it."""
        visible = await self._visible(caller, items)
        return [entry for item in items if item.key in visible and (entry := _entry(item)) is not None]

    async def acknowledge(self, caller: Caller, delivered: Sequence[str], observed: Sequence[str]) -> int:
        """Note what has arrived and what was read, also in the deliveries; of how many that is new, forward only."""
        head = await self.head(caller)
        items = await self.table.of_deliveries(head.id, [*delivered, *observed])
        visible = await self._visible(caller, items)
        theirs = [item for item in items if item.key in visible]
        keys: dict[str, list[str]] = {}
        for state, ids in (("delivered", frozenset(delivered)), ("observed", frozenset(observed))):
            keys[state] = [item.key for item in theirs if item.delivery_id in ids]
            for channel in sorted({item.channel for item in theirs if item.delivery_id in ids}):
                mine = [item.key for item in theirs if item.delivery_id in ids and item.channel == channel]
                receipts = [Receipt(key, state) for key in mine]  # pyright: ignore[reportArgumentType]
                await self._notes.receipts(channel, receipts)
        return await self.table.mark(keys["delivered"], keys["observed"])

    async def _visible(self, caller: Caller, items: Sequence[InboxItem]) -> frozenset[str]:
        """Keys of those whose conversation the caller takes part in now, and whose turn they are cleared for."""
        by_conversation: dict[str, list[InboxItem]] = {}
        keys = {item.key for item in items if item.conversation_id is None}
        for item in items:
            if item.conversation_id is not None:
                by_conversation.setdefault(item.conversation_id, []).append(item)
        for conversation_id, group in by_conversation.items():
            try:
                seat = await self._talks.handlers.access.seat(caller, conversation_id)
                turns = None if seat.mode == "owner" else await self._turns_seen(caller, conversation_id, group)
            except NotVisible:
                continue
            keys |= {item.key for item in group if turns is None or item.turn in turns}
        return frozenset(keys)

    async def _turns_seen(self, caller: Caller, conversation_id: str, items: Sequence[InboxItem]) -> frozenset[int]:
        """Of a shared conversation, the turns whose reply the caller sees. Raises NotVisible."""
        talks = self._talks

        async def look() -> Looked:
            return await talks.handlers.look(caller, conversation_id)

        looked, reader = await look(), reader_of(talks.keyring, conversation_id)
        ords: list[int] = []
        for turn in sorted({item.turn for item in items if item.turn is not None}):
            at = await talks.log.context_of(looked.stream_id, turn)
            context = None if at is None else reader.decode(at)
            if isinstance(context, ContextDecided):
                ords.append(context.ord + 1)  # nothing is recorded between a question and its reply
        records: list[Record] = reader.records(await talks.log.by_ords(looked.stream_id, ords)) if ords else []
        sights = await (await sights_of(talks.clearances, looked, caller.claims, look)).of(records)
        return frozenset(
            record.event.turn
            for record, sight in zip(records, sights, strict=True)
            if sight != "restricted" and not record.event.is_erased
        )


def _entry(item: InboxItem) -> InboxEntry | None:
    """An item as JSON; None for what has no words any more."""
    payload = item.payload
    if payload is None:
        return None
    return InboxEntry(
        str(item.cursor),
        item.delivery_id,
        item.conversation_id,
        item.turn,
        str(payload.get("text", "")),
        stamp(item.at),
        item.is_observed,
        item.part,
        payload.get("kind") == "echo" or UNSET,
        payload.get("label", UNSET),
    )
