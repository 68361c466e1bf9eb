"""Lanes: what is sent one after another, and what a wake-up is for (delivery.md, On the job engine)."""

from __future__ import annotations

import hashlib
import re

from msgspec import UNSET, UnsetType

LANES = 4
"""Of one destination, unless the settings say otherwise."""

MAX_LANES = 64

DESTINATION = re.compile(r"h:[0-9a-f]{32}")
"""A destination, as every event, row, log line and answer writes it."""

LANE = re.compile(r"h:[0-9a-f]{32}/[0-9]{1,2}")


def lane_of(destination: str, about: str, lanes: int = LANES) -> str:
    """`<destination>/<n>`: by what keeps an order (a conversation), else by the delivery itself."""
    digest = hashlib.sha256(about.encode()).digest()
    return f"{destination}/{int.from_bytes(digest[:4]) % max(1, min(lanes, MAX_LANES))}"


def destination_of(lane: str) -> str:
    """The destination that a lane leads to."""
    return lane.partition("/")[0]


def order_of(destination: str, conversation_id: str | UnsetType) -> str | UnsetType:
    """Within what deliveries keep their order; UNSET where they have none."""
    if conversation_id is UNSET:
        return UNSET
    return hashlib.sha256(f"{destination}\n{conversation_id}".encode()).hexdigest()[:32]
