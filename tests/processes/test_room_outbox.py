"""Which events of a room ask for which jobs, and which for none."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from job_steps import Scripted, at_once, drained, engine_of, outbox_of, rows
from minutebook.commands.ports import StoredEvent
from minutebook.commands.processes.room_outbox import RoomOutbox
from minutebook.domain.rooms.events import (
    HarnessReported,
    MessagePosted,
    RunEnded,
    RunRegistered,
    RunRequested,
    RunStarted,
    VerdictGiven,
)
from minutebook.domain.rooms.handoff import HandoffRecorded
from room_scenes import ROOM, RUN
from swept import begin, by_run, run_of, started

ALL = RoomOutbox(launches=True, notifies=True, posts=True)
NONE = RoomOutbox(launches=False, notifies=False, posts=False)
REQUESTED = RunRequested(RUN, "implementer", (), 1, "human:olga")
VERDICT = VerdictGiven("Fine.", "approve", "abcdef1")
HANDOFF = HandoffRecorded("implementer", "reviewer", "Done.", "abcdef1")
PAUSED = HarnessReported("harness_paused")


def asked(outbox: RoomOutbox, event: Any, by: str = "agent") -> list[str]:
    """The keys of the jobs that the seventh event of a room asks for."""
    stored = StoredEvent(
        7, event.type, event.version, by, RUN, RUN, None, msgspec.json.encode(event.payload()).decode(), (), "now"
    )
    return [request.key for request in outbox.react(f"room:{ROOM}", stored)]


@pytest.mark.parametrize(
    ("event", "key"),
    [
        (REQUESTED, f"launch:{ROOM}:{RUN}"),
        (RunEnded(RUN, "finished"), f"notify:{ROOM}:7:run_ended"),
        (HANDOFF, f"notify:{ROOM}:7:run_handed_over"),
        (PAUSED, f"notify:{ROOM}:{RUN}:paused"),
        (VERDICT, f"verdict:{ROOM}:7"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_configured_is_asked_for(event: Any, key: str) -> None:
    assert asked(ALL, event) == [key]
    assert asked(NONE, event) == []


@pytest.mark.parametrize(
    "event",
    [
        msgspec.structs.replace(REQUESTED, by_hand=True),
        RunRegistered(RUN, "implementer", "main"),
        RunStarted(RUN, "implementer"),
        HarnessReported("harness_status"),
        MessagePosted("hello"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_run_that_is_started_by_hand_and_what_needs_nobody_asks_for_nothing(event: Any) -> None:
    assert asked(ALL, event) == []


def test_the_verdict_of_a_person_is_posted_nowhere() -> None:
    assert asked(ALL, VERDICT, by="human") == []


def test_a_run_that_was_requested_before_there_were_two_kinds_is_launched() -> None:
    """Its stored event says nothing of how it is started."""
    old = b'{"kind":"run_requested","runId":"runrunaa","role":"tester","refs":[],"briefThroughSeq":1,"requestedBy":"x"}'
    stored = StoredEvent(7, "state_changed", 1, "human", "olga", RUN, None, old.decode())
    assert [request.task for request in ALL.react(f"room:{ROOM}", stored)] == ["launch_run"]


def test_a_flood_of_pauses_is_one_job(database: Any) -> None:
    room = begin(database, *started(), *(by_run(PAUSED) for _ in range(300)))

    async def body() -> None:
        async with engine_of(database, Scripted(at_once)) as engine, outbox_of(database, ALL, engine) as outbox:
            await drained(outbox)
            assert outbox.deferred == 2  # one of each page of events

    asyncio.run(body())
    assert [row[1] for row in rows(database)] == [f"notify:{room}:{run_of(1)}:paused"]
