"""The settings as the bounds that commands and decisions are made with."""

from __future__ import annotations

from ..commands.dispatcher import Bounds
from ..domain.rooms.context import Limits, Timeouts
from ..infra.settings import Settings


def room_limits(settings: Settings) -> Limits:
    """The limits of every room."""
    limits = settings.limits
    return Limits(
        text_bytes=limits.text_bytes,
        payload_bytes=limits.payload_bytes,
        members=limits.room_members,
        events=limits.room_events,
        bytes=limits.room_bytes,
        queued=limits.queued_messages,
        deliveries=limits.pending_deliveries,
        waiting_runs=limits.waiting_runs,
    )


def room_timeouts(settings: Settings) -> Timeouts:
    """The waits after which a sweep acts in a room."""
    timeouts = settings.timeouts
    return Timeouts(
        away_s=timeouts.driver_away_seconds,
        idle_s=timeouts.driver_idle_seconds,
        lost_s=timeouts.run_lost_seconds,
        never_joined_s=timeouts.run_never_joined_seconds,
    )


def tool_classes(settings: Settings) -> dict[str, str]:
    """The visibility class of each tool that has one."""
    return {name: tool.data_class for name, tool in settings.tools.items() if tool.data_class}


def dispatcher_bounds(settings: Settings) -> Bounds:
    """The bounds of a process's dispatcher."""
    limits = settings.limits
    return Bounds(
        limits.mailbox_length,
        limits.commands_in_flight,
        limits.command_deadline_ms / 1000,
        limits.cached_rooms,
        limits.snapshot_every,
    )
