"""The transcript: what happened in a room as lines for people, one row an event, filtered per viewer when read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, assert_never

import msgspec

from ..domain.events import Opaque, Unstorable
from ..domain.rooms.approval_events import ApprovalDecided, ApprovalRequested
from ..domain.rooms.events import (
    ROOM_EVENTS,
    DeliveryAcknowledged,
    DriverMoved,
    DriverRequested,
    HarnessReported,
    HoldReleased,
    HoldSet,
    InterruptRequested,
    LimitReached,
    MessagePosted,
    ParticipantJoined,
    ParticipantLeft,
    ParticipantRoleChanged,
    PayloadErased,
    QueuedPromoted,
    QueuedRemoved,
    RoomClosed,
    RoomOpened,
    RunEnded,
    RunRegistered,
    RunRequested,
    RunStarted,
    StoredRoomEvent,
    ToolCalled,
    ToolReturned,
    TurnReported,
    VerdictGiven,
    VerdictNotPosted,
    VerdictPosted,
)
from ..domain.rooms.fork import ForkedFrom
from ..domain.rooms.handoff import HandoffRecorded
from .ports import Folded, LogEvent, StreamRef

MAX_BODY_CHARS = 16_384
"""Longest body of a row; the log has the rest."""


_MESSAGES = {"none": "message", "queued": "queued message", "steering": "steering message"}


class Line(msgspec.Struct, frozen=True):
    """One line: a short heading that says what it is, and the words."""

    heading: str
    body: str


class Transcript:
    """See projections.ports.Projection."""

    name: ClassVar[str] = "transcript"
    kinds: ClassVar[tuple[str, ...]] = ("room",)
    columns: ClassVar[tuple[str, ...]] = (
        "stream_id",
        "seq",
        "ts",
        "type",
        "actor",
        "run_id",
        "classes",
        "heading",
        "body",
    )
    key: ClassVar[tuple[str, ...]] = ("stream_id", "seq")
    state_column: ClassVar[str | None] = None
    blank_assignments: ClassVar[dict[str, str]] = {"heading": "erased", "body": ""}

    def fold(self, stream: StreamRef, state: str | None, events: Sequence[LogEvent]) -> Folded:  # noqa: ARG002
        """One row an event; an erasure takes the words of the row that it names."""
        rows: list[tuple[Any, ...]] = []
        blanked: list[int] = []
        for event in events:
            if event.payload is None:
                line = Line("erased", "")
            else:
                decoded = ROOM_EVENTS.decode(event.type, event.version, event.payload)
                line = describe(decoded, event.payload)
                # Of what came before only: how the log is cut into batches must make no difference.
                if isinstance(decoded, PayloadErased) and decoded.erased_seq < event.seq:
                    blanked.append(decoded.erased_seq)
            actor = f"{event.actor_kind}:{event.actor_id}"
            rows.append(
                (
                    stream.id,
                    event.seq,
                    event.ts,
                    event.type,
                    actor,
                    event.run_id,
                    event.classes,
                    line.heading,
                    line.body,
                )
            )
        return Folded(rows, blanked)


def describe(event: StoredRoomEvent, payload: str) -> Line:  # noqa: C901, PLR0911, PLR0912 - one case an event
    """The line of an event. `payload` is its stored JSON text, for what has no words of its own."""
    match event:
        case MessagePosted():
            return _line(_MESSAGES[event.delivery], event.text)
        case VerdictGiven():
            return _line(f"verdict {event.verdict}", f"{event.commit}: {event.text}")
        case VerdictPosted() | VerdictNotPosted():
            is_posted = isinstance(event, VerdictPosted)
            return _line("verdict posted" if is_posted else "verdict not posted", f"of entry {event.ref}")
        case HandoffRecorded():
            return _line(f"handoff to {event.to_role}", f"{event.commit}: {event.summary}")
        case ApprovalRequested():
            return _line(f"approval requested {event.class_}", _arguments(event.action))
        case ApprovalDecided():
            return _line(f"approval {event.decision}", event.reason if isinstance(event.reason, str) else "")
        case ToolCalled():
            return _line(f"tool call {event.tool}", _arguments(event.args))
        case ToolReturned():
            cut = f" (cut from {event.bytes} bytes)" if event.truncated else ""
            return _line(f"tool result {event.status}{cut}", event.output)
        case TurnReported():
            return _line(f"turn {event.phase}", event.turn_id)
        case RoomOpened():
            return _line("room opened", event.title if isinstance(event.title, str) else "")
        case RoomClosed():
            return _line("room closed", event.reason if isinstance(event.reason, str) else "")
        case ParticipantJoined():
            return _line("joined", f"{event.principal} as {event.role}")
        case ParticipantRoleChanged():
            return _line("role changed", f"{event.principal} is {event.role} now")
        case ParticipantLeft():
            return _line("left", event.principal)
        case DriverRequested():
            return _line("driver requested", event.by)
        case DriverMoved():
            note = f": {event.note}" if isinstance(event.note, str) else ""
            return _line(f"driver {event.reason.replace('_', ' ')}", f"{event.from_} to {event.to}{note}")
        case HoldSet() | HoldReleased():
            return _line("hold set" if isinstance(event, HoldSet) else "hold released", event.reason)
        case ForkedFrom():
            return _line("forked", f"{event.room} at {event.seq}")
        case QueuedRemoved() | QueuedPromoted():
            return _line("queued removed" if isinstance(event, QueuedRemoved) else "promoted", f"entry {event.ref}")
        case InterruptRequested():
            return _line("interrupt", event.run_id)
        case RunRequested() | RunRegistered():
            done = "requested" if isinstance(event, RunRequested) else "registered"
            return _line(f"run {done}", f"{event.run_id} as {event.role}")
        case RunStarted():
            return _line("run started", f"{event.run_id} as {event.role}")
        case RunEnded():
            return _line("run ended", f"{event.run_id}: {event.reason}")
        case LimitReached():
            return _line("limit reached", event.limit)
        case PayloadErased():
            return _line("payload erased", f"of entry {event.erased_seq}")
        case HarnessReported() | DeliveryAcknowledged() | Unstorable() | Opaque():
            name = event.type if isinstance(event, Unstorable | Opaque) else event.kind
            return _line(name.replace("_", " "), payload)
        case _:
            assert_never(event)


def _arguments(args: Any) -> str:
    if isinstance(args, dict) and list(args) == ["command"] and isinstance(args["command"], str):  # pyright: ignore[reportUnknownArgumentType]
        return args["command"]  # pyright: ignore[reportUnknownVariableType]
    return msgspec.json.encode(args).decode()


def _line(heading: str, body: str) -> Line:
    return Line(heading, body[:MAX_BODY_CHARS])
