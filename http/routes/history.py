"""What happened in a room: ranges of its log, and the transcript for people (http.md, Rooms)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, Router, get
from litestar.params import FromPath, QueryParameter
from msgspec import UNSET, UnsetType

from ...domain.envelope import Envelope, Placeholder
from ...domain.errors import InvalidCursor
from ...domain.visibility import cleared
from ..reading import entry_for, see, wait_for_log, wait_for_view
from .common import MinSeq, TheCaller, TheServices

MAX_EVENTS = 500
SCAN_PAGES = 4
"""Pages of MAX_EVENTS that one filtered read looks through."""

ENTRY = msgspec.Meta(
    extra_json_schema={"anyOf": [{"$ref": f"#/components/schemas/{each.__name__}"} for each in (Envelope, Placeholder)]}
)
"""Envelope or Placeholder: a union that msgspec cannot decode, and so does not describe."""


class EventPage(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/rooms/{id}/events."""

    events: list[Annotated[Any, ENTRY]]
    last_seq: int
    log_id: str
    next_after_seq: int | UnsetType = UNSET


class TranscriptLine(msgspec.Struct, frozen=True, rename="camel"):
    """A line of the transcript; a restricted one has type `restricted` and no words."""

    seq: int
    ts: str
    type: str
    actor: str | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    heading: str | UnsetType = UNSET
    body: str | UnsetType = UNSET


class TranscriptPage(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/rooms/{id}/transcript."""

    lines: list[TranscriptLine]
    next_after_seq: int | UnsetType = UNSET


@get("/v1/rooms/{room_id:str}/events")
async def read_events(
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    after_seq: Annotated[int, QueryParameter(name="afterSeq", ge=0, le=2**53)] = 0,
    before_seq: Annotated[int | None, QueryParameter(name="beforeSeq", ge=0, le=2**53, required=False)] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_EVENTS)] = 100,
    type_: Annotated[str | None, QueryParameter(name="type", required=False, max_length=64)] = None,
    min_seq: MinSeq = None,
    log_id: Annotated[str | None, QueryParameter(name="logId", required=False, max_length=64)] = None,
) -> Response[EventPage]:
    """A range of the log, ascending, each entry filtered for the caller."""
    seen = await see(services, caller, room_id)
    if log_id is not None and log_id != services.log_id:
        raise InvalidCursor("The position belongs to another log; read the room again from the beginning.")
    if min_seq is not None and seen.version < min_seq:
        await wait_for_log(services, room_id, min_seq)
        seen = await see(services, caller, room_id)
    before = seen.version + 1 if before_seq is None else min(before_seq, seen.version + 1)
    events: list[Envelope | Placeholder] = []
    at, page = after_seq, 0
    while len(events) < limit and page < SCAN_PAGES and at < before - 1:
        page += 1
        want = limit if type_ is None else MAX_EVENTS
        found = await services.store.read_entries(seen.stream_id, room_id, at, want, before)
        for entry in found:
            at = entry.envelope.seq
            shown = entry_for(entry, caller)
            # The filter sees what the caller sees: a restricted entry's type decides nothing (law 13).
            if type_ is None or shown.type == type_:
                events.append(shown)
            if len(events) == limit:
                break
        if type_ is None or len(found) < want:
            break
    more = type_ is not None and at < before - 1
    answer = EventPage(events, seen.version, services.log_id, at if more else UNSET)
    return Response(answer, headers={"cache-control": "no-store"})


@get("/v1/rooms/{room_id:str}/transcript")
async def read_transcript(
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    after_seq: Annotated[int, QueryParameter(name="afterSeq", ge=0, le=2**53)] = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_EVENTS)] = 100,
    min_seq: MinSeq = None,
) -> Response[TranscriptPage]:
    """The room as lines for people, from the projection."""
    seen = await see(services, caller, room_id)
    await wait_for_view(services, "transcript", seen.stream_id, min_seq)
    rows = await services.views.transcript(seen.stream_id, after_seq, limit)
    lines = [
        TranscriptLine(
            row.seq,
            row.ts,
            row.type,
            row.actor,
            UNSET if row.run_id is None else row.run_id,
            row.heading,
            row.body,
        )
        if cleared(row.classes, caller.labels)
        else TranscriptLine(row.seq, row.ts, "restricted")
        for row in rows
    ]
    more = len(rows) == limit
    return Response(TranscriptPage(lines, rows[-1].seq if more else UNSET), headers={"cache-control": "no-store"})


ROUTES = Router("/", route_handlers=[read_events, read_transcript], tags=["rooms"])
