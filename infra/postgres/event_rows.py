"""A stored event of a conversation as a row of a query, with its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...commands.conversations.ports import At
from ...commands.ports import StoredEvent
from .reads import PAYLOAD_LEFT

COLUMNS = (
    "e.seq, e.type, e.schema_version, e.actor_kind, e.actor_id, e.run_id, e.origin_key,"
    f" {PAYLOAD_LEFT}, e.classes, e.ts"
)
"""What `at_of` reads, of `minutebook.events e`."""


def at_of(row: Sequence[Any]) -> At:
    """The event of a row with COLUMNS."""
    *event, ts = row
    return At(StoredEvent(*event), ts)
