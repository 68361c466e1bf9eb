"""Payloads at rest in the clear, as JSON: of a server without a payload key."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Struct

from ..commands.channels.ports import MAX_PAYLOAD_BYTES
from ..commands.deliveries.ports import Bound, Encoded, Payload, Unreadable
from ..domain.channels.messages import Address
from ..domain.errors import TooLarge


class _AtRest(Struct, frozen=True):
    address: Address
    parts: tuple[dict[str, Any], ...]


class PlainCodec:
    """Codec of commands/deliveries/ports.py. known: codec and the newest version of it that can be read."""

    def __init__(self, known: Collection[tuple[str, int]]) -> None:
        self._newest = dict(known)

    def encode(self, bound: Bound, payload: Payload) -> Encoded:
        """See Codec.encode."""
        body = msgspec.json.encode(payload)
        if len(body) > MAX_PAYLOAD_BYTES:
            raise TooLarge(f"The payload of a {bound.codec} delivery has {len(body)} bytes; see MAX_PAYLOAD_BYTES.")
        return Encoded(body)

    def decode(self, bound: Bound, encoded: Encoded) -> Payload:
        """See Codec.decode."""
        if not 1 <= bound.version <= self._newest.get(bound.codec, 0):
            raise Unreadable("codec_unknown")
        try:
            read = msgspec.json.decode(encoded.body, type=_AtRest)
        except msgspec.MsgspecError:
            raise Unreadable("payload_damaged") from None
        return Payload(read.address, read.parts)
