"""The rights table of rooms.md, written out once more: every action for every kind of caller."""

from __future__ import annotations

from typing import get_args

import pytest
from minutebook.domain.errors import ClientNotAllowed, Forbidden, MinutebookError, NotVisible, RunNotLive
from minutebook.domain.principals import Caller, Principal
from minutebook.domain.rooms.events import RoomClosed, RunEnded
from minutebook.domain.rooms.rights import (
    OPEN_ROOM_ACTIONS,
    RIGHTS,
    Action,
    Standing,
    allowed_actions,
    decide_right,
    require,
    standing,
)
from minutebook.domain.rooms.state import INITIAL, Room
from room_scenes import (
    ADMIN,
    AUDITOR,
    COLLABORATOR,
    MEMBER_OF_GROUP,
    NEXT_RUN,
    OPENED,
    OTHER_ROOM,
    OWNER,
    ROOM,
    RUN,
    RUNNING,
    STARTED,
    STRANGER,
    SYSTEM,
    TENANT,
    WATCHER,
    agent,
    given,
    human,
)

ENDED = "zzzzzzzz"
OPEN: Room = given(OPENED, RunEnded(ENDED, "lost"), *STARTED).state

YES, NO, GONE, HIDDEN, CLIENT = "yes", Forbidden, RunNotLive, NotVisible, ClientNotAllowed
ACTIONS: tuple[Action, ...] = get_args(Action)

#                                           read    chat    invite  close   export  record
TABLE: dict[str, tuple[Caller, Standing, list[object]]] = {
    "watcher": (WATCHER, "watcher", [YES, NO, NO, NO, NO, NO]),
    "collaborator": (COLLABORATOR, "collaborator", [YES, YES, NO, NO, NO, NO]),
    "owner": (OWNER, "owner", [YES, YES, YES, YES, YES, NO]),
    "system": (SYSTEM, "system", [YES, YES, YES, YES, NO, NO]),
    "running run": (RUNNING, "run", [YES, YES, NO, NO, NO, YES]),
    "ended run": (agent(ENDED), "ended_run", [GONE] * 6),
    "run without hello": (agent(NEXT_RUN), "ended_run", [GONE] * 6),
    "run of another room": (agent(room_id=OTHER_ROOM), "stranger", [HIDDEN] * 6),
    "run of no room": (agent(room_id=None), "stranger", [HIDDEN] * 6),
    "run of another tenant": (agent(tenant="other"), "stranger", [HIDDEN] * 6),
    "stranger": (STRANGER, "stranger", [HIDDEN] * 6),
    "member of the group": (MEMBER_OF_GROUP, "watcher", [YES, NO, NO, NO, NO, NO]),
    "collaborator in the group": (human("carl", is_member=True), "collaborator", [YES, YES, NO, NO, NO, NO]),
    "watcher in the admins": (human("wanda", is_admin=True), "owner", [YES, YES, YES, YES, YES, NO]),
    "admin": (ADMIN, "owner", [YES, YES, YES, YES, YES, NO]),
    "auditor": (AUDITOR, "stranger", [YES, NO, NO, NO, YES, NO]),
    "auditor who collaborates": (human("carl", is_auditor=True), "collaborator", [YES, YES, NO, NO, YES, NO]),
    "owner of another tenant": (human("olga", tenant="other"), "stranger", [HIDDEN] * 6),
    "admin of another tenant": (human("ada", tenant="other", is_admin=True), "stranger", [HIDDEN] * 6),
    "auditor of another tenant": (human("audrey", tenant="other", is_auditor=True), "stranger", [HIDDEN] * 6),
    "system of another tenant": (
        Caller(Principal("system", "triage"), "other"), "stranger", [HIDDEN] * 6,
    ),
    "client of the owner": (
        human("olga", is_cli_client=True), "owner", [YES, YES, CLIENT, CLIENT, CLIENT, CLIENT],
    ),
    "client of a watcher": (
        human("wanda", is_cli_client=True), "watcher", [YES, NO, CLIENT, CLIENT, CLIENT, CLIENT],
    ),
    "client of an auditor": (
        human("audrey", is_auditor=True, is_cli_client=True),
        "stranger",
        [YES, NO, CLIENT, CLIENT, CLIENT, CLIENT],
    ),
    "client of a stranger": (human("sten", is_cli_client=True), "stranger", [HIDDEN] * 6),
}  # fmt: skip

CASES = [
    pytest.param(caller, action, want, id=f"{name}: {action}")
    for name, (caller, _, wants) in TABLE.items()
    for action, want in zip(ACTIONS, wants, strict=True)
]


@pytest.mark.parametrize(("caller", "action", "want"), CASES)
def test_every_action_for_every_caller(caller: Caller, action: Action, want: object) -> None:
    got: object = YES
    try:
        require(OPEN, ROOM, TENANT, caller, action)
    except MinutebookError as error:
        got = type(error)
    assert got == want
    verdict = decide_right(OPEN, ROOM, TENANT, caller, action)
    assert verdict.allowed is (want == YES)
    assert (action in allowed_actions(OPEN, ROOM, TENANT, caller)) is verdict.allowed


@pytest.mark.parametrize(("caller", "have"), [(caller, have) for caller, have, _ in TABLE.values()], ids=list(TABLE))
def test_what_a_caller_is_to_the_room(caller: Caller, have: Standing) -> None:
    assert standing(OPEN, ROOM, TENANT, caller) == have


def test_the_table_is_whole() -> None:
    assert set(RIGHTS) == set(ACTIONS)
    assert {have for _, have, _ in TABLE.values()} == set(get_args(Standing))


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", list(TABLE))
def test_roles_are_cumulative_and_a_closed_room_only_reads(name: str, action: Action) -> None:
    caller, _, wants = TABLE[name]
    closed = given(OPENED, *STARTED, RunEnded(RUN, "room_closed"), RoomClosed()).state
    was_allowed = wants[ACTIONS.index(action)] == YES and caller.principal.kind != "agent"
    verdict = decide_right(closed, ROOM, TENANT, caller, action)
    assert verdict.allowed is (was_allowed and action not in OPEN_ROOM_ACTIONS)
    if "owner" not in RIGHTS[action]:
        return
    ranks: list[Standing] = ["watcher", "collaborator", "owner"]
    held = [have in RIGHTS[action] for have in ranks]
    assert held == sorted(held)


@pytest.mark.parametrize("caller", [OWNER, SYSTEM, RUNNING, STRANGER], ids=str)
def test_a_room_that_does_not_exist_is_nobodys(caller: Caller) -> None:
    assert standing(INITIAL, ROOM, TENANT, caller) == "stranger"
    with pytest.raises(NotVisible):
        require(INITIAL, ROOM, TENANT, caller, "read")


def test_nobody_is_told_more_than_that_there_is_nothing() -> None:
    """Law 13: what a stranger hears of a room is what they hear of none."""
    heard: set[tuple[str, str, str]] = set()
    for room in (OPEN, INITIAL):
        for action in ACTIONS:
            with pytest.raises(NotVisible) as caught:
                require(room, ROOM, TENANT, STRANGER, action)
            heard.add((caught.value.code, caught.value.detail, repr(caught.value.attributes)))
    assert len(heard) == 1
