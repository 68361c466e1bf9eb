"""Tokens of background turns, made from the server's key, and what is stored of them."""

from __future__ import annotations

import base64

import msgspec

from ..domain.conversations.identity import Identity
from .tenant_hmac import tenant_hmac


class ContinuationHashes:
    """TokenMaker of commands/answers/ports.py."""

    def __init__(self, server_key: bytes) -> None:
        self._key = server_key

    def token(self, tenant: str, who: Identity, conversation_id: str, envelope_id: str) -> str:
        """See TokenMaker.token."""
        said = msgspec.json.encode([who, conversation_id, envelope_id], order="deterministic")
        made = tenant_hmac(self._key, "continuations\ntoken", tenant, said)
        return base64.urlsafe_b64encode(made).decode().rstrip("=")

    def handle(self, tenant: str, token: str) -> str:
        """See TokenMaker.handle."""
        return tenant_hmac(self._key, "continuations\nhandle", tenant, token.encode()).hex()
