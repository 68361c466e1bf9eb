"""A channel that operators stopped for a while: nothing is sent over it, and what waits there expires as ever."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, assert_never

from msgspec import UNSET, Struct, UnsetType

from ..decisions import Decision, NewEvent
from ..deliveries.operate import reason_code
from ..errors import Invalid
from ..events import Event, Opaque, Recorded, Registry
from ..principals import Principal
from ..times import stamp

SCHEMA = "channel-1"


class ChannelPaused(Event, frozen=True, omit_defaults=True):
    """Nothing is sent over the channel until somebody resumes it, or until then. Once more: with the new reason and
    end. reason: a code; until: as Recorded time is written (times.py)."""

    type: ClassVar[str] = "channel_paused"
    channel: str
    reason: str
    until: str | UnsetType = UNSET


class ChannelResumed(Event, frozen=True):
    """It is sent to again. reason: a code."""

    type: ClassVar[str] = "channel_resumed"
    channel: str
    reason: str


ChannelEvent = ChannelPaused | ChannelResumed

StoredChannelEvent = ChannelEvent | Opaque

CHANNEL_EVENTS: Registry[ChannelEvent] = Registry((ChannelPaused, ChannelResumed))


class ChannelState(Struct, frozen=True):
    """pause: the newest one that nobody ended; it may have lapsed."""

    pause: ChannelPaused | None = None

    def is_paused(self, now: datetime) -> bool:
        """Whether nothing is sent at that moment."""
        return self.pause is not None and (self.pause.until is UNSET or self.pause.until > stamp(now))


INITIAL = ChannelState()


def evolve(state: ChannelState, recorded: Recorded[StoredChannelEvent]) -> ChannelState:
    """One event further."""
    match recorded.event:
        case ChannelPaused() as pause:
            return ChannelState(pause)
        case ChannelResumed():
            return INITIAL
        case Opaque():
            return state
        case _:
            assert_never(recorded.event)


def pause(
    state: ChannelState, channel: str, reason: str, until: datetime | None, now: datetime, actor: Principal
) -> Decision:
    """Stop it; the same again while it is stopped changes nothing. Raises Invalid for an end that is over."""
    if until is not None and until <= now:
        raise Invalid.at("$.until", "must be later than now")
    paused = ChannelPaused(channel, reason_code(reason), UNSET if until is None else stamp(until))
    if state.is_paused(now) and state.pause == paused:
        return Decision()
    return Decision((NewEvent(paused, actor),))


def resume(state: ChannelState, channel: str, reason: str, now: datetime, actor: Principal) -> Decision:
    """Let it go on. What is not stopped, or not any more, stays as it is."""
    if not state.is_paused(now):
        return Decision()
    return Decision((NewEvent(ChannelResumed(channel, reason_code(reason)), actor),))
