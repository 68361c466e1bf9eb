"""Stored events read with the keys: what is not verifiably ours says nothing (conversations.md, Trust)."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from ..errors import Damaged
from ..events import Event, Opaque, Registry
from .events import EnvelopeReceived, Unsigned
from .signing import Domain, Keyring, Mac, envelope_fields, event_fields

CONVERSATION_STREAM = "conversation:"
"""What names of such streams begin with."""


def signed_part(stream: str, seq: int, type_: str, payload: dict[str, Any]) -> tuple[Domain, dict[str, Any]]:
    """What a MAC is for and what it covers: an envelope's binds its conversation, all others their place as well.

    stream: its name. payload: as it is stored, with or without its MAC.
    """
    if type_ == EnvelopeReceived.type:
        return "envelope", envelope_fields(stream.removeprefix(CONVERSATION_STREAM), payload)
    return "event", event_fields(stream, seq, type_, payload)


def is_ours(keyring: Keyring, stream: str, seq: int, type_: str, payload: Any) -> bool:
    """Whether a payload, decoded JSON of any shape, carries our MAC for that place."""
    if not isinstance(payload, dict):
        return False
    fields = cast("dict[str, Any]", payload)
    kid, mac = fields.get("kid"), fields.get("mac")
    if not isinstance(kid, str) or not isinstance(mac, str):
        return False
    domain, covered = signed_part(stream, seq, type_, fields)
    try:
        return keyring.verify(domain, covered, Mac(kid, mac))
    except (ValueError, TypeError, OverflowError):
        return False  # numbers or characters that nothing of ours has


def read_event(
    registry: Registry[Any], keyring: Keyring, stream: str, seq: int, type_: str, version: int, payload: str
) -> Any:
    """One stored event of a conversation or of a turn: Unsigned where it is not verifiably ours or cannot be read.

    Opaque where this version has no declaration for it; but an envelope always gets its record, so one of another
    version is Unsigned too. Never raises.
    """
    unsigned = Unsigned(seq, type_ == EnvelopeReceived.type)
    try:
        raw = msgspec.json.decode(payload)
        if not is_ours(keyring, stream, seq, type_, raw):
            return unsigned
        decoded = registry.decode(type_, version, payload)
    except (msgspec.MsgspecError, Damaged, RecursionError):
        return unsigned
    if isinstance(decoded, Event):
        return decoded
    return decoded if isinstance(decoded, Opaque) and not unsigned.is_envelope else unsigned
