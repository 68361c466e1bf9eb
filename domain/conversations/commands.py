"""The commands of a conversation as callers send them (http.md, Conversations): unknown fields are refused."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from ..answers.target import ResponseTarget
from .events import BargeIn, Mode

MAX_TEXT_CHARS = 32_000
"""Longest text of a turn, in code points."""

MAX_REPLY_CHARS = 64 * 1024
"""Longest reply, in code points; what is longer is cut and says so."""

MAX_CLASSES = 16
MAX_ID_CHARS = 255

_END = r"(?![\s\S])"
"""The end of a text in a pattern: `$` would let a line break follow."""

AgentName = Annotated[str, Meta(pattern=f"^[a-z][a-z0-9_-]{{0,63}}{_END}", description="An agent of the settings")]
Handle = Annotated[
    str, Meta(pattern=f"^[A-Za-z0-9][A-Za-z0-9._-]{{0,127}}{_END}", description="The caller's own name for it")
]
MessageId = Annotated[str, Meta(pattern=f"^[!-~]{{1,{MAX_ID_CHARS}}}{_END}", description="Compared byte by byte")]
Label = Annotated[str, Meta(pattern=f"^[A-Za-z0-9][A-Za-z0-9._:/-]{{0,127}}{_END}")]
Ord = Annotated[int, Meta(ge=1, le=2**53)]
Offset = Annotated[int, Meta(ge=0, le=2**53, description="Code points of the reply")]


class Command(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Base of every command body."""


class StartConversation(Command, frozen=True):
    """POST /v1/conversations. id: a handle within the caller's identity; the same again is the same conversation."""

    agent: AgentName
    id: Handle | UnsetType = UNSET
    mode: Mode = "owner"
    barge_in: BargeIn = "queue"


class SendTurn(Command, frozen=True, omit_defaults=True):
    """POST .../turns. edit_of: ord of an earlier accepted question of the sender. classes: may only add.

    background, response_target: how its answer is taken, and no part of what is signed and asked.
    """

    text: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT_CHARS)]
    message_id: MessageId | UnsetType = UNSET
    edit_of: Ord | UnsetType = UNSET
    classes: Annotated[tuple[Label, ...], Meta(max_length=MAX_CLASSES)] | UnsetType = UNSET
    background: bool = False
    response_target: ResponseTarget | UnsetType = UNSET


class InterruptTurn(Command, frozen=True):
    """POST .../interrupt: stops only the caller's own running turn, or the turn that is named if it is that one."""

    turn: Ord | UnsetType = UNSET
    seen: Offset | UnsetType = UNSET


class CancelTurn(Command, frozen=True):
    """Of a background turn: stop the turn that the message with that id became, or will become."""

    envelope_id: str


class SeenTurn(Command, frozen=True):
    """POST .../turns/{turn}/seen: so much of the reply has been received."""

    offset: Offset


class CloseConversation(Command, frozen=True):
    """POST .../close."""


class Participation(Command, frozen=True):
    """PUT and DELETE .../participants/{principal}: everything is in the path."""


class AddParticipant(Command, frozen=True):
    """Participation with the principal of the path, as it came."""

    principal: str


class RemoveParticipant(Command, frozen=True):
    """Likewise."""

    principal: str
