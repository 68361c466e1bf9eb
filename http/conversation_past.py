"""A conversation's past: what a viewer could see then and the caller may see now; and why (conversations.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from ..commands.conversations.clearances import Granted
from ..commands.conversations.handlers import Looked
from ..commands.conversations.inspecting import Looks
from ..commands.conversations.kind import conversation_kind
from ..commands.conversations.past import NEWEST, Viewpoint, standing_at, standing_while
from ..commands.conversations.ports import Viewer
from ..domain.conversations.identity import Identity
from ..domain.conversations.past import Rule, Standing, narrower, rule_of, sight_then
from ..domain.conversations.visibility import Sight, sight
from ..domain.errors import Forbidden, InvalidCursor, NotVisible
from ..domain.principals import Caller, Principal
from ..domain.times import stamp
from .conversation_entries import Cursor, Record, clamped, parse_cursor, reader_of
from .conversation_reading import Direction, HistoryPage, read_page
from .conversation_services import ConversationServices

_NOTHING = Standing(is_member=False)
_NOW = 2**53
"""Behind every seq: what was recorded of the caller a moment ago counts."""


class EntryExplained(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/conversations/{id}/entries/{ord}/explain: whether a viewer is shown a record now.

    All but the first two are for auditors. sight: own, cleared or restricted; absent for who takes no part. rule: why.
    classes: of the record. labels: that the log says the viewer has, null where it says nothing; missing: the classes
    that are not among them. policy: version of the clearance settings that the labels come from.
    """

    ord: int
    shown: bool
    viewer: Identity | UnsetType = UNSET
    sight: Sight | UnsetType = UNSET
    rule: Rule | UnsetType = UNSET
    classes: tuple[str, ...] | UnsetType = UNSET
    labels: tuple[str, ...] | UnsetType | None = UNSET
    missing: tuple[str, ...] | UnsetType = UNSET
    policy: str | UnsetType = UNSET


class Wanted(msgspec.Struct, frozen=True):
    """A page of the past: as of when (None: now), as whom (None: the caller), and which part of it."""

    as_of: str | None
    viewer: str | None
    cursor: str | None
    direction: Direction
    limit: int


class _Moment(msgspec.Struct, frozen=True):
    """then: where the viewer stood. last, generation: of the newest record; 0 where there was none."""

    then: Standing = _NOTHING
    last: int = 0
    generation: int = 1


def parse_as_of(text: str) -> Cursor | datetime:
    """A cursor, or a moment in RFC 3339 with its offset, as UTC. Raises InvalidCursor."""
    if "-" not in text:
        return parse_cursor(text)
    try:
        return msgspec.convert(text, Annotated[datetime, Meta(tz=True)]).astimezone(UTC)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InvalidCursor("asOf is a cursor of this conversation, or a time such as 2026-03-01T12:00:00Z.") from error


def viewer_named(looks: Looks, name: str | None) -> Identity:
    """Who is asked about: somebody of the conversation's tenant; the caller where nobody is named. Raises Invalid."""
    if name is None:
        return looks.looked.who
    return Identity(str(Principal.parse(name, "viewer")), looks.looked.who.tenant)


async def look_back(talks: ConversationServices, caller: Caller, conversation_id: str, wanted: Wanted) -> HistoryPage:
    """A page of what the viewer could see then and the caller may see now, which is written down before.

    Raises NotVisible, Forbidden for a participant who is not the owner, InvalidCursor, Invalid, RateLimited.
    """
    looks = await talks.inspections.look_back(caller, conversation_id)
    looked, viewer = looks.looked, viewer_named(looks, wanted.viewer)
    at = None if wanted.as_of is None else parse_as_of(wanted.as_of)
    cursor = None if wanted.cursor is None else parse_cursor(wanted.cursor)
    if isinstance(at, Cursor):
        at = clamped(at, looked.conversation)
    said = UNSET if at is None else stamp(at) if isinstance(at, datetime) else str(at)
    await talks.inspections.note(caller, looks, viewer, as_of=said)
    if at is None:
        await _granted(talks, caller, looks, ())
    moment = await _moment(talks, looked, viewer, at)
    if not moment.then.is_member or not moment.last:
        return HistoryPage([], str(cursor or Cursor(moment.generation, moment.last)), done=True)
    then = replace(looked.conversation, next_ord=moment.last + 1, generation=moment.generation)
    return await read_page(
        talks.log,
        reader_of(talks.keyring, conversation_id),
        replace(looked, conversation=then),
        _Both(talks, caller, looks, viewer, moment.then),
        cursor,
        wanted.direction,
        wanted.limit,
    )


async def explain(
    talks: ConversationServices, caller: Caller, conversation_id: str, ord_: int, viewer: str | None
) -> EntryExplained:
    """Whether a record is shown to a viewer now. An auditor learns why; who is not cleared for it, no more than a no.

    Raises NotVisible, also for a record that there is not; Forbidden for a participant who asks about somebody else and
    is not the owner; Invalid, RateLimited.
    """
    looks = await talks.inspections.look(caller, conversation_id)
    looked, who = looks.looked, viewer_named(looks, viewer)
    if who != looked.who and not looks.is_auditor and looked.conversation.owner != looked.who:
        raise Forbidden("Only the owner and auditors ask what others are shown.")
    records = reader_of(talks.keyring, conversation_id).records(await talks.log.by_ords(looked.stream_id, (ord_,)))
    if not records:
        raise NotVisible
    if who != looked.who or looks.is_auditor:
        await talks.inspections.note(caller, looks, who, ord_=ord_)
    record = records[0].event
    if not looks.is_auditor:
        granted = await _granted(talks, caller, looks, record.classes)
        if sight(looked.conversation.mode, record, looked.who, granted.cleared([record.classes])) == "restricted":
            return EntryExplained(ord_, shown=False)
        if who == looked.who:
            return EntryExplained(ord_, shown=True)
    then = await standing_at(talks.past, _point(talks, looked, who), _NOW)
    seen = sight_then(looked.conversation.mode, record, who, then)
    answer = EntryExplained(ord_, shown=seen in ("own", "cleared"))
    if not looks.is_auditor:
        return answer
    return replace(
        answer,
        viewer=who,
        sight=UNSET if seen is None else seen,
        rule=rule_of(looked.conversation.mode, record, who, then),
        classes=record.classes,
        labels=None if then.labels is None else tuple(sorted(then.labels)),
        missing=tuple(sorted(set(record.classes) - (then.labels or frozenset()))),
        policy=then.policy or UNSET,
    )


async def _moment(
    talks: ConversationServices, looked: Looked, viewer: Identity, at: Cursor | datetime | None
) -> _Moment:
    """Where a viewer stood, and how far the conversation was."""
    conversation, point = looked.conversation, _point(talks, looked, viewer)
    if at is None:
        then = await standing_at(talks.past, point, _NOW)
        return _Moment(then, conversation.next_ord - 1, conversation.generation)
    if isinstance(at, datetime):
        seq = await talks.past.seq_at(looked.stream_id, at)
        newest = await _newest(talks, looked, seq)
        if newest is None:
            return _Moment()
        return _Moment(await standing_at(talks.past, point, seq), newest.ord, newest.event.generation)
    pair = await talks.log.by_ords(looked.stream_id, (at.ord, at.ord + 1))
    found = {each.event.origin_key: each.event.seq for each in pair}
    seq = found.get(str(at.ord))
    if seq is None:
        return _Moment()
    following = found.get(str(at.ord + 1), looked.version + 1)
    return _Moment(await standing_while(talks.past, point, seq, following), at.ord, at.generation)


async def _newest(talks: ConversationServices, looked: Looked, seq: int) -> Record | None:
    """The newest record of ours at or before a seq; some that were written without the key are passed over."""
    reader = reader_of(talks.keyring, looked.conversation.id)
    for _ in range(NEWEST):
        found = await talks.past.record_at(looked.stream_id, seq)
        if found is None:
            return None
        record = reader.record(found)
        if record is not None:
            return record
        seq = found.event.seq - 1
    return None


class _Both(msgspec.Struct, frozen=True):
    """Sees of what a viewer saw then and the caller sees now: whichever is less."""

    talks: ConversationServices
    caller: Caller
    looks: Looks
    viewer: Identity
    then: Standing

    async def of(self, records: Sequence[Record]) -> list[Sight]:
        """See Sees."""
        looked = self.looks.looked
        mode, events = looked.conversation.mode, [record.event for record in records]
        granted = await _granted(
            self.talks, self.caller, self.looks, (each for event in events for each in event.classes)
        )
        cleared = granted.cleared([event.classes for event in events])
        return [
            narrower(
                sight(mode, event, looked.who, cleared), sight_then(mode, event, self.viewer, self.then) or "restricted"
            )
            for event in events
        ]


async def _granted(talks: ConversationServices, caller: Caller, looks: Looks, classes: Iterable[str]) -> Granted:
    """What the caller may see now; recorded of who takes part."""
    looked, viewer = looks.looked, Viewer(looks.looked.who, caller.claims)
    if looked.conversation.may_speak(looked.who):
        return await talks.clearances.grant(viewer, looked, frozenset(classes))
    return await talks.clearances.unrecorded(viewer, frozenset(classes))


def _point(talks: ConversationServices, looked: Looked, viewer: Identity) -> Viewpoint:
    kind = conversation_kind(talks.keyring, looked.conversation.id)
    return Viewpoint(looked.stream_id, looked.conversation, kind.verifier, viewer)
