"""Who may speak over a channel: allowlists that answer allow, deny or abstain (delivery.md, Authorization)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from .messages import ChannelIdentity

Verdict = Literal["allow", "deny", "abstain"]


class Asked(Struct, frozen=True):
    """Somebody as one phase knows them. claims: verified ones, by name: those that the channel emits and, once they are
    linked, those of the link within its TTL. A name that is missing was verified by nobody."""

    identity: ChannelIdentity
    claims: Mapping[str, tuple[str, ...]] = {}


class Open(Struct, frozen=True, tag="open"):
    """Everybody, because the settings say so in as many words."""


class NativeIds(Struct, frozen=True, tag="native_ids"):
    """Those with one of the platform's ids."""

    values: frozenset[str]


class ClaimValues(Struct, frozen=True, tag="claim"):
    """Those with a verified claim that has one of the values. Whose claim nobody verified is not judged."""

    claim: str
    values: frozenset[str]


class Asks(Struct, frozen=True, tag="callable"):
    """A callable of the operator's decides. name: under which its answers are handed in."""

    name: str


class AnyOf(Struct, frozen=True, tag="any_of"):
    """One allow is enough; only where all deny it denies."""

    items: tuple[Allowlist, ...]


class AllOf(Struct, frozen=True, tag="all_of"):
    """One deny is enough; it allows where all do."""

    items: tuple[Allowlist, ...]


Allowlist = Open | NativeIds | ClaimValues | Asks | AnyOf | AllOf


def judge(allowlist: Allowlist, asked: Asked, called: Mapping[str, object]) -> Verdict:
    """What a list says of somebody. called: answers of its callables, asked for beforehand.

    An answer that is none of the three words is a deny, and so is one that is not there: what failed lets nobody in.
    """
    match allowlist:
        case Open():
            return "allow"
        case NativeIds(values):
            return "allow" if asked.identity.native_id in values else "deny"
        case ClaimValues(claim, values):
            return _claim(asked.claims.get(claim), values)
        case Asks(name):
            return _word(called.get(name))
        case AnyOf(items):
            return _any([judge(item, asked, called) for item in items])
        case AllOf(items):
            return _all([judge(item, asked, called) for item in items])


def callables(allowlist: Allowlist) -> frozenset[str]:
    """Names of the callables that the list asks."""
    match allowlist:
        case Asks(name):
            return frozenset({name})
        case AnyOf(items) | AllOf(items):
            return frozenset[str]().union(*map(callables, items))
        case _:
            return frozenset()


def claims_of(allowlist: Allowlist) -> frozenset[str]:
    """Names of the claims that the list looks at."""
    match allowlist:
        case ClaimValues(claim):
            return frozenset({claim})
        case AnyOf(items) | AllOf(items):
            return frozenset[str]().union(*map(claims_of, items))
        case _:
            return frozenset()


def _word(answer: object) -> Verdict:
    match answer:
        case "allow":
            return "allow"
        case "abstain":
            return "abstain"
        case _:
            return "deny"


def _claim(held: tuple[str, ...] | None, values: frozenset[str]) -> Verdict:
    if held is None:
        return "abstain"
    return "allow" if values.intersection(held) else "deny"


def _any(verdicts: list[Verdict]) -> Verdict:
    if "allow" in verdicts:
        return "allow"
    return "deny" if verdicts and all(each == "deny" for each in verdicts) else "abstain"


def _all(verdicts: list[Verdict]) -> Verdict:
    if "deny" in verdicts:
        return "deny"
    return "allow" if verdicts and all(each == "allow" for each in verdicts) else "abstain"
