"""The process of rooms: which of their events the outside is told of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import UNSET

from ...domain.rooms.approval_events import ApprovalRequested
from ...domain.rooms.events import (
    ROOM_EVENTS,
    HarnessReported,
    RunEnded,
    RunRequested,
    VerdictGiven,
)
from ...domain.rooms.handoff import HandoffRecorded
from ..jobs import JobRequest
from ..outward import Notice
from ..ports import StoredEvent
from .requests import launch_request, notice_request, pause_request, verdict_request


class RoomOutbox:
    """See commands.jobs.Process. What is not configured is asked of nobody."""

    name: ClassVar[str] = "rooms"
    kinds: ClassVar[tuple[str, ...]] = ("room",)
    types: ClassVar[tuple[str, ...]] = tuple(
        dict.fromkeys(
            event.type
            for event in (RunRequested, RunEnded, HarnessReported, VerdictGiven, HandoffRecorded, ApprovalRequested)
        )
    )

    def __init__(self, *, launches: bool, notifies: bool, posts: bool) -> None:
        self._launches = launches
        self._notifies = notifies
        self._posts = posts

    def react(self, stream: str, event: StoredEvent) -> Sequence[JobRequest]:
        """See commands.jobs.Process. Raises Damaged for a payload that cannot be read."""
        room = stream.partition(":")[2]
        read = ROOM_EVENTS.decode(event.type, event.version, event.payload)
        match read:
            case RunRequested() if self._launches and read.by_hand is UNSET:
                return (launch_request(room, read.run_id),)
            # A person's verdict names what they like: only what the run was registered with counts.
            case VerdictGiven() if self._posts and event.actor_kind == "agent":
                return (verdict_request(room, event.seq),)
            case _:
                return self._notices(room, event, read) if self._notifies else ()

    def _notices(self, room: str, event: StoredEvent, read: object) -> Sequence[JobRequest]:
        match read:
            case ApprovalRequested():
                notice = Notice("approval_pending", room, event.seq, event.ts, event.run_id, read.approval_id)
                return (notice_request(notice),)
            case RunEnded():
                return (notice_request(Notice("run_ended", room, event.seq, event.ts, read.run_id)),)
            case HandoffRecorded():
                return (notice_request(Notice("run_handed_over", room, event.seq, event.ts, event.run_id)),)
            case HarnessReported() if read.kind == "harness_paused":
                return (pause_request(Notice("room_waiting", room, event.seq, event.ts, event.run_id)),)
            case _:
                return ()
