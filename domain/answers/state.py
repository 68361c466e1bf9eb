"""The state of an answer on its way, and how each event moves it."""

from __future__ import annotations

from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from ..events import Opaque, Recorded
from .events import AnswerDropped, AnswerRequested, StoredAnswerEvent, TargetsResolved

SCHEMA = "answer-1"


class AnswerState(Struct, frozen=True):
    """requested: None where there is no such answer. resolved: None until its turn has ended."""

    requested: AnswerRequested | None = None
    resolved: TargetsResolved | None = None
    is_dropped: bool = False


INITIAL = AnswerState()


def evolve(answer: AnswerState, recorded: Recorded[StoredAnswerEvent]) -> AnswerState:
    """One event further."""
    match recorded.event:
        case AnswerRequested() as requested:
            return replace(answer, requested=requested)
        case TargetsResolved() as resolved:
            return replace(answer, resolved=resolved)
        case AnswerDropped():
            return replace(answer, is_dropped=True)
        case Opaque():
            return answer
        case _ as unreachable:
            assert_never(unreachable)
