"""The steps of one turn: each is an event of `turn:<execution id>` before the next is taken (conversations.md).

What a step said stays in its stream, which is sealed at the turn's end; the conversation keeps question and reply.
`is_erased`: see events.py.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType

from ..events import Event, Opaque, Registry
from .identity import Identity

ToolStatus = Literal["ok", "error", "unknown", "denied"]
"""How a tool call ended. unknown: it may have run, before a crash, and must not run twice. denied: whoever asks may not
use that tool."""

UNCLASSIFIED = "unclassified"
"""Data class of what a tool returns that declares none, and of a call to a tool that there is not."""


class AttemptStarted(Event, frozen=True, omit_defaults=True):
    """A runner took the turn over; attempt 1 begins the stream. epoch: of its lease. asker: as whom the turn runs."""

    type: ClassVar[str] = "attempt_started"
    conversation_id: str
    turn: int
    ord: int
    attempt: int
    epoch: int
    kid: str
    mac: str
    asker: Identity | UnsetType = UNSET


class WantedCall(Struct, frozen=True, rename="camel"):
    """A tool call as the model asked for it; arguments as it wrote them, parsed. call_id: unique in the turn."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class ModelAnswered(Event, frozen=True, omit_defaults=True):
    """A model call ended. step: 1-based in the turn. text: redacted. cut: why it ended early (`interrupted`,
    `too-long`). usage: tokens, `input` and `output`. request_cut: ids of calls whose results the request held cut."""

    type: ClassVar[str] = "model_answered"
    step: int
    text: str
    calls: tuple[WantedCall, ...]
    usage: dict[str, int]
    kid: str
    mac: str
    cut: str | UnsetType = UNSET
    request_cut: tuple[str, ...] = ()
    is_erased: bool = False


class ToolStarted(Event, frozen=True):
    """A tool call is about to run. number: how often it was started, 1-based."""

    type: ClassVar[str] = "tool_started"
    call_id: str
    number: int
    kid: str
    mac: str


class ToolEnded(Event, frozen=True, omit_defaults=True):
    """A tool call has its result, which is data for the model. output: redacted text. classes: data classes that it
    adds to the answer."""

    type: ClassVar[str] = "tool_ended"
    call_id: str
    status: ToolStatus
    output: str
    classes: tuple[str, ...]
    kid: str
    mac: str
    truncated: bool = False
    is_erased: bool = False


class TurnEnded(Event, frozen=True):
    """The turn's reply is decided; the stream is sealed. status as in ReplyRecorded."""

    type: ClassVar[str] = "turn_ended"
    status: Literal["completed", "interrupted", "failed"]
    kid: str
    mac: str


TurnEvent = AttemptStarted | ModelAnswered | ToolStarted | ToolEnded | TurnEnded
StoredTurnEvent = TurnEvent | Opaque

TURN_EVENTS: Registry[TurnEvent] = Registry((AttemptStarted, ModelAnswered, ToolStarted, ToolEnded, TurnEnded))
