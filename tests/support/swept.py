"""Rooms that sweeps look at: written straight into the log, and the sweeps of any number of servers over them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any

import msgspec
from append_helpers import append, creation, event, item
from append_helpers import one as value_of
from handlers import means_of
from minutebook.commands.dispatcher import Bounds, Dispatcher, Fingerprints
from minutebook.commands.processes.lookups import Lookups
from minutebook.commands.processes.server_acts import ServerActs
from minutebook.domain.ids import short_id
from minutebook.domain.principals import Principal
from minutebook.domain.rooms.approval_events import ApprovalRequested
from minutebook.domain.rooms.context import NewEvent
from minutebook.domain.rooms.events import DriverMoved, ParticipantJoined, RoomOpened, RunStarted
from minutebook.infra.jobs.connector import make_app
from minutebook.infra.jobs.waits import PostgresWaits
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.due import PostgresDue
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.postgres.projector import Projector
from minutebook.infra.postgres.store import PostgresStore
from minutebook.infra.postgres.views import PROJECTIONS


def run_of(number: int) -> str:
    """The run of the room with that number."""
    return short_id(900_000 + number)


def opened(owner: str = "human:olga") -> RoomOpened:
    """A room as its first event has it."""
    return RoomOpened(owner=owner, driver=owner, data_class="internal", retention="90d")


def started(number: int = 1) -> tuple[Any, ...]:
    """A room with a running run."""
    run = run_of(number)
    return (opened(), ParticipantJoined(f"agent:{run}", "implementer"), RunStarted(run, "implementer"))


def by_run(event: Any, number: int = 1) -> NewEvent:
    """What the run of that room did."""
    run = run_of(number)
    return NewEvent(event, Principal("agent", run), run_id=run)


def asked(number: int = 1) -> NewEvent:
    """Its request for approval, whose time has been over for long."""
    approval = f"01J00000000000000000{number:06}"
    return by_run(
        ApprovalRequested(approval, "c1", "forge.pr", {}, "0" * 64, (), "2026-01-01T00:00:00.000000Z"), number
    )


def lent() -> tuple[Any, ...]:
    """A room of a system that gave the token to a person."""
    return (opened("system:triage"), DriverMoved("system:triage", "human:carl", 2, "given"))


class Hands(msgspec.Struct, frozen=True):
    """One server's, with connections of its own; its clock stands where the test says."""

    due: PostgresDue
    acts: ServerActs
    waits: PostgresWaits
    lookups: Lookups
    now: Any


@contextlib.asynccontextmanager
async def hands_of(database: Any, now: datetime) -> AsyncGenerator[Hands]:
    """A server's hands, at that moment."""

    def clock() -> datetime:
        return now

    async with make_pool(database.url("app"), "app", max_size=4, statement_timeout_ms=10_000) as pool:
        appender = Appender(pool)
        appender.start()
        try:
            dispatcher = Dispatcher(PostgresStore(pool, appender), Fingerprints(b"k" * 32), Bounds())
            acts = ServerActs(dispatcher, means_of(now=clock))
            due, waits = PostgresDue(pool), PostgresWaits(pool, make_app(database.url("app")))
            yield Hands(due, acts, waits, Lookups(acts, due, waits, clock), clock)
        finally:
            await appender.close()


def row_of(each: Any) -> dict[str, Any]:
    """A bare event, or a NewEvent of the domain, as the log takes it."""
    is_new = hasattr(each, "origin_client")
    what = each.event if is_new else each
    fields: dict[str, Any] = {"t": what.type, "ak": "system", "ai": "minutebook", "o": "broker"}
    if is_new:
        named = {"r": each.run_id, "oc": each.origin_client, "ok": each.origin_key}
        fields |= {"ak": each.actor.kind, "ai": each.actor.id, "o": each.origin}
        fields |= {name: value for name, value in named.items() if value is not None}
    return event(what.payload(), **fields)


def begin(database: Any, *events: Any, number: int = 1) -> str:
    """A room with these events; its id."""
    room = short_id(number)
    with database.connect("app") as app:
        assert append(app, creation(*map(row_of, events), stream=f"room:{room}"))[0].outcome == "appended"
    return room


def go_on(database: Any, room: str, *events: Any) -> int:
    """More events of a room; its last seq."""
    with database.connect("app") as app:
        at = head(database, room)
        assert append(app, item(at, *map(row_of, events), stream=f"room:{room}"))[0].outcome == "appended"
    return at + len(events)


def head(database: Any, room: str) -> int:
    """A room's last seq."""
    with database.connect("auditor") as look:
        return value_of(look, "SELECT version FROM minutebook.streams WHERE name = %s", f"room:{room}")


def log(database: Any, room: str) -> list[dict[str, Any]]:
    """The payloads of a room."""
    with database.connect("auditor") as look:
        rows = look.execute(
            "SELECT e.payload FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
            " WHERE s.name = %s ORDER BY e.seq",
            (f"room:{room}",),
        )
        return [payload for (payload,) in rows]


async def project(database: Any) -> None:
    """Fold what is behind into the directory of rooms."""
    async with make_pool(database.url("projector"), "projector", max_size=2, statement_timeout_ms=10_000) as pool:
        projector = Projector(PROJECTIONS["room_list"], pool, lambda: True)
        await projector._find_behind()
        while projector._dirty:
            ids, projector._dirty = sorted(projector._dirty), set()
            await projector.fold(ids)


def park(database: Any, room: str) -> None:
    """As if the directory could not fold what comes next in that room; for an hour."""
    with database.connect("postgres") as superuser:
        superuser.execute(
            "INSERT INTO minutebook_views.parked (projection, stream_id, seq, reason, retry_at)"
            " SELECT 'room_list', s.id, s.version + 1, 'of the test', clock_timestamp() + interval '1 hour'"
            " FROM minutebook.streams s WHERE s.name = %s",
            (f"room:{room}",),
        )
