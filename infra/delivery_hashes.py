"""Keyed hashes of where deliveries go: one key a tenant, made from the server's."""

from __future__ import annotations

import msgspec

from ..domain.channels.messages import Address
from .tenant_hmac import tenant_hmac


class DeliveryHashes:
    """Hashes of commands/deliveries/ports.py."""

    def __init__(self, server_key: bytes) -> None:
        self._key = server_key

    def destination(self, tenant: str, channel: str, address: Address) -> str:
        """See Hashes.destination."""
        named = msgspec.json.encode([channel, address], order="deterministic")
        return f"h:{self._of(tenant, 'destination', named).hex()[:32]}"

    def id_bits(self, tenant: str, text: str) -> int:
        """See Hashes.id_bits."""
        return int.from_bytes(self._of(tenant, "delivery", text.encode()))

    def _of(self, tenant: str, purpose: str, message: bytes) -> bytes:
        return tenant_hmac(self._key, f"deliveries\n{purpose}", tenant, message)
