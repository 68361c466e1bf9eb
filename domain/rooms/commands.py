"""The commands of a room as callers send them (http.md, Rooms): decoded with unknown fields refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from .events import DataClass, EndReason, Role

MAX_TITLE_CHARS = 200
MAX_REPOSITORY_CHARS = 400
MAX_REASON_CHARS = 256
MAX_RECIPIENTS = 20

_END = r"(?![\s\S])"
"""The end of a text in a pattern: `$` would let a line break follow."""

Retention = Annotated[
    str, Meta(pattern=f"^[1-9][0-9]{{0,3}}d{_END}", description="Days to keep after the close: 1d to 9999d")
]


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
    approvals: dict[str, Any] = {}
    repository: Annotated[str, Meta(min_length=1, max_length=MAX_REPOSITORY_CHARS)] | UnsetType = UNSET


class PostMessage(Command, frozen=True):
    """POST /v1/rooms/{id}/messages."""

    text: Annotated[str, Meta(min_length=1)]
    kind: Literal["chat"] = "chat"
    delivery: Literal["none"] = "none"
    to: Annotated[tuple[str, ...], Meta(max_length=MAX_RECIPIENTS)] = ()
    caused_by: Annotated[int, Meta(ge=1, le=2**53)] | None = None


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

    reason: Annotated[str, Meta(min_length=1, max_length=MAX_REASON_CHARS)] | None = None


class StartRun(Command, frozen=True):
    """POST /v1/bridge/hello, with the role of the run token."""

    role: str


class EndRun(Command, frozen=True):
    """POST /v1/bridge/bye."""

    reason: EndReason = "finished"


class PushedItem(Command, frozen=True):
    """One item of a bridge, before its payload is checked."""

    stream: Literal["events", "status"]
    seq: Annotated[int, Meta(ge=1, le=2**53)]
    type: Annotated[str, Meta(max_length=64)]
    payload: Any
    caused_by: Annotated[int, Meta(ge=1, le=2**53)] | None = None
