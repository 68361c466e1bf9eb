"""The keys of conversations: what makes an agent run is signed with one that the database never has."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ..domain.conversations.signing import Domain, Mac
from .canonical_json import canonical
from .key_file import KEY_BYTES, open_key
from .settings import Settings

KEY_NAME = "conversation.key"

KID_CHARS = 16
"""Of a key's name: hex digits of a MAC that nothing else is made with."""


class ConversationKeys:
    """Keyring of domain/conversations/signing.py. key: signs; earlier: still verify. Each has 32 bytes or more."""

    def __init__(self, key: bytes, earlier: Sequence[bytes] = ()) -> None:
        self._keys = {kid_of(each): each for each in (key, *earlier)}
        self._kid = kid_of(key)

    def sign(self, domain: Domain, fields: Mapping[str, Any], kid: str | None = None) -> Mac:
        """See Keyring.sign."""
        kid = self._kid if kid is None else kid
        return Mac(kid, _mac(self._keys[kid], domain, canonical(fields)))

    def verify(self, domain: Domain, fields: Mapping[str, Any], mac: Mac) -> bool:
        """See Keyring.verify."""
        key = self._keys.get(mac.kid)
        return key is not None and hmac.compare_digest(_mac(key, domain, canonical(fields)).encode(), mac.mac.encode())


def kid_of(key: bytes) -> str:
    """The name of a key: it tells nothing of it."""
    return _mac(key, "kid", b"")[:KID_CHARS]


def _mac(key: bytes, domain: str, said: bytes) -> str:
    return hmac.new(key, b"minutebook %b\0" % domain.encode() + said, hashlib.sha256).hexdigest()


def conversation_keys(settings: Settings) -> ConversationKeys:
    """The keys of the settings; a development server keeps one of its own in its data directory.

    A server without agents signs nothing, and gets one that nobody has. Raises SettingsError where the file of a
    development server cannot be used.
    """
    conversations = settings.conversations
    key = conversations.key_bytes
    if key is None and settings.is_development:
        key = open_key(settings.data_dir / KEY_NAME, "dataDir")
    return ConversationKeys(secrets.token_bytes(KEY_BYTES) if key is None else key, conversations.earlier)
