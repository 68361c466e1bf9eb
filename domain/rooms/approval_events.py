"""The facts of approvals: what a run asked leave for, and what became of it (rooms.md, Approvals)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from msgspec import UNSET, UnsetType, field

from ..events import Event

ActionClass = Literal["forge.push", "forge.pr", "forge.other", "mcp.write", "shell.high"]
"""Action classes: what kind of harm a call can do. Not the visibility classes of an entry, not a room's data class."""

ApprovalOutcome = Literal["approved", "denied", "expired", "superseded"]
"""What becomes of a request. Only `approved` lets the call go ahead."""


class ApprovalRequested(Event, frozen=True):
    """A run asks leave for one call. `action` is the raw call, redacted; the digest is of what it was before.

    prompted_by: who caused the run so far. expires_at: RFC 3339, UTC, microseconds, so that texts compare as times.
    """

    type: ClassVar[str] = "approval_requested"
    approval_id: str
    call_id: str
    class_: ActionClass = field(name="class")
    action: Any
    action_digest: str
    prompted_by: tuple[str, ...]
    expires_at: str


class ApprovalDecided(Event, frozen=True):
    """What became of a request, once: the first of these is the decision, and there is no second."""

    type: ClassVar[str] = "approval_decided"
    approval_id: str
    action_digest: str
    decision: ApprovalOutcome
    reason: str | UnsetType = UNSET
