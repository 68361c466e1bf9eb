"""Following a room over SSE (http.md, SSE)."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, HeaderParameter, QueryParameter

from ...domain.errors import Unavailable
from ...domain.rooms.rights import Standing, standings
from ..raw import RawResponse
from ..reading import see
from ..sse import EventStream, parse_cursor, plan
from .common import TheCaller, TheServices

DEFAULT_TAIL = 500
MAX_TAIL = 500

ALWAYS_ADMITTED: frozenset[Standing] = frozenset({"driver", "owner", "approver"})
"""Who finds a place in a full room (rooms.md, Limits)."""


@get(
    "/v1/rooms/{room_id:str}/stream",
    tags=["rooms"],
    responses={200: ResponseSpec(str, media_type="text/event-stream", generate_examples=False, description="Frames")},  # pyright: ignore[reportArgumentType]
)
async def follow_room(
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    after_seq: Annotated[
        str | None,
        QueryParameter(
            name="afterSeq", required=False, max_length=32, description="The id of the last event you have."
        ),
    ] = None,
    tail: Annotated[int, QueryParameter(ge=0, le=MAX_TAIL)] = DEFAULT_TAIL,
    log_id: Annotated[str | None, QueryParameter(name="logId", required=False, max_length=64)] = None,
    last_event_id: Annotated[str | None, HeaderParameter(name="Last-Event-ID", required=False)] = None,
) -> Response[Any]:
    """The snapshot, then every event behind the cursor, then what comes. `Last-Event-ID` wins over `afterSeq`."""
    seen = await see(services, caller, room_id)
    text = last_event_id if last_event_id is not None else after_seq
    cursor = None if text is None else parse_cursor(text)
    if services.hub.draining.is_set() or services.hub.streams >= services.settings.limits.streams_per_process:
        raise Unavailable("This server takes no more streams now; try again.", retryAfterMs=2000)
    may_always = standings(seen.room, room_id, seen.tenant, caller) & ALWAYS_ADMITTED
    services.limits.check_stream(caller, room_id, is_always_admitted=bool(may_always))
    is_other_log = log_id is not None and log_id != services.log_id
    start = plan(seen.version, cursor, tail, is_other_log=is_other_log)
    return RawResponse(EventStream(services, caller, seen, start))
