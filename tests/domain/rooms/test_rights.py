"""The rights table of rooms.md, written out once more: every action for every kind of caller."""

from __future__ import annotations

from typing import get_args

import pytest
from minutebook.domain.errors import ClientNotAllowed, Forbidden, MinutebookError, NotVisible, RunNotLive
from minutebook.domain.principals import SERVER, Caller, Principal
from minutebook.domain.rooms.events import (
    DriverMoved,
    ParticipantJoined,
    RoomClosed,
    RunEnded,
    RunRequested,
    RunStarted,
)
from minutebook.domain.rooms.rights import (
    CLI_CLIENT_ACTIONS,
    OPEN_ROOM_ACTIONS,
    RIGHTS,
    Action,
    Standing,
    allowed_actions,
    decide_right,
    require,
    standing,
    standings,
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
WAITING = "waitwait"
APPROVER = human("april")
DRIVER = human("dan")
POLICY = Caller(Principal("system", "policy"), TENANT)
SWEEP = Caller(SERVER, TENANT)

PEOPLE = (
    ParticipantJoined("human:april", "watcher", approver=True),
    ParticipantJoined("human:dan", "collaborator", approver=False),
    DriverMoved("human:olga", "human:dan", 2, "given"),
)
REQUESTED = RunRequested(WAITING, "tester", (), 1, "human:olga")
OPEN: Room = given(OPENED, *PEOPLE, RunEnded(ENDED, "lost"), *STARTED, REQUESTED).state
BY_SYSTEM: Room = given(OPENED, *PEOPLE, DriverMoved("human:dan", "system:triage", 3, "given"), *STARTED).state


def running(role: str) -> Room:
    """A room whose run has this role."""
    return given(OPENED, ParticipantJoined(f"agent:{RUN}", role), RunStarted(RUN, role)).state


ACTIONS: tuple[Action, ...] = get_args(Action)

COLUMNS: list[tuple[str, Room, Caller]] = [
    ("watcher", OPEN, WATCHER),
    ("collaborator", OPEN, COLLABORATOR),
    ("watcher with the flag", OPEN, APPROVER),
    ("collaborator who drives", OPEN, DRIVER),
    ("owner", OPEN, OWNER),
    ("admin", OPEN, ADMIN),
    ("system", OPEN, SYSTEM),
    ("system that drives", BY_SYSTEM, SYSTEM),
    ("policy", OPEN, POLICY),
    ("server", OPEN, SWEEP),
    ("implementer", OPEN, RUNNING),
    ("reviewer", running("reviewer"), RUNNING),
    ("tester", running("tester"), RUNNING),
    ("triager", running("triager"), RUNNING),
    ("run of another role", running("cook"), RUNNING),
]
"""The callers of the table below, from left to right, each with its room."""

TABLE: dict[Action, str] = {
    #                 watcher, collaborator, approver, driver | owner, admin | systems | runs
    "read":           "yyyy yy yyyy yyyyy",
    "chat":           ".y.y yy yyyy yyyyy",
    "verdict":        ".y.y yy .... .....",
    "task_state":     ".... .. yyyy .....",
    "queue":          ".y.y yy yyyy .....",
    "unqueue":        ".y.y yy yyyy .....",
    "steer":          "...y .. .y.. .....",
    "interrupt":      "...y .. .y.. .....",
    "promote":        "...y .. .y.. .....",
    "start_run":      "...y yy hyhh .....",
    "register_run":   ".... yy yyyy .....",
    "end_run":        ".... yy yyyy .....",
    "decide":         "..y. yy ..y. .....",
    "driver_request": ".y.y yy .... .....",
    "driver_give":    "...y .. .y.. .....",
    "driver_take":    ".... yy .... .....",
    "fork":           "yyyy yy yyyy .....",
    "invite":         ".... yy yyyy .....",
    "close":          ".... yy yyyy .....",
    "hold":           ".... yy .... .....",
    "export":         ".... yy .... .....",
    "record":         ".... .. .... yyyyy",
    "room_read":      ".... .. .... yyyyy",
    "room_post":      ".... .. .... yyyyy",
    "room_handoff":   ".... .. .... y.yy.",
    "room_verdict":   ".... .. .... .yy..",
    "sweep":          ".... .. ...y .....",
}  # fmt: skip
"""y: allowed. A point: forbidden. h: the table allows it and the decision refuses it while a human drives."""

CASES = [
    pytest.param(room, caller, action, marks.replace(" ", "")[column], id=f"{name}: {action}")
    for action, marks in TABLE.items()
    for column, (name, room, caller) in enumerate(COLUMNS)
]


def refusal_of(room: Room, caller: Caller, action: Action) -> object:
    """How `require` refuses; None where it does not."""
    try:
        require(room, ROOM, TENANT, caller, action)
    except MinutebookError as error:
        return type(error)
    return None


@pytest.mark.parametrize(("room", "caller", "action", "mark"), CASES)
def test_every_action_for_every_caller(room: Room, caller: Caller, action: Action, mark: str) -> None:
    assert refusal_of(room, caller, action) is (Forbidden if mark == "." else None)
    verdict = decide_right(room, ROOM, TENANT, caller, action)
    assert verdict.allowed is (mark == "y")
    assert verdict.reason
    assert (action in allowed_actions(room, ROOM, TENANT, caller)) is verdict.allowed


def test_the_table_is_whole() -> None:
    assert list(TABLE) == list(RIGHTS) == list(ACTIONS)
    assert {len(marks.replace(" ", "")) for marks in TABLE.values()} == {len(COLUMNS)}


NOTHING = frozenset[Action]()
ALL_OF_AN_OWNER = frozenset(action for action, marks in TABLE.items() if marks.split()[1][0] == "y")
OTHERS: dict[str, tuple[Caller, Standing, frozenset[Action], type[MinutebookError]]] = {
    "ended run": (agent(ENDED), "ended_run", NOTHING, RunNotLive),
    "awaited run": (agent(WAITING), "ended_run", NOTHING, RunNotLive),
    "run without hello": (agent(NEXT_RUN), "ended_run", NOTHING, RunNotLive),
    "run of another room": (agent(room_id=OTHER_ROOM), "stranger", NOTHING, NotVisible),
    "run of no room": (agent(room_id=None), "stranger", NOTHING, NotVisible),
    "run of another tenant": (agent(tenant="other"), "stranger", NOTHING, NotVisible),
    "run that names itself an auditor": (agent(ENDED, is_auditor=True), "ended_run", NOTHING, RunNotLive),
    "stranger": (STRANGER, "stranger", NOTHING, NotVisible),
    "member of the group": (MEMBER_OF_GROUP, "watcher", frozenset({"read", "fork"}), Forbidden),
    "watcher in the admins": (human("wanda", is_admin=True), "owner", ALL_OF_AN_OWNER, Forbidden),
    "auditor": (AUDITOR, "stranger", frozenset({"read", "export"}), Forbidden),
    "owner of another tenant": (human("olga", tenant="other"), "stranger", NOTHING, NotVisible),
    "driver of another tenant": (human("dan", tenant="other"), "stranger", NOTHING, NotVisible),
    "admin of another tenant": (human("ada", tenant="other", is_admin=True), "stranger", NOTHING, NotVisible),
    "auditor of another tenant": (human("audrey", tenant="other", is_auditor=True), "stranger", NOTHING, NotVisible),
    "system of another tenant": (Caller(Principal("system", "triage"), "other"), "stranger", NOTHING, NotVisible),
    "server of another tenant": (Caller(SERVER, "other"), "stranger", NOTHING, NotVisible),
    "client of the owner": (human("olga", is_cli_client=True), "owner", CLI_CLIENT_ACTIONS, ClientNotAllowed),
    "client of the driver": (human("dan", is_cli_client=True), "collaborator", CLI_CLIENT_ACTIONS, ClientNotAllowed),
    "client of an admin": (
        human("ada", is_cli_client=True, is_admin=True), "owner", CLI_CLIENT_ACTIONS, ClientNotAllowed,
    ),
    "client of a stranger": (human("sten", is_cli_client=True), "stranger", NOTHING, NotVisible),
}  # fmt: skip
"""Everybody else: what they may, and how the rest is refused."""


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(("caller", "have", "may", "refusal"), OTHERS.values(), ids=list(OTHERS))
def test_every_action_for_everybody_else(
    caller: Caller, have: Standing, may: frozenset[Action], refusal: type[MinutebookError], action: Action
) -> None:
    assert standing(OPEN, ROOM, TENANT, caller) == have
    assert refusal_of(OPEN, caller, action) is (None if action in may else refusal)
    assert decide_right(OPEN, ROOM, TENANT, caller, action).allowed is (action in may)


def test_a_client_of_a_watcher_may_no_more_than_the_watcher() -> None:
    caller = human("wanda", is_cli_client=True)
    refusals = {action: refusal_of(OPEN, caller, action) for action in CLI_CLIENT_ACTIONS}
    assert refusals == {"read": None, "fork": None, "chat": Forbidden, "queue": Forbidden}
    assert refusal_of(OPEN, caller, "close") is ClientNotAllowed


def test_an_auditor_in_the_room_has_both_rights() -> None:
    caller = human("carl", is_auditor=True)
    assert allowed_actions(OPEN, ROOM, TENANT, caller) == [
        "read", "chat", "verdict", "queue", "unqueue", "driver_request", "fork", "export",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("room", "caller", "have"),
    [
        (OPEN, DRIVER, {"collaborator", "driver"}),
        (OPEN, APPROVER, {"watcher", "approver"}),
        (OPEN, ADMIN, {"owner", "approver"}),
        (OPEN, OWNER, {"owner"}),
        (OPEN, POLICY, {"system", "policy"}),
        (OPEN, SWEEP, {"system", "server"}),
        (BY_SYSTEM, SYSTEM, {"system", "driver"}),
        (OPEN, RUNNING, {"run"}),
        (OPEN, human("april", tenant="other", is_auditor=True), {"stranger"}),
    ],
)
def test_what_a_caller_is_to_the_room(room: Room, caller: Caller, have: set[Standing]) -> None:
    assert standings(room, ROOM, TENANT, caller) == have


def test_an_admin_who_took_the_token_drives_as_long_as_they_are_one() -> None:
    room = given(OPENED, DriverMoved("human:olga", "human:ada", 2, "taken")).state
    assert "steer" in allowed_actions(room, ROOM, TENANT, ADMIN)
    for caller in (human("ada"), human("ada", is_member=True)):
        assert "steer" not in allowed_actions(room, ROOM, TENANT, caller)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(("name", "room", "caller"), COLUMNS, ids=[name for name, _, _ in COLUMNS])
def test_a_closed_room_is_only_looked_at(name: str, room: Room, caller: Caller, action: Action) -> None:
    was_allowed = decide_right(room, ROOM, TENANT, caller, action).allowed
    assert set(ACTIONS) - {"read", "fork", "hold", "export"} == OPEN_ROOM_ACTIONS
    events = () if room.run is None else (RunEnded(room.run.run_id, "room_closed"),)
    closed = given(OPENED, *PEOPLE, *events, RoomClosed()).state
    is_run = caller.principal.kind == "agent"
    verdict = decide_right(closed, ROOM, TENANT, caller, action)
    assert verdict.allowed is (was_allowed and action not in OPEN_ROOM_ACTIONS and not is_run)


@pytest.mark.parametrize("action", [action for action in ACTIONS if "owner" in RIGHTS[action]])
def test_a_higher_role_may_all_that_a_lower_one_may(action: Action) -> None:
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
