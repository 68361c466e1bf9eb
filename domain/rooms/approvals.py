"""What a room remembers of its approvals, how each event moves it, and what settles them without a person."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..events import Recorded
from ..times import stamp
from .approval_events import ActionClass, ApprovalDecided, ApprovalOutcome, ApprovalRequested
from .context import Context, NewEvent, by_server

if TYPE_CHECKING:
    from .state import Room  # which holds what this module remembers

MAX_SETTLED = 256
"""Decided requests that a room remembers, so that whoever decides late hears who was first; the oldest go first."""


class Approval(Struct, frozen=True):
    """One request. seq and classes are its event's; request_key is that of its bridge's own number of it."""

    approval_id: str
    run_id: str
    request_key: str
    call_id: str
    action_class: ActionClass
    digest: str
    prompted_by: tuple[str, ...]
    expires_at: str
    seq: int
    classes: tuple[str, ...] = ()
    decision: ApprovalOutcome | None = None


class Approvals(Struct, frozen=True):
    """Requests by their id: those that wait, in the order of asking, and the last MAX_SETTLED that were decided."""

    pending: dict[str, Approval] = {}
    settled: dict[str, Approval] = {}

    def find(self, approval_id: str) -> Approval | None:
        """The request of that id, decided or not; None where there is none or it is long settled."""
        return self.pending.get(approval_id) or self.settled.get(approval_id)

    def asked_as(self, run_id: str, event_id: str) -> Approval | None:
        """The request that a run's bridge made under that number of its own."""
        key = request_key(event_id)
        known = (*reversed(self.pending.values()), *reversed(self.settled.values()))
        return next((each for each in known if (each.run_id, each.request_key) == (run_id, key)), None)


def action_digest(approval_id: str, action: Any) -> str:
    """What ties a decision to one call with exactly these arguments (law 24), in hex.

    SHA-256 over the approval's id and, right behind it, the canonical JSON of the action before redaction: members
    sorted by name, no white space, UTF-8. A bridge computes it again on what it is about to run.
    """
    return hashlib.sha256(approval_id.encode() + msgspec.json.encode(action, order="deterministic")).hexdigest()


def request_key(event_id: str) -> str:
    """The key under which a run's request is stored: a digest of its bridge's number for it, whatever that says."""
    return f"approval-request:{hashlib.sha256(event_id.encode()).hexdigest()[:32]}"


def evolve_approvals(approvals: Approvals, recorded: Recorded[object]) -> Approvals:
    """The next state. Total, as `evolve` is; an event that is none of an approval changes nothing."""
    match recorded.event:
        case ApprovalRequested() as event:
            return _asked(approvals, recorded, event)
        case ApprovalDecided() as event:
            return _settled(approvals, event)
        case _:
            return approvals


def _asked(approvals: Approvals, recorded: Recorded[object], event: ApprovalRequested) -> Approvals:
    if approvals.find(event.approval_id) is not None:
        return approvals
    asked = Approval(
        event.approval_id,
        recorded.run_id or "",
        recorded.origin_key or "",
        event.call_id,
        event.class_,
        event.action_digest,
        event.prompted_by,
        event.expires_at,
        recorded.seq,
        recorded.classes,
    )
    return replace(approvals, pending={**approvals.pending, event.approval_id: asked})


def _settled(approvals: Approvals, event: ApprovalDecided) -> Approvals:
    asked = approvals.pending.get(event.approval_id)
    if asked is None:
        return approvals  # the first decision won; another one cannot be stored, and would change nothing
    settled = {**approvals.settled, event.approval_id: replace(asked, decision=event.decision)}
    if len(settled) > MAX_SETTLED:
        del settled[next(iter(settled))]
    pending = {known: each for known, each in approvals.pending.items() if known != event.approval_id}
    return Approvals(pending, settled)


def settled_by_server(asked: Approval, decision: ApprovalOutcome) -> NewEvent:
    """The end of a request that time or its run brought; by its fixed key, a second server's try is a duplicate."""
    event = ApprovalDecided(asked.approval_id, asked.digest, decision)
    new = by_server(event, decision_key(asked.approval_id), run_id=asked.run_id, caused_by=asked.seq)
    return replace(new, classes=asked.classes)


def decision_key(approval_id: str) -> str:
    """The one key under which the decision of a request is stored, whoever decides."""
    return f"approval:{approval_id}"


def supersede_run(room: Room, run_id: str, context: Context) -> tuple[NewEvent, ...]:
    """What ends the requests of a run that leaves."""
    return _supersede((each for each in room.approvals.pending.values() if each.run_id == run_id), context)


def supersede_calls(room: Room, call_ids: Collection[str], context: Context) -> tuple[NewEvent, ...]:
    """What ends the requests of the running run for calls that have their results now."""
    run_id = None if room.run is None else room.run.run_id
    pending = room.approvals.pending.values()
    return _supersede((each for each in pending if each.run_id == run_id and each.call_id in call_ids), context)


def settle_for_close(room: Room, context: Context) -> tuple[NewEvent, ...]:
    """What ends every request that waits, before the room is sealed."""
    return _supersede(room.approvals.pending.values(), context)


def _supersede(requests: Iterable[Approval], context: Context) -> tuple[NewEvent, ...]:
    now = stamp(context.now)
    return tuple(settled_by_server(asked, "expired" if now >= asked.expires_at else "superseded") for asked in requests)
