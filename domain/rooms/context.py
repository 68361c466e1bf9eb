"""What a decision of a room is told of the world, and the events that the server makes by itself."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..decisions import Decision, NewEvent
from ..events import Event
from ..principals import SERVER, SERVER_COMPONENT, Caller

__all__ = ["Context", "Decision", "Limits", "NewEvent", "Timeouts", "by_server"]


class Limits(msgspec.Struct, frozen=True):
    """The limits of a room (rooms.md); settings may move them. Sizes in bytes of UTF-8.

    queued: messages that wait for the next run. deliveries: what waits to be delivered to the running run.
    waiting_runs: runs that were requested or registered and did not say hello yet.
    """

    text_bytes: int = 16 * 1024
    payload_bytes: int = 64 * 1024
    members: int = 20
    events: int = 100_000
    bytes: int = 256 * 1024 * 1024
    queued: int = 50
    deliveries: int = 50
    waiting_runs: int = 8


class Timeouts(msgspec.Struct, frozen=True):
    """The waits after which a sweep acts, in seconds (rooms.md); settings may move them.

    away_s, idle_s: a human driver who is not seen, or does nothing, for so long. lost_s: a running run whose lease is
    not renewed. never_joined_s: a requested run without a hello. waiting_s: a running run without an event, which then
    waits for a human. attended_s, unattended_s: a request for approval, where the room's policy says nothing else.
    """

    away_s: float = 120
    idle_s: float = 900
    lost_s: float = 600
    never_joined_s: float = 600
    waiting_s: float = 1800
    attended_s: float = 1800
    unattended_s: float = 14_400


class Context(msgspec.Struct, frozen=True):
    """What a decision is told of the world: who asks, about which room, when, where its log stands, the limits.

    now: the server's clock, with a time zone. version: the last seq. stored_bytes: the payload bytes up to it.
    fresh_id: an unused id with the grammar of a run's. fresh_ulid: an unused ULID. The server draws both a command.
    """

    caller: Caller
    room_id: str
    tenant: str
    now: datetime
    version: int = 0
    stored_bytes: int = 0
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    fresh_id: str = ""
    fresh_ulid: str = ""


def by_server(
    event: Event, key: str | None = None, *, run_id: str | None = None, caused_by: int | None = None
) -> NewEvent:
    """An event that the server makes by itself.

    key: the fixed key of rooms.md (`run:<id>:ended`, `driver:<epoch>`, ...), so that a second server's try at the same
    event is a duplicate; None where the event cannot be named beforehand.
    """
    client = None if key is None else SERVER_COMPONENT
    return NewEvent(event, SERVER, None, run_id, caused_by, "broker", (), client, key)
