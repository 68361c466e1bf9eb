"""What the sweeps of rooms find and do: every room that is due, in whatever page, parked or not, and each once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from job_steps import queue_of, rows
from minutebook.commands.outward import Notice
from minutebook.commands.processes import sweeping
from minutebook.commands.processes.approval_expiry import ApprovalExpiry
from minutebook.commands.processes.driver_lease import DriverLease
from minutebook.commands.processes.ports import PAUSE_S
from minutebook.commands.processes.requests import notice_request
from minutebook.commands.processes.run_sweep import RunSweep
from minutebook.commands.processes.silence_sweep import SilenceSweep
from minutebook.domain.ids import short_id
from minutebook.domain.rooms.context import Timeouts
from minutebook.domain.rooms.events import (
    DriverMoved,
    HarnessReported,
    MessagePosted,
    RoomClosed,
    RunEnded,
    RunRequested,
    RunStarted,
    ToolCalled,
)
from minutebook.infra.postgres import due
from swept import Hands, asked, begin, by_run, go_on, hands_of, head, lent, log, opened, park, project, run_of, started

SECOND = timedelta(seconds=1)
WAIT = timedelta(seconds=Timeouts().waiting_s)
PAGE = 3
"""Rooms that a sweep looks up at once, here."""


def soon() -> datetime:
    """The database's clock, a little ahead."""
    return datetime.now(UTC) + SECOND


def work(database: Any, moments: datetime | list[datetime], body: Callable[..., Coroutine[Any, Any, Any]]) -> Any:
    """Run a test's body with the hands of as many servers as there are moments."""

    async def go() -> Any:
        if isinstance(moments, datetime):
            async with hands_of(database, moments) as hands:
                return await body(hands)
        first, second = moments
        async with hands_of(database, first) as one, hands_of(database, second) as two:
            return await body(one, two)

    return asyncio.run(go())


async def listen(*servers: Hands) -> None:
    """The sweep of silences, by all of them at once."""
    await asyncio.gather(*(SilenceSweep(each.due, each.waits, Timeouts(), each.now).run() for each in servers))


def test_a_silence_is_told_of_once_by_two_servers(database: Any) -> None:
    room = begin(database, *started())
    key = f"notify:{room}:3:room_waiting"
    later = soon() + WAIT
    work(database, [later, later], listen)
    assert [row[:2] for row in rows(database)] == [("notify", key)]
    with queue_of(database) as queue:
        stored = queue.execute("DELETE FROM procrastinate_jobs WHERE lock = %s RETURNING args", (key,)).fetchone()
    assert stored is not None
    assert {**stored[0], "ts": ""} == {
        "kind": "room_waiting", "room": room, "seq": 3, "ts": "", "run": run_of(1), "silence": True
    }  # fmt: skip
    work(database, later + WAIT, listen)
    assert rows(database) == [], "told of, and still silent"
    go_on(database, room, by_run(ToolCalled("c1", "bash", {}, None)))
    work(database, later, listen)
    assert [row[1] for row in rows(database)] == [f"notify:{room}:4:room_waiting"]


def test_a_silence_that_two_servers_found_is_told_of_once_though_the_first_notice_has_gone(database: Any) -> None:
    room = begin(database, *started())
    later = soon() + WAIT

    async def both(one: Hands, two: Hands) -> None:
        (wait,) = await two.due.waits(later, Timeouts(), 0)
        await listen(one)
        with queue_of(database) as queue:
            assert queue.execute("DELETE FROM procrastinate_jobs WHERE task_name = 'notify'").rowcount == 1
        assert await two.due.waits(later, Timeouts(), 0) == []
        notice = Notice("room_waiting", room, wait.seq, wait.ts, wait.run_id, is_silence=True)
        await two.waits.tell_silence(wait, notice_request(notice), later)

    work(database, [later, later], both)
    assert rows(database) == []


def test_nobody_is_told_of_what_waits_for_nobody(database: Any) -> None:
    """A room that is not silent for long enough, has no run, had one, or is closed."""
    room = begin(database, *started(1), number=1)
    work(database, datetime.now(UTC) + WAIT - 30 * SECOND, listen)
    assert rows(database) == []
    go_on(database, room, RunEnded(run_of(1), "finished"))
    begin(database, opened(), RunRequested(run_of(2), "tester", (), 1, "human:olga"), number=2)
    begin(database, *started(3), RunEnded(run_of(3), "room_closed"), RoomClosed(), number=3)
    work(database, soon() + WAIT, listen)
    assert rows(database) == []


def test_a_silence_that_is_over_is_not_told(database: Any) -> None:
    room = begin(database, *started())
    silence = Notice("room_waiting", room, 3, "", run_of(1), is_silence=True)

    async def holds(hands: Hands) -> bool:
        return await hands.lookups.holds(silence)

    assert work(database, soon(), holds)
    go_on(database, room, MessagePosted("go on"))
    assert not work(database, soon(), holds)
    gone = Notice("room_waiting", short_id(77), 3, "", run_of(1), is_silence=True)
    assert not work(database, soon(), lambda hands: hands.lookups.holds(gone))


PAUSED = HarnessReported("harness_paused")


def told(database: Any, room: str, seq: int, *, later: float = 0, number: int = 1) -> bool:
    """Whether the notice of that pause is worth telling, so many seconds from now."""
    pause = Notice("room_waiting", room, seq, "", run_of(number))
    return work(database, soon() + later * SECOND, lambda hands: hands.lookups.holds(pause))


def test_a_pause_is_told_of_once_and_its_repetitions_are_not(database: Any) -> None:
    room = begin(database, *started(), by_run(PAUSED))
    assert told(database, room, 4)
    assert told(database, room, 4), "another try at the same one"
    again = go_on(database, room, by_run(HarnessReported("harness_status")), by_run(PAUSED))
    assert not told(database, room, again)
    assert not told(database, room, again, later=9 * PAUSE_S), "the same pause, reported again"
    work(database, soon() + 9 * WAIT, listen)
    assert [row[1] for row in rows(database)] == [f"notify:{room}:{again}:room_waiting"], "but its silence is told of"


def test_another_pause_is_told_of_when_the_last_was_long_ago(database: Any) -> None:
    room = begin(database, *started(), by_run(PAUSED))
    assert told(database, room, 4)
    last = go_on(database, room, by_run(ToolCalled("c1", "bash", {}, None)), by_run(PAUSED))
    assert not told(database, room, last, later=PAUSE_S - 30)
    assert told(database, room, last, later=PAUSE_S + 30)
    assert not told(database, room, 4, later=9 * PAUSE_S), "an older one, late"


def test_a_pause_of_a_run_that_has_left_is_not_told_and_that_of_the_next_is(database: Any) -> None:
    room = begin(database, *started(), by_run(PAUSED))
    assert told(database, room, 4)
    last = go_on(database, room, RunEnded(run_of(1), "finished"), RunStarted(run_of(2), "tester"), by_run(PAUSED, 2))
    assert not told(database, room, 4)
    assert told(database, room, last, number=2)


def test_a_silence_behind_a_pause_that_was_told_is_the_same_wait(database: Any) -> None:
    room = begin(database, *started(), by_run(PAUSED))
    assert told(database, room, 4)
    work(database, soon() + WAIT, listen)
    assert rows(database) == []


def decisions(database: Any, room: str) -> list[str]:
    """What became of the requests of a room."""
    return [each["decision"] for each in log(database, room) if "decision" in each]


async def expire(*servers: Hands) -> None:
    """The sweep of approvals, by all of them at once."""
    await asyncio.gather(*(ApprovalExpiry(each.due, each.acts, each.now).run() for each in servers))


async def lapse(*servers: Hands) -> None:
    """The sweep of drivers, by all of them at once."""
    await asyncio.gather(*(DriverLease(each.due, each.acts, each.now).run() for each in servers))


async def end_runs(hands: Hands) -> None:
    """The sweep of runs."""
    await RunSweep(hands.due, hands.acts, hands.now).run()


@pytest.mark.parametrize("case", ["parked", "never folded", "behind"])
def test_a_request_expires_in_a_room_that_its_projection_does_not_know(database: Any, case: str) -> None:
    room = begin(database, *started())
    if case != "never folded":
        asyncio.run(project(database))
    if case == "parked":
        park(database, room)
    go_on(database, room, asked())
    work(database, [soon(), soon()], expire)
    assert decisions(database, room) == ["expired"]


def test_a_token_lapses_in_a_room_whose_projection_is_parked(database: Any) -> None:
    """Its state is of before: there the system drives."""
    first, *moved = lent()
    room, ours = begin(database, first, number=1), begin(database, opened(), number=2)
    asyncio.run(project(database))
    park(database, room)
    park(database, ours)
    go_on(database, room, *moved)
    go_on(database, ours, DriverMoved("human:olga", "human:carl", 2, "given"))
    now = soon() + timedelta(seconds=Timeouts().away_s)
    work(database, soon(), lapse)
    assert head(database, room) == 2
    work(database, [now, now], lapse)
    assert [each["epoch"] for each in log(database, room)[1:]] == [2, 3]
    assert (log(database, room)[-1]["to"], log(database, room)[-1]["reason"]) == ("system:triage", "lease_expired")
    assert head(database, ours) == 2, "no system ever held this one"


def test_a_token_that_was_taken_back_lapses_in_no_parked_room(database: Any) -> None:
    room = begin(database, *lent())
    asyncio.run(project(database))
    park(database, room)
    go_on(database, room, DriverMoved("human:carl", "system:triage", 3, "given"))
    work(database, soon() + timedelta(hours=1), lapse)
    assert head(database, room) == 3


def test_no_room_is_missed_where_more_are_due_than_fit_a_page(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sweep, over two pages and a bit of rooms, and over exactly two of them."""
    for module in (due, sweeping):
        monkeypatch.setattr(module, "PAGE", PAGE)
    count = 2 * PAGE + 1
    drivers = [begin(database, *lent(), number=number) for number in range(1, count + 1)]
    runs = [begin(database, *started(1000 + n), asked(n), number=1000 + n) for n in range(1, count)]
    asyncio.run(project(database))
    later = soon() + timedelta(hours=1)
    work(database, later, listen)
    assert len(rows(database)) == len(runs)
    work(database, later, expire)
    assert [decisions(database, room) for room in runs] == [["expired"]] * len(runs)
    work(database, later, lapse)
    assert [head(database, room) for room in drivers] == [3] * count
    work(database, later, end_runs)
    with database.connect("auditor") as look:
        assert look.execute("SELECT DISTINCT state FROM minutebook.runs").fetchall() == [("ended",)]
