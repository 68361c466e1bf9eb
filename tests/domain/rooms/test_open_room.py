"""Opening a room: who may, and what it says at the beginning."""

from __future__ import annotations

import msgspec
import pytest
from minutebook.domain.errors import ClientNotAllowed, Forbidden, Full, Invalid
from minutebook.domain.principals import Caller
from minutebook.domain.rooms import decide
from minutebook.domain.rooms.approval_policy import ApprovalPolicy
from minutebook.domain.rooms.commands import NewMember, OpenRoom
from minutebook.domain.rooms.context import Context, Limits
from minutebook.domain.rooms.events import MemberSpec, RoomOpened
from room_scenes import (
    ADMIN,
    AUDITOR,
    MEMBER_OF_GROUP,
    NOW,
    ROOM,
    RUNNING,
    STRANGER,
    SYSTEM,
    TENANT,
    asked,
    given,
    human,
)

PLAIN = OpenRoom("internal")


def opening(command: OpenRoom = PLAIN, caller: Caller = MEMBER_OF_GROUP, limits: Limits = Limits()):  # noqa: B008
    """A room that does not exist yet, and somebody who wants it."""

    def open_room(_room: object, wanted: OpenRoom, context: Context) -> decide.Decision:
        return decide.open_room(wanted, context)

    return given().when(asked(open_room, command, caller, limits=limits))


def test_the_caller_owns_and_drives() -> None:
    decision = opening().then(RoomOpened(owner="human:mia", driver="human:mia", data_class="internal", retention="90d"))
    assert decision.events[0].actor == MEMBER_OF_GROUP.principal
    assert decision.events[0].actor_role == "owner"
    assert not decision.seal


def test_everything_that_the_command_says_is_recorded() -> None:
    command = OpenRoom(
        "public",
        title="Release 2",
        retention="7d",
        members=(NewMember("human:bo", "watcher", approver=True),),
        approvals=ApprovalPolicy("unattended", {"forge.pr": "human"}, "30m", four_eyes=True),
        repository="forge/app",
    )
    opening(command).then(
        RoomOpened(
            owner="human:mia",
            driver="human:mia",
            data_class="public",
            retention="7d",
            members=(MemberSpec("human:bo", "watcher", approver=True),),
            approvals={
                "profile": "unattended",
                "overrides": {"forge.pr": "human"},
                "ttl": "30m",
                "fourEyes": True,
            },
            title="Release 2",
            repository="forge/app",
        )
    )


@pytest.mark.parametrize("caller", [ADMIN, SYSTEM], ids=str)
def test_admins_and_systems_open_rooms_too(caller: Caller) -> None:
    opening(caller=caller).then(
        RoomOpened(owner=str(caller.principal), driver=str(caller.principal), data_class="internal", retention="90d")
    )


@pytest.mark.parametrize("caller", [STRANGER, RUNNING, AUDITOR], ids=["no group", "run", "auditor"])
def test_others_may_not(caller: Caller) -> None:
    opening(caller=caller).then_refused(Forbidden)


def test_a_command_line_client_may_not() -> None:
    opening(caller=human("mia", is_member=True, is_cli_client=True)).then_refused(ClientNotAllowed)


@pytest.mark.parametrize(
    "members",
    [("human:mia",), ("human:bo", "human:bo")],
    ids=["the owner", "one twice"],
)
def test_nobody_is_listed_twice(members: tuple[str, ...]) -> None:
    command = OpenRoom("internal", members=tuple(NewMember(name, "watcher") for name in members))
    opening(command).then_refused(Invalid, f"$.members[{len(members) - 1}].principal")


@pytest.mark.parametrize("name", ["agent:abcd2345", "system:triage", "robot:x", "human:", "human: x", "human:a\u200bb"])
def test_only_people_in_canonical_form_are_members(name: str) -> None:
    command = OpenRoom("internal", members=(NewMember(name, "watcher"),))
    opening(command).then_refused(Invalid, "$.members[0].principal")


def test_the_owner_counts_among_the_members() -> None:
    three = OpenRoom("internal", members=tuple(NewMember(f"human:p{n}", "watcher") for n in range(3)))
    opening(three, limits=Limits(members=3)).then_refused(Full)
    assert opening(three, limits=Limits(members=4)).decided().events


@pytest.mark.parametrize("retention", ["0d", "90", "10000d", "d", "90h", "-1d", "090d"])
def test_retention_is_1_to_9999_days(retention: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"dataClass": "internal", "retention": retention}, OpenRoom)


def test_the_room_is_what_was_asked_for() -> None:
    decision = opening().decided()
    state = given(*decision.events).state
    assert (state.owner, state.driver, state.driver_epoch, state.is_open) == ("human:mia", "human:mia", 1, True)
    assert state.members["human:mia"].role == "owner"
    assert Context(MEMBER_OF_GROUP, ROOM, TENANT, NOW).limits == Limits()


def test_a_policy_waits_for_a_month_at_most() -> None:
    opening(OpenRoom("internal", approvals=ApprovalPolicy(ttl="31d"))).then_refused(Invalid, "$.approvals.ttl")
