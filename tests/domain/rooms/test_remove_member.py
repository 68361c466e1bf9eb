"""Removing people, and leaving."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import ClientNotAllowed, Conflict, Forbidden, HoldsDriver, Invalid, NotVisible, Sealed
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import RemoveMember
from minutebook.domain.rooms.events import ParticipantLeft, ParticipantRoleChanged, RoomClosed, RoomOpened
from minutebook.domain.rooms.members import remove_member
from room_scenes import ADMIN, COLLABORATOR, OPENED, OWNER, RUN, STRANGER, SYSTEM, WATCHER, asked, given, human

WANDA_LEAVES = RemoveMember("human:wanda")


@pytest.mark.parametrize("caller", [OWNER, ADMIN, SYSTEM, WATCHER], ids=str)
def test_owners_remove_and_everybody_may_leave(caller: Caller) -> None:
    given(OPENED).when(asked(remove_member, WANDA_LEAVES, caller)).then(ParticipantLeft("human:wanda"))


@pytest.mark.parametrize(("caller", "refusal"), [(COLLABORATOR, Forbidden), (STRANGER, NotVisible)], ids=str)
def test_others_remove_nobody(caller: Caller, refusal: type[Forbidden]) -> None:
    given(OPENED).when(asked(remove_member, WANDA_LEAVES, caller)).then_refused(refusal)


def test_who_is_no_member_is_gone_already() -> None:
    given(OPENED).when(asked(remove_member, RemoveMember("human:nora"), OWNER)).then_nothing()


def test_the_driver_stays_until_somebody_else_drives() -> None:
    room = given(OPENED, ParticipantRoleChanged("human:wanda", "owner", False))
    room.when(asked(remove_member, RemoveMember("human:olga"), WATCHER)).then_refused(HoldsDriver)


def test_the_last_owner_stays() -> None:
    opened = RoomOpened(owner="human:olga", driver="human:carl", data_class="internal", retention="90d")
    given(opened).when(asked(remove_member, RemoveMember("human:olga"), OWNER)).then_refused(Conflict)


def test_nobody_leaves_a_closed_room() -> None:
    given(OPENED, RoomClosed()).when(asked(remove_member, WANDA_LEAVES, WATCHER)).then_refused(Sealed)


def test_runs_are_no_members() -> None:
    command = RemoveMember(f"agent:{RUN}")
    given(OPENED).when(asked(remove_member, command, OWNER)).then_refused(Invalid, "principal")


def test_a_command_line_client_does_not_leave_for_its_person() -> None:
    room = given(OPENED)
    room.when(asked(remove_member, WANDA_LEAVES, human("wanda", is_cli_client=True))).then_refused(ClientNotAllowed)
