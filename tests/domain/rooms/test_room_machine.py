"""A room under any sequence of commands by anybody keeps what it promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from minutebook.domain.errors import MinutebookError
from minutebook.domain.events import Recorded
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.commands import (
    AddMember,
    CloseRoom,
    EndRun,
    NewMember,
    OpenRoom,
    PostMessage,
    RemoveMember,
    StartRun,
)
from minutebook.domain.rooms.context import Context, Decision, Limits
from minutebook.domain.rooms.decide import close_room, open_room
from minutebook.domain.rooms.events import EndReason, Role
from minutebook.domain.rooms.members import add_member, remove_member
from minutebook.domain.rooms.messages import post_message
from minutebook.domain.rooms.rights import decide_right
from minutebook.domain.rooms.runs import end_run, start_run
from minutebook.domain.rooms.sealing import sealing
from minutebook.domain.rooms.state import INITIAL, Room, evolve
from room_scenes import ADMIN, NOW, ROOM, SYSTEM, TENANT, agent, human, pushing

MEMBERS = 5
EVENTS = 10

NAMES = [f"human:p{n}" for n in range(6)]
RUNS = ["runrunaa", "runrunbb"]
names = st.sampled_from(NAMES)
callers = st.sampled_from([*(human(name.partition(":")[2]) for name in NAMES), *[ADMIN] * 4, SYSTEM, *map(agent, RUNS)])
run_callers = st.sampled_from([agent(run_id) for run_id in RUNS])
roles: st.SearchStrategy[Role] = st.sampled_from(get_args(Role))


class RoomMachine(RuleBasedStateMachine):
    """Refusals are taken as they come; what is decided is appended as the dispatcher would, seal and all."""

    def __init__(self) -> None:
        super().__init__()
        self.room: Room = INITIAL
        self.log: list[Recorded[Any]] = []
        self.bytes = 0
        self.sealed_at: int | None = None
        self.limits = Limits(members=MEMBERS, events=EVENTS)

    def ask(self, caller: Caller, decide: Callable[[Room, Context], Decision]) -> Decision | None:
        """Decide and append; None for a refusal."""
        context = Context(caller, ROOM, TENANT, NOW, len(self.log), self.bytes, self.limits)
        try:
            decision = sealing(self.room, decide(self.room, context), context, size)
        except MinutebookError:
            return None
        assert self.sealed_at is None or not decision.events, "a sealed room took an event"
        for new in decision.events:
            recorded: Recorded[Any] = Recorded(len(self.log) + 1, new.actor, new.run_id, new.origin_key, new.event)
            self.log.append(recorded)
            self.room = evolve(self.room, recorded)
            self.bytes += size(new)
        if decision.seal:
            self.sealed_at = len(self.log)
        return decision

    @initialize(roles=st.lists(roles, max_size=3))
    def open(self, roles: list[Role]) -> None:
        members = tuple(NewMember(name, role) for name, role in zip(NAMES[1:], roles, strict=False))
        command = OpenRoom("internal", members=members)
        self.ask(human("p0", is_member=True), lambda _room, context: open_room(command, context))
        assert self.log

    @rule(caller=callers, name=names, role=roles, approver=st.booleans())
    def add(self, caller: Caller, name: str, role: Role, approver: bool) -> None:
        self.ask(caller, lambda room, context: add_member(room, AddMember(name, role, approver), context))

    @rule(caller=callers, name=names)
    def remove(self, caller: Caller, name: str) -> None:
        self.ask(caller, lambda room, context: remove_member(room, RemoveMember(name), context))

    @rule(caller=callers)
    def post(self, caller: Caller) -> None:
        may = decide_right(self.room, ROOM, TENANT, caller, "chat").allowed
        decision = self.ask(caller, lambda room, context: post_message(room, PostMessage("x"), context))
        assert may is (decision is not None), "explain and the command disagree"

    @rule(caller=run_callers)
    def hello(self, caller: Caller) -> None:
        before = self.room.run
        decision = self.ask(caller, lambda room, context: start_run(room, StartRun("implementer"), context))
        if decision is not None and before is not None and before.run_id != caller.principal.id:
            assert self.room.runs[before.run_id].phase == "ended"

    @rule(caller=run_callers, ahead=st.integers(0, 2), kind=st.sampled_from(["started", "completed", "event"]))
    def push(self, caller: Caller, ahead: int, kind: str) -> None:
        run = self.room.run
        seq = (run.events_seq if run is not None else 0) + ahead
        body = {"kind": "harness_event"}
        item: tuple[str, str, Any] = (f"events:{max(seq, 1)}", "state_changed", body)
        if kind != "event":
            item = (item[0], "turn", {"runId": caller.principal.id, "turnId": "t1", "phase": kind})
        self.ask(caller, lambda room, context: pushing(item, caller=caller)(room, context.version))

    @rule(caller=run_callers, reason=st.sampled_from(get_args(EndReason)))
    def bye(self, caller: Caller, reason: EndReason) -> None:
        self.ask(caller, lambda room, context: end_run(room, EndRun(reason), context))

    @rule(caller=callers, lucky=st.integers(0, 9))
    def close(self, caller: Caller, lucky: int) -> None:
        if lucky == 0:
            self.ask(caller, lambda room, context: close_room(room, CloseRoom(), context))

    @invariant()
    def an_owner_and_a_driver_who_is_a_member(self) -> None:
        assert any(member.role == "owner" for member in self.room.members.values())
        assert self.room.driver in self.room.members
        assert self.room.members[self.room.driver].role != "watcher"
        assert len(self.room.members) <= MEMBERS

    @invariant()
    def one_running_run_that_is_present(self) -> None:
        present = [name for name in self.room.present if name.startswith("agent:")]
        assert present == ([] if self.room.run is None else [f"agent:{self.room.run.run_id}"])
        if self.room.run is not None:
            assert self.room.runs[self.room.run.run_id].phase == "running"

    @invariant()
    def people_who_are_present_are_members(self) -> None:
        assert {name for name in self.room.present if name.startswith("human:")} == set(self.room.members)

    @invariant()
    def closed_is_final(self) -> None:
        assert self.room.is_closed is (self.sealed_at is not None)
        if self.sealed_at is not None:
            assert len(self.log) == self.sealed_at
            assert self.room.run is None
            assert not self.room.is_open

    @invariant()
    def every_number_of_a_run_is_stored_once(self) -> None:
        keys = [(each.run_id, each.origin_key) for each in self.log if each.origin_key is not None]
        assert len(keys) == len(set(keys))

    @invariant()
    def the_log_makes_the_room(self) -> None:
        room = INITIAL
        for each in self.log:
            room = evolve(room, each)
        assert room == self.room


def size(new: Any) -> int:
    """The bytes of a payload."""
    return len(msgspec.json.encode(new.payload()))


RoomMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestRoomMachine = RoomMachine.TestCase
