"""The development issuer: tokens for trying things out on one machine, with a key of its data directory."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ..domain.errors import Invalid
from ..domain.ids import canonical_name, is_room_id
from ..domain.principals import DEFAULT_TENANT, Principal
from .key_file import open_key
from .settings import RESERVED_COMPONENTS

KEY_NAME = "dev-issuer.key"
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
        return cls(open_key(data_dir / KEY_NAME, "development"))

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
        client: str | None = None,
        act: Principal | None = None,
    ) -> str:
        """A signed token for `ttl_s` seconds (1 to MAX_TTL_S) from `now` (Unix seconds).

        `room` and `role` are for agents, which need a room. `client`: the name of a command-line client; every one that
        this issuer names is one (rooms.md, Principals). `act`: who acts for the principal.
        Raises Invalid naming the bad argument.
        """
        if not 1 <= ttl_s <= MAX_TTL_S:
            raise Invalid.at("$.ttl", f"must be 1 to {MAX_TTL_S} seconds")
        _check(principal, "$.principal")
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": str(principal),
            "tenant": canonical_name(tenant, "$.tenant"),
            "groups": [canonical_name(group, "$.groups") for group in groups],
            "iat": int(now),
            "exp": int(now) + ttl_s,
        }
        if client is not None:
            claims["azp"] = canonical_name(client, "$.client")
        if act is not None:
            _check(act, "$.act")
            claims["act"] = {"sub": str(act)}
        return self._sign(claims | _run_claims(principal, room, role))

    def _sign(self, claims: dict[str, Any]) -> str:
        header = _encode(msgspec.json.encode({"alg": ALGORITHM, "typ": "JWT"}))
        signed = header + b"." + _encode(msgspec.json.encode(claims))
        signature = _encode(hmac.digest(self.key, signed, "sha256"))
        return (signed + b"." + signature).decode()


def _check(principal: Principal, path: str) -> None:
    Principal.parse(str(principal), path)
    if principal.kind == "system" and principal.id in RESERVED_COMPONENTS:
        raise Invalid.at(path, "the server itself writes as this one; choose another name")


def _run_claims(principal: Principal, room: str | None, role: str | None) -> dict[str, str]:
    if principal.kind != "agent":
        if room is not None or role is not None:
            raise Invalid.at("$.room", "room and role are for agent principals only")
        return {}
    if room is None or not is_room_id(room):
        raise Invalid.at("$.room", "an agent's token needs the id of its room")
    return {"room": room} if role is None else {"room": room, "role": canonical_name(role, "$.role")}


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
