"""Who acts: principals, and the verified caller behind a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from .errors import Invalid
from .ids import canonical_name, is_conversation_id, is_room_id

TokenKind = Literal["human", "agent", "system"]
"""What a token may speak for."""

PrincipalKind = Literal[TokenKind, "guest"]
"""guest: somebody on a channel whom no token stands behind; the id is the isolation key of their account."""

DEFAULT_TENANT = "default"
"""Tenant of the development issuer when a token names none."""

SERVER_COMPONENT = "minutebook"
"""The system principal that the server itself writes as: `system:minutebook`."""


class Principal(msgspec.Struct, frozen=True, order=True):
    """A canonical principal, written `kind:id` (rooms.md). Principals compare exactly."""

    kind: PrincipalKind
    id: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"

    @classmethod
    def parse(cls, text: str, path: str = "$") -> Principal:
        """`human:<sub>`, `agent:<runId>` or `system:<component>`; raises Invalid with `path`, also for a guest: nobody
        names one but the server itself."""
        kind, _, name = text.partition(":")
        match kind:
            case "human" | "agent" | "system":
                canonical_name(name, path)
            case _:
                raise Invalid.at(path, f"must start with one of {', '.join(get_args(TokenKind))}, then a colon")
        if kind == "agent" and not is_room_id(name):
            raise Invalid.at(path, "a run id is 8 characters of a-z and 2-7")
        return cls(kind, name)

    @classmethod
    def own(cls, text: str) -> Principal:
        """A principal as the server itself has written it, guests among them."""
        kind, _, name = text.partition(":")
        return cls.guest(name) if kind == "guest" else cls.parse(text)

    @classmethod
    def guest(cls, key: str) -> Principal:
        """Who speaks over a channel, by their isolation key. Raises Invalid for what is none."""
        if not is_conversation_id(key):
            raise Invalid.at("$", "an isolation key is 26 characters of a-z and 2-7")
        return cls("guest", key)


SERVER = Principal("system", SERVER_COMPONENT)

TURN_RUNNER = Principal("system", "conversations")
"""The runner of conversations: no token can name it, and it is nobody's owner or participant."""


class Caller(msgspec.Struct, frozen=True):
    """A principal with what its verified token says. Nothing here comes from a body or an ordinary header.

    tenant: the tenant that the token's issuer speaks for. groups: names as the issuer gives them.
    labels: clearance labels that the clearance policy grants. room_id and run_role: of an agent's run token only.
    is_cli_client: the token was issued to a command-line client. is_development: by the development issuer, whose run
    tokens register their run at its first hello. expires_at: Unix seconds, leeway included. delegate: who acts for the
    principal (`act` of RFC 8693), None where the principal acts itself. claims: those that the settings name.
    """

    principal: Principal
    tenant: str
    groups: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    room_id: str | None = None
    run_role: str | None = None
    is_admin: bool = False
    is_member: bool = False
    is_auditor: bool = False
    is_cli_client: bool = False
    is_development: bool = False
    expires_at: float = 0.0
    delegate: Principal | None = None
    claims: Mapping[str, tuple[str, ...]] = {}
