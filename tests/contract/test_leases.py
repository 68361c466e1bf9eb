"""Leases: one holder by the database's clock, epochs that only grow, appends of an older epoch refused (law 25)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from append_helpers import (
    ROOM,
    Background,
    append,
    creation,
    event,
    events,
    item,
    key,
    one,
    outcomes,
    refused,
    stream_id,
    until_blocked,
)

TTL_S = 30


@pytest.fixture
def app(any_database: Any) -> Any:
    with any_database.connect("app") as connection:
        append(connection, creation(*events(2)))
        yield connection


def take(app: psycopg.Connection, holder: str, *, ttl_s: int = TTL_S, purpose: str = "run", stream: str = ROOM) -> Any:
    statement = "SELECT epoch, holder FROM minutebook.lease_take_v1(%s, %s, %s, %s)"
    return app.execute(statement, (stream, purpose, holder, ttl_s)).fetchone()


def drop(app: psycopg.Connection, holder: str, epoch: int) -> bool:
    return one(app, "SELECT minutebook.lease_drop_v1(%s, 'run', %s, %s)", ROOM, holder, epoch)


def fence(holder: str, epoch: int, purpose: str = "run") -> dict[str, Any]:
    return {"fencePurpose": purpose, "fenceHolder": holder, "fenceEpoch": epoch}


def age(database: Any, seconds: int) -> None:
    """Let time pass for every lease: what the tests change is the stored moment, never the clock."""
    with database.connect("postgres") as superuser:
        superuser.execute("UPDATE minutebook.leases SET seen_at = seen_at - make_interval(secs => %s)", (seconds,))


def test_a_lease_is_held_until_it_expires_by_the_database_clock(any_database: Any, app: Any) -> None:
    assert take(app, "h1") == (1, "h1")
    assert take(app, "h2") == (0, "h1")
    age(any_database, TTL_S - 2)
    assert take(app, "h2") == (0, "h1")
    age(any_database, 2)
    assert take(app, "h2") == (2, "h2")
    assert take(app, "h1") == (0, "h2")


def test_the_epoch_grows_with_every_take_and_drop(app: Any) -> None:
    assert [take(app, "h1")[0] for _ in range(3)] == [1, 2, 3]
    assert drop(app, "h1", 2) is False
    assert drop(app, "h2", 3) is False
    assert take(app, "h2") == (0, "h1")
    assert drop(app, "h1", 3) is True
    assert drop(app, "h1", 3) is False
    assert take(app, "h2") == (5, "h2")


def test_purposes_and_streams_do_not_mix(app: Any) -> None:
    append(app, creation(stream="room:bbbbbbbb"))
    assert take(app, "h1") == take(app, "h1", purpose="driver") == take(app, "h1", stream="room:bbbbbbbb") == (1, "h1")
    assert take(app, "h2", purpose="driver", ttl_s=0) == (2, "h2")
    assert take(app, "h2") == (0, "h1")


def test_a_stream_that_is_not_there_gives_no_lease(app: Any) -> None:
    with refused("MB001"):
        take(app, "h1", stream="room:unknown0")
    assert one(app, "SELECT minutebook.lease_drop_v1('room:unknown0', 'run', 'h1', 1)") is False
    assert one(app, "SELECT count(*) FROM minutebook.leases") == 0


def test_law_25_only_the_newest_epoch_of_the_holder_appends(any_database: Any, app: Any) -> None:
    take(app, "h1")
    for stale in (fence("h1", 0), fence("h1", 2), fence("h2", 1), fence("h1", 1, "driver")):
        result = append(app, item(2, event(), **stale, **key("k")))[0]
        assert (result.outcome, result.seq) == ("fenced", 2)
    age(any_database, 10 * TTL_S)
    # Expired, but nobody took over: still the newest.
    assert outcomes(append(app, item(2, event(), **fence("h1", 1)))) == ["appended"]
    age(any_database, TTL_S)
    assert take(app, "h2") == (2, "h2")
    assert outcomes(append(app, item(3, event(), **fence("h1", 1)), item(3, event(), **fence("h2", 2)))) == [
        "fenced",
        "appended",
    ]
    assert drop(app, "h2", 2)
    assert outcomes(append(app, item(4, event(), **fence("h2", 2)))) == ["fenced"]
    assert one(app, "SELECT count(*) FROM minutebook.idempotency") == 0


def test_a_stream_may_be_fenced_on_the_lease_of_another(any_database: Any, app: Any) -> None:
    """So a turn's stream needs no lease of its own: one look decides for both, and renews it."""
    take(app, "h1")
    first, other = fence("h1", 1) | {"fenceStream": ROOM}, "room:turn0001"
    refusals = append(
        app,
        creation(event(), stream=other, **fence("h1", 2), fenceStream=ROOM),
        creation(event(), stream="room:turn0002", **fence("h1", 1)),
        creation(event(), stream="room:turn0003", **fence("h1", 1), fenceStream="room:unknown0"),
    )
    assert outcomes(refusals) == ["fenced"] * 3
    assert one(app, "SELECT count(*) FROM minutebook.streams") == 1
    assert outcomes(append(app, creation(event(), stream=other, **first))) == ["appended"]
    age(any_database, TTL_S - 1)
    assert outcomes(append(app, item(1, event(), stream=other, **first))) == ["appended"]
    age(any_database, TTL_S - 1)
    assert take(app, "h2") == (0, "h1")
    age(any_database, 1)
    assert take(app, "h2") == (2, "h2")
    assert outcomes(append(app, item(2, event(), stream=other, **first))) == ["fenced"]
    assert outcomes(append(app, item(2, event(), stream=other, **fence("h2", 2)))) == ["fenced"]


def test_a_take_over_of_another_streams_lease_waits_for_the_append(any_database: Any, app: Any) -> None:
    take(app, "h1")
    append(app, creation(event(), stream="room:turn0001"))
    with any_database.connect("app") as other, any_database.connect("postgres") as superuser:
        other.autocommit = False
        assert take(other, "h2", ttl_s=0) == (2, "h2")
        late = item(1, event(), stream="room:turn0001", **fence("h1", 1), fenceStream=ROOM)
        waiting = Background(lambda: append(app, late))
        until_blocked(superuser, app.info.backend_pid)
        other.commit()
        assert outcomes(waiting.result()) == ["fenced"]


def test_a_fenced_append_renews_its_lease(any_database: Any, app: Any) -> None:
    take(app, "h1")
    age(any_database, TTL_S - 1)
    append(app, item(2, event(), **fence("h1", 1)))
    age(any_database, TTL_S - 1)
    assert take(app, "h2") == (0, "h1")
    append(app, item(3, event(), **fence("h1", 7)))
    age(any_database, 1)
    assert take(app, "h2") == (2, "h2")


def test_a_take_over_and_an_append_of_the_old_holder_are_one_after_the_other(any_database: Any, app: Any) -> None:
    """The append looks at the lease under the stream's lock, so it sees a take-over that committed while it waited."""
    take(app, "h1")
    with any_database.connect("app") as other, any_database.connect("postgres") as superuser:
        other.autocommit = False
        assert take(other, "h2", ttl_s=0) == (2, "h2")
        waiting = Background(lambda: append(app, item(2, event(), **fence("h1", 1))))
        until_blocked(superuser, app.info.backend_pid)
        other.commit()
        assert outcomes(waiting.result()) == ["fenced"]


def test_the_app_role_writes_leases_through_the_functions_alone(app: Any) -> None:
    take(app, "h1")
    for statement in (
        "UPDATE minutebook.leases SET epoch = 9",
        "INSERT INTO minutebook.leases VALUES (1, 'driver', 'h', 1, now())",
        "DELETE FROM minutebook.leases",
    ):
        with refused("42501"):
            app.execute(statement)
    assert app.execute("SELECT stream_id, holder, epoch FROM minutebook.leases").fetchall() == [
        (stream_id(app), "h1", 1)
    ]
