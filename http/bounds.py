"""The settings as the bounds that commands and decisions are made with."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

from ulid_transform import ulid_now

from ..commands.dispatcher import Bounds
from ..commands.ports import Redact
from ..commands.room_handling import Means
from ..domain.rooms.context import Limits, Timeouts
from ..infra.settings import Settings


def room_means(settings: Settings, redact: Redact) -> Means:
    """What the handlers of rooms decide and encode with: limits, waits and classes of tools as they are set."""
    limits, timeouts = settings.limits, settings.timeouts
    return Means(
        limits=Limits(
            text_bytes=limits.text_bytes,
            payload_bytes=limits.payload_bytes,
            members=limits.room_members,
            events=limits.room_events,
            bytes=limits.room_bytes,
            queued=limits.queued_messages,
            deliveries=limits.pending_deliveries,
            waiting_runs=limits.waiting_runs,
        ),
        redact=redact,
        new_id=ulid_now,
        entropy=lambda: secrets.randbits(40),
        now=now,
        tool_classes={name: tool.data_class for name, tool in settings.tools.items() if tool.data_class},
        timeouts=Timeouts(
            away_s=timeouts.driver_away_seconds,
            idle_s=timeouts.driver_idle_seconds,
            lost_s=timeouts.run_lost_seconds,
            never_joined_s=timeouts.run_never_joined_seconds,
            waiting_s=timeouts.room_waiting_seconds,
            attended_s=timeouts.approval_attended_seconds,
            unattended_s=timeouts.approval_unattended_seconds,
        ),
    )


def now() -> datetime:
    """The server's clock."""
    return datetime.fromtimestamp(time.time(), UTC)


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
