"""What linking needs of the world, as protocols; infra/ has the adapters."""

from __future__ import annotations

from typing import Protocol

from ...domain.linking.decide import Standing
from ...domain.linking.events import LinkedEnd

STREAM = "account:"
"""What the name of an account's stream begins with."""


class LinkHashes(Protocol):
    """Keyed hashes; another tenant's are others for the same text."""

    def native(self, tenant: str, channel: str, native_id: str) -> str:
        """A platform's id as events have it: `h:` and 32 hex digits."""
        ...

    def code(self, tenant: str, code: str) -> str:
        """A code in its one form, as 64 hex digits."""
        ...

    def code_bits(self, tenant: str, link_id: str) -> int:
        """The bits of a link's code: the same each time, so that nothing has to store it."""
        ...

    def own_key(self, tenant: str, channel: str, native_id: str) -> int:
        """The bits of the isolation key that is the end's own."""
        ...


class LinkTable(Protocol):
    """The rows beside the log of accounts. Every method raises Unavailable."""

    async def waiting(self, tenant: str, code: str) -> str | None:
        """The account in whose stream that code waits, by its keyed hash; an expired one may still be there."""
        ...

    async def begun(self, tenant: str, link_id: str) -> str | None:
        """The account in whose stream that link began and has not ended."""
        ...

    async def tenant_of(self, link_id: str) -> str | None:
        """The tenant of a link that has begun, neither ended nor expired."""
        ...

    async def holder(self, tenant: str, link_id: str) -> str | None:
        """The account that has the link."""
        ...

    async def pending(self, tenant: str) -> int:
        """Links of the tenant that wait and have not expired."""
        ...

    async def standing(self, tenant: str, end: LinkedEnd, key: str) -> Standing:
        """Where an end is linked, or was. key: the one that is its own, for whether others are linked to it."""
        ...

    async def take_try(self, tenant: str, end: LinkedEnd) -> bool:
        """Count a code of that end as wrong before it is looked at; False where the end must wait. At once for all
        processes: who tries many in parallel has no more tries."""
        ...

    async def give_back(self, tenant: str, end: LinkedEnd) -> None:
        """The code worked: its try does not count."""
        ...
