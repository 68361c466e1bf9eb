"""Ends that have spoken: where each can be reached, whose it is, and what may be sent to it (delivery.md, Linking)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from ...domain.channels.messages import Address
from ...domain.linking.events import LinkedEnd, Push
from ...domain.principals import Principal

TOKEN_CHANNEL = "token"  # noqa: S105 - the name of a channel
"""The channel of those who speak with a token of their own; no channel of the settings may have its name. The native id
is the principal as text."""

ACTIVE_S = 30 * 86_400.0
"""For how long the end that spoke last is the active one of its account."""

TOMBSTONE_S = 30 * 86_400.0
"""For how long it is known whose an end was that was unlinked."""


class KnownEnd(Struct, frozen=True):
    """An end as it was when it last spoke in private. address: where it is reached, with its native id.

    account: the isolation key that it belongs to now. spoke_at: by the database's clock; 1970 for one that has done
    nothing but link. is_active: it spoke within ACTIVE_S, and so can be the target `active`. link_id: empty where
    the end is the account's own. push: of an own end `replies`, or `off` while it is muted.
    """

    end: LinkedEnd
    account: str
    address: Address
    display: str
    spoke_at: datetime
    push: Push
    link_id: str = ""
    is_active: bool = True


class EndsForgotten(Struct, frozen=True):
    """What went: ends that belong to nobody, marks of ends that were unlinked, counts of wrong codes, expired codes."""

    ends: int = 0
    tombstones: int = 0
    wrongs: int = 0
    challenges: int = 0


class Ends(Protocol):
    """Every method raises Unavailable."""

    async def note(
        self, tenant: str, end: LinkedEnd, own_key: str, address: Address, display: str, *, is_message: bool = True
    ) -> None:
        """An end has spoken in private, and was let in: it is the active one of its account from now on.

        is_message: False where it only did something about its links, which makes it the active one of nothing.
        display: as the platform gives it; what it may be shown as is kept.
        """
        ...

    async def of_account(self, tenant: str, account: str) -> Sequence[KnownEnd]:
        """The account's own ends and those linked to it, the one that spoke last first. Those of another tenant never.
        An end that is linked elsewhere is not among its own account's."""
        ...

    async def one(self, tenant: str, end: LinkedEnd) -> KnownEnd | None:
        """One end, as it is now."""
        ...

    async def principal_of(self, tenant: str, account: str) -> Principal:
        """As whom an account speaks: the person whose token's end is its own, else `guest:<account>`."""
        ...

    async def mute(self, tenant: str, end: LinkedEnd, *, is_muted: bool) -> bool:
        """Whether an own end wants nothing from now on; False where it has never spoken. Of a linked one it changes
        nothing while it is linked: its link has a push (Linking.change_push)."""
        ...

    async def forget(self, limit: int) -> EndsForgotten:
        """Take what is over by the database's clock, `limit` rows of each kind at most."""
        ...
