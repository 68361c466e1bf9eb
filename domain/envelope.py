"""The envelope, version 1: one entry of a room's log as it is stored, streamed and exported (rooms.md)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .events import Origin

VERSION = 1


class Actor(Struct, frozen=True, rename="camel"):
    """Who wrote the entry, from the verified token; `role` is their role in the room then."""

    kind: str
    id: str
    role: str | UnsetType = UNSET


class Envelope(Struct, frozen=True, rename="camel"):
    """The keys on the wire, exactly; a test pins them. `payload` is the stored text, never re-encoded."""

    id: str
    seq: int
    room_id: str
    actor: Actor
    type: str
    origin: Origin
    ts: str
    redactions: list[str]
    payload: msgspec.Raw
    v: int = VERSION
    run_id: str | UnsetType = UNSET
    caused_by: int | UnsetType = UNSET


class Placeholder(Struct, frozen=True, rename="camel"):
    """What a viewer who is not cleared gets instead: that there is an entry, and nothing of it."""

    id: str
    seq: int
    room_id: str
    ts: str
    v: int = VERSION
    type: Literal["restricted"] = "restricted"
    payload: dict[str, Any] = {}
