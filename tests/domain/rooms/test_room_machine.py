"""A room under any sequence of commands by anybody keeps what it promises."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
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
    ClaimedReason,
    CloseRoom,
    EndRun,
    GiveDriver,
    InterruptRun,
    LapseDriver,
    NewMember,
    OpenRoom,
    PostMessage,
    PromoteQueued,
    RegisterRun,
    RemoveMember,
    RemoveQueued,
    RequestDriver,
    RequestRun,
    StartRun,
    StopRun,
    TakeDriver,
)
from minutebook.domain.rooms.context import Context, Decision, Limits
from minutebook.domain.rooms.decide import close_room, open_room
from minutebook.domain.rooms.driver import give_driver, lapse_driver, request_driver, take_driver
from minutebook.domain.rooms.events import AckKind, Delivery, DriverMoved, Role
from minutebook.domain.rooms.members import add_member, remove_member
from minutebook.domain.rooms.messages import interrupt_run, post_message, promote_queued, remove_queued
from minutebook.domain.rooms.rights import decide_right
from minutebook.domain.rooms.runs import end_run, register_run, request_run, start_run, stop_run
from minutebook.domain.rooms.sealing import sealing
from minutebook.domain.rooms.state import INITIAL, Room, evolve
from room_scenes import ADMIN, FRESH_RUN, NOW, ROOM, SWEEP, SYSTEM, TENANT, agent, context_of, human, pushing

MEMBERS = 5
EVENTS = 24

NAMES = [f"human:p{n}" for n in range(6)]
RUNS = ["runrunaa", "runrunbb"]
names = st.sampled_from(NAMES)
PEOPLE = [human(name.partition(":")[2]) for name in NAMES]
callers = st.sampled_from([*PEOPLE[:1] * 6, *PEOPLE, *[ADMIN] * 4, *[SYSTEM] * 2, *map(agent, RUNS)])
stale = st.sampled_from([0, 0, 0, 1])
run_callers = st.sampled_from([agent(run_id) for run_id in [*RUNS, FRESH_RUN]])
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
        context = context_of(caller, len(self.log), self.bytes, self.limits)
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

    @rule(caller=callers, delivery=st.sampled_from(["queued", "steering"]), late=stale)
    def post_on(self, caller: Caller, delivery: Delivery, late: int) -> None:
        command = PostMessage("x", delivery=delivery, driver_epoch=self.room.driver_epoch - late or None)
        before = self.room
        decision = self.ask(caller, lambda room, context: post_message(room, command, context))
        if decision is None or not self.room.is_open:
            return
        if delivery == "queued":
            assert self.room.queue == (*before.queue, self.room.queue[-1]), "the queue is first in, first out"
        else:
            assert before.run is not None
            self.only_the_driver(before, caller, late)

    @rule(caller=callers, place=st.integers(0, 2))
    def unqueue(self, caller: Caller, place: int) -> None:
        before = self.room
        ref = before.queue[place].seq if place < len(before.queue) else 1
        decision = self.ask(caller, lambda room, context: remove_queued(room, RemoveQueued(ref), context))
        if decision is not None:
            assert str(caller.principal) in (before.driver, before.queue[place].author)

    @rule(caller=callers, place=st.integers(0, 2), late=stale)
    def promote(self, caller: Caller, place: int, late: int) -> None:
        before = self.room
        ref = before.queue[place].seq if place < len(before.queue) else 1
        command = PromoteQueued(ref, before.driver_epoch - late)
        if self.ask(caller, lambda room, context: promote_queued(room, command, context)) is not None:
            self.only_the_driver(before, caller, late)
            assert ref in {each.seq for each in before.queue}

    @rule(caller=callers, late=stale)
    def interrupt(self, caller: Caller, late: int) -> None:
        before = self.room
        command = InterruptRun(before.driver_epoch - late)
        if self.ask(caller, lambda room, context: interrupt_run(room, command, context)) is not None:
            self.only_the_driver(before, caller, late)

    @rule(caller=callers, name=names | st.just("system:triage"), late=stale)
    def give(self, caller: Caller, name: str, late: int) -> None:
        before = self.room
        command = GiveDriver(name, before.driver_epoch - late)
        if self.ask(caller, lambda room, context: give_driver(room, command, context)) is not None:
            self.only_the_driver(before, caller, late)
            assert self.room.driver == name

    @rule(caller=callers)
    def request(self, caller: Caller) -> None:
        before = self.room
        decision = self.ask(caller, lambda room, context: request_driver(room, RequestDriver(), context))
        if decision is not None and before.driver.startswith("system:"):
            assert self.room.driver == str(caller.principal), "a system yields at once"

    @rule(caller=callers)
    def take(self, caller: Caller) -> None:
        if self.ask(caller, lambda room, context: take_driver(room, TakeDriver("x"), context)) is not None:
            assert self.room.driver == str(caller.principal)

    @rule(late=stale, gone=st.booleans())
    def sweep_driver(self, late: int, gone: bool) -> None:
        before = self.room
        seen = NOW - timedelta(hours=1) if gone else NOW
        command = LapseDriver(before.driver_epoch - late, seen, seen)
        self.ask(SWEEP, lambda room, context: lapse_driver(room, command, context))
        if before.driver != self.room.driver:
            assert (gone, late) == (True, 0)
            assert self.room.driver == before.system_holder

    @rule(caller=callers, late=stale)
    def request_a_run(self, caller: Caller, late: int) -> None:
        before = self.room
        epoch = before.driver_epoch - late or None
        command = RequestRun("implementer", driver_epoch=epoch)
        decision = self.ask(caller, lambda room, context: request_run(room, command, context))
        if decision is not None and self.room.is_open:
            assert (before.run, before.waiting_runs, self.room.queue) == (None, [], ())

    @rule(caller=callers, run_id=st.sampled_from(RUNS))
    def register(self, caller: Caller, run_id: str) -> None:
        command = RegisterRun(run_id, "implementer")
        self.ask(caller, lambda room, context: register_run(room, command, context))

    @rule(caller=callers, run_id=st.sampled_from([*RUNS, FRESH_RUN]))
    def stop(self, caller: Caller, run_id: str) -> None:
        self.ask(caller, lambda room, context: stop_run(room, StopRun(run_id), context))

    @rule(kind=st.sampled_from(get_args(AckKind)), place=st.integers(0, 2))
    def acknowledge(self, kind: AckKind, place: int) -> None:
        before = self.room.run
        if before is None or place >= len(before.deliveries):
            return
        ref = before.deliveries[place].ref
        item = (f"status:{before.status_seq + 1}", "state_changed", {"kind": kind, "ref": ref})
        again = (f"status:{before.status_seq + 2}", "state_changed", {"kind": kind, "ref": ref})
        self.ask(
            agent(before.run_id), lambda room, context: pushing(item, caller=context.caller)(room, context.version)
        )
        left = before.deliveries if self.room.run is None else self.room.run.deliveries
        assert set(before.deliveries) - set(left) <= {before.deliveries[place]}
        self.ask(
            agent(before.run_id), lambda room, context: pushing(again, caller=context.caller)(room, context.version)
        )
        assert self.room.run is None or self.room.run.deliveries == left, "acknowledged twice"

    def push_item(self, run_id: str, item: tuple[str, str, Any]) -> None:
        """One item of a run's bridge."""
        caller = agent(run_id)
        self.ask(caller, lambda room, context: pushing(item, caller=caller)(room, context.version))

    def only_the_driver(self, before: Room, caller: Caller, late: int) -> None:
        """What was done was the driver's to do, and the driver knew it."""
        assert (before.driver, late) == (str(caller.principal), 0)

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

    @rule(caller=run_callers, reason=st.sampled_from(get_args(ClaimedReason)))
    def bye(self, caller: Caller, reason: ClaimedReason) -> None:
        self.ask(caller, lambda room, context: end_run(room, EndRun(reason), context))

    @rule(caller=callers, lucky=st.integers(0, 9))
    def close(self, caller: Caller, lucky: int) -> None:
        if lucky == 0:
            self.ask(caller, lambda room, context: close_room(room, CloseRoom(), context))

    @invariant()
    def an_owner_and_a_driver_who_is_more_than_a_watcher(self) -> None:
        assert any(member.role == "owner" for member in self.room.members.values())
        assert len(self.room.members) <= MEMBERS
        if self.room.driver not in (str(ADMIN.principal), str(SYSTEM.principal)):
            assert self.room.members[self.room.driver].role != "watcher"

    @invariant()
    def each_move_of_the_token_has_the_next_epoch(self) -> None:
        epochs = [each.event.epoch for each in self.log if isinstance(each.event, DriverMoved)]
        assert epochs == list(range(2, len(epochs) + 2))
        assert self.room.driver_epoch == len(epochs) + 1

    @invariant()
    def the_queue_is_in_the_order_of_the_log(self) -> None:
        seqs = [quote.seq for quote in self.room.queue]
        assert seqs == sorted(set(seqs))
        consumed = [quote.seq for record in self.room.runs.values() for quote in record.consumed]
        assert not set(seqs) & set(consumed)

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
            assert (self.room.queue, self.room.waiting_runs) == ((), [])
            assert self.room.run is None
            assert not self.room.is_open

    @invariant()
    def every_number_and_every_fixed_key_is_stored_once(self) -> None:
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
