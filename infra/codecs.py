"""Payloads at rest: channel-native JSON, redacted, and encrypted where the settings have a key (delivery.md, Codecs).

Form of a body in the clear: the JSON of the payload. Encrypted: 12 bytes of nonce, then AES-256-GCM under a random key
of the delivery alone, bound to tenant, delivery, codec and version. That key is kept beside it, wrapped: 1 byte of
version, 16 characters that name the payload key, 12 bytes of nonce, 48 of AES-256-GCM. Who drops it purges the payload.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from ..commands.channels.ports import MAX_PAYLOAD_BYTES
from ..commands.deliveries.ports import Bound, Encoded, Payload, Unreadable
from ..commands.ports import Redact
from ..domain.channels.messages import Address
from ..domain.errors import TooLarge
from .conversation_keys import KID_CHARS, kid_of

Shapes = Mapping[str, Mapping[int, type[Struct]]]
"""By codec and version, what one part's payload is; every version that was ever written."""

WRAPPED = b"\x01"
"""Version of the form of a wrapped key."""

NONCE_BYTES = 12
KEY_BYTES = 32
MAX_PATHS = 100
"""Of redacted values that are listed."""


class _AtRest(Struct, frozen=True):
    address: Address
    parts: tuple[dict[str, Any], ...]


class PayloadCodec:
    """Codec of commands/deliveries/ports.py.

    keys: those that wrap, the one for new payloads first; none keeps payloads in the clear. What is in the clear is
    read also where there are keys: it was kept before they were set. redact: takes secrets out of what is encoded.
    """

    def __init__(self, shapes: Shapes, keys: Sequence[bytes], redact: Redact) -> None:
        self._shapes = shapes
        self._keys = {kid_of(key): key for key in reversed(keys)}
        self._newest = kid_of(keys[0]) if keys else None
        self._redact = redact

    def redacted(self, payload: Payload) -> tuple[Payload, list[str]]:
        """The payload as it is kept, and the paths of what was taken out of it, such as `$[0].text`. The address is
        left as it is: without it nothing can be sent."""
        parts = [self._redact(part)[0] for part in payload.parts]
        if all(after == before for after, before in zip(parts, payload.parts, strict=True)):
            return payload, []
        paths = [path for path, _ in zip(_changed(list(payload.parts), parts, "$"), range(MAX_PATHS), strict=False)]
        return (Payload(payload.address, tuple(parts)), paths) if paths else (payload, [])

    def encode(self, bound: Bound, payload: Payload) -> Encoded:
        """See Codec.encode. Raises Unreadable, too, for a payload that could not be read again."""
        kept, _ = self.redacted(payload)
        self._check(bound, kept.parts)
        body = msgspec.json.encode(_AtRest(kept.address, tuple(dict(part) for part in kept.parts)))
        if len(body) > MAX_PAYLOAD_BYTES:
            raise TooLarge(f"A payload of {len(body)} bytes is more than the {MAX_PAYLOAD_BYTES} that are kept.")
        if self._newest is None:
            return Encoded(body)
        own = os.urandom(KEY_BYTES)
        wrapped = _sealed(self._wrapping(self._newest, bound), own, _associated("key", bound))
        return Encoded(
            _sealed(own, body, _associated("payload", bound)), WRAPPED + self._newest.encode("ascii") + wrapped
        )

    def decode(self, bound: Bound, encoded: Encoded) -> Payload:
        """See Codec.decode. Reasons: `codec_unknown` for one, or a version of it, that this server does not have;
        `payload_key_unknown` where it is encrypted under a key that the settings do not name any more;
        `payload_damaged` for everything else that is not as it was encoded."""
        self._check(bound, ())
        body = encoded.body if encoded.key is None else self._opened(bound, encoded.body, encoded.key)
        try:
            read = msgspec.json.decode(body, type=_AtRest)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise Unreadable("payload_damaged") from None
        self._check(bound, read.parts)
        return Payload(read.address, read.parts)

    def _check(self, bound: Bound, parts: Sequence[Mapping[str, Any]]) -> None:
        shape = self._shapes.get(bound.codec, {}).get(bound.version)
        if shape is None:
            raise Unreadable("codec_unknown")
        try:
            for part in parts:
                msgspec.convert(part, shape)
        except msgspec.ValidationError:
            raise Unreadable("payload_damaged") from None

    def _opened(self, bound: Bound, body: bytes, wrapped: bytes) -> bytes:
        head, kid = wrapped[:1], wrapped[1 : 1 + KID_CHARS].decode("latin-1")
        if head != WRAPPED:
            raise Unreadable("codec_unknown")
        if kid not in self._keys:
            raise Unreadable("payload_key_unknown")
        try:
            own = _unsealed(self._wrapping(kid, bound), wrapped[1 + KID_CHARS :], _associated("key", bound))
            return _unsealed(own, body, _associated("payload", bound))
        except (InvalidTag, ValueError):
            raise Unreadable("payload_damaged") from None

    def _wrapping(self, kid: str, bound: Bound) -> bytes:
        """One for each delivery, so that the nonces of all of them never come near the bound of one key."""
        return hmac.digest(self._keys[kid], _associated("wrap", bound), "sha256")


def _associated(purpose: str, bound: Bound) -> bytes:
    return msgspec.json.encode(["minutebook", purpose, bound.tenant, bound.delivery_id, bound.codec, bound.version])


def _sealed(key: bytes, data: bytes, associated: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, data, associated)


def _unsealed(key: bytes, sealed: bytes, associated: bytes) -> bytes:
    return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated)


def _changed(before: Any, after: Any, path: str) -> Iterator[str]:
    """Paths of the values that differ; that of an object where its member names do."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        old, new = cast("Mapping[str, Any]", before), cast("Mapping[str, Any]", after)
        if old.keys() != new.keys():
            yield path
            return
        for name in old:
            yield from _changed(old[name], new[name], f"{path}.{name}")
    elif isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        pairs = zip(cast("Sequence[Any]", before), cast("Sequence[Any]", after), strict=True)
        for at, (left, right) in enumerate(pairs):
            yield from _changed(left, right, f"{path}[{at}]")
    elif before != after:
        yield path
