"""The state of an account, and how each event moves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from ..events import Opaque, Recorded
from .events import (
    LinkBegun,
    LinkConfirmed,
    LinkedEnd,
    LinkFailed,
    LinkPresented,
    LinkVoided,
    Push,
    PushChanged,
    StoredAccountEvent,
    Unlinked,
)

SCHEMA = "account-1"


class Presented(Struct, frozen=True):
    """Who has shown the code. account: their isolation key; home: the key that both ends will have."""

    end: LinkedEnd
    account: str
    home: str
    consent_digest: str


class Challenge(Struct, frozen=True):
    """A link that has begun. end: the one that began it. keeps: it never leaves its account. code: keyed hash.
    failures: times that the code did not work."""

    link_id: str
    end: LinkedEnd
    keeps: bool
    code: str
    expires_at: str
    failures: int = 0
    presented: Presented | None = None


class Link(Struct, frozen=True):
    """An end that belongs to the account."""

    link_id: str
    end: LinkedEnd
    push: Push
    linked_at: str


class Account(Struct, frozen=True):
    """An account. key: its isolation key, of one tenant; both are empty before its first event. challenges: those
    without an end, expired ones too until something says so."""

    key: str = ""
    tenant: str = ""
    challenges: tuple[Challenge, ...] = ()
    links: tuple[Link, ...] = ()

    def challenge(self, link_id: str) -> Challenge | None:
        """The challenge with that id, unless it has ended."""
        return next((each for each in self.challenges if each.link_id == link_id), None)

    def link(self, link_id: str) -> Link | None:
        """The link with that id, unless it has ended."""
        return next((each for each in self.links if each.link_id == link_id), None)


INITIAL = Account()


def evolve(account: Account, recorded: Recorded[StoredAccountEvent]) -> Account:  # noqa: PLR0911 - one branch an event
    """One event further."""
    match recorded.event:
        case LinkBegun() as begun:
            end = LinkedEnd(begun.channel, begun.native)
            challenge = Challenge(begun.link_id, end, begun.keeps, begun.code, begun.expires_at)
            challenges = (*account.challenges, challenge)
            return replace(account, key=begun.account, tenant=begun.tenant, challenges=challenges)
        case LinkPresented() as shown:
            by = Presented(LinkedEnd(shown.channel, shown.native), shown.account, shown.home, shown.consent_digest)
            return _with(account, shown.link_id, lambda each: replace(each, presented=by))
        case LinkFailed(link_id=link_id):
            return _with(account, link_id, lambda each: replace(each, failures=each.failures + 1))
        case LinkVoided(link_id=link_id):
            return _without(account, link_id)
        case LinkConfirmed() as confirmed:
            return _confirmed(_without(account, confirmed.link_id), confirmed)
        case PushChanged(link_id=link_id, push=push):
            links = tuple(replace(each, push=push) if each.link_id == link_id else each for each in account.links)
            return replace(account, links=links)
        case Unlinked(link_id=link_id):
            return replace(account, links=tuple(each for each in account.links if each.link_id != link_id))
        case Opaque():
            return account
        case _ as unreachable:
            assert_never(unreachable)


def _confirmed(account: Account, confirmed: LinkConfirmed) -> Account:
    if account.key not in ("", confirmed.home):
        return account
    link = Link(confirmed.link_id, LinkedEnd(confirmed.channel, confirmed.native), confirmed.push, confirmed.linked_at)
    return replace(account, key=confirmed.home, tenant=confirmed.tenant, links=(*account.links, link))


def _without(account: Account, link_id: str) -> Account:
    return replace(account, challenges=tuple(each for each in account.challenges if each.link_id != link_id))


def _with(account: Account, link_id: str, change: Callable[[Challenge], Challenge]) -> Account:
    challenges = tuple(change(each) if each.link_id == link_id else each for each in account.challenges)
    return replace(account, challenges=challenges)
