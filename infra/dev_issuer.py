"""The development issuer: tokens for trying things out on one machine, with a key of its data directory."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ..domain.errors import Invalid
from ..domain.ids import canonical_name, is_room_id
from ..domain.principals import DEFAULT_TENANT, Principal
from .settings import RESERVED_COMPONENTS, SettingsError

KEY_NAME = "dev-issuer.key"
KEY_BYTES = 32
AUDIENCE = "minutebook"
ALGORITHM = "HS256"
MAX_TTL_S = 86_400

_ISSUER_PREFIX = "minutebook:development:"
_FINGERPRINT_CHARS = 12


class DevelopmentIssuer:
    """Issues tokens that verify only with the key of the same data directory (rooms.md, Principals)."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        fingerprint = hashlib.sha256(b"minutebook development issuer\0" + key).hexdigest()
        self.issuer = _ISSUER_PREFIX + fingerprint[:_FINGERPRINT_CHARS]

    def __repr__(self) -> str:
        return f"DevelopmentIssuer({self.issuer!r})"

    @classmethod
    def open(cls, data_dir: Path) -> DevelopmentIssuer:
        """The issuer of `data_dir`; makes the directory and the key (mode 0600) on first use.

        Processes that race agree on one key. Raises SettingsError where the key file is not one that only its
        owner can read, or cannot be made.
        """
        path = data_dir / KEY_NAME
        try:
            if not path.exists():
                data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                _create(path)
            return cls(_read(path))
        except OSError as error:
            raise SettingsError(
                f"development: {path} cannot be used ({error.strerror}); correct it, or set it to false."
            ) from None

    def issue(
        self,
        principal: Principal,
        tenant: str = DEFAULT_TENANT,
        groups: Iterable[str] = (),
        ttl_s: int = MAX_TTL_S,
        *,
        now: float,
        room: str | None = None,
        role: str | None = None,
    ) -> str:
        """A signed token for `ttl_s` seconds (1 to MAX_TTL_S) from `now` (Unix seconds).

        `room` and `role` are for agents, which need a room. Raises Invalid naming the bad argument.
        """
        if not 1 <= ttl_s <= MAX_TTL_S:
            raise Invalid.at("$.ttl", f"must be 1 to {MAX_TTL_S} seconds")
        Principal.parse(str(principal), "$.principal")
        if principal.kind == "system" and principal.id in RESERVED_COMPONENTS:
            raise Invalid.at("$.principal", "the server itself writes as this one; choose another name")
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": str(principal),
            "tenant": canonical_name(tenant, "$.tenant"),
            "groups": [canonical_name(group, "$.groups") for group in groups],
            "iat": int(now),
            "exp": int(now) + ttl_s,
        }
        return self._sign(claims | _run_claims(principal, room, role))

    def _sign(self, claims: dict[str, Any]) -> str:
        header = _encode(msgspec.json.encode({"alg": ALGORITHM, "typ": "JWT"}))
        signed = header + b"." + _encode(msgspec.json.encode(claims))
        signature = _encode(hmac.digest(self.key, signed, "sha256"))
        return (signed + b"." + signature).decode()


def _run_claims(principal: Principal, room: str | None, role: str | None) -> dict[str, str]:
    if principal.kind != "agent":
        if room is not None or role is not None:
            raise Invalid.at("$.room", "room and role are for agent principals only")
        return {}
    if room is None or not is_room_id(room):
        raise Invalid.at("$.room", "an agent's token needs the id of its room")
    return {"room": room} if role is None else {"room": room, "role": canonical_name(role, "$.role")}


def _create(path: Path) -> None:
    """Writes a fresh key beside `path` and links it there whole, so that no reader ever sees half a key."""
    draft = path.with_name(f".{KEY_NAME}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        status = os.fstat(file.fileno())
        text = file.read(KEY_BYTES * 4)
    if os.name == "posix" and (not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077):
        raise SettingsError(f"development: {path} must be a file that only you can read: chmod 600 it.")
    with contextlib.suppress(binascii.Error, ValueError):
        key = base64.b64decode(text.strip(), validate=True)
        if len(key) == KEY_BYTES:
            return key
    raise SettingsError(f"development: {path} does not hold a key: delete it, and a new one is made.")


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
