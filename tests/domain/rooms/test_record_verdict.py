"""A reviewing run judges a commit; the room keeps the last verdict for the next brief."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from minutebook.domain.errors import Forbidden, Invalid, NotVisible
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.brief import Quote
from minutebook.domain.rooms.decide_handoff import MAX_SUMMARY_BYTES, RecordVerdict, record_verdict
from minutebook.domain.rooms.events import ParticipantJoined, RunRegistered, RunStarted, VerdictGiven
from room_scenes import OPENED, OTHER_ROOM, OWNER, RUN, RUNNING, agent, asked, given

VERDICT = RecordVerdict("changes", "Two tests fail.", "0a1b2c3d")
GIVEN = VerdictGiven("Two tests fail.", "changes", "0a1b2c3d")


def running_as(role: str, *events: Any) -> Any:
    """A room with a running run of that role."""
    return given(OPENED, *events, ParticipantJoined(f"agent:{RUN}", role), RunStarted(RUN, role))


def judging(command: RecordVerdict = VERDICT, caller: Caller = RUNNING) -> Any:
    """The verdict, ready for `when`."""
    return asked(record_verdict, command, caller)


@pytest.mark.parametrize("role", ["reviewer", "tester"])
@pytest.mark.parametrize("verdict", ["approve", "changes"])
def test_a_verdict_is_a_message_of_its_run(role: str, verdict: Any) -> None:
    command = msgspec.structs.replace(VERDICT, verdict=verdict)
    decision = running_as(role).when(judging(command)).then(msgspec.structs.replace(GIVEN, verdict=verdict))
    (new,) = decision.events
    assert (new.actor, new.actor_role, new.run_id) == (RUNNING.principal, role, RUN)
    assert (new.event.type, new.event.payload()["kind"]) == ("message", "review_verdict")


@pytest.mark.parametrize("role", ["implementer", "triager", "gardener"])
def test_another_role_judges_nothing(role: str) -> None:
    running_as(role).when(judging()).then_refused(Forbidden)


@pytest.mark.parametrize(("caller", "refusal"), [(OWNER, Forbidden), (agent(room_id=OTHER_ROOM), NotVisible)])
def test_the_running_run_alone_judges(caller: Caller, refusal: Any) -> None:
    running_as("reviewer").when(judging(caller=caller)).then_refused(refusal)


def test_its_pull_request_is_the_registered_one() -> None:
    """Nothing that an agent writes chooses where a verdict goes."""
    url = "https://forge.example/app/pulls/7"
    room = running_as("reviewer", RunRegistered(RUN, "reviewer", task_url=url))
    room.when(judging()).then(msgspec.structs.replace(GIVEN, pull_request=url))


def test_the_summary_is_bounded_in_bytes() -> None:
    over = msgspec.structs.replace(VERDICT, summary="ä" * (MAX_SUMMARY_BYTES // 2 + 1))
    running_as("tester").when(judging(over)).then_refused(Invalid, "$.summary")


@pytest.mark.parametrize(
    "changes", [{"verdict": "reject"}, {"commit": ""}, {"summary": ""}, {"pullRequest": "x"}], ids=str
)
def test_arguments_are_strict(changes: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"verdict": "approve", "summary": "x", "commit": "0a1b2c3d", **changes}, RecordVerdict)


def test_the_room_keeps_the_last_verdict() -> None:
    room = running_as("reviewer")
    room = given(*room.events, *room.when(judging()).decided().events)
    last = room.state.last_verdict
    assert isinstance(last, Quote)
    assert (last.seq, last.author, last.text, last.verdict) == (4, f"agent:{RUN}", "Two tests fail.", "changes")
