"""Payloads of channels that carry JSON, and so know no markup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from ...domain.channels.messages import Outgoing
from ...domain.channels.pieces import pieces, visible

PIECE_CHARS = 40_000
"""Of a text in one payload: below MAX_PAYLOAD_BYTES whatever the characters."""


class PlainV1(Struct, forbid_unknown_fields=True):
    """Version 1 of these payloads at rest."""

    kind: str
    text: str
    label: str | UnsetType = UNSET


def plain_payloads(outgoing: Outgoing) -> tuple[Mapping[str, Any], ...]:
    """`{kind, label?, text}`, for each piece of the text."""
    beside = {"kind": outgoing.kind} | ({"label": outgoing.label} if isinstance(outgoing.label, str) else {})
    return tuple({**beside, "text": each} for each in visible(pieces(outgoing.text, PIECE_CHARS)))
