"""Keyed hashes of who is linked and of one-time codes: one key a tenant, made from the server's."""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from .tenant_hmac import tenant_hmac


class KeyedLinkHashes:
    """LinkHashes of commands/linking/ports.py."""

    def __init__(self, server_key: bytes) -> None:
        self._key = server_key

    def native(self, tenant: str, channel: str, native_id: str) -> str:
        """See LinkHashes.native."""
        return f"h:{self._of(tenant, 'native', channel, native_id).hex()[:32]}"

    def code(self, tenant: str, code: str) -> str:
        """See LinkHashes.code."""
        return self._of(tenant, "code", code).hex()

    def code_bits(self, tenant: str, link_id: str) -> int:
        """See LinkHashes.code_bits."""
        return int.from_bytes(self._of(tenant, "bits of a code", link_id))

    def own_key(self, tenant: str, channel: str, native_id: str) -> int:
        """See LinkHashes.own_key."""
        return int.from_bytes(self._of(tenant, "key", channel, native_id))

    def _of(self, tenant: str, purpose: str, *said: str) -> bytes:
        return tenant_hmac(self._key, f"linking\n{purpose}", tenant, msgspec.json.encode(said))


class KeyedSignInHashes:
    """SignInHashes of commands/linking/sign_in_ports.py."""

    def __init__(self, server_key: bytes) -> None:
        self._key = server_key

    def of(self, use: str, carried: str) -> bytes:
        """See SignInHashes.of."""
        return hmac.new(self._key, f"sign-in\n{use}\n{carried}".encode(), hashlib.sha256).digest()
