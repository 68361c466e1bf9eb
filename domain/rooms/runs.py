"""The runs of a room: requested, registered, begun, turned away, ended (rooms.md, Runs)."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from ..errors import (
    AlreadyEnded,
    Conflict,
    Full,
    HumanDrives,
    Invalid,
    NotVisible,
    ReviewerNeedsPr,
    RoomBusy,
    RunNotLive,
)
from ..ids import is_room_id
from .acting import allow, by_caller, check_reason, refuse_sealed, refuse_stale, run_of
from .brief import write_brief
from .commands import EndRun, RegisterRun, RequestRun, RevokeRun, StartRun, StopRun, SweepRun, TurnRunAway
from .context import Context, Decision, NewEvent, by_server
from .endings import end_of
from .events import LimitReached, ParticipantJoined, RunRegistered, RunRequested, RunStarted
from .rights import human_drives
from .run_state import RunRecord
from .state import Room

NEEDS_PULL_REQUEST = frozenset({"reviewer"})
"""Roles whose run has nothing to do without a pull request."""


def request_run(room: Room, command: RequestRun, context: Context) -> Decision:
    """Start the next run: what waits in the queue goes into its brief.

    The answer carries `runId` (the context's fresh id) and `brief`. Raises HumanDrives for a system while a person
    drives, RoomBusy while a run is running or awaited, ReviewerNeedsPr, StaleEpoch where an epoch was sent.
    """
    if command.driver_epoch is not None:
        allow(room, context, "queue")  # so that whoever drove until now hears that the token moved
        refuse_sealed(room)
        refuse_stale(room, command.driver_epoch)
    allow(room, context, "start_run")
    refuse_sealed(room)
    if context.caller.principal.kind == "system" and human_drives(room):
        raise HumanDrives("A human drives this room; a system starts no run until the token is given to it.")
    if room.run is not None or room.waiting_runs:
        raise RoomBusy("A run is running or awaited in this room; wait until it has ended, or end it.")
    _check_role(command.role, command.pull_request)
    requested = _requested(room, context.fresh_id, command.role, context, command.pull_request)
    return Decision((requested,), answer={"runId": context.fresh_id, "brief": next_brief(room, context)})


def register_run(room: Room, command: RegisterRun, context: Context) -> Decision:
    """Make a run known before its hello, or say where a requested one works. The same registration adds nothing.

    The answer carries `runId`, `roomId`, `role`, `state`, and the `brief` until the run has said hello. Raises Conflict
    for another role or for changes once the run is running, AlreadyEnded, ReviewerNeedsPr, Full.
    """
    allow(room, context, "register_run")
    refuse_sealed(room)
    if not is_room_id(command.run_id):
        raise Invalid.at("runId", "a run id is 8 characters of a-z and 2-7")
    record = room.runs.get(command.run_id)
    _check_role(command.role, command.task_url or (None if record is None else record.pull_request))
    if record is None:
        if len(room.waiting_runs) >= context.limits.waiting_runs:
            raise Full(f"{context.limits.waiting_runs} runs are awaited in this room already; end one of them.")
        requested = _requested(room, command.run_id, command.role, context, by_hand=True)
        events = (requested, *_registered(room, command, context))
        answer = _answer(context.room_id, command.run_id, RunRecord(command.role, "requested"))
        return Decision(events, answer={**answer, "brief": next_brief(room, context)})
    if record.phase == "ended":
        raise AlreadyEnded(f"This run has ended already ({record.reason}); register another one.")
    if record.role != command.role:
        raise Conflict(f"This run is registered as {record.role}; register another one.")
    answer = _answer(context.room_id, command.run_id, record)
    if record.phase == "requested":
        answer["brief"] = brief_of(room, context.room_id, record)
    if (record.branch, record.task_url) == (command.branch, command.task_url):
        return Decision(answer=answer)
    if record.phase == "running":
        raise Conflict("This run is running; its registration stands.")
    return Decision(_registered(room, command, context), answer=answer)


def _check_role(role: str, pull_request: str | None) -> None:
    if role in NEEDS_PULL_REQUEST and pull_request is None:
        raise ReviewerNeedsPr("A reviewer's run needs a pull request to look at; name it.")


def _requested(
    room: Room, run_id: str, role: str, context: Context, pull_request: str | None = None, *, by_hand: bool = False
) -> NewEvent:
    if run_id in room.runs:
        raise Conflict("The new id is a run's already; try again.")
    refs = tuple(quote.seq for quote in room.queue)
    by = str(context.caller.principal)
    event = RunRequested(
        run_id,
        role,
        refs,
        context.version,
        by,
        UNSET if pull_request is None else pull_request,
        True if by_hand else UNSET,
    )
    return replace(by_caller(room, event, context), run_id=run_id)


def _registered(room: Room, command: RegisterRun, context: Context) -> tuple[NewEvent, ...]:
    if room.runs.get(command.run_id) is None and command.branch is None and command.task_url is None:
        return ()
    event = RunRegistered(
        command.run_id,
        command.role,
        UNSET if command.branch is None else command.branch,
        UNSET if command.task_url is None else command.task_url,
    )
    return (replace(by_caller(room, event, context), run_id=command.run_id),)


def _answer(room_id: str, run_id: str, record: RunRecord) -> dict[str, Any]:
    return {"runId": run_id, "roomId": room_id, "role": record.role, "state": record.phase}


def next_brief(room: Room, context: Context) -> str:
    """The brief of a run that is requested now."""
    return write_brief(
        context.room_id, context.version, handoff=room.last_handoff, verdict=room.last_verdict, queued=room.queue
    )


def brief_of(room: Room, room_id: str, record: RunRecord) -> str:
    """The brief of a requested run, with nothing that came after its request."""
    through = record.brief_through_seq or 0
    handoff, verdict = (
        None if quote is None or quote.seq > through else quote for quote in (room.last_handoff, room.last_verdict)
    )
    return write_brief(room_id, through, handoff=handoff, verdict=verdict, queued=record.consumed)


def check_start(room: Room, command: StartRun, context: Context) -> Decision:
    """Refuse a hello before it takes a lease: of another room, of a run that has ended or is not known, when closed.

    Raises NotVisible, Sealed and RunNotLive.
    """
    run_id = run_of(room, context)
    refuse_sealed(room)
    record = room.runs.get(run_id)
    if record is None and command.role is None:
        raise RunNotLive("This run was never registered; register it first.")
    if record is not None and record.phase == "ended":
        raise RunNotLive(f"This run has ended ({record.reason}); start a new run.")
    return Decision()


def start_run(room: Room, command: StartRun, context: Context) -> Decision:
    """A bridge's hello, fenced on the lease that it took. The first one begins the run; later ones add nothing.

    Whoever holds the lease found the one before lapsed: a run that is still down as running is lost.
    The answer carries the cursors `afterHarnessSeq` and `afterStatusSeq`.
    """
    check_start(room, command, context)
    run_id = context.caller.principal.id
    if room.run is not None and room.run.run_id == run_id:
        return Decision(answer={"afterHarnessSeq": room.run.events_seq, "afterStatusSeq": room.run.status_seq})
    record = room.runs.get(run_id)
    role = record.role if record is not None else command.role
    assert role is not None  # noqa: S101 - checked above
    lost = () if room.run is None else end_of(room, room.run.run_id, "lost", context)
    joined = by_server(ParticipantJoined(f"agent:{run_id}", role), f"run:{run_id}:joined", run_id=run_id)
    running = by_server(RunStarted(run_id, role), f"run:{run_id}:running", run_id=run_id)
    return Decision((*lost, joined, running), answer={"afterHarnessSeq": 0, "afterStatusSeq": 0})


def turn_run_away(room: Room, command: TurnRunAway, context: Context) -> Decision:  # noqa: ARG001
    """A live run's bridge said hello while another run has the room: one `limit{concurrent_run}`, however often."""
    run_id = run_of(room, context)
    refuse_sealed(room)
    if room.run is None or run_id == room.run.run_id or run_id in room.contenders:
        return Decision()
    event = LimitReached("concurrent_run", run_id)
    return Decision((by_server(event, f"busy:{run_id}", run_id=run_id),))


def end_run(room: Room, command: EndRun, context: Context) -> Decision:
    """A bridge's bye: the sandbox's own claim of why it ended."""
    run_id = run_of(room, context)
    if run_id in room.runs:
        _refuse_ended(room, run_id)
    allow(room, context, "record")
    return Decision(end_of(room, run_id, command.reason, context))


def stop_run(room: Room, command: StopRun, context: Context) -> Decision:
    """An owner or a system ends a run that is running or awaited."""
    allow(room, context, "end_run")
    _refuse_ended(room, command.run_id)
    return Decision(end_of(room, command.run_id, command.reason, context, is_named=True))


def revoke_run(room: Room, command: RevokeRun, context: Context) -> Decision:
    """An owner or a system ends a run that is not to be trusted any more; its token is good for nothing from here."""
    allow(room, context, "end_run")
    check_reason(command.reason)
    _refuse_ended(room, command.run_id)
    note = UNSET if command.reason is None else command.reason
    return Decision(end_of(room, command.run_id, "revoked", context, note, is_named=True))


def sweep_run(room: Room, command: SweepRun, context: Context) -> Decision:
    """The sweep's: a running run whose lease is long lapsed is lost, a requested one without a hello never joined."""
    allow(room, context, "sweep")
    record = room.runs.get(command.run_id)
    silent_s = (context.now - command.since).total_seconds()
    match None if record is None else record.phase:
        case "running" if silent_s >= context.timeouts.lost_s:
            return Decision(end_of(room, command.run_id, "lost", context))
        case "requested" if silent_s >= context.timeouts.never_joined_s:
            return Decision(end_of(room, command.run_id, "never_joined", context))
        case _:
            return Decision()


def _refuse_ended(room: Room, run_id: str) -> None:
    """Raises AlreadyEnded, and NotVisible for a run that this room never had."""
    record = room.runs.get(run_id)
    if record is None:
        raise NotVisible
    if record.phase == "ended":
        raise AlreadyEnded(f"This run has ended already ({record.reason}).")
