"""Idempotency keys: one effect and the first answer (law 3); what is refused burns no key (B06)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from append_helpers import (
    ROOM,
    Background,
    append,
    contents,
    creation,
    event,
    events,
    item,
    key,
    one,
    outcomes,
    refused,
    until_blocked,
)

OTHER = "room:bbbbbbbb"
CALLERS = 20


@pytest.fixture
def app(any_database: Any) -> Any:
    with any_database.connect("app") as connection:
        yield connection


def test_law_3_the_same_key_again_answers_the_first_time_and_appends_nothing(app: Any) -> None:
    append(app, creation(event()))
    first = append(app, item(1, *events(2), **key("k", body={"turn": "t1"})))[0]
    assert (first.outcome, first.seq, first.status) == ("appended", 3, 201)
    assert json.loads(first.body or "") == {"seq": 3, "id": first.event_id, "chain": first.chain, "turn": "t1"}
    append(app, item(3, event(), seal=True))
    before = contents(app)
    for expected in (1, 3, 4, 99):
        again = append(app, item(expected, *events(2), **key("k", status=500, body={"turn": "t2"})))[0]
        assert (again.outcome, again.seq) == ("duplicate", 4)
        assert (again.status, again.body) == (first.status, first.body)
    assert contents(app) == before


def test_the_same_key_with_another_request_is_refused(app: Any) -> None:
    append(app, creation(event(), **key("k")))
    before = contents(app)
    results = append(app, item(1, event(), **key("k", fingerprint="ff")), creation(**key("k", fingerprint="ff")))
    assert outcomes(results) == ["key_reused", "key_reused"]
    assert {result.body for result in results} == {None}
    assert contents(app) == before


@pytest.mark.parametrize("part", ["keyTenant", "keyCaller", "keyOperation", "keyScope", "key"])
def test_a_key_counts_within_its_tenant_caller_operation_and_scope(app: Any, part: str) -> None:
    append(app, creation(event(), **key("k")))
    other = {**key("k", fingerprint="ff"), part: "other"}
    assert outcomes(append(app, item(1, event(), **other))) == ["appended"]


def test_b06_a_refused_command_burns_no_key(app: Any) -> None:
    append(app, creation(event()), creation(event(), stream=OTHER, seal=True))
    refusals = append(
        app,
        item(7, event(), **key("a")),
        item(1, event(), stream=OTHER, **key("b")),
        item(1, event(), **key("c"), fencePurpose="run", fenceHolder="h", fenceEpoch=1),
        creation(**key("d")),
    )
    assert outcomes(refusals) == ["conflict", "sealed", "fenced", "conflict"]
    assert one(app, "SELECT count(*) FROM minutebook.idempotency") == 0
    corrected = append(app, *(item(n, event(), **key(name)) for n, name in enumerate("abcd", 1)))
    assert outcomes(corrected) == ["appended"] * 4


def test_b06_an_item_that_fails_midway_leaves_no_event_and_no_key(app: Any) -> None:
    append(app, creation(event()))
    before = contents(app)
    bad = {
        "23514": event(id="not a ulid"),
        "22P05": event({"text": "a\u0000b"}),
        "22P02": event(v="one"),
        "22003": event(cb=2**70),
        "23502": event(t=None),
        "MB004": event(rd=[None]),
    }
    for state, broken in bad.items():
        with refused(state):
            append(
                app,
                creation(event(), stream=OTHER, **key("new")),
                item(1, event(), event(), broken, **key("k")),
                item(4, event()),
            )
        assert contents(app) == before, state
    results = append(app, creation(event(), stream=OTHER, **key("new")), item(1, *events(3), **key("k")))
    assert outcomes(results) == ["appended", "appended"]


def test_b06_a_backend_killed_between_claim_and_commit_leaves_nothing(any_database: Any, app: Any) -> None:
    append(app, creation(event()))
    before = contents(app)
    with any_database.connect("app") as doomed, any_database.connect("postgres") as superuser:
        doomed.autocommit = False
        results = append(doomed, creation(stream=OTHER, **key("new")), item(1, *events(3), **key("k")))
        assert outcomes(results) == ["appended", "appended"]
        waiting = Background(lambda: append(app, creation(stream=OTHER, **key("new")), item(1, event(), **key("k"))))
        until_blocked(superuser, app.info.backend_pid)
        superuser.execute("SELECT pg_terminate_backend(%s, 10000)", (doomed.info.backend_pid,))
        # Who came second with the same keys is first now: nothing of the dead one is left.
        assert outcomes(waiting.result()) == ["appended", "appended"]
        with refused("57P01"):
            doomed.execute("SELECT 1")
    assert one(app, "SELECT count(*) FROM minutebook.events") == 3
    assert len(before[0]) == 1


def test_a_creation_twice_makes_one_stream(app: Any) -> None:
    first = append(app, creation(*events(2), **key("new")))[0]
    again = append(app, creation(*events(2), stream=OTHER, **key("new")))[0]
    assert (first.outcome, again.outcome, again.body) == ("appended", "duplicate", first.body)
    assert app.execute("SELECT name FROM minutebook.streams").fetchall() == [(ROOM,)]
    assert one(app, "SELECT count(*) FROM minutebook.idempotency") == 1


def test_a_creation_by_twenty_at_once_makes_one_stream_and_burns_nothing_else(any_database: Any, app: Any) -> None:
    """Each caller draws an id of its own for the new room, and brings another creation with a key of its own."""

    def create(n: int) -> list[Any]:
        letters = "abcdefghijklmnopqrst"
        with any_database.connect("app") as connection:
            return append(
                connection,
                creation(stream=f"room:own{letters[n]}", **key(f"own {n}")),
                creation(stream=f"room:any{letters[n]}", **key("shared")),
            )

    with ThreadPoolExecutor(CALLERS) as pool:
        results = list(pool.map(create, range(CALLERS)))
    assert [own.outcome for own, _ in results] == ["appended"] * CALLERS
    shared = [shared for _, shared in results]
    assert sorted(outcomes(shared)) == ["appended"] + ["duplicate"] * (CALLERS - 1)
    assert len({result.body for result in shared}) == 1
    assert one(app, "SELECT count(*) FROM minutebook.streams") == CALLERS + 1
    assert one(app, "SELECT count(*) FROM minutebook.streams WHERE version = 0") == 0
    assert one(app, "SELECT count(*) FROM minutebook.idempotency WHERE status = 201") == CALLERS + 1


def test_law_3_one_key_twice_in_a_batch_has_no_effect_at_all(app: Any) -> None:
    """The callers of append_v1 keep such items apart; where one does not, nothing may happen twice."""
    append(app, creation(event()))
    before = contents(app)
    for twice in (
        (item(1, event(), **key("k")), item(2, event(), **key("k"))),
        (creation(stream=OTHER, **key("k")), item(1, event(), **key("k"))),
        (creation(stream=OTHER, **key("k")), creation(stream="room:cccccccc", **key("k"))),
    ):
        with refused("23505"):
            append(app, *twice)
        assert contents(app) == before


def test_law_3_one_key_on_two_streams_at_once_has_one_effect(any_database: Any, app: Any) -> None:
    append(app, creation(event()), creation(event(), stream=OTHER))
    with any_database.connect("app") as first, any_database.connect("postgres") as superuser:
        first.autocommit = False
        append(first, item(1, event(), **key("k")))
        second = Background(lambda: append(app, item(1, event(), stream=OTHER, **key("k"))))
        until_blocked(superuser, app.info.backend_pid)
        first.commit()
        with refused("23505"):
            second.result()
    assert outcomes(append(app, item(1, event(), stream=OTHER, **key("k")))) == ["duplicate"]
    assert one(app, "SELECT count(*) FROM minutebook.events") == 3
