"""One of each event of accounts with everything in it, and the people and ends that tests of linking begin with."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from minutebook.domain.channels.link_policy import LinkPolicy
from minutebook.domain.linking.decide import Around, End
from minutebook.domain.linking.events import (
    AccountEvent,
    LinkBegun,
    LinkConfirmed,
    LinkFailed,
    LinkPresented,
    LinkVoided,
    PushChanged,
    Unlinked,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
AT = "2026-11-30T12:00:00.000000Z"
LATER = "2026-11-30T12:10:00.000000Z"
ID = "link" * 6 + "aa"
KEY = "acct" * 6 + "aa"
ENDS = ("h:" + "0123456789abcdef" * 2, "h:" + "fedcba9876543210" * 2)

ACCOUNT_SAMPLES: tuple[AccountEvent, ...] = (
    LinkBegun(ID, "acme", KEY, "web", ENDS[0], True, "ab" * 32, LATER),
    LinkPresented(ID, "telegram", ENDS[1], "othr" * 6 + "aa", KEY, "cd" * 32),
    LinkFailed(ID, "slack", ENDS[1], "policy"),
    LinkVoided(ID, "group"),
    LinkConfirmed(ID, "acme", KEY, "telegram", ENDS[1], "replies", AT),
    PushChanged(ID, "off"),
    Unlinked(ID, "telegram", ENDS[1], "person", LATER),
)

ANYBODY = Around(LinkPolicy("allow_all"))


def end(channel: str, who: str, *, keeps: bool = False, tenant: str = "acme", account: str | None = None) -> End:
    """An end with the key that is its own, unless another is named."""
    return End(tenant, channel, keyed(channel + who), account or key_of(channel + who), keeps)


def keyed(text: str) -> str:
    """Something in the form of a keyed hash."""
    return f"h:{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def key_of(text: str) -> str:
    """Something in the form of an isolation key, or of a link's id."""
    digits = hashlib.sha256(text.encode()).digest()[:26]
    return "".join("abcdefghijklmnopqrstuvwxyz234567"[each & 31] for each in digits)


def code_hash(code: str) -> str:
    """Something in the form of a code's keyed hash."""
    return hashlib.sha256(code.encode()).hexdigest()
