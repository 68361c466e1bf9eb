"""What claims of a verified token mean: who it is, of which tenant, until when; one refusal for all that is wrong."""

from __future__ import annotations

import re
from typing import Any, cast

from ..domain.ids import canonical_name, is_room_id
from ..domain.principals import Principal
from .settings import RESERVED_COMPONENTS, IssuerSettings

LEEWAY_S = 30
"""Clock difference that is forgiven on exp, nbf and iat."""

MAX_UNIX_S = 253_402_300_799
"""End of the year 9999: no time claim lies beyond it."""


class RefusedError(ValueError):
    """Why a token is refused, without any byte of it: for the debug log, never for the answer."""


def named(sub: str, issuer: IssuerSettings | None) -> Principal:
    """The principal that a subject is, with that issuer. Raises RefusedError or Invalid."""
    name = canonical_name(sub)
    principal = Principal.parse(name) if issuer is None else _principal(name, issuer)
    if principal.kind != "system" or principal.id not in RESERVED_COMPONENTS:
        return principal
    raise RefusedError("the subject is the server's own")


def checked_expiry(claims: dict[str, Any], max_lifetime_s: int, now: float) -> float:
    """Unix seconds at which the token ends, leeway included."""
    exp = _seconds(claims, "exp")
    iat = _seconds(claims, "iat") if "iat" in claims else now
    nbf = _seconds(claims, "nbf") if "nbf" in claims else now
    if exp + LEEWAY_S <= now or max(iat, nbf) > now + LEEWAY_S or exp - iat > max_lifetime_s:
        raise RefusedError("exp, iat or nbf is out of range")
    return exp + LEEWAY_S


def _seconds(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_UNIX_S:
        raise RefusedError(f"{name} is not a time")
    return float(value)


def string(claims: dict[str, Any], name: str) -> str:
    """A claim that must be a text. Raises RefusedError."""
    value = claims.get(name)
    if not isinstance(value, str):
        raise RefusedError(f"{name} is not a string")
    return value


def strings(value: Any, name: str) -> frozenset[str]:
    """A text, or the texts of a list. Raises RefusedError with `name`."""
    if isinstance(value, str):
        return frozenset({value})
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    strings = frozenset(item for item in items if isinstance(item, str))
    if not all(isinstance(item, str) for item in items):
        raise RefusedError(f"{name} is not a list of strings")
    return strings


def _principal(sub: str, issuer: IssuerSettings) -> Principal:
    match issuer.kind:
        case "human":
            return Principal("human", sub)
        case "agent":
            found = re.fullmatch(issuer.sub_pattern or "", sub)
            run_id = found and (found["run"] if "run" in found.re.groupindex else found[1])
            return Principal.parse(f"agent:{run_id or ''}")
        case "system":
            if sub not in issuer.subjects:
                raise RefusedError("sub is not listed")
            return Principal("system", issuer.subjects[sub])


def run_claims(claims: dict[str, Any]) -> tuple[str | None, str | None]:
    """Room and role of a run's token, None where it has none. Raises RefusedError or Invalid."""
    room = string(claims, "room") if "room" in claims else None
    if room is not None and not is_room_id(room):
        raise RefusedError("room is not a room id")
    return room, canonical_name(string(claims, "role")) if "role" in claims else None


def tenant_of(claims: dict[str, Any], issuer: IssuerSettings | None) -> str:
    """The tenant that a token is of, one of the issuer's. Raises RefusedError or Invalid."""
    if issuer is not None and len(issuer.tenants) == 1:
        return issuer.tenants[0]
    name = "tenant" if issuer is None else issuer.tenant_claim or "tenant"
    tenant = canonical_name(string(claims, name))
    if issuer is not None and issuer.tenants and tenant not in issuer.tenants:
        raise RefusedError(f"{name} is not one of the issuer's")
    return tenant
