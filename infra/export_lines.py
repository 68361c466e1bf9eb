"""The lines of an export: one JSON document each, with what its hash covers (docs/explanation/hash-chain.md)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..domain.envelope import VERSION, Actor
from ..domain.events import Origin
from .chain import ChainEvent, ChainLink

ROOM_PREFIX = "room:"
"""Streams of rooms are named so; their lines carry `roomId`, all others `stream`."""

ERASED = b'{"erased": true}'
"""The payload of a line whose event has none any more."""


class Line(Struct, frozen=True, rename="camel"):
    """An event: its envelope, and what its hash covers beside it. `stream` stands only where it is not a room's.

    payload_text is what was hashed, as it was hashed; `payload` is the same value for those who only read.
    """

    id: str
    seq: int
    actor: Actor
    type: str
    origin: Origin
    ts: str
    redactions: list[str]
    payload: Raw
    schema_version: int
    classes: list[str]
    payload_text: str | None
    salt: str | None
    commitment: str
    prev_hash: str
    hash: str
    v: int = VERSION
    room_id: str | UnsetType = UNSET
    stream: str | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    caused_by: int | UnsetType = UNSET
    origin_client: str | UnsetType = UNSET
    origin_key: str | UnsetType = UNSET


class RestrictedLine(Struct, frozen=True, rename="camel"):
    """An event that the reader of this export is not cleared for: that it exists, and its place in the chain."""

    id: str
    seq: int
    ts: str
    type: Literal["restricted"]
    prev_hash: str
    hash: str
    v: int = VERSION
    payload: dict[str, Any] = {}
    room_id: str | UnsetType = UNSET
    stream: str | UnsetType = UNSET


class Trailer(Struct, frozen=True, rename="camel"):
    """The last line of a stream. remaining: streams that follow in this file, where it is an export of several.

    from_seq: the first seq that was asked for. through_seq: the last one written, or one less than from_seq where
    there was none; `head` is the hash at it.
    """

    trailer: Literal[True]
    stream: str
    log_id: str
    count: int
    from_seq: int
    through_seq: int
    head: str
    sealed: bool
    remaining: int = 0


encode = msgspec.json.Encoder().encode
"""Encodes a line as this version writes it, without its newline."""


def event_line(stream: str, e: ChainEvent) -> bytes:
    """One event as a line of an export, with its newline."""
    is_room = stream.startswith(ROOM_PREFIX)
    text = e.payload_text
    line = Line(
        e.id,
        e.seq,
        Actor(e.actor_kind, e.actor_id, UNSET if e.actor_role is None else e.actor_role),
        e.type,
        e.origin,  # pyright: ignore[reportArgumentType] - the log holds no other
        e.ts,
        list(e.redactions),
        Raw(ERASED if text is None else text.encode()),
        e.schema_version,
        list(e.classes),
        text,
        None if e.salt is None else e.salt.hex(),
        e.commitment,
        e.prev_hash,
        e.hash,
        room_id=stream.removeprefix(ROOM_PREFIX) if is_room else UNSET,
        stream=UNSET if is_room else stream,
        run_id=UNSET if e.run_id is None else e.run_id,
        caused_by=UNSET if e.caused_by is None else e.caused_by,
        origin_client=UNSET if e.origin_client is None else e.origin_client,
        origin_key=UNSET if e.origin_key is None else e.origin_key,
    )
    return encode(line) + b"\n"


def restricted_line(stream: str, event_id: str, link: ChainLink) -> bytes:
    """The line of an event that the reader is not cleared for, with its newline."""
    is_room = stream.startswith(ROOM_PREFIX)
    line = RestrictedLine(
        event_id,
        link.seq,
        link.ts,
        "restricted",
        link.prev_hash,
        link.hash,
        room_id=stream.removeprefix(ROOM_PREFIX) if is_room else UNSET,
        stream=UNSET if is_room else stream,
    )
    return encode(line) + b"\n"


def trailer_line(trailer: Trailer) -> bytes:
    """The line that ends a stream, with its newline."""
    return encode(trailer) + b"\n"
