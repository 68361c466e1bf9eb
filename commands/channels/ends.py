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


class KnownEnd(Struct, frozen=True):
    """An end as it was when it last spoke in private. address: where it is reached, with its native id.

    account: the isolation key that it belongs to now. spoke_at: by the database's clock. link_id: empty where the end
    is the account's own. push: of an own end `replies`, or `off` once it was muted.
    """

    end: LinkedEnd
    account: str
    address: Address
    display: str
    spoke_at: datetime
    push: Push
    link_id: str = ""


class Ends(Protocol):
    """Every method raises Unavailable."""

    async def note(self, tenant: str, end: LinkedEnd, own_key: str, address: Address, display: str) -> None:
        """An end has spoken in private, and was let in: it is the active one of its account from now on."""
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
