"""What who takes part in a conversation reads of it: its state, pages of its history, the list of what they started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ..commands.conversations.access import Part
from ..commands.conversations.handlers import Looked
from ..commands.conversations.ports import ConversationLog, Listed
from ..domain.conversations.identity import Identity
from ..domain.conversations.state import Conversation
from ..domain.times import stamp
from .conversation_entries import Cursor, Entry, Reader, RestrictedEntry, clamped, shown
from .conversation_sights import Sees

Direction = Literal["forward", "backward"]

MAX_PAGE = 200
"""Records of one page, each a look-up by key: far from the 2 000 events that a read may cost."""


class RunningTurn(msgspec.Struct, frozen=True):
    """The turn that runs."""

    turn: int


class ConversationStatus(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/conversations/{id}, and the `status` frame. turns: newest accepted turn. queued: own turns that wait.

    In a frame alone, cursor: records behind it follow; clamped: it was beyond the end, and is the end.
    """

    id: str
    mode: str
    state: str
    turns: int
    queued: int
    generation: int
    agent: str
    barge_in: str
    running: RunningTurn | UnsetType = UNSET
    clamped: bool | UnsetType = UNSET
    cursor: str | UnsetType = UNSET


class ConversationLine(msgspec.Struct, frozen=True, rename="camel"):
    """A conversation in a list. handle: the name that its owner gave it, for them alone."""

    id: str
    mode: str
    state: str
    agent: str
    barge_in: str
    started_at: str
    updated_at: str
    handle: str | UnsetType = UNSET


ENTRY = msgspec.Meta(
    extra_json_schema={
        "anyOf": [{"$ref": f"#/components/schemas/{each.__name__}"} for each in (Entry, RestrictedEntry)]
    }
)
"""Entry or RestrictedEntry: a union that msgspec cannot decode, and so does not describe."""


class HistoryPage(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/conversations/{id}/history. next_cursor: where to go on, at the end too. done: nothing lies behind."""

    entries: list[Annotated[Any, ENTRY]]
    next_cursor: str
    done: bool


def status_of(
    conversation: Conversation, identity: Identity, clamped: bool | UnsetType = UNSET, cursor: str | UnsetType = UNSET
) -> ConversationStatus:
    """The conversation as it stands, for one who takes part in it."""
    running = conversation.running
    return ConversationStatus(
        conversation.id,
        conversation.mode,
        conversation.state,
        conversation.turns,
        sum(1 for each in conversation.queue if each.kind == "user" and each.is_signed and each.asker == identity),
        conversation.generation,
        conversation.agent,
        conversation.barge_in,
        UNSET if running is None else RunningTurn(running.turn),
        clamped,
        cursor,
    )


def line_of(listed: Listed, part: Part) -> ConversationLine:
    """A line of the list of who has that part."""
    started = part.started
    return ConversationLine(
        listed.conversation_id,
        started.mode,
        "closed" if listed.is_closed else "open",
        started.agent,
        started.barge_in,
        stamp(listed.first.at),
        stamp(listed.last_at),
        started.handle if started.owner == part.who else UNSET,
    )


async def read_page(
    log: ConversationLog,
    reader: Reader,
    looked: Looked,
    sights: Sees,
    cursor: Cursor | None,
    direction: Direction,
    limit: int,
) -> HistoryPage:
    """Records behind the cursor, oldest first; or, backward, those before it, newest first; each as it is seen."""
    conversation = looked.conversation
    last = conversation.next_ord - 1
    at = None if cursor is None else clamped(cursor, conversation)
    if direction == "forward":
        position = 0 if at is None else at.ord
        ords = range(position + 1, min(position + limit, last) + 1)
        done = position + limit >= last
    else:
        position = last + 1 if at is None or at.is_clamped else at.ord
        ords = range(max(1, position - limit), position)
        done = position - limit <= 1
    records = reader.records(await log.by_ords(looked.stream_id, ords)) if ords else []
    if direction == "backward":
        records.reverse()
    entries = [shown(record, seen) for record, seen in zip(records, await sights.of(records), strict=True)]
    end = min(position, last) if not ords else ords[-1] if direction == "forward" else ords[0]
    generation = conversation.generation if at is None else at.generation
    return HistoryPage(entries, _cursor_at(entries, end, generation), done)


def _cursor_at(entries: Sequence[Entry | RestrictedEntry], end: int, generation: int) -> str:
    """The cursor of all that was looked at, shown or not."""
    return entries[-1].cursor if entries and entries[-1].ord == end else str(Cursor(generation, end))
