"""What the log's events mean beside it: where a run is, what holds retention off. In the transaction of the event."""

from __future__ import annotations

import json
from typing import Any

import pytest
from append_helpers import (
    LOGIN_ROLES,
    ROOM,
    append,
    as_role,
    creation,
    event,
    expire,
    item,
    one,
    outcomes,
    refused,
    stream_id,
    verdict,
)

OTHER = "room:bbbbbbbb"
RUN = "runrunaa"
HELD = "SELECT s.held FROM minutebook.streams s WHERE s.name = %s"
CLOSED = "SELECT outcome, seq, body FROM minutebook.hold_closed_v1(%s, %s, %s, 'human', 'olga', %s, %s)"


def changed(payload: dict[str, Any], origin: str = "broker") -> dict[str, Any]:
    """An event of that kind by the server."""
    return event(payload, t="state_changed", o=origin)


def requested(run: str = RUN) -> dict[str, Any]:
    """A run that is wanted."""
    return changed({"kind": "run_requested", "runId": run})


def moved(phase: str, run: str = RUN) -> dict[str, Any]:
    """A run that is registered, running or ended."""
    return changed({"kind": "run_phase", "phase": phase, "runId": run})


def run_of(connection: Any, run: str = RUN) -> tuple[str, str] | None:
    """The stream and the state of a run."""
    return connection.execute(
        "SELECT s.name, r.state FROM minutebook.runs r JOIN minutebook.streams s ON s.id = r.stream_id"
        " WHERE r.run_id = %s",
        (run,),
    ).fetchone()


def test_a_run_is_found_by_its_id_as_soon_as_its_event_is_there(any_database: Any) -> None:
    with any_database.connect("app") as app:
        append(app, creation())
        assert run_of(app) is None
        for expected, (made, state) in enumerate(
            [
                (requested(), "requested"),
                (moved("registered"), "requested"),
                (moved("running"), "running"),
                (moved("registered"), "running"),
                (moved("ended"), "ended"),
            ],
            1,
        ):
            append(app, item(expected, made))
            assert run_of(app) == (ROOM, state)


def test_a_registration_that_is_rolled_back_leaves_no_run(database: Any) -> None:
    with database.connect("app") as app, database.connect("app") as other:
        append(app, creation())
        with app.transaction(force_rollback=True):
            append(app, item(1, requested()))
            assert run_of(app) == (ROOM, "requested")
            assert run_of(other) is None
        assert run_of(app) is None


def test_a_run_is_of_one_room_on_the_whole_server(any_database: Any) -> None:
    with any_database.connect("app") as app:
        append(app, creation(), creation(stream=OTHER))
        append(app, item(1, requested()))
        for taken in (requested(), moved("running"), moved("ended")):
            with refused("23505"):
                append(app, item(1, taken, stream=OTHER))
        assert run_of(app) == (ROOM, "requested")
        assert one(app, "SELECT s.version FROM minutebook.streams s WHERE s.name = %s", OTHER) == 1


def test_what_a_harness_pushes_is_no_run_and_no_hold(any_database: Any) -> None:
    with any_database.connect("app") as app:
        append(app, creation())
        pushed = [{"kind": "run_requested", "runId": RUN}, {"kind": "hold_set", "reason": "mine"}]
        append(app, item(1, *(changed(payload, "harness") for payload in pushed)))
        append(app, item(3, event({"kind": "run_requested", "runId": RUN}), changed({"kind": "run_phase"})))
        assert run_of(app) is None
        assert one(app, HELD, ROOM) is False


def test_a_fork_takes_neither_runs_nor_holds_along(any_database: Any) -> None:
    with any_database.connect("app") as app:
        append(app, creation(requested(), moved("running"), changed({"kind": "hold_set", "reason": "lawsuit"})))
        own = json.dumps(changed({"kind": "forked_from", "room": "aaaaaaaa"}))
        fork = "SELECT outcome FROM minutebook.fork_v1(%s, 3, %s, %s::pg_catalog.json, 100, 99999)"
        assert one(app, fork, ROOM, OTHER, own) == "appended"
        assert run_of(app) == (ROOM, "running")
        assert (one(app, HELD, ROOM), one(app, HELD, OTHER)) == (True, False)
        append(app, item(4, requested("runrunbb"), stream=OTHER))
        assert run_of(app, "runrunbb") == (OTHER, "requested")


def test_a_hold_and_its_release_are_events_of_an_open_room(any_database: Any) -> None:
    with any_database.connect("app") as app:
        append(app, creation())
        append(app, item(1, changed({"kind": "hold_set", "reason": "lawsuit"})))
        assert one(app, HELD, ROOM) is True
        append(app, item(2, changed({"kind": "hold_released", "reason": "settled"})))
        assert one(app, HELD, ROOM) is False


def hold(connection: Any, ulid: str, *, is_set: bool, reason: str = "why", key: Any = None) -> Any:
    """hold_closed_v1 of the room."""
    words = None if key is None else json.dumps(key)
    return connection.execute(CLOSED, (ROOM, is_set, ulid, reason, words)).fetchone()


def test_a_closed_room_is_held_and_released_without_a_word_in_its_log(any_database: Any) -> None:
    with any_database.connect("app") as app, any_database.connect("postgres") as superuser:
        append(app, creation())
        assert hold(app, "A", is_set=True)[0] == "open"
        append(app, item(1, event(), seal=True))
        expire(superuser, ROOM, days=90)
        assert hold(app, "B", is_set=False) == ("done", 2, None), "nothing to release"
        assert hold(app, "C", is_set=True, reason="lawsuit") == ("done", 2, None)
        with any_database.connect("retention") as retention:
            purge = "SELECT minutebook.purge_stream_v1(%s)"
            assert one(retention, purge, stream_id(superuser, ROOM)) is None
            assert hold(app, "D", is_set=False, reason="settled")[0] == "done"
            kept = app.execute("SELECT h.id, h.is_set, h.actor_id, h.reason FROM minutebook.holds h ORDER BY 1")
            assert kept.fetchall() == [("C", True, "olga", "lawsuit"), ("D", False, "olga", "settled")]
            assert one(retention, purge, stream_id(superuser, ROOM)) == 2
        assert one(superuser, "SELECT count(*) FROM minutebook.holds") == 0


def test_a_hold_of_a_closed_room_under_one_key_is_one_hold(any_database: Any) -> None:
    place = {"tenant": "acme", "caller": "human:olga", "operation": "set_hold", "scope": ROOM, "key": "k"}
    key = {**place, "fingerprint": "0a", "status": 200, "body": {"x": 1}}
    with any_database.connect("app") as app:
        append(app, creation(event(), seal=True))
        first = hold(app, "A", is_set=True, key=key)
        assert (first[0], json.loads(first[2])["x"]) == ("done", 1)
        again = hold(app, "B", is_set=True, key=key)
        assert (again[0], again[2]) == ("duplicate", first[2])
        assert hold(app, "C", is_set=True, key={**key, "fingerprint": "0b"})[0] == "key_reused"
        assert one(app, "SELECT count(*) FROM minutebook.holds") == 1


def test_a_purge_takes_what_is_beside_the_log_along(any_database: Any) -> None:
    with any_database.connect("app") as app, any_database.connect("postgres") as superuser:
        append(app, creation(requested()))
        room = stream_id(app, ROOM)
        app.execute("INSERT INTO minutebook.presence VALUES (%s, 'human:olga', now(), NULL)", (room,))
        app.execute("INSERT INTO minutebook.waits_told VALUES (%s, 'runrunaa', 1, now())", (room,))
        append(app, item(1, event(), seal=True))
        expire(superuser, ROOM, days=90)
        with any_database.connect("retention") as retention:
            assert one(retention, "SELECT minutebook.purge_stream_v1(%s)", room) == 2
        for table in ("runs", "presence", "waits_told"):
            assert one(superuser, f"SELECT count(*) FROM minutebook.{table}") == 0


@pytest.mark.parametrize("role", LOGIN_ROLES)
def test_nobody_writes_runs_and_holds_by_hand(any_database: Any, role: str) -> None:
    with any_database.connect("app") as app:
        append(app, creation(requested()))
    with any_database.connect("postgres") as connection:
        as_role(connection, role)
        for statement in (
            "UPDATE minutebook.runs SET state = 'running'",
            "DELETE FROM minutebook.runs",
            "TRUNCATE minutebook.runs",
            "INSERT INTO minutebook.runs VALUES ('runrunbb', 1, 'running')",
            "DELETE FROM minutebook.holds",
            "DELETE FROM minutebook.presence",
            "DELETE FROM minutebook.waits_told",
            "INSERT INTO minutebook.holds VALUES (1, 'A', true, 'human', 'eve', 'x')",
        ):
            assert verdict(connection, statement) == "42501", statement


def test_two_rooms_that_register_one_run_at_once(database: Any) -> None:
    with database.connect("app") as first, database.connect("app") as second:
        append(first, creation(), creation(stream=OTHER))
        with first.transaction():
            append(first, item(1, requested()))
            assert outcomes(append(second, item(1, event(), stream=OTHER))) == ["appended"]
        with refused("23505"):
            append(second, item(2, requested(), stream=OTHER))
