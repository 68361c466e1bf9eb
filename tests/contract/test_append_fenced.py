"""The set-wise path with fences: it stores what the plain one does, renews the leases, and stores nothing for whoever
does not hold one (rules.md, law 25)."""

from __future__ import annotations

from typing import Any

import pytest
from append_helpers import append, append_fenced, creation, event, one, refused
from appender_helpers import Pool, fenced, kinds, rows, run
from minutebook.commands.ports import Append, Fence
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.export import verify_database

A, B = "room:aaaaaaaa", "room:bbbbbbbb"
TAKE = "SELECT epoch FROM minutebook.lease_take_v1(%s, 'run', %s, 30)"


@pytest.fixture
def app(any_database: Any) -> Any:
    """The app role, on two streams of one event whose leases are held by `h1`, with epoch 1."""
    with any_database.connect("app") as connection:
        append(connection, creation(event(), stream=A), creation(event(), stream=B))
        for stream in (A, B):
            assert one(connection, TAKE, stream, "h1") == 1
        yield connection


def count(app: Any) -> int:
    return one(app, "SELECT count(*) FROM minutebook.events")


def held(place: int = 1, purpose: str = "run", holder: str = "h1", epoch: int = 1) -> dict[str, Any]:
    return {"i": place, "purpose": purpose, "holder": holder, "epoch": epoch}


def test_it_appends_and_renews_the_leases(any_database: Any, app: Any) -> None:
    batch = [event(), {**event(), "i": 2, "k": 1}]
    with any_database.connect("postgres") as superuser:
        superuser.execute("UPDATE minutebook.leases SET seen_at = seen_at - interval '1 hour'")
    lines = append_fenced(app, {A: 1, B: 1}, batch, [held(1), held(2)])
    assert lines is not None
    assert [size for _, _, size, _ in lines] == ["17", "17"]
    assert one(app, "SELECT min(seen_at) > clock_timestamp() - interval '1 minute' FROM minutebook.leases") is True
    report = verify_database(any_database.url("auditor"))
    assert (report.ok, report.events) == (True, 4), report.breaks


@pytest.mark.parametrize(
    "wrong",
    [held(epoch=2), held(holder="h2"), held(purpose="driver")],
    ids=["epoch", "holder", "purpose"],
)
def test_who_does_not_hold_the_lease_appends_nothing(app: Any, wrong: dict[str, Any]) -> None:
    batch = [event(), {**event(), "i": 2, "k": 1}]
    assert append_fenced(app, {A: 1, B: 1}, batch, [held(2), wrong]) is None
    assert count(app) == 2


def test_the_leases_are_of_the_streams_that_they_fence(app: Any) -> None:
    assert one(app, "SELECT epoch FROM minutebook.lease_take_v1(%s, 'run', 'h1', 30)", B) == 2
    assert append_fenced(app, {A: 1, B: 1}, [event(), {**event(), "i": 2, "k": 1}], [held(1), held(2)]) is None
    assert append_fenced(app, {A: 1}, [event()], [held(1)]) is not None


def test_a_stream_that_stands_elsewhere_gets_nothing(app: Any) -> None:
    assert append_fenced(app, {A: 2}, [event()], [held()]) is None
    assert count(app) == 2


def test_it_refuses_other_isolation_levels(app: Any) -> None:
    with refused("MB005"), app.transaction():
        app.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        append_fenced(app, {A: 1}, [event()], [held()])


def test_the_appender_takes_it_and_tells_who_lost(any_database: Any, app: Any) -> None:
    assert count(app) == 2

    async def work(appender: Appender, _pool: Pool) -> None:
        outcomes = await appender.append([Append(A, 1, rows(3), fence=fenced(1)), Append(A, 4, rows(2))])
        assert kinds(outcomes) == ["appended", "appended"]
        assert [each.seq for each in outcomes] == [4, 6]
        stale = Append(B, 1, rows(1), fence=Fence("run", "h1", 7))
        outcomes = await appender.append([Append(A, 6, rows(1), fence=fenced(1)), stale])
        assert kinds(outcomes) == ["appended", "fenced"]

    run(work, any_database.url("app"))
