"""Rooms with requests for approval that the tests of approvals share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
from gwt import Given
from minutebook.domain.events import Recorded
from minutebook.domain.principals import Caller
from minutebook.domain.rooms.approval_policy import ApprovalPolicy
from minutebook.domain.rooms.approvals import Approval, action_digest
from minutebook.domain.rooms.decide_approvals import DecideApproval, RequestApproval, decide_approval, request_approval
from minutebook.domain.rooms.events import MemberSpec, MessagePosted, RoomOpened, RunRequested
from room_scenes import FRESH_ULID, NOW, OPENED, RUN, RUNNING, STARTED, asked, context_of, given, human, said

ACTION = {"tool": "open_pr", "args": {"title": "Größe", "draft": False}}
DIGEST = action_digest(FRESH_ULID, ACTION)
ASK = RequestApproval("e1", "c1", "forge.pr", ACTION)
APPROVER = human("anna")
OTHER_APPROVER = human("abel")
LATER = NOW + timedelta(minutes=1)
EXPIRED = NOW + timedelta(minutes=30)
TOOL_CLASSES = {"vault": "secret", "salaries": "hr", "bash": ""}


def opened(**policy: Any) -> RoomOpened:
    """A room with two approvers and a policy."""
    members = (
        *OPENED.members,
        MemberSpec("human:anna", "watcher", approver=True),
        MemberSpec("human:abel", "collaborator", approver=True),
    )
    settings = msgspec.to_builtins(ApprovalPolicy(**policy))
    return msgspec.structs.replace(OPENED, members=members, approvals=settings)


def running(*events: Any, **policy: Any) -> Given:
    """Such a room with a running run, after these events."""
    return given(opened(**policy), *STARTED, *events)


def asking(
    command: RequestApproval = ASK,
    *,
    caller: Caller = RUNNING,
    now: datetime = NOW,
    fresh: str = FRESH_ULID,
    tool_classes: dict[str, str] | None = None,
) -> Callable[[Any, int], Any]:
    """A bridge's request, ready for `when`."""

    def decide(room: Any, version: int) -> Any:
        context = msgspec.structs.replace(context_of(caller, version, now=now), fresh_ulid=fresh)
        return request_approval(room, command, context, tool_classes or {})

    return decide


def waiting(*events: Any, ask: Callable[[Any, int], Any] | None = None, **policy: Any) -> Given:
    """A room where the run's request waits for a person."""
    room = running(*events, **policy)
    return given(*room.events, *room.when(ask or asking()).decided().events)


def deciding(
    caller: Caller = APPROVER,
    decision: str = "approved",
    *,
    digest: str = DIGEST,
    approval_id: str = FRESH_ULID,
    reason: str | None = None,
    now: datetime = LATER,
) -> Callable[[Any, int], Any]:
    """A person's decision, ready for `when`."""
    return asked(decide_approval, DecideApproval(approval_id, decision, digest, reason), caller, now=now)  # type: ignore[arg-type]


def after(room: Given, *steps: Callable[[Any, int], Any]) -> Given:
    """The room once these commands were taken, one after another."""
    for step in steps:
        room = given(*room.events, *room.when(step).decided().events)
    return room


def requested_by(name: str, *quoted: str) -> tuple[Any, ...]:
    """A room's way to a run that `name` requested, with queued messages of others in its brief."""
    queued = tuple(said(MessagePosted("Do this.", delivery="queued"), human(each)) for each in quoted)
    refs = tuple(range(2, 2 + len(queued)))
    return (*queued, RunRequested(RUN, "implementer", refs, 1 + len(queued), f"human:{name}"))


def only(room: Given) -> Approval:
    """The one request that a room knows."""
    approvals = room.state.approvals
    (found,) = (*approvals.pending.values(), *approvals.settled.values())
    return found


def told(room: Given) -> list[Recorded[Any]]:
    """The decisions that wait for the running run's bridge."""
    return [] if room.state.run is None else list(room.state.run.deliveries)
