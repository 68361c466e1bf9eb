"""What a room remembers of its approvals, and how each event moves it."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ..events import Recorded
from .approval_events import ActionClass, ApprovalDecided, ApprovalOutcome, ApprovalRequested

MAX_SETTLED = 256
"""Decided requests that a room remembers, so that whoever decides late hears who was first; the oldest go first."""

REQUEST_KEY = "approval-request:"
"""Before a bridge's own number of a request, in the origin key of its event."""


class Approval(Struct, frozen=True):
    """One request. seq is its event's; classes are its visibility classes; expires_at is as in ApprovalRequested."""

    approval_id: str
    run_id: str
    event_id: str
    call_id: str
    action_class: ActionClass
    digest: str
    prompted_by: tuple[str, ...]
    expires_at: str
    seq: int
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
        known = (*reversed(self.pending.values()), *reversed(self.settled.values()))
        return next((each for each in known if (each.run_id, each.event_id) == (run_id, event_id)), None)


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
        (recorded.origin_key or "").removeprefix(REQUEST_KEY),
        event.call_id,
        event.class_,
        event.action_digest,
        event.prompted_by,
        event.expires_at,
        recorded.seq,
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
