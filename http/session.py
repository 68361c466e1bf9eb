"""The session cookie: a browser's EventSource sends no headers, so the bearer token rides in a cookie that scripts of
the page cannot read (http.md, SSE)."""

from __future__ import annotations

import re

from litestar.datastructures import Cookie

from ..domain.errors import TooLarge
from ..domain.principals import Caller

COOKIE = "__Host-minutebook"

LOOPBACK_COOKIE = "minutebook-session"
"""On loopback a browser refuses `__Host-` names without Secure, which plain http does not have: the same under a name
without the prefix. Not read off loopback."""

MAX_TOKEN_CHARS = 3800
"""Browsers keep cookies up to 4096 bytes, name and attributes included."""

_PAIR = re.compile(r"\s*([^=;\s]+)=([A-Za-z0-9_.-]+)\s*")


def set_cookies(token: str, caller: Caller, now: float, *, is_loopback: bool) -> list[Cookie]:
    """Cookies that die with the token. Raises TooLarge where a browser would not keep them."""
    if len(token) > MAX_TOKEN_CHARS:
        raise TooLarge(f"A token of more than {MAX_TOKEN_CHARS} characters fits no cookie; use the header.")
    return _cookies(token, max(0, int(caller.expires_at - now)), is_loopback=is_loopback)


def clear_cookies(*, is_loopback: bool) -> list[Cookie]:
    """What takes the cookies back."""
    return _cookies("", 0, is_loopback=is_loopback)


def token_of(header: bytes, *, is_loopback: bool) -> str | None:
    """The token in a `Cookie` header."""
    found: dict[str, str] = {}
    for part in header.decode("latin-1").split(";"):
        pair = _PAIR.fullmatch(part)
        if pair is not None:
            found.setdefault(pair[1], pair[2])
    return found.get(COOKIE) or (found.get(LOOPBACK_COOKIE) if is_loopback else None)


class _Cookie(Cookie):
    """Litestar writes the value in lower case, which browsers take but RFC 6265bis does not write."""

    def to_encoded_header(self) -> tuple[bytes, bytes]:
        name, value = super().to_encoded_header()
        return name, value.replace(b"SameSite=strict", b"SameSite=Strict")


def _cookies(value: str, max_age_s: int, *, is_loopback: bool) -> list[Cookie]:
    names = (COOKIE, LOOPBACK_COOKIE) if is_loopback else (COOKIE,)
    return [
        _Cookie(name, value=value, max_age=max_age_s, secure=not is_loopback, httponly=True, samesite="strict")
        for name in names
    ]
