"""Browsers of other origins: CORS for the listed ones, and whose cookies may change something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from litestar.types import Message, Send

from ..infra.settings import ServerSettings

PREFLIGHT_MAX_AGE_S = 600

_ALLOWED_HEADERS = b"authorization, content-type, idempotency-key, last-event-id"
_EXPOSED_HEADERS = b"idempotency-replayed, retry-after, location"

Headers = Mapping[bytes, bytes]
RawHeaders = list[tuple[bytes, bytes]]


class Origins:
    """The listed origins of the settings. There is no wildcard, so credentials can never go to everybody."""

    def __init__(self, settings: ServerSettings) -> None:
        self._listed = frozenset(settings.allowed_origins)
        self._allow_credentials = settings.allow_credentials

    def is_preflight(self, method: str, headers: Headers) -> bool:
        """Whether a browser asks beforehand; such a request never carries a token."""
        return method == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers

    def is_listed(self, headers: Headers) -> bool:
        """Whether the request comes from a listed origin."""
        return headers.get(b"origin", b"").decode("latin-1") in self._listed

    def may_use_cookie(self, headers: Headers) -> bool:
        """Whether a request of an unsafe method may be authenticated by its cookie: from here, or a listed origin."""
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin in self._listed:
            return True
        host = headers.get(b"host", b"").decode("latin-1")
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        # A proxy in front may speak TLS for this server, so the scheme cannot be compared.
        return parts.scheme in ("http", "https") and bool(host) and parts.netloc.lower() == host.lower()

    def preflight_headers(self, methods: tuple[str, ...]) -> RawHeaders:
        """What the answer to a preflight of a listed origin has beside what `decorated` adds."""
        return [
            (b"access-control-allow-methods", ", ".join(methods).encode()),
            (b"access-control-allow-headers", _ALLOWED_HEADERS),
            (b"access-control-max-age", str(PREFLIGHT_MAX_AGE_S).encode()),
        ]

    def decorated(self, send: Send, headers: Headers) -> Send:
        """`send` that adds what a browser of a listed origin needs to read the answer."""
        if not self._listed:
            return send
        added: RawHeaders = [(b"vary", b"origin")]
        if self.is_listed(headers):
            added = [*self._shared(headers), (b"access-control-expose-headers", _EXPOSED_HEADERS)]

        async def decorated(message: Message) -> None:
            if message["type"] == "http.response.start":
                start: Any = {**message, "headers": [*message["headers"], *added]}
                await send(start)
            else:
                await send(message)

        return decorated

    def _shared(self, headers: Headers) -> RawHeaders:
        shared = [(b"access-control-allow-origin", headers[b"origin"]), (b"vary", b"origin")]
        if self._allow_credentials:
            shared.append((b"access-control-allow-credentials", b"true"))
        return shared
