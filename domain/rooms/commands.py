"""The commands of a room as callers send them (http.md, Rooms): decoded with unknown fields refused."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from .approval_policy import ApprovalPolicy
from .events import DataClass, Delivery, Role
from .handoff import RunRole

MAX_TITLE_CHARS = 200
MAX_REPOSITORY_CHARS = 400
MAX_REASON_BYTES = 256
MAX_RECIPIENTS = 20
MAX_URL_CHARS = 400
MAX_BRANCH_CHARS = 255

_END = r"(?![\s\S])"
"""The end of a text in a pattern: `$` would let a line break follow."""

Retention = Annotated[
    str, Meta(pattern=f"^[1-9][0-9]{{0,3}}d{_END}", description="Days to keep after the close: 1d to 9999d")
]


Reason = Annotated[str, Meta(min_length=1, max_length=MAX_REASON_BYTES, description="Why, in at most 256 bytes")]
Epoch = Annotated[int, Meta(ge=1, le=2**53, description="The driverEpoch that the caller saw")]
Ref = Annotated[int, Meta(ge=1, le=2**53)]
Url = Annotated[str, Meta(pattern=f"^[!-~]{{1,{MAX_URL_CHARS}}}{_END}")]
Branch = Annotated[str, Meta(pattern=f"^[!-~]{{1,{MAX_BRANCH_CHARS}}}{_END}")]
Commit = Annotated[str, Meta(pattern=f"^[0-9a-f]{{7,64}}{_END}", description="7 to 64 hex digits")]

ClaimedReason = Literal["finished", "error", "stuck", "deadline"]
"""Why a run ended, as a sandbox or its keeper may say; the server alone says the others."""


class Command(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Base of every command body."""


class NewMember(Command, frozen=True):
    """A member of a room that is being opened."""

    principal: Annotated[str, Meta(max_length=300)]
    role: Role
    approver: bool = False


class OpenRoom(Command, frozen=True):
    """POST /v1/rooms."""

    data_class: DataClass
    title: Annotated[str, Meta(min_length=1, max_length=MAX_TITLE_CHARS)] | UnsetType = UNSET
    retention: Retention = "90d"
    members: Annotated[tuple[NewMember, ...], Meta(max_length=100)] = ()
    approvals: ApprovalPolicy | UnsetType = UNSET
    repository: Annotated[str, Meta(min_length=1, max_length=MAX_REPOSITORY_CHARS)] | UnsetType = UNSET


class PostMessage(Command, frozen=True):
    """POST /v1/rooms/{id}/messages."""

    text: Annotated[str, Meta(min_length=1)]
    kind: Literal["chat", "review_verdict", "task_state"] = "chat"
    delivery: Delivery = "none"
    to: Annotated[tuple[str, ...], Meta(max_length=MAX_RECIPIENTS)] = ()
    caused_by: Ref | None = None
    driver_epoch: Epoch | None = None
    verdict: Literal["approve", "changes"] | None = None
    commit: Commit | None = None


class RemoveQueued(Command, frozen=True):
    """DELETE /v1/rooms/{id}/queue/{ref}."""

    ref: Ref


class AtEpoch(Command, frozen=True):
    """The body of what only the driver may do: the driverEpoch that the caller saw."""

    driver_epoch: Epoch


class PromoteQueued(Command, frozen=True):
    """POST /v1/rooms/{id}/queue/{ref}/promote: AtEpoch with the message of the path."""

    ref: Ref
    driver_epoch: Epoch


class InterruptRun(Command, frozen=True):
    """POST /v1/rooms/{id}/interrupt."""

    driver_epoch: Epoch


class RequestDriver(Command, frozen=True):
    """POST /v1/rooms/{id}/driver/request."""


class GiveDriver(Command, frozen=True):
    """POST /v1/rooms/{id}/driver/give."""

    to: Annotated[str, Meta(max_length=300)]
    driver_epoch: Epoch


class TakeDriver(Command, frozen=True):
    """POST /v1/rooms/{id}/driver/take."""

    reason: Reason


class LapseDriver(Command, frozen=True):
    """The sweep's: when the holder of this epoch was last seen, and last did something in the room.

    Neither is before the holder got the token: who was never here counts from then.
    """

    driver_epoch: int
    last_seen: datetime
    last_acted: datetime


class SetHold(Command, frozen=True):
    """POST /v1/rooms/{id}/hold."""

    reason: Reason


class ReleaseHold(Command, frozen=True):
    """POST /v1/rooms/{id}/release."""

    reason: Reason


class MemberRole(Command, frozen=True):
    """The body of PUT /v1/rooms/{id}/members/{principal}."""

    role: Role
    approver: bool = False


class AddMember(Command, frozen=True):
    """MemberRole with the principal of the path."""

    principal: str
    role: Role
    approver: bool = False


class RemoveMember(Command, frozen=True):
    """DELETE /v1/rooms/{id}/members/{principal}."""

    principal: str


class CloseRoom(Command, frozen=True):
    """POST /v1/rooms/{id}/close."""

    reason: Reason | None = None


class RequestRun(Command, frozen=True):
    """POST /v1/rooms/{id}/runs."""

    role: RunRole
    pull_request: Url | None = None
    driver_epoch: Epoch | None = None


class Registration(Command, frozen=True):
    """The body of PUT /v1/runs/{runId}."""

    room_id: Annotated[str, Meta(max_length=8)]
    role: RunRole
    branch: Branch | None = None
    task_url: Url | None = None


class RegisterRun(Command, frozen=True):
    """Registration with the run of the path."""

    run_id: str
    role: RunRole
    branch: Branch | None = None
    task_url: Url | None = None


class StartRun(Command, frozen=True):
    """POST /v1/bridge/hello. role: of a development token, whose first hello registers the run; None otherwise."""

    role: str | None = None


class TurnRunAway(Command, frozen=True):
    """A hello while another run has the room."""


class EndRun(Command, frozen=True):
    """POST /v1/bridge/bye."""

    reason: ClaimedReason = "finished"


class StopRun(Command, frozen=True):
    """POST /v1/runs/{runId}/end: EndRun with the run of the path."""

    run_id: str
    reason: ClaimedReason = "finished"


class Revocation(Command, frozen=True):
    """The body of POST /v1/runs/{runId}/revoke."""

    reason: Reason | None = None


class RevokeRun(Command, frozen=True):
    """Revocation with the run of the path."""

    run_id: str
    reason: Reason | None = None


class SweepRun(Command, frozen=True):
    """The sweep's: since when a run shows no life, from its last renewal of the lease or from its request."""

    run_id: str
    since: datetime


class PushedItem(Command, frozen=True):
    """One item of a bridge, before its payload is checked."""

    stream: Literal["events", "status"]
    seq: Annotated[int, Meta(ge=1, le=2**53)]
    type: Annotated[str, Meta(max_length=64)]
    payload: Any
    caused_by: Ref | None = None
