"""Forks as the commands ask for them: one call of their own, whose streams every reader of the log accepts."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from append_helpers import run as execute
from append_helpers import until
from appender_helpers import Pool, row, run
from approval_scenes import asking, opened, running
from minutebook.commands.ports import Append, Creation, EventRow, Fork, Key
from minutebook.commands.rooms import ROOM as KIND
from minutebook.commands.streams import load
from minutebook.domain.errors import Unavailable
from minutebook.domain.rooms.events import RoomClosed
from minutebook.domain.rooms.fork import ForkedFrom
from minutebook.domain.rooms.state import Member
from minutebook.infra.postgres import forks as forks_module
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.doctor import Urls, examine
from minutebook.infra.postgres.export import export_stream, verify_file
from minutebook.infra.postgres.forks import PostgresForks
from minutebook.infra.postgres.store import PostgresStore
from room_scenes import ROOM, STARTED, given
from ulid_transform import ulid_now

SOURCE, FORK, OTHER = f"room:{ROOM}", "room:ffffffff", "room:gggggggg"
HISTORY = given(*(opened(), *STARTED), *running().when(asking()).decided().events)
"""A room with a running run whose request waits."""


def stored(event: Any, **fields: Any) -> EventRow:
    """An event as a handler encodes it."""
    payload = msgspec.Raw(msgspec.json.encode(event.payload()))
    return EventRow(ulid_now(), event.type, event.version, payload, "human", "fay", "client", **fields)


def history() -> list[EventRow]:
    """The source's events."""
    return [stored(getattr(each, "event", each)) for each in HISTORY.events]


async def begin(appender: Appender, *more: EventRow, seal: bool = False) -> int:
    """Store the source; its last seq."""
    rows = [*history(), *more]
    await appender.append([Append(SOURCE, 0, rows, create=Creation("room", "acme", 90), seal=seal)])
    return len(rows)


def fork_at(seq: int, stream: str = FORK, key: Key | None = None, **limits: int) -> Fork:
    """What a handler asks for."""
    own = stored(ForkedFrom(ROOM, seq, "", "human:fay", "another way"))
    bounds = {"max_events": 100_000, "max_bytes": 1 << 28, **limits}
    return Fork(SOURCE, seq, stream, own, bounds["max_events"], bounds["max_bytes"], key)


def key(name: str, fingerprint: str = "0a") -> Key:
    """A caller's key of a fork."""
    answer = {"id": "ffffffff", "forkedFrom": {"room": ROOM, "seq": 4}}
    return Key("acme", "human:fay", "fork_room", SOURCE, name, fingerprint, 201, answer)


def test_a_fork_is_a_room_of_the_forkers(database: Any) -> None:
    async def go(appender: Appender, pool: Pool) -> None:
        last = await begin(appender, stored(RoomClosed("done")), seal=True)
        made = await PostgresForks(pool).fork(fork_at(last))
        assert (made.kind, made.seq, made.status, made.body) == ("appended", last + 1, None, None)
        loaded = await load(PostgresStore(pool, appender), KIND, FORK)
        assert loaded is not None
        assert (loaded.head.version, loaded.head.chain, loaded.head.sealed) == (made.seq, made.chain, False)
        room = loaded.state
        assert room.members == {"human:fay": Member("owner")}
        assert (room.driver, room.driver_epoch, room.run, room.approvals.pending) == ("human:fay", 2, None, {})
        assert (room.is_open, room.is_closed) == (True, False)
        entry = (await PostgresStore(pool, appender).read_entries(loaded.head.id, "ffffffff", last, 10))[0]
        payload = msgspec.json.decode(entry.envelope.payload)
        assert payload["chain"] == made.source_chain
        assert msgspec.convert(payload, ForkedFrom).seq == last
        (outcome,) = await appender.append([Append(FORK, made.seq, [row("and on")])])
        assert outcome.kind == "appended"

    run(go, database.url())


@pytest.mark.parametrize("step", ["export", "doctor"])
def test_every_reader_accepts_its_chain(any_database: Any, tmp_path: Path, step: str) -> None:
    async def go(appender: Appender, pool: Pool) -> None:
        naming = msgspec.Raw(b'{"kind": "payload_erased", "erasedSeq": 2}')
        last = await begin(appender, EventRow(ulid_now(), "state_changed", 1, naming, "system", "minutebook", "broker"))
        with any_database.connect("eraser") as eraser:
            execute(eraser, "UPDATE minutebook.events SET payload = NULL, salt = NULL WHERE seq = 2")
        await PostgresForks(pool).fork(fork_at(last - 1))
        await PostgresForks(pool).fork(msgspec.structs.replace(fork_at(last - 1), source=FORK, stream=OTHER))

    run(go, any_database.url())
    if step == "export":
        for stream in (FORK, OTHER):
            out = io.BytesIO()
            export_stream(any_database.url("auditor"), stream, out)
            file = tmp_path / f"{stream[5:]}.jsonl"
            file.write_bytes(out.getvalue())
            report = verify_file(file)
            assert report.ok, report.breaks
            assert report.erased == 1
    else:
        auditor, app, postgres = (any_database.url(role) for role in ("auditor", "app", "postgres"))
        checks = {check.name: check for check in examine(Urls(auditor, app, app, postgres))}
        for name in ("triggers", "functions", "grants", "gaps", "chain"):
            assert checks[name].ok, checks[name].detail


def test_the_same_key_hears_the_first_answer(database: Any) -> None:
    async def go(appender: Appender, pool: Pool) -> None:
        await begin(appender)
        forks = PostgresForks(pool)
        first, *rest = await asyncio.gather(
            *(forks.fork(fork_at(4, f"room:ffffff{n:02}", key("k"))) for n in range(10, 15))
        )
        outcomes = [made.kind for made in (first, *rest)]
        assert sorted(outcomes) == ["appended", *["duplicate"] * 4]
        assert len({made.body for made in (first, *rest)}) == 1
        other = await forks.fork(fork_at(3, OTHER, key("k", "0b")))
        assert other.kind == "key_reused"
        body = msgspec.json.decode(first.body or "")
        source = next(made.source_chain for made in (first, *rest) if made.kind == "appended")
        assert body["forkedFrom"] == {"room": ROOM, "seq": 4, "chain": source}
        assert (body["id"], body["seq"]) == ("ffffffff", 5)

    run(go, database.url(), connections=5)


def test_limits_and_absence_are_outcomes(database: Any) -> None:
    async def go(appender: Appender, pool: Pool) -> None:
        last = await begin(appender)
        forks = PostgresForks(pool)
        asked = [fork_at(last + 1), fork_at(last, max_events=last + 1), fork_at(last, max_bytes=10), fork_at(1, SOURCE)]
        kinds = [(await forks.fork(each)).kind for each in asked]
        assert kinds == ["not_found", "too_long", "too_long", "conflict"]

    run(go, database.url())


def test_law_7_a_caller_that_goes_away_leaves_nothing(database: Any) -> None:
    """The fork waits for a lock when its caller leaves: no stream, no key, no transaction and no hole in the pool."""

    async def go(appender: Appender, pool: Pool) -> None:
        await begin(appender)
        with database.connect("postgres") as superuser, database.connect("postgres") as watcher:
            superuser.autocommit = False
            execute(superuser, f"SELECT FROM minutebook.streams WHERE name = '{SOURCE}' FOR UPDATE")
            task = asyncio.create_task(PostgresForks(pool).fork(fork_at(4, key=key("k"))))
            waits = (
                "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%fork_v1%%'"
            )
            await asyncio.to_thread(until, watcher, waits)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            superuser.rollback()
            idle = (
                "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'minutebook app' AND state <> 'idle'"
            )
            await asyncio.to_thread(until, watcher, idle)
        assert (await PostgresForks(pool).fork(fork_at(4, key=key("k")))).kind == "appended"

    run(go, database.url(), connections=2)


def test_a_fork_that_takes_too_long_is_refused_and_its_time_is_its_own(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks_module, "FORK_TIMEOUT_MS", 50)

    async def go(appender: Appender, pool: Pool) -> None:
        await begin(appender)
        with database.connect("postgres") as superuser:
            superuser.autocommit = False
            execute(superuser, f"SELECT FROM minutebook.streams WHERE name = '{SOURCE}' FOR UPDATE")
            with pytest.raises(Unavailable):
                await PostgresForks(pool).fork(fork_at(4))
            superuser.rollback()
        async with pool.connection() as connection:
            assert await (await connection.execute("SHOW statement_timeout")).fetchone() == ("20s",)

    run(go, database.url(), connections=2)
