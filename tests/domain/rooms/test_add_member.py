"""Inviting people and changing what they may do."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import Conflict, Forbidden, Full, Invalid, NotVisible, Sealed
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import AddMember
from minutebook.domain.rooms.context import Limits
from minutebook.domain.rooms.events import ParticipantJoined, ParticipantRoleChanged, RoomClosed
from minutebook.domain.rooms.members import add_member
from room_scenes import ADMIN, COLLABORATOR, OPENED, OWNER, RUNNING, STARTED, STRANGER, SYSTEM, WATCHER, asked, given


@pytest.mark.parametrize("caller", [OWNER, ADMIN, SYSTEM], ids=str)
def test_a_newcomer_joins(caller: Caller) -> None:
    command = AddMember("human:nora", "watcher", approver=True)
    given(OPENED).when(asked(add_member, command, caller)).then(ParticipantJoined("human:nora", "watcher", True))


def test_a_member_gets_another_role() -> None:
    command = AddMember("human:wanda", "owner")
    given(OPENED).when(asked(add_member, command, OWNER)).then(ParticipantRoleChanged("human:wanda", "owner", False))


def test_the_approver_flag_is_a_change_of_its_own() -> None:
    command = AddMember("human:wanda", "watcher", approver=True)
    given(OPENED).when(asked(add_member, command, OWNER)).then(ParticipantRoleChanged("human:wanda", "watcher", True))


def test_what_is_so_already_adds_nothing() -> None:
    given(OPENED).when(asked(add_member, AddMember("human:carl", "collaborator"), OWNER)).then_nothing()


def test_an_invite_never_demotes_the_driver_below_collaborator() -> None:
    room = given(OPENED, ParticipantRoleChanged("human:wanda", "owner", False))
    command = AddMember("human:olga", "watcher")
    room.when(asked(add_member, command, OWNER)).then(ParticipantRoleChanged("human:olga", "collaborator", False))


@pytest.mark.parametrize("role", ["collaborator", "watcher"])
def test_a_room_keeps_an_owner(role: str) -> None:
    command = AddMember("human:olga", role)  # type: ignore[arg-type]
    given(OPENED).when(asked(add_member, command, OWNER)).then_refused(Conflict)


def test_at_most_so_many_members() -> None:
    limits = Limits(members=3)
    given(OPENED).when(asked(add_member, AddMember("human:nora", "watcher"), OWNER, limits=limits)).then_refused(Full)
    promoted = AddMember("human:wanda", "collaborator")
    given(OPENED).when(asked(add_member, promoted, OWNER, limits=limits)).then(
        ParticipantRoleChanged("human:wanda", "collaborator", False)
    )


@pytest.mark.parametrize(
    ("caller", "refusal"),
    [(COLLABORATOR, Forbidden), (WATCHER, Forbidden), (RUNNING, Forbidden), (STRANGER, NotVisible)],
    ids=str,
)
def test_only_owners_invite(caller: Caller, refusal: type[Forbidden]) -> None:
    given(OPENED, *STARTED).when(asked(add_member, AddMember("human:nora", "watcher"), caller)).then_refused(refusal)


@pytest.mark.parametrize("name", ["agent:runrunaa", "system:triage", "nora", "human: nora", "human:e\u0301va"])
def test_only_people_are_members(name: str) -> None:
    given(OPENED).when(asked(add_member, AddMember(name, "watcher"), OWNER)).then_refused(Invalid, "principal")


def test_nobody_joins_a_closed_room() -> None:
    given(OPENED, RoomClosed()).when(asked(add_member, AddMember("human:nora", "watcher"), OWNER)).then_refused(Sealed)
