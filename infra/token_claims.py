"""Claims of a verified token beside who it is: who acts for its subject, labels, and what the settings name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from ..domain.principals import Principal
from .settings_clearance import GROUPS

MAX_ACTORS = 8
"""Actors behind each other in one token; the ones behind the first are history, and are none of the identity."""


class ActError(ValueError):
    """The `act` of a token cannot be read, so that nobody can say who acts."""


def delegate_of(claims: Mapping[str, Any], issuer: str, named: Callable[[str], Principal]) -> Principal | None:
    """Who acts for the subject (RFC 8693, 4.1); None where the token has no `act`.

    named: makes a principal of a subject, as for the token's own. The actors behind the first must be well-formed, and
    count for nothing else. Raises ActError, and what `named` raises.
    """
    if "act" not in claims:
        return None
    act, first = claims["act"], None
    for _ in range(MAX_ACTORS):
        if not isinstance(act, dict):
            raise ActError("act is not an object")
        members = cast("dict[str, Any]", act)
        actor = members.get("sub")
        if not isinstance(actor, str) or not actor:
            raise ActError("act has no sub")
        if first is None:
            if members.get("iss", issuer) != issuer:
                raise ActError("act is of another issuer")  # whose subjects say nothing here
            first = named(actor)
        if "act" not in members:
            return first
        act = members["act"]
    raise ActError("act has too many actors")


def named_claims(claims: Mapping[str, Any], names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The named claims that are a text or a list of texts; any other shape counts as none."""
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        value = claims.get(name)
        held = cast("list[object]", value) if isinstance(value, list) else [value]
        texts = tuple(each for each in held if isinstance(each, str))
        if texts and len(texts) == len(held):
            found[name] = texts
    return found


def viewer_claims(
    claims: Mapping[str, Any], groups: frozenset[str], names: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """What is known of a caller beside who it is: the named claims, and `groups` as the issuer's settings read them.

    A claim of the token that only happens to be called `groups` is none of it.
    """
    found = named_claims(claims, (name for name in names if name != GROUPS))
    if groups:
        found[GROUPS] = tuple(sorted(groups))
    return found


def groups_of(value: Any) -> frozenset[str]:
    """A list of strings or one string of names; anything else grants nothing."""
    if isinstance(value, str):
        return frozenset(value.split())
    held = cast("list[object]", value) if isinstance(value, list) else []
    names = frozenset(each for each in held if isinstance(each, str))
    return names if all(isinstance(each, str) for each in held) else frozenset()
