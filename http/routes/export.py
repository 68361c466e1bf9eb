"""Taking a room's log along, with the hashes that prove it whole (http.md, Rooms)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from litestar import Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, QueryParameter
from litestar.types import Receive, Send

from ...commands.rooms import stream_of
from ...domain.errors import Invalid
from ...domain.visibility import cleared
from ...infra.chain import ChainEvent, ChainLink
from ...infra.export_lines import Trailer, event_line, restricted_line, trailer_line
from ..raw import RawResponse, watch
from ..reading import Seen, see
from ..services import Services
from .common import TheCaller, TheServices

PAGE = 200
"""Events read and sent at a time; between two pages no connection is held."""

SEND_TIMEOUT_S = 60.0
"""A client that takes nothing of a page for this long is cut off."""

MEDIA_TYPE = "application/x-ndjson"


@get(
    "/v1/rooms/{room_id:str}/export",
    tags=["rooms"],
    responses={200: ResponseSpec(str, media_type=MEDIA_TYPE, generate_examples=False, description="JSON lines")},  # pyright: ignore[reportArgumentType]
)
async def export_room(
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    after_seq: Annotated[int, QueryParameter(name="afterSeq", ge=0, le=2**53)] = 0,
) -> Response[Any]:
    """The log up to now, one line an event, then a trailer with count and head; `minutebook verify FILE` checks it.

    An answer that breaks off has no trailer. What the caller is not cleared for is a line with its place in the chain.
    """
    seen = await see(services, caller, room_id, "export")
    if after_seq > seen.version:
        raise Invalid.at("afterSeq", f"the room ends at {seen.version}")
    start = await services.exports.hash_at(seen.stream_id, after_seq)
    return RawResponse(_Export(services, seen, caller.labels, after_seq, start))


class _Export:
    """See raw.RawAnswer. Bounded by the head that the authorization saw."""

    def __init__(self, services: Services, seen: Seen, labels: frozenset[str], after: int, start_hash: str) -> None:
        self.headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-disposition", f'attachment; filename="room-{seen.room_id}.jsonl"'.encode()),
            (b"cache-control", b"no-store"),
        ]
        self._services = services
        self._seen = seen
        self._labels = labels
        self._after = after
        self._head = start_hash
        self._stream = stream_of(seen.room_id)

    async def run(self, receive: Receive, send: Send) -> None:
        """Page by page. An error within makes the answer end without its trailer."""
        gone = watch(receive)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.headers})
            at, count = self._after, 0
            while at < self._seen.version and not gone.done():
                page = await self._services.exports.page(self._seen.stream_id, at, self._seen.version, PAGE)
                if not page:
                    # Retention took the room meanwhile. To end the answer properly would claim that this is all.
                    raise ConnectionAbortedError
                await self._write(send, b"".join(self._line(event) for event in page), more=True)
                at, count, self._head = page[-1].seq, count + len(page), page[-1].hash
            await self._write(send, self._trailer(count, at), more=False)
        finally:
            gone.cancel()

    def _line(self, event: ChainEvent) -> bytes:
        if cleared(event.classes, self._labels):
            return event_line(self._stream, event)
        return restricted_line(self._stream, event.id, ChainLink(event.seq, event.ts, event.prev_hash, event.hash))

    def _trailer(self, count: int, through: int) -> bytes:
        services, seen = self._services, self._seen
        return trailer_line(
            Trailer(True, self._stream, services.log_id, count, self._after + 1, through, self._head, seen.sealed)
        )

    async def _write(self, send: Send, data: bytes, *, more: bool) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await send({"type": "http.response.body", "body": data, "more_body": more})
