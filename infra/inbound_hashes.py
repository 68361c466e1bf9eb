"""Keyed hashes of what comes in over channels: one key a tenant, made from the server's."""

from __future__ import annotations

import msgspec

from .link_hashes import KeyedLinkHashes
from .tenant_hmac import tenant_hmac


class KeyedInboundHashes(KeyedLinkHashes):
    """InboundHashes of commands/channels/inbound_ports.py: ends have the hashes that linking gives them."""

    def message(self, tenant: str, channel: str, message_id: str) -> int:
        """See InboundHashes.message."""
        return int.from_bytes(self._inbound(tenant, "message", channel, message_id))

    def signature(self, tenant: str, channel: str, signature: str) -> str:
        """See InboundHashes.signature."""
        return self._inbound(tenant, "signature", channel, signature).hex()

    def scope(self, tenant: str, parts: tuple[str, ...]) -> int:
        """See InboundHashes.scope."""
        return int.from_bytes(self._inbound(tenant, "scope", *parts))

    def _inbound(self, tenant: str, purpose: str, *said: str) -> bytes:
        return tenant_hmac(self._key, f"inbound\n{purpose}", tenant, msgspec.json.encode(said))
