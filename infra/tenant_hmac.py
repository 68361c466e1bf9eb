"""Keyed hashes of what belongs to a tenant, made with the server's key: they tell nothing across tenants or uses."""

from __future__ import annotations

import hmac


def tenant_hmac(server_key: bytes, use: str, tenant: str, message: bytes) -> bytes:
    """32 bytes of an HMAC-SHA-256 under the key of that use and tenant. use: names what the hash is for, such as
    `linking` and, on a line of its own, `code`."""
    return hmac.digest(hmac.digest(server_key, f"{use}\n{tenant}".encode(), "sha256"), message, "sha256")
