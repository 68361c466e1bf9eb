"""Payloads of channels that carry JSON, and so know no markup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...domain.channels.messages import Outgoing
from ...domain.channels.pieces import pieces, visible

PIECE_CHARS = 40_000
"""Of a text in one payload: below MAX_PAYLOAD_BYTES whatever the characters."""


def plain_payloads(outgoing: Outgoing) -> tuple[Mapping[str, Any], ...]:
    """`{kind, label?, text}`, for each piece of the text."""
    beside = {"kind": outgoing.kind} | ({"label": outgoing.label} if isinstance(outgoing.label, str) else {})
    return tuple({**beside, "text": each} for each in visible(pieces(outgoing.text, PIECE_CHARS)))
