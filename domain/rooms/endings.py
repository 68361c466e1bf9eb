"""The end of a run, whoever ends it: one append closes its turn, settles its approvals and takes it out of the room."""

from __future__ import annotations

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from .acting import role_in
from .approvals import supersede_run
from .context import Context, NewEvent, by_server
from .events import EndReason, ParticipantLeft, RunEnded, TurnReported
from .state import Room


def end_of(
    room: Room,
    run_id: str,
    reason: EndReason,
    context: Context,
    note: str | UnsetType = UNSET,
    *,
    is_named: bool = False,
) -> tuple[NewEvent, ...]:
    """What ends a run that is running or was requested; nothing for a run that the room does not know or that ended.

    is_named: the caller decided it, and stands in the log as the one who did.
    """
    record = room.runs.get(run_id)
    if record is None or record.phase == "ended":
        return ()
    ended = by_server(RunEnded(run_id, reason, note), f"run:{run_id}:ended", run_id=run_id)
    if is_named:
        ended = replace(ended, actor=context.caller.principal, actor_role=role_in(room, context), origin="client")
    run = room.run
    if run is None or run.run_id != run_id:
        return (ended,)
    turn: tuple[NewEvent, ...] = ()
    if run.open_turn is not None:
        turn = (by_server(TurnReported(run_id, run.open_turn, "failed"), run_id=run_id),)
    left = by_server(ParticipantLeft(f"agent:{run_id}"), f"run:{run_id}:left", run_id=run_id)
    return (*turn, *supersede_run(room, run_id, context), ended, left)
