"""How a room ends: what is open in it is settled first, in the same append, and the seal comes last."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from .acting import after
from .approvals import settle_for_close
from .context import Context, Decision, NewEvent, by_server
from .endings import end_of
from .events import LimitReached, QueuedRemoved, RoomClosed
from .state import Room


def settled(room: Room, context: Context) -> tuple[NewEvent, ...]:
    """What settles approvals, queue and runs before the seal, in this order (rooms.md, Phases)."""
    events = settle_for_close(room, context)
    events += tuple(by_server(QueuedRemoved(quote.seq), f"unqueued:{quote.seq}") for quote in room.queue)
    left = after(room, events, context.version)
    for run_id in [*room.waiting_runs, *([] if room.run is None else [room.run.run_id])]:
        ended = end_of(left, run_id, "room_closed", context)
        left = after(left, ended, context.version + len(events))
        events += ended
    return events


def sealing(room: Room, decision: Decision, context: Context, size: Callable[[NewEvent], int]) -> Decision:
    """The decision, and where it crosses a limit of the room, the events that close it (rooms.md, Phases).

    What crosses the limit is stored whole; then what it leaves open is settled and the room is sealed, all in one
    append.
    """
    if decision.seal or not decision.events or room.is_closed:
        return decision
    count = context.version + len(decision.events)
    stored = context.stored_bytes + len(decision.events) * context.limits.payload_bytes
    if stored >= context.limits.bytes:
        stored = context.stored_bytes + sum(size(event) for event in decision.events)
    if count < context.limits.events and stored < context.limits.bytes:
        return decision
    reached = LimitReached("events" if count >= context.limits.events else "bytes")
    left = after(room, decision.events, context.version)
    closing = (
        *settled(left, replace(context, version=count)),
        by_server(reached),
        by_server(RoomClosed("limit"), "seal"),
    )
    return replace(decision, events=(*decision.events, *closing), seal=True)
