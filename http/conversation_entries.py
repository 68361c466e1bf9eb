"""Records of a conversation as its viewers get them, and the cursors that name them (http.md, Conversations)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ..commands.conversations.kind import Verifier, stream_of
from ..commands.conversations.ports import At
from ..domain.conversations.events import CONVERSATION_EVENTS, ReplyRecorded, UserRecorded
from ..domain.conversations.identity import Identity
from ..domain.conversations.signing import Keyring
from ..domain.conversations.state import Conversation
from ..domain.conversations.visibility import Sight
from ..domain.errors import InvalidCursor
from ..domain.times import stamp

_CURSOR = re.compile(r"(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,15})")


class Cursor(msgspec.Struct, frozen=True):
    """`<generation>.<ord>`, exclusive. The position is the ord's; is_clamped: it was beyond the end, and is the end."""

    generation: int
    ord: int
    is_clamped: bool = False

    def __str__(self) -> str:
        return f"{self.generation}.{self.ord}"


def parse_cursor(text: str) -> Cursor:
    """A cursor in canonical decimal form. Raises InvalidCursor."""
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidCursor("The cursor is not one of a conversation; take nextCursor, or the id of a message frame.")
    return Cursor(int(found[1]), int(found[2]))


def clamped(cursor: Cursor, conversation: Conversation) -> Cursor:
    """The cursor, or the end where it lies beyond it or in a generation that does not exist."""
    last = conversation.next_ord - 1
    if cursor.ord <= last and 1 <= cursor.generation <= conversation.generation:
        return cursor
    return Cursor(conversation.generation, last, is_clamped=True)


class Entry(msgspec.Struct, frozen=True, rename="camel"):
    """A record. turn: 0 of a rejected one. text: empty where nobody can be said to have sent it. asker: null then.

    reason: why it was rejected or failed. erased: its words are gone for good. For its asker alone, id: what the 202 of
    the send said; seen: code points that they had received of an interrupted reply; message_id, error_id, truncated.
    """

    cursor: str
    ord: int
    turn: int
    role: str
    status: str
    text: str
    asker: Identity | None
    ts: str
    classes: tuple[str, ...]
    id: str | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    edit_of: int | UnsetType = UNSET
    edit_of_turn: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    error_id: str | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    seen: int | UnsetType = UNSET
    erased: bool | UnsetType = UNSET


class RestrictedEntry(msgspec.Struct, frozen=True, rename="camel"):
    """What anybody gets of a record that they are not cleared for: its place, and who asked."""

    cursor: str
    ord: int
    turn: int
    role: str
    asker: Identity | None
    status: Literal["restricted"] = "restricted"


class Record(msgspec.Struct, frozen=True):
    """A verified record of a conversation, and when it was recorded. size: bytes of its payload in the log, which is
    about what the longest of its frames has."""

    event: UserRecorded | ReplyRecorded
    at: datetime
    size: int = 0

    @property
    def ord(self) -> int:
        """Its ord."""
        return self.event.ord

    @property
    def cursor(self) -> str:
        """Its cursor."""
        return str(Cursor(self.event.generation, self.event.ord))


class Reader(msgspec.Struct, frozen=True):
    """Reads the events of one conversation that are verifiably ours; no others are shown (conversations.md, Trust)."""

    verifier: Verifier

    def decode(self, at: At) -> Any:
        """The event; something that is no event of a conversation where its MAC is not ours."""
        return self.verifier.decode(at.event)

    def record(self, at: At) -> Record | None:
        """The record; None for what is none, or is not ours."""
        event = self.decode(at)
        if not isinstance(event, UserRecorded | ReplyRecorded):
            return None
        return Record(event, at.at, len(at.event.payload.encode(errors="surrogatepass")))

    def records(self, found: Sequence[At]) -> list[Record]:
        """Those of them that are records, and ours."""
        return [record for record in map(self.record, found) if record is not None]


def reader_of(keyring: Keyring, conversation_id: str) -> Reader:
    """The reader of that conversation."""
    return Reader(Verifier(keyring, stream_of(conversation_id), CONVERSATION_EVENTS))


def shown(record: Record, sight: Sight) -> Entry | RestrictedEntry:
    """The record as somebody gets it who sees that much of it."""
    event = record.event
    if sight == "restricted":
        role = "user" if isinstance(event, UserRecorded) else "assistant"
        return RestrictedEntry(record.cursor, event.ord, event.turn, role, event.asker)
    is_own = sight == "own"
    if isinstance(event, UserRecorded):
        return Entry(
            record.cursor,
            event.ord,
            event.turn,
            "user",
            event.status,
            event.text or "",
            event.asker,
            stamp(record.at),
            event.classes,
            id=event.id if is_own else UNSET,
            message_id=event.message_id if is_own else UNSET,
            edit_of=event.edit_of,
            edit_of_turn=event.edit_of_turn,
            reason=event.reason,
            erased=event.is_erased or UNSET,
        )
    return Entry(
        record.cursor,
        event.ord,
        event.turn,
        "assistant",
        event.status,
        event.text,
        event.asker,
        stamp(record.at),
        event.classes,
        reason=event.reason,
        error_id=event.error_id if is_own else UNSET,
        truncated=event.truncated or UNSET if is_own else UNSET,
        seen=event.seen if is_own else UNSET,
        erased=event.is_erased or UNSET,
    )
