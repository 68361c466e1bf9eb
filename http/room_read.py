"""What a run reads of its room through room_read: what was said and handed over, page by page."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..domain.envelope import Envelope
from ..domain.principals import Caller
from ..domain.rooms.commands import Command
from ..domain.rooms.events import MessagePosted
from ..domain.rooms.handoff import HandoffRecorded
from .reading import Seen, entry_for
from .services import Services

READ_TYPES = frozenset({MessagePosted.type, HandoffRecorded.type})
"""The types of entries that a run is told of: people's and runs' words, never its own tool calls again."""

MAX_ENTRIES = 100
MAX_SCANNED = 500
"""Events that one call looks through, whatever it finds."""

SCAN_PAGE = 100
MAX_ANSWER_BYTES = 1024 * 1024
"""Longest answer, as it is sent: as text and once more as JSON, non-ASCII characters escaped."""

_RESERVED_BYTES = 4096
"""Kept free for what stands around the entries."""


class ReadRoom(Command, frozen=True):
    """The arguments of room_read."""

    since_seq: Annotated[int, Meta(ge=0, le=2**53, description="The last seq that you have; 0 for the beginning")] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_ENTRIES, description="Entries at most")] = 50


class RoomPage(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of room_read. nextSinceSeq: where to go on, now if `more`, else when something new may be there.

    lastSeq: the room's last event, of whatever type.
    """

    entries: list[Envelope]
    next_since_seq: int
    more: bool
    last_seq: int


async def read_room(services: Services, caller: Caller, seen: Seen, command: ReadRoom) -> RoomPage:
    """Entries behind `sinceSeq` that the run is cleared for, ascending, within the limits above.

    A `sinceSeq` beyond the room's end, as after a restore, goes on at its end. A restricted entry is like one of
    another type: neither its type nor its size shows (rules.md, law 13).
    """
    entries: list[Envelope] = []
    at = min(command.since_seq, seen.version)
    through = min(seen.version, at + MAX_SCANNED)
    free = MAX_ANSWER_BYTES - _RESERVED_BYTES
    while at < through:
        found = await services.store.read_entries(seen.stream_id, seen.room_id, at, SCAN_PAGE, through + 1)
        if not found:
            break  # purged meanwhile
        for entry in found:
            shown = entry_for(entry, caller)
            if isinstance(shown, Envelope) and shown.type in READ_TYPES:
                free -= _sent_bytes(shown)
                if free < 0 or len(entries) == command.limit:
                    return _page(entries, at, seen)
                entries.append(shown)
            at = entry.envelope.seq
    return _page(entries, at, seen)


def _page(entries: list[Envelope], at: int, seen: Seen) -> RoomPage:
    return RoomPage(entries, at, at < seen.version, seen.version)


def _sent_bytes(entry: Envelope) -> int:
    text = msgspec.json.encode(entry).decode()
    shown: Any = msgspec.json.decode(text)
    return len(json.dumps(text)) + len(json.dumps(shown)) + 4
