"""The facts of an account: ids, digests, reason codes and keyed hashes, never a code, a native id or a name.

The stream of an account is `account:<isolation key>`: one a person and tenant. What an end may be shown as lies in a
table that can be deleted.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from ..events import Event, Opaque, Registry

Push = Literal["off", "replies", "all"]
"""What may be sent to a linked end: nothing, answers to what its person asked, or anything for them."""

FailReason = Literal["used", "own", "taken", "policy", "full"]
"""Why a live code did not work; for the audit log alone. own: both ends are of one account already. taken: the end that
would join belongs elsewhere, did so until lately, or keeps an account of its own."""

VoidReason = Literal["group", "failures", "expired", "withdrawn", "operator", "unlinked", "taken", "policy", "full"]
"""Why a challenge ended without a link."""

UnlinkReason = Literal["person", "operator"]


class LinkBegun(Event, frozen=True):
    """An end has asked for a code.

    channel, native: that end, `h:` and 32 hex digits. keeps: it speaks for a person by their token, and so never leaves
    this account. code: its keyed hash in hex.
    """

    type: ClassVar[str] = "link_begun"
    link_id: str
    tenant: str
    account: str
    channel: str
    native: str
    keeps: bool
    code: str
    expires_at: str


class LinkPresented(Event, frozen=True):
    """A second end has shown the code, and is the only one from now on.

    channel, native: of that end; account: its isolation key. home: the key that both will have. consent_digest: what
    the beginner confirms, see consent_digest of decide.py.
    """

    type: ClassVar[str] = "link_presented"
    link_id: str
    channel: str
    native: str
    account: str
    home: str
    consent_digest: str


class LinkFailed(Event, frozen=True):
    """A live code was shown, and did not work. channel, native: the end that showed it."""

    type: ClassVar[str] = "link_failed"
    link_id: str
    channel: str
    native: str
    reason: FailReason


class LinkVoided(Event, frozen=True):
    """A challenge has ended without a link."""

    type: ClassVar[str] = "link_voided"
    link_id: str
    reason: VoidReason


class LinkConfirmed(Event, frozen=True):
    """The end belongs to the account `home` from now on. In the stream of that account it makes the link; in another,
    where the link began, it ends the challenge. linked_at: as Recorded time is written (times.py)."""

    type: ClassVar[str] = "link_confirmed"
    link_id: str
    tenant: str
    home: str
    channel: str
    native: str
    push: Push
    linked_at: str


class PushChanged(Event, frozen=True):
    """What may be sent to a linked end is something else from now on."""

    type: ClassVar[str] = "push_changed"
    link_id: str
    push: Push


class Unlinked(Event, frozen=True):
    """The end is its own again. free_at: when another account may have it."""

    type: ClassVar[str] = "unlinked"
    link_id: str
    channel: str
    native: str
    reason: UnlinkReason
    free_at: str


class LinkedEnd(Struct, frozen=True):
    """An end as everything but its platform knows it. native: keyed hash, `h:` and 32 hex digits."""

    channel: str
    native: str


AccountEvent = LinkBegun | LinkPresented | LinkFailed | LinkVoided | LinkConfirmed | PushChanged | Unlinked

StoredAccountEvent = AccountEvent | Opaque

ACCOUNT_EVENTS: Registry[AccountEvent] = Registry(
    (LinkBegun, LinkPresented, LinkFailed, LinkVoided, LinkConfirmed, PushChanged, Unlinked)
)
