"""One of each event of what operators do, with everything in it."""

from __future__ import annotations

from minutebook.domain.channels.pausing import ChannelEvent, ChannelPaused, ChannelResumed
from minutebook.domain.deliveries.bulk import BulkEnded, BulkEvent, BulkPlanned, BulkStarted

AT = "2026-11-30T12:00:00.000000Z"
PLAN = "01KB9Z7V8N3Q4R5S6T7V8W9X0Y"

CHANNEL_SAMPLES: tuple[ChannelEvent, ...] = (
    ChannelPaused("hook", "maintenance", AT),
    ChannelResumed("hook", "mended"),
)

BULK_SAMPLES: tuple[BulkEvent, ...] = (
    BulkPlanned(
        PLAN, "replay", {"state": "dead", "channel": "hook"}, {"safe": 2, "revoked": 1}, 10, "mended", AT, True
    ),
    BulkStarted(PLAN),
    BulkEnded(PLAN, "done", 2, 1, 0),
)
